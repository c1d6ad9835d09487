//! The taps' sums of an input gradient gathered row by row, for f32 and AVX2: a vector of the input stays in its
//! register until all taps that meet it have been added.
//!
//! A tap's sums are shifted along the row by what the tap lies off; lanes without a sum of this tap add +0, which
//! changes nothing, because a sum that begins at +0 is never −0.

use super::window::Window;
use crate::Level;
use crate::gemm::real::same;
use std::arch::x86_64::*;

/// Numbers in a vector.
const LANES: usize = 8;

/// Planes that are gathered together: chains of additions that hide each other's latency.
const PLANES: usize = 4;

/// One tap of a row of the kernel, for two vectors of a row of the input.
struct Tap {
    /// Where the vectors begin in a row of the tap's sums.
    offsets: [isize; 2],
    /// Lanes that have a sum.
    masks: [[i32; LANES]; 2],
}

/// Two vectors of a row: where they begin, and the taps of a row of the kernel.
struct Pair {
    starts: [usize; 2],
    taps: Vec<Tap>,
}

/// Where the sums of the taps go.
pub struct Gather {
    /// For every row of the input the offsets of the rows of sums that its first taps give, in their order.
    rows: Vec<Vec<isize>>,
    pairs: Vec<Pair>,
    /// Elements of a row.
    width: usize,
}

/// Whether sums of this type can be gathered.
pub fn suits<T: 'static>(level: Level, window: &Window) -> bool {
    same::<T, f32>() && level >= Level::Avx2 && window.stride[2] == 1 && window.input[2] >= LANES
}

impl Gather {
    /// For sums of taps that are `across` apart.
    pub fn new(window: &Window, across: usize) -> Self {
        let (width, length) = (window.input[2], window.output[2] as isize);
        let tap = |k: usize, starts: [usize; 2]| {
            let shift = (k * window.dilation[2]) as isize - window.padding[2] as isize;
            let first = starts.map(|start| start as isize - shift);
            let lane = |first: isize| std::array::from_fn(|i| -i32::from((0..length).contains(&(first + i as isize))));
            Tap { offsets: first.map(|first| (k * across) as isize + first), masks: first.map(lane) }
        };
        // The last vector of a row overlaps the one before.
        let starts: Vec<usize> = (0..width).step_by(LANES).map(|start| start.min(width - LANES)).collect();
        let pair = |two: &[usize]| {
            let starts = [two[0], two[two.len() - 1]];
            Pair { starts, taps: (0..window.kernel[2]).map(|k| tap(k, starts)).collect() }
        };
        let row = |i: usize| {
            let (slice, row) = (i / window.input[1], i % window.input[1]);
            let mut sources = Vec::new();
            for (a, from_slice) in window.meets(0, slice) {
                for (b, from_row) in window.meets(1, row) {
                    let tap = (a * window.kernel[1] + b) * window.kernel[2];
                    let position = (from_slice * window.output[1] + from_row) * window.output[2];
                    sources.push((tap * across + position) as isize);
                }
            }
            sources
        };
        Gather {
            rows: (0..window.input[0] * window.input[1]).map(row).collect(),
            pairs: starts.chunks(2).map(pair).collect(),
            width,
        }
    }

    /// Adds up the sums of planes: pairs of where the sums are and where the plane is.
    ///
    /// # Safety
    /// The processor must have AVX2; sums must be readable, planes writable and apart.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn run(&self, planes: &[(*const f32, *mut f32)]) {
        let (together, rest) = planes.as_chunks::<PLANES>();
        // SAFETY: the caller's promise.
        unsafe {
            together.iter().for_each(|planes| self.add(planes));
            rest.iter().for_each(|plane| self.add(std::array::from_ref(plane)));
        }
    }

    /// # Safety
    /// As for [`Self::run`].
    #[target_feature(enable = "avx2,fma")]
    unsafe fn add<const COUNT: usize>(&self, planes: &[(*const f32, *mut f32); COUNT]) {
        for pair in &self.pairs {
            for (row, sources) in self.rows.iter().enumerate() {
                let mut sums = [[_mm256_setzero_ps(); 2]; COUNT];
                for &source in sources {
                    for tap in &pair.taps {
                        let offsets = tap.offsets.map(|offset| source + offset);
                        for j in 0..2 {
                            // SAFETY: a mask has eight lanes; lanes outside of the sums are not read.
                            let mask = unsafe { _mm256_loadu_si256(tap.masks[j].as_ptr().cast()) };
                            for (sum, plane) in sums.iter_mut().zip(planes) {
                                // SAFETY: as above.
                                let x = unsafe { _mm256_maskload_ps(plane.0.wrapping_offset(offsets[j]), mask) };
                                sum[j] = _mm256_add_ps(sum[j], x);
                            }
                        }
                    }
                }
                for (sum, plane) in sums.iter().zip(planes) {
                    for (&sum, start) in sum.iter().zip(pair.starts) {
                        // SAFETY: eight elements of the row.
                        unsafe { _mm256_storeu_ps(plane.1.add(row * self.width + start), sum) };
                    }
                }
            }
        }
    }
}

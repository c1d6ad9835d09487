//! What processor and memory can do at most, measured with loops that do nothing else: the floors that kernels are held
//! against.

use crate::{Level, Par, Shared};
use memmap2::MmapMut;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

/// Bytes of one array of the bandwidth measurements: far more than caches hold.
const ARRAY: usize = 256 << 20;
const LEN: usize = ARRAY / size_of::<f32>();
/// Rounds of the arithmetic loop.
const ROUNDS: usize = 2_000_000;

/// Fused multiply-adds of f32 that the threads of `par` do in registers, in FLOP/s; one counts as two operations.
pub fn fma_f32(par: &Par, level: Level) -> f64 {
    let chains = if level == Level::Portable { 8 } else { 12 };
    let lanes = match level {
        Level::Avx512 | Level::Avx512Bf16 => 16,
        Level::Avx2 => 8,
        Level::Neon | Level::Portable => 4,
    };
    let seconds = best(6, || par.run(par.threads(), &|_| fma(level)));
    (par.threads() * ROUNDS * chains * lanes * 2) as f64 / seconds
}

/// As [`fma_f32`], of bf16 whose products are added in f32: two in a lane where there are instructions for such pairs.
pub fn fma_bf16(par: &Par, level: Level) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512Bf16 && level.is_native() {
        // SAFETY: the processor has the instructions.
        let seconds = best(6, || par.run(par.threads(), &|_| unsafe { x86::pairs_avx512() }));
        return (par.threads() * ROUNDS * 12 * 16 * 4) as f64 / seconds;
    }
    fma_f32(par, level)
}

fn fma(level: Level) {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a level is only in force when the processor has its features.
        Level::Avx512 | Level::Avx512Bf16 => unsafe { x86::fma_avx512() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { x86::fma_avx2() },
        #[cfg(target_arch = "aarch64")]
        Level::Neon => chains::<12>(f32::mul_add),
        // Without fused multiply-adds in hardware their two halves are what can be had.
        _ => chains::<8>(|a, x, y| a * x + y),
    }
}

/// `N` chains of 4 lanes.
#[inline(always)]
fn chains<const N: usize>(step: impl Fn(f32, f32, f32) -> f32) {
    let (x, y) = (black_box(0.999f32), black_box(1e-3f32));
    let mut sums = [[1.0f32; 4]; N];
    for _ in 0..ROUNDS {
        for a in sums.as_flattened_mut() {
            *a = step(*a, x, y);
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{ROUNDS, black_box};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,fma")]
    pub fn fma_avx2() {
        let (x, y) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(1e-3)));
        let mut sums = [_mm256_set1_ps(1.0); 12];
        for _ in 0..ROUNDS {
            for a in &mut sums {
                *a = _mm256_fmadd_ps(*a, x, y);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f")]
    pub fn fma_avx512() {
        let (x, y) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(1e-3)));
        let mut sums = [_mm512_set1_ps(1.0); 12];
        for _ in 0..ROUNDS {
            for a in &mut sums {
                *a = _mm512_fmadd_ps(*a, x, y);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub fn pairs_avx512() {
        // 1 and 2^-10, twice.
        let (x, y) = (_mm512_set1_epi32(black_box(0x3f80_3f80)), _mm512_set1_epi32(black_box(0x3a80_3a80)));
        // SAFETY: vectors of as many bits, of which any are valid.
        let [x, y] = unsafe { std::mem::transmute::<[__m512i; 2], [__m512bh; 2]>([x, y]) };
        let mut sums = [_mm512_set1_ps(1.0); 12];
        for _ in 0..ROUNDS {
            for a in &mut sums {
                *a = _mm512_dpbf16_ps(*a, x, y);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2")]
    pub fn read(a: &[f32]) {
        let mut sums = [_mm256_setzero_ps(); 8];
        for chunk in a.as_chunks::<64>().0 {
            for (sum, x) in sums.iter_mut().zip(chunk.as_chunks::<8>().0) {
                // SAFETY: eight elements.
                *sum = _mm256_add_ps(*sum, unsafe { _mm256_loadu_ps(x.as_ptr()) });
            }
        }
        black_box(sums);
    }

    /// Writes past the caches.
    ///
    /// # Safety
    /// `c` must begin at a multiple of 32 bytes.
    #[target_feature(enable = "avx2")]
    pub unsafe fn copy(a: &[f32], c: &mut [f32]) {
        for (c, a) in c.as_chunks_mut::<8>().0.iter_mut().zip(a.as_chunks::<8>().0) {
            // SAFETY: eight elements each; the caller's promise.
            unsafe { _mm256_stream_ps(c.as_mut_ptr(), _mm256_loadu_ps(a.as_ptr())) };
        }
        _mm_sfence();
    }

    /// Writes past the caches.
    ///
    /// # Safety
    /// As [`copy`].
    #[target_feature(enable = "avx2")]
    pub unsafe fn add(a: &[f32], b: &[f32], c: &mut [f32]) {
        let operands = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
        for (c, (a, b)) in c.as_chunks_mut::<8>().0.iter_mut().zip(operands) {
            // SAFETY: eight elements each; the caller's promise.
            unsafe {
                let sum = _mm256_add_ps(_mm256_loadu_ps(a.as_ptr()), _mm256_loadu_ps(b.as_ptr()));
                _mm256_stream_ps(c.as_mut_ptr(), sum);
            }
        }
        _mm_sfence();
    }

    /// Writes past the caches.
    ///
    /// # Safety
    /// As [`copy`], of `d`.
    #[target_feature(enable = "avx2")]
    pub unsafe fn mul_add([a, b, c]: [&mut [f32]; 3], d: &mut [f32]) {
        let [a, b, c] = [a, b, c].map(|x| x.as_chunks::<8>().0);
        for (d, ((a, b), c)) in d.as_chunks_mut::<8>().0.iter_mut().zip(a.iter().zip(b).zip(c)) {
            // SAFETY: eight elements each; the caller's promise.
            unsafe {
                let product = _mm256_mul_ps(_mm256_loadu_ps(a.as_ptr()), _mm256_loadu_ps(b.as_ptr()));
                _mm256_stream_ps(d.as_mut_ptr(), _mm256_add_ps(product, _mm256_loadu_ps(c.as_ptr())));
            }
        }
        _mm_sfence();
    }
}

/// Bandwidths of memory, in bytes a second. More arrays at once are slower on some machines.
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth {
    /// Reading an array.
    pub read: f64,
    /// Reading an array and writing another one past the caches.
    pub copy: f64,
    /// Reading two arrays and writing a third one past the caches.
    pub add: f64,
    /// Reading three arrays and writing a fourth one past the caches.
    pub mul_add: f64,
}

/// Bandwidths of arrays of 256 MiB that the threads of `par` stream through, each its own part.
pub fn bandwidth(par: &Par, level: Level) -> Bandwidth {
    let mut arrays = [(); 4].map(|()| array());
    let arrays = arrays.each_mut().map(|array| Shared(array.as_mut_ptr().cast::<f32>()));
    let parts = par.threads();
    let cut = |i: usize| if i == parts { LEN } else { (LEN / parts * i).next_multiple_of(64) };
    let seconds = |work: fn(Level, [Shared<f32>; 4], Range<usize>)| {
        best(4, || par.run(parts, &|i| work(level, arrays, cut(i)..cut(i + 1))))
    };
    Bandwidth {
        read: ARRAY as f64 / seconds(read),
        copy: 2.0 * ARRAY as f64 / seconds(copy),
        add: 3.0 * ARRAY as f64 / seconds(add),
        mul_add: 4.0 * ARRAY as f64 / seconds(mul_add),
    }
}

/// An array in memory as that of large tensors: of huge pages, where the system has them. On one server they are read and written
/// an eighth faster.
fn array() -> MmapMut {
    let mut array = MmapMut::map_anon(ARRAY).expect("memory for an array");
    #[cfg(target_os = "linux")]
    let _ = array.advise(memmap2::Advice::HugePage);
    // The bytes of normal numbers.
    array.fill(0x3f);
    array
}

fn best(runs: usize, mut work: impl FnMut()) -> f64 {
    let timed = (0..runs).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    timed.fold(f64::INFINITY, f64::min)
}

/// The elements of a range of each array.
///
/// # Safety
/// The range must lie inside the arrays, and nobody else may use it.
unsafe fn parts<'a>(arrays: [Shared<f32>; 4], range: &Range<usize>) -> [&'a mut [f32]; 4] {
    // SAFETY: the caller's promise.
    arrays.map(|array| unsafe { array.slice(range.start, range.len()) })
}

fn read(level: Level, arrays: [Shared<f32>; 4], range: Range<usize>) {
    // SAFETY: every task has its own range.
    let [a, ..] = unsafe { parts(arrays, &range) };
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx2 {
        // SAFETY: the processor has AVX2.
        return unsafe { x86::read(a) };
    }
    let mut sums = [0.0f32; 32];
    for chunk in a.chunks_exact(32) {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x);
    }
    black_box((level, sums));
}

fn copy(level: Level, arrays: [Shared<f32>; 4], range: Range<usize>) {
    // SAFETY: every task has its own range.
    let [a, .., c] = unsafe { parts(arrays, &range) };
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx2 {
        // SAFETY: the processor has AVX2; the ranges begin and end at lines.
        return unsafe { x86::copy(a, c) };
    }
    c.copy_from_slice(a);
    black_box((level, c));
}

fn add(level: Level, arrays: [Shared<f32>; 4], range: Range<usize>) {
    // SAFETY: every task has its own range.
    let [a, b, _, c] = unsafe { parts(arrays, &range) };
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx2 {
        // SAFETY: the processor has AVX2; the ranges begin and end at lines.
        return unsafe { x86::add(a, b, c) };
    }
    for ((c, a), b) in c.iter_mut().zip(a).zip(b) {
        *c = *a + *b;
    }
    black_box(level);
}

fn mul_add(level: Level, arrays: [Shared<f32>; 4], range: Range<usize>) {
    // SAFETY: every task has its own range.
    let [a, b, c, d] = unsafe { parts(arrays, &range) };
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx2 {
        // SAFETY: the processor has AVX2; the ranges begin and end at lines.
        return unsafe { x86::mul_add([a, b, c], d) };
    }
    for (((d, a), b), c) in d.iter_mut().zip(a).zip(b).zip(c) {
        *d = *a * *b + *c;
    }
    black_box(level);
}

//! Random values, addressed by a key and the global element index: element `i` is made of the four Philox words at
//! counter `i`, so it is the same however the tensor is split.

use crate::operand::Stored;
use crate::walk::Walk;
use crate::{Context, Operand, Output, Shared, math, narrow};
use half::{bf16, f16};
use meshwork_graph::ops::{Distribution, Random};
use meshwork_graph::philox::{self, philox4x32};
use meshwork_graph::region::Region;
use meshwork_graph::{DType, Layout};
use meshwork_simd::multiversion;

/// Elements per task below which further threads do not pay.
const GRAIN: usize = 1 << 12;

/// Bytes of scratch memory that [`run`] needs.
pub fn scratch(op: &Random, _: DType, _: &[&Layout], _: usize) -> usize {
    match op.distribution {
        Distribution::Permutation => op.shape.numel() * size_of::<(u64, u64)>(),
        _ => 0,
    }
}

/// Draws the tensor, or the region of it that the operation computes; the input is the key.
///
/// # Panics
/// When the output is not what the operation gives, or `scratch` is too small.
pub fn run(op: &Random, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    let region = op.region.clone().unwrap_or_else(|| Region::whole(&op.shape));
    assert!(region.is_inside(&op.shape) && region.shape() == *output.shape, "shape of random values");
    assert_eq!(op.dtype, output.dtype, "dtype of random values");
    let (key, starts) = (key(inputs), &region.starts[..]);
    let uniform = match op.distribution {
        Distribution::Uniform => true,
        Distribution::Normal => false,
        Distribution::Permutation => return permutation(key, output, scratch),
    };
    match (op.dtype, uniform) {
        (DType::F64, true) => part::<f64, _>(Uniform, op, starts, key, output, context),
        (DType::F32, true) => part::<f32, _>(Uniform, op, starts, key, output, context),
        (DType::F16, true) => part::<f16, _>(Uniform, op, starts, key, output, context),
        (DType::BF16, true) => part::<bf16, _>(Uniform, op, starts, key, output, context),
        (DType::F64, false) => part::<f64, _>(Normal, op, starts, key, output, context),
        (DType::F32, false) => part::<f32, _>(Normal, op, starts, key, output, context),
        (DType::F16, false) => part::<f16, _>(Normal, op, starts, key, output, context),
        (DType::BF16, false) => part::<bf16, _>(Normal, op, starts, key, output, context),
        (other, _) => panic!("random values of {other}"),
    }
}

fn key(inputs: &[Operand]) -> u64 {
    inputs[0].slice::<i64>()[0] as u64
}

/// From four random words to a value.
trait Draw<T>: Copy + Send + Sync {
    fn value(self, words: [u32; 4]) -> T;
}

#[derive(Clone, Copy)]
struct Uniform;

/// A multiple of 2⁻²⁴ in [0, 1).
#[inline(always)]
fn unit_f32(word: u32) -> f32 {
    (word >> 8) as i32 as f32 * (1.0 / 16_777_216.0)
}

/// A multiple of 2⁻⁵³ in [0, 1).
#[inline(always)]
fn unit_f64(low: u32, high: u32) -> f64 {
    let bits = u64::from(low) | u64::from(high) << 32;
    (bits >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

impl Draw<f64> for Uniform {
    #[inline(always)]
    fn value(self, [a, b, ..]: [u32; 4]) -> f64 {
        unit_f64(a, b)
    }
}

impl Draw<f32> for Uniform {
    #[inline(always)]
    fn value(self, [a, ..]: [u32; 4]) -> f32 {
        unit_f32(a)
    }
}

// Rounded toward zero, so that 1 never appears.
impl Draw<f16> for Uniform {
    #[inline(always)]
    fn value(self, [a, ..]: [u32; 4]) -> f16 {
        narrow::f16_toward_zero(unit_f32(a))
    }
}

impl Draw<bf16> for Uniform {
    #[inline(always)]
    fn value(self, [a, ..]: [u32; 4]) -> bf16 {
        narrow::bf16_toward_zero(unit_f32(a))
    }
}

/// Box–Muller: √(−2 ln u) cos(2π v) with u in (0, 1] and v in [0, 1).
#[derive(Clone, Copy)]
struct Normal;

#[inline(always)]
fn normal_f32([a, b, ..]: [u32; 4]) -> f32 {
    // 32 bits for u, so that the tail reaches 6.7 standard deviations; both halves convert exactly.
    let whole = (a >> 16) as i32 as f32 * 65_536.0 + (a & 0xffff) as i32 as f32;
    let u = (whole + 0.5) * (1.0 / 4_294_967_296.0);
    (-2.0 * math::log(u)).sqrt() * math::cos_near(unit_f32(b) * std::f32::consts::TAU)
}

impl Draw<f64> for Normal {
    #[inline(always)]
    fn value(self, [a, b, c, d]: [u32; 4]) -> f64 {
        let u = unit_f64(a, b) + 0.5 / 9_007_199_254_740_992.0;
        libm::sqrt(-2.0 * libm::log(u)) * libm::cos(unit_f64(c, d) * std::f64::consts::TAU)
    }
}

impl Draw<f32> for Normal {
    #[inline(always)]
    fn value(self, words: [u32; 4]) -> f32 {
        normal_f32(words)
    }
}

impl Draw<f16> for Normal {
    #[inline(always)]
    fn value(self, words: [u32; 4]) -> f16 {
        narrow::f16_from_f32(normal_f32(words))
    }
}

impl Draw<bf16> for Normal {
    #[inline(always)]
    fn value(self, words: [u32; 4]) -> bf16 {
        narrow::bf16_from_f32(normal_f32(words))
    }
}

#[inline(always)]
fn draw_body<T: Stored, D: Draw<T>>(draw: D, key: u64, start: u64, step: u64, out: &mut [T]) {
    let key = [key as u32, (key >> 32) as u32];
    for (i, y) in out.iter_mut().enumerate() {
        let index = start.wrapping_add(step.wrapping_mul(i as u64));
        *y = draw.value(philox4x32(key, [index as u32, (index >> 32) as u32, 0, 0]));
    }
}

multiversion! {
    /// The elements `start`, `start + step`, ….
    fn draw_run<T: Stored, D: Draw<T>>(draw: D, key: u64, start: u64, step: u64, out: &mut [T]) = draw_body;
}

fn part<T: Stored, D: Draw<T>>(draw: D, op: &Random, starts: &[usize], key: u64, mut output: Output, context: Context) {
    let strides = op.shape.strides();
    let first: usize = starts.iter().zip(&strides).map(|(&i, &s)| i * s as usize).sum();
    let walk = Walk::over(output.shape.iter().copied().zip(strides));
    let len = output.shape.numel();
    if len == 0 {
        return;
    }
    let out = Shared(output.first::<T>());
    context.par.ranges(len, GRAIN, &|range| {
        // SAFETY: ranges are disjoint parts of the output.
        let out = unsafe { out.slice(range.start, range.len()) };
        walk.runs(range.start, range.len(), |done, position, count, stride| {
            let start = first as u64 + position as u64;
            draw_run(context.level, draw, key, start, stride as u64, &mut out[done..done + count]);
        });
    });
}

/// 0..n sorted by random bits, and by themselves where those are equal.
fn permutation(key: u64, mut output: Output, scratch: &mut [u8]) {
    let out = output.slice::<i64>();
    let needed = std::mem::size_of_val(out) * 2;
    assert!(
        scratch.len() >= needed && (needed == 0 || scratch.as_ptr().cast::<(u64, u64)>().is_aligned()),
        "scratch memory of a permutation: {} bytes instead of {needed}",
        scratch.len()
    );
    let pairs = scratch.as_mut_ptr().cast::<(u64, u64)>();
    for i in 0..out.len() {
        // SAFETY: there is room for a pair for each element.
        unsafe { pairs.add(i).write((philox::bits(key, i as u64), i as u64)) };
    }
    if !out.is_empty() {
        // SAFETY: as above; all pairs were written.
        unsafe { std::slice::from_raw_parts_mut(pairs, out.len()) }.sort_unstable();
    }
    for (i, y) in out.iter_mut().enumerate() {
        // SAFETY: as above.
        *y = unsafe { *pairs.add(i) }.1 as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Sample, bits, each_context, indices, output};
    use meshwork_graph::Shape;

    fn draw<T: Sample>(distribution: Distribution, shape: &[usize], key: i64, context: Context) -> Vec<T> {
        let op = Random::new(distribution, shape, T::DTYPE);
        let key = Case { data: vec![key], layout: Layout::contiguous(&Shape::new(&[])) };
        let mut memory = vec![0u64; scratch(&op, T::DTYPE, &[], 1) / 8];
        // SAFETY: the bytes of numbers.
        let memory = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), memory.len() * 8) };
        output::<T>(&op.shape, |o| run(&op, &[key.operand()], o, memory, context))
    }

    fn moments(values: impl Iterator<Item = f64> + Clone) -> [f64; 4] {
        let n = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / n;
        let moment = |p: i32| values.clone().map(|x| (x - mean).powi(p)).sum::<f64>() / n;
        [mean, moment(2), moment(3), moment(4)]
    }

    #[test]
    fn uniform_values_fill_the_unit_interval() {
        each_context(|context| {
            let xs = draw::<f32>(Distribution::Uniform, &[100_003], 7, context);
            assert!(xs.iter().all(|x| (0.0..1.0).contains(x)));
            let [mean, variance, ..] = moments(xs.iter().map(|&x| x.into()));
            assert!((mean - 0.5).abs() < 0.005 && (variance - 1.0 / 12.0).abs() < 0.002, "{mean} {variance}");
            let wide = draw::<f64>(Distribution::Uniform, &[1000], 7, context);
            assert!(wide.iter().all(|x| (0.0..1.0).contains(x)));
            let narrow = draw::<f16>(Distribution::Uniform, &[100_003], 7, context);
            let toward_zero = |(h, x): (&f16, &f32)| h.to_f32() <= *x && f16::from_bits(h.to_bits() + 1).to_f32() > *x;
            assert!(narrow.iter().zip(&xs).all(toward_zero));
            let brief = draw::<bf16>(Distribution::Uniform, &[100_003], 7, context);
            assert!(brief.iter().zip(&xs).all(|(h, &x)| h.to_f32() <= x && h.to_f32() >= x * 0.992));
        });
    }

    #[test]
    fn normal_values_have_the_moments_of_the_bell_curve() {
        each_context(|context| {
            let xs = draw::<f32>(Distribution::Normal, &[100_003], 11, context);
            let wide = draw::<f64>(Distribution::Normal, &[100_003], 11, context);
            for [mean, variance, skew, fourth] in [moments(xs.iter().map(|&x| x.into())), moments(wide.iter().copied())]
            {
                assert!(mean.abs() < 0.015 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
                assert!(skew.abs() < 0.04 && (fourth - 3.0).abs() < 0.15, "{skew} {fourth}");
            }
            let narrow = draw::<bf16>(Distribution::Normal, &[100_003], 11, context);
            assert!(narrow.iter().zip(&xs).all(|(h, &x)| h.to_bits() == bf16::from_f32(x).to_bits()));
        });
    }

    #[test]
    fn extreme_words_give_finite_values() {
        for a in [0, 1, 255, 256, u32::MAX - 255, u32::MAX] {
            for b in [0, 1 << 30, 1 << 31, u32::MAX] {
                assert!(normal_f32([a, b, 0, 0]).abs() < 6.8);
                let wide: f64 = Normal.value([a, a, b, b]);
                assert!(wide.abs() < 8.8, "{wide}");
            }
        }
    }

    #[test]
    fn regions_are_pieces_of_the_whole() {
        let (shape, key) = ([7, 9, 1001], 5);
        let key_case = Case { data: vec![key], layout: Layout::contiguous(&Shape::new(&[])) };
        each_context(|context| {
            for distribution in [Distribution::Uniform, Distribution::Normal] {
                let whole = draw::<f32>(distribution, &shape, key, context);
                for (starts, sizes) in [([0, 0, 0], [7, 9, 1]), ([3, 2, 500], [2, 7, 501]), ([5, 0, 0], [2, 9, 1001])] {
                    let want: Vec<f32> = indices(&Shape::new(&sizes))
                        .map(|i| whole[((i[0] + starts[0]) * 9 + i[1] + starts[1]) * 1001 + i[2] + starts[2]])
                        .collect();
                    let region = Region { starts: starts.into_iter().collect(), sizes: sizes.into_iter().collect() };
                    let op = Random { region: Some(region), ..Random::new(distribution, shape, DType::F32) };
                    let got = output::<f32>(&Shape::new(&sizes), |o| {
                        run(&op, &[key_case.operand()], o, &mut [], context);
                    });
                    assert_eq!(bits(&got), bits(&want));
                }
            }
        });
    }

    #[test]
    fn levels_and_threads_agree() {
        let mut seen: Vec<Vec<u64>> = vec![];
        each_context(|context| seen.push(bits(&draw::<f32>(Distribution::Normal, &[10_007], -3, context))));
        assert!(seen.windows(2).all(|w| w[0] == w[1]));
    }

    #[test]
    fn permutations_are_orders_of_all() {
        each_context(|context| {
            let order = draw::<i64>(Distribution::Permutation, &[1000], 3, context);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..1000).collect::<Vec<i64>>());
            assert_ne!(order, sorted);
            assert_ne!(order, draw::<i64>(Distribution::Permutation, &[1000], 4, context));
            assert!(draw::<i64>(Distribution::Permutation, &[0], 4, context).is_empty());
        });
    }
}

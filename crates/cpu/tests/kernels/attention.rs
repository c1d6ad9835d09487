//! Attention has the bits of its canonical order, forward and backward, however it is cut.

use crate::common::{self, Numbers, assert_bits, contraction, everywhere, with_scratch};
use half::{bf16, f16};
use meshwork_cpu::attention::{BLOCK, UNIT};
use meshwork_cpu::gemm::{Element, Real};
use meshwork_cpu::kernel::{self, CpuTarget};
use meshwork_cpu::{Context, Operand, Output, Stored, math};
use meshwork_graph::canonical::{Blocking, Blocks};
use meshwork_graph::ops::{Attention, AttentionInput, AttentionMask, AttentionResult};
use meshwork_graph::program::Target;
use meshwork_graph::{DType, Layout, Op, Shape, Type};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The functions that a softmax needs.
trait Soft: Real + Element<Real = Self> + Debug {
    fn exp(self) -> Self;
    fn log(self) -> Self;
    fn times(self, other: Self) -> Self;
    fn less(self, other: Self) -> Self;
}

macro_rules! soft {
    ($($type:ty: $exp:path, $log:path;)*) => {
        $(impl Soft for $type {
            fn exp(self) -> Self {
                $exp(self)
            }
            fn log(self) -> Self {
                $log(self)
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
            fn less(self, other: Self) -> Self {
                self - other
            }
        })*
    };
}

soft! {
    f32: math::exp_not_above_zero, math::log;
    f64: libm::exp, libm::log;
}

/// B, T, S, H, G, D, E.
type Sizes = [usize; 7];

/// A problem with its operands, dense.
struct Problem<S: Element> {
    sizes: Sizes,
    scale: f64,
    mask: AttentionMask,
    query: Vec<S>,
    key: Vec<S>,
    value: Vec<S>,
    gradient: Vec<S>,
    normalizer: Vec<S::Real>,
    delta: Vec<S::Real>,
    lengths: Vec<i64>,
}

/// All results of a problem.
struct Results<S: Element> {
    normalizer: Vec<S::Real>,
    by_result: BTreeMap<AttentionResult, Vec<S>>,
}

fn finite<R: Soft>(x: R) -> R {
    if x == R::LEAST { R::ZERO } else { x }
}

impl<S: Element<Real: Soft> + Debug> Problem<S> {
    fn new(sizes: Sizes, mask: AttentionMask) -> Self {
        let [b, t, s, h, g, d, e] = sizes;
        let mut numbers = Numbers(11);
        let mut elements = |count: usize| numbers.elements::<S>(count);
        let mut problem = Problem {
            sizes,
            scale: 0.37,
            mask,
            query: elements(b * t * h * d),
            key: elements(b * s * g * d),
            value: elements(b * s * g * e),
            gradient: elements(b * t * h * e),
            normalizer: vec![],
            delta: vec![],
            lengths: (0..b as i64).map(|i| mask.first_key + s as i64 - 9 * i - 1).collect(),
        };
        problem.delta = Numbers(12).elements(b * t * h);
        problem.normalizer = problem.forward().normalizer;
        problem
    }

    fn length(&self, b: usize) -> Option<i64> {
        self.mask.padded.then(|| self.lengths[b])
    }

    /// Keys that a query computes with: those of units that it sees any position of.
    fn computed(&self, b: usize, t: usize) -> usize {
        let unit = UNIT as i64;
        let mut end = i64::MAX;
        if self.mask.causal {
            end = ((self.mask.first_query + t as i64).div_euclid(unit) + 1) * unit;
        }
        if let Some(length) = self.length(b) {
            end = end.min((length.max(0) + unit - 1) / unit * unit);
        }
        end.saturating_sub(self.mask.first_key).clamp(0, self.sizes[2] as i64) as usize
    }

    fn sees(&self, b: usize, t: usize, s: usize) -> bool {
        let (query, key) = (self.mask.first_query + t as i64, self.mask.first_key + s as i64);
        (!self.mask.causal || key <= query) && self.length(b).is_none_or(|length| key < length)
    }

    fn group(&self, h: usize) -> usize {
        h / (self.sizes[3] / self.sizes[4])
    }

    /// A weight or slope as it is multiplied.
    fn factor(x: S::Real) -> S::Real {
        if S::DTYPE == DType::BF16 { S::narrow(x).widen() } else { x }
    }

    fn scale(&self) -> S::Real {
        common::real(self.scale)
    }

    fn of_queries(&self, b: usize, t: usize, h: usize) -> usize {
        (b * self.sizes[1] + t) * self.sizes[3] + h
    }

    fn of_keys(&self, b: usize, s: usize, g: usize) -> usize {
        (b * self.sizes[2] + s) * self.sizes[4] + g
    }

    /// The score of a query and a key that it computes with.
    fn score(&self, b: usize, t: usize, h: usize, s: usize) -> S::Real {
        if !self.sees(b, t, s) {
            return S::Real::LEAST;
        }
        let depth = self.sizes[5];
        let (key, query) = (self.of_keys(b, s, self.group(h)) * depth, self.of_queries(b, t, h) * depth);
        let blocks = Blocks::contraction(Blocking::Features, depth, 1);
        contraction(&blocks, |d, _| (self.key[key + d].widen(), self.query[query + d].widen())).times(self.scale())
    }

    fn forward(&self) -> Results<S> {
        let [batch, queries, _, heads, _, _, width] = self.sizes;
        let (mut normalizer, mut output) = (vec![], vec![]);
        for (b, t, h) in indices([batch, queries, heads]) {
            let keys: Vec<usize> = (0..self.computed(b, t)).collect();
            let (mut highest, mut sum) = (S::Real::LEAST, S::Real::ZERO);
            let mut values = vec![S::Real::ZERO; width];
            for block in keys.chunks(BLOCK) {
                let scores: Vec<S::Real> = block.iter().map(|&s| self.score(b, t, h, s)).collect();
                let before = highest;
                highest = scores.iter().fold(highest, |a, &x| if x > a { x } else { a });
                let factor = before.less(finite(highest)).exp();
                let weights: Vec<S::Real> = scores.iter().map(|x| x.less(finite(highest)).exp()).collect();
                sum = sum.fma(factor, weights.iter().fold(S::Real::ZERO, |a, &x| a + x));
                for (e, value) in values.iter_mut().enumerate() {
                    let mut own = S::Real::ZERO;
                    for (&s, &weight) in block.iter().zip(&weights) {
                        own = Self::factor(weight)
                            .fma(self.value[self.of_keys(b, s, self.group(h)) * width + e].widen(), own);
                    }
                    *value = value.times(factor) + own;
                }
            }
            let nothing = sum == S::Real::ZERO;
            let share = if nothing { S::Real::ZERO } else { common::real::<S::Real>(1.0) / sum };
            normalizer.push(if nothing { S::Real::LEAST } else { highest + sum.log() });
            output.extend(values.iter().map(|x| S::narrow(x.times(share) + S::Real::ZERO)));
        }
        Results { normalizer, by_result: BTreeMap::from([(AttentionResult::Output, output)]) }
    }

    /// Weight and slope of a pair that is computed.
    fn pair(&self, b: usize, t: usize, h: usize, s: usize) -> [S::Real; 2] {
        let (row, width) = (self.of_queries(b, t, h), self.sizes[6]);
        let weight = self.score(b, t, h, s).less(finite(self.normalizer[row])).exp();
        if !self.sees(b, t, s) {
            return [Self::factor(weight), S::Real::ZERO];
        }
        let value = self.of_keys(b, s, self.group(h)) * width;
        let blocks = Blocks::contraction(Blocking::Features, width, 1);
        let product =
            contraction(&blocks, |e, _| (self.value[value + e].widen(), self.gradient[row * width + e].widen()));
        [Self::factor(weight), Self::factor(weight.times(product.less(self.delta[row])))]
    }

    fn backward(&self) -> Results<S> {
        let [batch, queries, keys, heads, groups, depth, width] = self.sizes;
        let pairs: Vec<[S::Real; 2]> = indices([batch, queries, heads])
            .flat_map(|(b, t, h)| (0..keys).map(move |s| (b, t, h, s)))
            .map(|(b, t, h, s)| if s < self.computed(b, t) { self.pair(b, t, h, s) } else { [S::Real::ZERO; 2] })
            .collect();
        let pair = |b, t, h, s| pairs[self.of_queries(b, t, h) * keys + s];
        let zero = S::Real::ZERO;
        let mut results: [Vec<S>; 3] = Default::default();
        for (b, t, h) in indices([batch, queries, heads]) {
            let all: Vec<usize> = (0..self.computed(b, t)).collect();
            for d in 0..depth {
                let chain = |block: &[usize]| {
                    block.iter().fold(zero, |sum, &s| {
                        let key = self.key[self.of_keys(b, s, self.group(h)) * depth + d].widen();
                        pair(b, t, h, s)[1].fma(key, sum)
                    })
                };
                let sum = all.chunks(BLOCK).map(chain).reduce(|a, b| a + b).unwrap_or(zero);
                results[0].push(S::narrow(sum.times(self.scale()) + zero));
            }
        }
        // The queries of each unit.
        let mut units: Vec<Vec<usize>> = vec![];
        for t in 0..queries {
            let position = self.mask.first_query + t as i64;
            if t == 0 || position.rem_euclid(UNIT as i64) == 0 {
                units.push(vec![]);
            }
            units.last_mut().expect("one was begun").push(t);
        }
        for (b, s, g) in indices([batch, keys, groups]) {
            for (result, which, columns) in [(1, 1, depth), (2, 0, width)] {
                for column in 0..columns {
                    let mut sum = zero;
                    for h in (0..heads).filter(|&h| self.group(h) == g) {
                        for unit in units.iter().filter(|unit| s < self.computed(b, unit[0])) {
                            let term = |sum, &t: &usize| {
                                let row = self.of_queries(b, t, h);
                                let other = match which {
                                    1 => self.query[row * depth + column].widen(),
                                    _ => self.gradient[row * width + column].widen(),
                                };
                                pair(b, t, h, s)[which].fma(other, sum)
                            };
                            sum = sum + unit.iter().fold(zero, term);
                        }
                    }
                    let sum = if which == 1 { sum.times(self.scale()) } else { sum };
                    results[result].push(S::narrow(sum + zero));
                }
            }
        }
        let names = [AttentionResult::Query, AttentionResult::Key, AttentionResult::Value];
        Results { normalizer: vec![], by_result: names.into_iter().zip(results).collect() }
    }

    fn op(&self, results: &[AttentionResult]) -> Attention {
        Attention { results: results.iter().copied().collect(), ..Attention::new(self.scale, self.mask) }
    }

    /// Runs the kernel; `turned` operands lie with heads outside of positions.
    fn run(&self, results: &[AttentionResult], turned: bool, context: Context) -> Results<S> {
        let op = self.op(results);
        let [b, t, s, h, g, d, e] = self.sizes;
        let shape = |input| match input {
            AttentionInput::Query => vec![b, t, h, d],
            AttentionInput::Key => vec![b, s, g, d],
            AttentionInput::Value => vec![b, s, g, e],
            AttentionInput::Gradient => vec![b, t, h, e],
            AttentionInput::Normalizer | AttentionInput::Delta => vec![b, t, h],
            AttentionInput::Lengths => vec![b],
        };
        let names = op.inputs();
        let dense: Vec<Layout> = names.iter().map(|x| Layout::contiguous(&Shape::new(&shape(*x)))).collect();
        let elements = |input| match input {
            AttentionInput::Query => bytes(&self.query),
            AttentionInput::Key => bytes(&self.key),
            AttentionInput::Value => bytes(&self.value),
            AttentionInput::Gradient => bytes(&self.gradient),
            AttentionInput::Normalizer => bytes(&self.normalizer),
            AttentionInput::Delta => bytes(&self.delta),
            AttentionInput::Lengths => bytes(&self.lengths),
        };
        let moved = |layout: &Layout| turned && layout.shape.rank() > 1;
        let placed = |(input, layout): (&AttentionInput, &Layout)| {
            let (data, size) = (elements(*input), dtype_of::<S>(*input).size());
            if moved(layout) { heads_outside(data, &layout.shape, size) } else { aligned(data) }
        };
        let data: Vec<Vec<u64>> = names.iter().zip(&dense).map(placed).collect();
        let layouts: Vec<Layout> = dense
            .iter()
            .map(|layout| match moved(layout) {
                false => layout.clone(),
                true => {
                    let mut order: Vec<usize> = (0..layout.shape.rank()).collect();
                    order.swap(1, 2);
                    let outside: Shape = order.iter().map(|&d| layout.shape[d]).collect();
                    Layout::contiguous(&outside).permute(&order)
                }
            })
            .collect();
        let operands: Vec<Operand> = names
            .iter()
            .zip(&data)
            .zip(&layouts)
            // SAFETY: the layouts cover the data, which is of the dtype.
            .map(|((input, data), layout)| unsafe { Operand::new(data.as_ptr().cast(), dtype_of::<S>(*input), layout) })
            .collect();
        let types: Vec<Type> =
            names.iter().zip(&dense).map(|(x, l)| Type { dtype: dtype_of::<S>(*x), shape: l.shape.clone() }).collect();
        let refs: Vec<&Type> = types.iter().collect();
        let outputs = Op::from(op.clone()).results(&refs).expect("operands that fit");
        let nan = common::real::<S::Real>(f64::NAN);
        let mut found = Results { normalizer: vec![], by_result: BTreeMap::new() };
        for (result, ty) in results.iter().zip(&outputs) {
            match result {
                AttentionResult::Normalizer => found.normalizer = vec![nan; ty.shape.numel()],
                _ => drop(found.by_result.insert(*result, vec![S::narrow(nan); ty.shape.numel()])),
            }
        }
        let op = Op::from(op);
        let pairs: Vec<(&Type, &Layout)> = types.iter().zip(&layouts).collect();
        let scratch = CpuTarget { threads: context.par.lanes() }.scratch(&op, &pairs, &outputs[0]);
        let Results { normalizer, by_result } = &mut found;
        let mut normalizer = Some(normalizer);
        let rooms = results.iter().zip(&outputs).map(|(result, ty)| match result {
            AttentionResult::Normalizer => Output::of(normalizer.take().expect("one"), &ty.shape),
            _ => {
                let numbers: *mut Vec<S> = by_result.get_mut(result).expect("made above");
                // SAFETY: every result has numbers of its own.
                Output::of(unsafe { &mut *numbers }, &ty.shape)
            }
        });
        let rooms = rooms.collect();
        with_scratch(scratch, |scratch| kernel::run(&op, &operands, rooms, scratch, context));
        found
    }

    fn compare(&self, results: &[AttentionResult], turned: bool) {
        let expected = if results[0].is_gradient() { self.backward() } else { self.forward() };
        everywhere(|context, whom| {
            let found = self.run(results, turned, context);
            let what = |result| format!("{result:?} of {:?}, {:?} {} on {whom}", self.sizes, self.mask, S::DTYPE);
            for result in results {
                match result {
                    AttentionResult::Normalizer => {
                        assert_bits(&found.normalizer, &expected.normalizer, &what(*result));
                    }
                    _ => assert_bits(&found.by_result[result], &expected.by_result[result], &what(*result)),
                }
            }
        });
    }
}

fn dtype_of<S: Element>(input: AttentionInput) -> DType {
    match input {
        AttentionInput::Lengths => DType::I64,
        AttentionInput::Normalizer | AttentionInput::Delta => <S::Real as Stored>::DTYPE,
        _ => S::DTYPE,
    }
}

fn indices([a, b, c]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
}

fn bytes<T: Copy>(numbers: &[T]) -> &[u8] {
    // SAFETY: plain numbers.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The same bytes in memory that is aligned for every element.
fn aligned(data: &[u8]) -> Vec<u64> {
    let words = data.chunks(8).map(|word| {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        u64::from_ne_bytes(bytes)
    });
    words.collect()
}

/// `[B, positions, heads, …]` as `[B, heads, positions, …]`.
fn heads_outside(data: &[u8], shape: &Shape, size: usize) -> Vec<u64> {
    let row: usize = shape[3..].iter().product::<usize>() * size;
    let mut turned = Vec::with_capacity(data.len());
    for (b, h, p) in indices([shape[0], shape[2], shape[1]]) {
        turned.extend_from_slice(&data[((b * shape[1] + p) * shape[2] + h) * row..][..row]);
    }
    aligned(&turned)
}

const FORWARD: [AttentionResult; 2] = [AttentionResult::Output, AttentionResult::Normalizer];
const BACKWARD: [AttentionResult; 3] = [AttentionResult::Query, AttentionResult::Key, AttentionResult::Value];

fn masks([_, t, s, ..]: Sizes) -> [AttentionMask; 5] {
    let causal = AttentionMask::causal(t, s);
    // A part of a sequence, whose first query and key are somewhere.
    let part = AttentionMask { first_query: 13, first_key: 5, ..causal };
    let even = AttentionMask { first_key: 6, ..part };
    [
        AttentionMask::NONE,
        causal,
        AttentionMask { padded: true, ..causal },
        AttentionMask { padded: true, ..part },
        AttentionMask { padded: true, ..even },
    ]
}

fn check<S: Element<Real: Soft> + Debug>(sizes: Sizes) {
    for mask in masks(sizes) {
        let problem = Problem::<S>::new(sizes, mask);
        problem.compare(&FORWARD, false);
        problem.compare(&BACKWARD, false);
    }
}

#[test]
fn shapes_of_all_kinds() {
    for sizes in [
        [1, 1, 1, 1, 1, 1, 1],
        [2, 37, 70, 4, 2, 5, 7],
        [1, 33, 33, 1, 1, 64, 32],
        [2, 65, 130, 2, 2, 20, 40],
        [1, 70, 20, 3, 1, 33, 16],
        [1, 5, 200, 2, 1, 130, 3],
        [3, 16, 31, 1, 1, 8, 12],
    ] {
        check::<f32>(sizes);
        check::<bf16>(sizes);
    }
}

#[test]
fn one_query_of_a_long_sequence() {
    for sizes in [[2, 1, 300, 4, 2, 16, 16], [1, 1, 65, 1, 1, 32, 64]] {
        check::<f32>(sizes);
        check::<bf16>(sizes);
    }
}

#[test]
fn other_dtypes() {
    let sizes = [2, 37, 70, 4, 2, 16, 18];
    check::<f64>(sizes);
    check::<f16>(sizes);
    check::<bf16>(sizes);
}

#[test]
fn each_result_alone() {
    let sizes = [2, 40, 67, 4, 2, 16, 24];
    for mask in masks(sizes) {
        let problem = Problem::<f32>::new(sizes, mask);
        FORWARD.iter().chain(&BACKWARD).for_each(|result| problem.compare(&[*result], false));
        problem.compare(&[AttentionResult::Query, AttentionResult::Value], false);
        problem.compare(&[AttentionResult::Key, AttentionResult::Value], false);
    }
}

#[test]
fn heads_outside_of_positions() {
    for sizes in [[2, 37, 70, 4, 2, 16, 16], [2, 70, 70, 2, 2, 16, 32], [1, 1, 40, 2, 2, 16, 8]] {
        let problem = Problem::<f32>::new(sizes, AttentionMask::causal(sizes[1], sizes[2]));
        problem.compare(&FORWARD, true);
        problem.compare(&BACKWARD, true);
        let problem = Problem::<bf16>::new(sizes, AttentionMask::NONE);
        problem.compare(&FORWARD, true);
    }
}

#[test]
fn more_threads_than_heads_share_them() {
    // Many units and blocks: queries, or keys, are cut between tasks.
    let sizes = [1, 200, 300, 2, 1, 16, 16];
    for mask in [AttentionMask::NONE, AttentionMask::causal(200, 300)] {
        let problem = Problem::<f32>::new(sizes, mask);
        problem.compare(&FORWARD, false);
        problem.compare(&BACKWARD, false);
    }
}

#[test]
fn empty_dimensions() {
    for sizes in [
        [0, 3, 4, 2, 2, 5, 6],
        [2, 0, 4, 2, 2, 5, 6],
        [2, 3, 0, 2, 2, 5, 6],
        [2, 3, 4, 0, 0, 5, 6],
        [2, 3, 4, 2, 2, 0, 6],
        [2, 3, 4, 2, 2, 5, 0],
    ] {
        check::<f32>(sizes);
        check::<bf16>(sizes);
    }
}

#[test]
fn what_sees_nothing_is_zero_and_gets_no_gradient() {
    // Two of five queries come before the first key.
    let problem = Problem::<f32>::new([1, 5, 3, 2, 2, 4, 4], AttentionMask::causal(5, 3));
    everywhere(|context, whom| {
        let found = problem.run(&FORWARD, false, context);
        assert!(found.normalizer[..4].iter().all(|x| *x == f32::NEG_INFINITY), "{whom}");
        assert!(found.by_result[&AttentionResult::Output][..16].iter().all(|x| x.to_bits() == 0), "{whom}");
        let found = problem.run(&BACKWARD, false, context);
        assert!(found.by_result[&AttentionResult::Query][..16].iter().all(|x| x.to_bits() == 0), "{whom}");
    });
}

#[test]
fn what_is_never_seen_may_be_anything() {
    // Keys and values beyond the units that are computed with do not matter, and NaN before them stays in its rows.
    fn check<S: Element<Real: Soft> + Debug>(first_query: i64, first_key: i64) {
        let sizes = [1, 32, 96, 1, 1, 16, 16];
        let mask = AttentionMask { first_query, first_key, ..AttentionMask::causal(32, 32) };
        let mut problem = Problem::<S>::new(sizes, mask);
        let end = problem.computed(0, 31) * 16;
        problem.key[end..].fill(S::narrow(common::real(f64::NAN)));
        problem.value[end..].fill(S::narrow(common::real(f64::INFINITY)));
        let clean = problem.forward();
        assert!(clean.by_result[&AttentionResult::Output].iter().all(|x| x.widen().less(x.widen()) == S::Real::ZERO));
        problem.compare(&FORWARD, false);
        problem.compare(&BACKWARD, false);
    }
    // The last key that is computed with may be the first of two.
    for (first_query, first_key) in [(20, 0), (40, 7), (40, 8)] {
        check::<f32>(first_query, first_key);
        check::<bf16>(first_query, first_key);
    }
}

#[test]
fn tiny_and_huge_numbers_of_bf16() {
    let sizes = [1, 40, 70, 2, 1, 16, 24];
    // Factors of queries, keys, values and gradients, whose products or sums are subnormal numbers or infinite.
    for powers in [[-70, -60, 0, 0], [60, -64, -120, 40], [0, 0, -70, -60], [0, 0, 100, 60], [3, 3, -100, -20]] {
        let mut problem = Problem::<bf16>::new(sizes, AttentionMask::causal(40, 70));
        let Problem { query, key, value, gradient, .. } = &mut problem;
        for (numbers, power) in [query, key, value, gradient].into_iter().zip(powers) {
            numbers.iter_mut().for_each(|x| *x = bf16::narrow(x.widen() * 2f32.powi(power)));
        }
        problem.normalizer = problem.forward().normalizer;
        problem.compare(&FORWARD, false);
        problem.compare(&BACKWARD, false);
    }
}

#[test]
fn high_scores_do_not_overflow() {
    let mut problem = Problem::<f32>::new([1, 9, 80, 1, 1, 16, 16], AttentionMask::NONE);
    problem.key.iter_mut().for_each(|x| *x *= 1e4);
    problem.query.iter_mut().for_each(|x| *x *= 1e4);
    problem.normalizer = problem.forward().normalizer;
    assert!(problem.normalizer.iter().all(|x| x.is_finite() && *x > 1e6));
    assert!(problem.forward().by_result[&AttentionResult::Output].iter().all(|x| x.is_finite()));
    problem.compare(&FORWARD, false);
    problem.compare(&BACKWARD, false);
}

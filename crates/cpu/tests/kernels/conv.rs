//! Convolutions and their gradients have the bits of the canonical order, for any geometry.

use crate::common::{self, Numbers, assert_bits, contraction, everywhere, with_scratch};
use meshwork_cpu::gemm::{Element, Real};
use meshwork_cpu::{Operand, Output, conv};
use meshwork_graph::canonical::Blocking;
use meshwork_graph::ops::{Conv, ConvGeometry, ConvInput, ConvWeight, Spatial};
use meshwork_graph::{Layout, Shape};

/// A convolution with random sizes.
struct Case {
    geometry: ConvGeometry,
    /// Of the sums over channels.
    blocking: Blocking,
    x: Shape,
    w: Shape,
    y: Shape,
}

fn index(mut i: usize, sizes: &[usize]) -> Vec<usize> {
    let mut out = vec![0; sizes.len()];
    for d in (0..sizes.len()).rev() {
        out[d] = i % sizes[d];
        i /= sizes[d];
    }
    out
}

fn flat(at: &[usize], sizes: &[usize]) -> usize {
    at.iter().zip(sizes).fold(0, |i, (&a, &s)| i * s + a)
}

impl Case {
    fn new(x: &[usize], w: &[usize], stride: &[usize], padding: &[usize], dilation: &[usize], groups: usize) -> Self {
        let s = Spatial::from_slice;
        let geometry = ConvGeometry { stride: s(stride), padding: s(padding), dilation: s(dilation), groups };
        let mut y = Shape::new(&[x[0], w[0]]);
        y.0.extend(geometry.output(&x[2..], &w[2..]).expect("a kernel that fits"));
        Case { geometry, blocking: Blocking::Features, x: Shape::new(x), w: Shape::new(w), y }
    }

    fn random(numbers: &mut Numbers, spatial: usize) -> Self {
        loop {
            let groups = [1, 1, 2, 3][numbers.below(4)];
            let channels = [1, 1, 2, 5, 9][numbers.below(5)];
            let outputs = [1, 2, 4, 7, 11][numbers.below(5)];
            let mut x = vec![1 + numbers.below(5), channels * groups];
            let mut w = vec![outputs * groups, channels];
            let most = [40, 14, 7][spatial - 1];
            let (mut stride, mut padding, mut dilation) = (vec![], vec![], vec![]);
            for _ in 0..spatial {
                x.push(1 + numbers.below(most));
                w.push(1 + numbers.below(4));
                stride.push(1 + numbers.below(3));
                padding.push(numbers.below(3));
                dilation.push(1 + numbers.below(2));
            }
            let s = |v: &[usize]| Spatial::from_slice(v);
            let geometry = ConvGeometry { stride: s(&stride), padding: s(&padding), dilation: s(&dilation), groups };
            if geometry.output(&x[2..], &w[2..]).is_some() {
                return Case::new(&x, &w, &stride, &padding, &dilation, groups);
            }
        }
    }

    /// The input element that output position `s` and tap `t` meet.
    fn position(&self, sample: usize, channel: usize, s: &[usize], t: &[usize]) -> Option<usize> {
        let g = &self.geometry;
        let mut at = vec![sample, channel];
        for d in 0..s.len() {
            let p = (s[d] * g.stride[d] + t[d] * g.dilation[d]).checked_sub(g.padding[d])?;
            if p >= self.x[d + 2] {
                return None;
            }
            at.push(p);
        }
        Some(flat(&at, &self.x))
    }

    fn forward<T: Element>(&self, x: &[T], w: &[T]) -> Vec<T> {
        let (blocks, outputs) = (self.forward_op().blocks(&self.w), self.w[0] / self.geometry.groups);
        (0..self.y.numel())
            .map(|i| {
                let at = index(i, &self.y);
                T::narrow(contraction(&blocks, |channel, tap| {
                    let t = index(tap, &self.w[2..]);
                    let source = self.position(at[0], at[1] / outputs * self.w[1] + channel, &at[2..], &t);
                    let weight = w[(at[1] * self.w[1] + channel) * blocks.inner + tap];
                    (source.map_or(T::Real::ZERO, |i| x[i].widen()), weight.widen())
                }))
            })
            .collect()
    }

    fn input<T: Element>(&self, dy: &[T], w: &[T]) -> Vec<T> {
        let blocks = self.input_op().blocks(&self.w);
        let (taps, positions): (usize, usize) = (self.w[2..].iter().product(), self.y[2..].iter().product());
        let outputs = self.w[0] / self.geometry.groups;
        let mut sums = vec![T::Real::ZERO; self.x.numel()];
        for sample in 0..self.x[0] {
            for channel in 0..self.x[1] {
                let (group, inner) = (channel / self.w[1], channel % self.w[1]);
                // Every position meets a tap at most once, so this is row-major order of the taps for each.
                for tap in 0..taps {
                    for s in 0..positions {
                        let (at, t) = (index(s, &self.y[2..]), index(tap, &self.w[2..]));
                        let Some(i) = self.position(sample, channel, &at, &t) else { continue };
                        let sum = contraction(&blocks, |output, _| {
                            let o = group * outputs + output;
                            let gradient = dy[(sample * self.y[1] + o) * positions + s];
                            (gradient.widen(), w[(o * self.w[1] + inner) * taps + tap].widen())
                        });
                        sums[i] = sums[i] + sum;
                    }
                }
            }
        }
        sums.into_iter().map(T::narrow).collect()
    }

    fn forward_op(&self) -> Conv {
        Conv { blocking: self.blocking, ..Conv::new(self.geometry.clone()) }
    }

    fn input_op(&self) -> ConvInput {
        let size = Spatial::from_slice(&self.x[2..]);
        ConvInput { blocking: self.blocking, ..ConvInput::new(self.geometry.clone(), size) }
    }

    fn weight_op(&self) -> ConvWeight {
        ConvWeight::new(self.geometry.clone(), Spatial::from_slice(&self.w[2..]))
    }

    fn weight<T: Element>(&self, x: &[T], dy: &[T]) -> Vec<T> {
        let blocks = self.weight_op().blocks(&self.y);
        let outputs = self.w[0] / self.geometry.groups;
        (0..self.w.numel())
            .map(|i| {
                let at = index(i, &self.w);
                T::narrow(contraction(&blocks, |sample, s| {
                    let position = index(s, &self.y[2..]);
                    let source = self.position(sample, at[0] / outputs * self.w[1] + at[1], &position, &at[2..]);
                    let gradient = dy[(sample * self.y[1] + at[0]) * blocks.inner + s];
                    (source.map_or(T::Real::ZERO, |i| x[i].widen()), gradient.widen())
                }))
            })
            .collect()
    }

    /// The gradient by the input, alone.
    fn check_input<T: Element + std::fmt::Debug>(&self, dy: &[T], w: &[T]) {
        let expected = self.input(dy, w);
        let (wl, yl) = (Layout::contiguous(&self.w), Layout::contiguous(&self.y));
        let (wo, yo, op) = (Operand::of(w, &wl), Operand::of(dy, &yl), self.input_op());
        everywhere(|context, whom| {
            let mut dx = vec![T::narrow(common::real(f64::NAN)); self.x.numel()];
            with_scratch(conv::input::scratch(&op, T::DTYPE, &[&yl, &wl], context.par.lanes()), |scratch| {
                conv::input::run(&op, &[yo, wo], Output::of(&mut dx, &self.x), scratch, context);
            });
            assert_bits(&dx, &expected, &format!("input x {} w {} {:?} on {whom}", self.x, self.w, self.geometry));
        });
    }

    fn check<T: Element + std::fmt::Debug>(&self) {
        let mut numbers = Numbers(self.x.numel() as u64 + 3);
        let (x, w, dy): (Vec<T>, Vec<T>, Vec<T>) =
            (numbers.elements(self.x.numel()), numbers.elements(self.w.numel()), numbers.elements(self.y.numel()));
        self.check_input(&dy, &w);
        let expected = [self.forward(&x, &w), self.weight(&x, &dy)];
        let (xl, wl, yl) = (Layout::contiguous(&self.x), Layout::contiguous(&self.w), Layout::contiguous(&self.y));
        let (xo, wo, yo) = (Operand::of(&x, &xl), Operand::of(&w, &wl), Operand::of(&dy, &yl));
        let (forward, weight) = (self.forward_op(), self.weight_op());
        let nan = T::narrow(common::real(f64::NAN));
        everywhere(|context, whom| {
            let threads = context.par.lanes();
            let what = format!("x {} w {} {:?} {} on {whom}", self.x, self.w, self.geometry, T::DTYPE);
            let mut y = vec![nan; self.y.numel()];
            with_scratch(conv::forward::scratch(&forward, T::DTYPE, &[&xl, &wl], threads), |scratch| {
                conv::forward::run(&forward, &[xo, wo], Output::of(&mut y, &self.y), scratch, context);
            });
            assert_bits(&y, &expected[0], &format!("forward {what}"));
            let mut dw = vec![nan; self.w.numel()];
            with_scratch(conv::weight::scratch(&weight, T::DTYPE, &[&xl, &yl], threads), |scratch| {
                conv::weight::run(&weight, &[xo, yo], Output::of(&mut dw, &self.w), scratch, context);
            });
            assert_bits(&dw, &expected[1], &format!("weight {what}"));
        });
    }
}

#[test]
fn random_geometry() {
    let mut numbers = Numbers(11);
    for round in 0..60 {
        Case::random(&mut numbers, 1 + round % 3).check::<f32>();
    }
}

#[test]
fn sums_over_channels_in_blocks_of_any_length() {
    let mut numbers = Numbers(13);
    for round in 0..24 {
        let blocking = Blocking::Every([1, 2, 3, 5, 64][round % 5]);
        Case { blocking, ..Case::random(&mut numbers, 1 + round % 3) }.check::<f32>();
    }
    for unit in [1, 2, 7, 16, 20, 32, 50, 100] {
        let case = Case::new(&[2, 20, 9, 9], &[50, 20, 5, 5], &[1, 1], &[0, 0], &[1, 1], 1);
        Case { blocking: Blocking::Every(unit), ..case }.check::<f32>();
        let case = Case::new(&[3, 4, 28, 28], &[9, 4, 3, 3], &[1, 1], &[1, 1], &[1, 1], 1);
        Case { blocking: Blocking::Every(unit), ..case }.check::<f32>();
    }
}

#[test]
fn other_dtypes() {
    let mut numbers = Numbers(12);
    for round in 0..9 {
        let case = Case::random(&mut numbers, 1 + round % 3);
        case.check::<f64>();
        case.check::<half::f16>();
        case.check::<half::bf16>();
    }
}

#[test]
fn layers_of_lenet() {
    Case::new(&[9, 1, 28, 28], &[20, 1, 3, 3], &[1, 1], &[0, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[5, 20, 13, 13], &[50, 20, 5, 5], &[1, 1], &[0, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[40, 2, 6, 6], &[7, 2, 3, 3], &[1, 1], &[1, 1], &[1, 1], 1).check::<f32>();
}

#[test]
fn few_channels_and_small_kernels() {
    Case::new(&[32, 1, 12, 18], &[40, 1, 3, 3], &[1, 1], &[0, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[32, 2, 9, 17], &[14, 1, 3, 3], &[1, 2], &[1, 3], &[2, 1], 2).check::<f32>();
    Case::new(&[8, 4, 6, 21], &[32, 4, 2, 2], &[2, 1], &[0, 2], &[1, 2], 1).check::<f32>();
    Case::new(&[8, 4, 11, 14], &[3, 4, 7, 7], &[1, 1], &[3, 4], &[1, 1], 1).check::<f32>();
}

#[test]
fn rows_of_the_kernel_that_fill_vectors() {
    Case::new(&[33, 20, 7, 7], &[11, 20, 3, 3], &[1, 1], &[1, 1], &[1, 1], 1).check::<f32>();
    Case::new(&[24, 16, 9, 8], &[14, 8, 3, 3], &[2, 3], &[1, 2], &[2, 1], 2).check::<f32>();
    Case::new(&[16, 32, 9, 8], &[28, 16, 3, 3], &[2, 3], &[1, 2], &[2, 1], 2).check::<f32>();
    Case::new(&[16, 31, 5, 6], &[9, 31, 2, 1], &[1, 1], &[1, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[8, 16, 4, 7], &[13, 16, 3, 1], &[1, 2], &[0, 1], &[1, 1], 1).check::<f32>();
    Case::new(&[24, 12, 3, 6], &[5, 12, 1, 2], &[1, 1], &[0, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[8, 32, 3, 4, 5], &[4, 32, 2, 2, 1], &[1, 1, 2], &[1, 0, 2], &[1, 1, 1], 1).check::<f32>();
    Case::new(&[3, 9, 14, 15], &[4, 9, 2, 5], &[1, 1], &[0, 3], &[3, 1], 1).check::<f32>();
    // More lines of positions than a tile has rows.
    Case::new(&[6, 20, 23, 7], &[9, 20, 5, 5], &[1, 1], &[0, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[4, 20, 5, 6, 9], &[40, 20, 2, 2, 5], &[1, 1, 2], &[0, 0, 1], &[1, 1, 1], 1).check::<f32>();
}

#[test]
fn samples_that_fill_vectors() {
    for samples in [7, 8, 15, 16, 24, 30, 31, 32, 61] {
        Case::new(&[samples, 9, 5, 7], &[11, 9, 3, 3], &[1, 1], &[1, 1], &[1, 1], 1).check::<f32>();
        Case::new(&[samples, 8, 9, 8], &[18, 4, 3, 3], &[2, 1], &[1, 2], &[1, 2], 2).check::<f32>();
    }
    Case::new(&[32, 7, 6, 5], &[8, 7, 2, 3], &[1, 2], &[0, 1], &[2, 1], 1).check::<f32>();
    Case::new(&[16, 5, 40], &[19, 5, 7], &[1], &[3], &[1], 1).check::<f32>();
    Case::new(&[16, 6, 4, 3, 5], &[9, 6, 2, 3, 2], &[1, 1, 2], &[1, 0, 2], &[1, 1, 1], 1).check::<f32>();
    // Four blocks abreast for two threads, with and without all samples and channels.
    for (samples, channels) in [(32, 8), (31, 8), (29, 7), (28, 12)] {
        Case::new(&[samples, channels, 8, 8], &[13, channels, 3, 3], &[1, 1], &[0, 1], &[1, 1], 1).check::<f32>();
    }
    // More rounds of blocks than one, of which the last one has fewer.
    Case::new(&[256, 5, 4, 4], &[9, 5, 2, 2], &[1, 1], &[0, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[245, 4, 4, 4], &[12, 4, 3, 3], &[1, 1], &[1, 1], &[1, 1], 1).check::<f32>();
    for unit in [1, 2, 3, 5] {
        let case = Case::new(&[16, 18, 6, 6], &[17, 18, 3, 3], &[1, 1], &[1, 1], &[1, 1], 1);
        Case { blocking: Blocking::Every(unit), ..case }.check::<f32>();
    }
}

#[test]
fn gradients_with_long_rows() {
    Case::new(&[3, 2, 4, 5, 19], &[5, 2, 2, 3, 4], &[2, 1, 1], &[1, 2, 5], &[1, 2, 2], 1).check::<f32>();
    Case::new(&[7, 6, 9, 8], &[6, 3, 3, 3], &[3, 1], &[0, 1], &[1, 1], 2).check::<f32>();
    Case::new(&[2, 3, 2, 9], &[4, 3, 1, 9], &[1, 1], &[0, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[2, 3, 2, 33], &[4, 3, 2, 2], &[1, 1], &[0, 9], &[1, 12], 1).check::<f32>();
}

#[test]
fn depthwise_and_wide_channels() {
    Case::new(&[3, 12, 9, 9], &[12, 1, 3, 3], &[2, 2], &[1, 1], &[1, 1], 12).check::<f32>();
    Case::new(&[2, 70, 5, 5], &[40, 70, 3, 3], &[1, 1], &[1, 1], &[1, 1], 1).check::<f32>();
    Case::new(&[2, 300, 4, 4], &[140, 300, 1, 1], &[1, 1], &[0, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[1, 3, 40, 40], &[8, 3, 7, 7], &[2, 2], &[3, 3], &[1, 1], 1).check::<f32>();
}

#[test]
fn groups_of_one_channel() {
    let mut numbers = Numbers(14);
    for round in 0..24 {
        let spatial = 1 + round % 3;
        let Case { geometry, x, w, .. } = Case::random(&mut numbers, spatial);
        let (groups, outputs) = ([4, 7, 8, 16, 19, 33][round % 6], 1 + round / 6 % 4);
        let (x, w) = ([&[x[0], groups], &x[2..]].concat(), [&[groups * outputs, 1], &w[2..]].concat());
        let ConvGeometry { stride, padding, dilation, .. } = geometry;
        let case = Case::new(&x, &w, &stride, &padding, &dilation, groups);
        case.check::<f32>();
        match round % 4 {
            0 => case.check::<f64>(),
            1 => case.check::<half::bf16>(),
            2 => case.check::<half::f16>(),
            _ => Case { blocking: Blocking::Every([1, 2, 3, 5][round / 4 % 4]), ..case }.check::<f32>(),
        }
    }
    // More than a band, and than a block.
    Case::new(&[1, 17, 64, 70], &[17, 1, 3, 3], &[1, 1], &[1, 1], &[1, 1], 17).check::<f32>();
    Case::new(&[2, 5, 75, 66], &[10, 1, 7, 7], &[2, 2], &[3, 3], &[1, 1], 5).check::<f32>();
    Case::new(&[1, 6, 24, 20, 20], &[6, 1, 3, 3, 3], &[2, 1, 2], &[1, 1, 1], &[1, 1, 1], 6).check::<f32>();
    Case::new(&[40, 8, 3, 3], &[8, 1, 3, 3], &[1, 1], &[1, 1], &[1, 1], 8).check::<f32>();
}

#[test]
fn vectors_that_go_on_in_the_next_row() {
    Case::new(&[2, 17, 14, 14], &[24, 17, 3, 3], &[1, 1], &[1, 1], &[1, 1], 1).check::<f32>();
    Case::new(&[3, 36, 9, 23], &[40, 18, 3, 3], &[1, 1], &[1, 2], &[1, 1], 2).check::<f32>();
    Case::new(&[2, 20, 12, 31], &[33, 20, 2, 3], &[2, 2], &[1, 1], &[1, 1], 1).check::<f32>();
    Case::new(&[2, 19, 6, 10], &[21, 19, 3, 3], &[1, 1], &[2, 2], &[2, 2], 1).check::<f32>();
    Case::new(&[4, 40, 5, 13], &[50, 40, 1, 1], &[1, 1], &[0, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[2, 18, 60], &[20, 18, 5], &[1], &[4], &[1], 1).check::<f32>();
    Case::new(&[2, 16, 4, 5, 11], &[18, 16, 3, 3, 3], &[1, 1, 1], &[1, 1, 1], &[1, 1, 1], 1).check::<f32>();
    for unit in [1, 3, 5, 16] {
        let case = Case::new(&[2, 21, 7, 20], &[22, 21, 3, 3], &[1, 1], &[1, 1], &[1, 1], 1);
        Case { blocking: Blocking::Every(unit), ..case }.check::<f32>();
    }
}

#[test]
fn infinite_weights_do_not_meet_the_border_of_a_gradient() {
    for (x, w, groups) in [
        ([2, 17, 10, 14], [24, 17, 3, 3], 1),
        ([16, 8, 5, 6], [9, 8, 3, 3], 1),
        ([2, 9, 7, 9], [9, 1, 3, 3], 9),
        ([1, 2, 9, 9], [3, 2, 3, 3], 1),
    ] {
        let case = Case::new(&x, &w, &[1, 1], &[1, 1], &[1, 1], groups);
        let mut numbers = Numbers(15);
        let dy: Vec<f32> = numbers.elements(case.y.numel());
        for at in [0, 8, case.w.numel() / 2] {
            let mut w: Vec<f32> = numbers.elements(case.w.numel());
            w[at] = f32::INFINITY;
            case.check_input(&dy, &w);
        }
    }
}

#[test]
fn gradients_that_meet_one_tap() {
    Case::new(&[3, 8, 5, 7], &[12, 4, 1, 1], &[1, 1], &[0, 0], &[1, 1], 2).check::<f32>();
    Case::new(&[3, 8, 5, 7], &[12, 4, 1, 1], &[1, 1], &[0, 0], &[1, 1], 2).check::<half::bf16>();
    Case::new(&[2, 40, 70], &[90, 40, 1], &[1], &[0], &[2], 1).check::<f32>();
    // So many positions that it is a product.
    Case::new(&[2, 10, 130, 130], &[6, 5, 1, 1], &[1, 1], &[0, 0], &[1, 1], 2).check::<f32>();
    Case::new(&[1, 5, 17000], &[7, 5, 1], &[1], &[0], &[1], 1).check::<half::f16>();
    let case = Case::new(&[1, 9, 17, 31, 33], &[40, 9, 1, 1, 1], &[1, 1, 1], &[0, 0, 0], &[1, 1, 1], 1);
    let case = Case { blocking: Blocking::Every(16), ..case };
    case.check_input(&vec![1e-30f32; case.y.numel()], &vec![-1e-30f32; case.w.numel()]);
    // Sums that are −0 become +0.
    for kernel in [1, 3] {
        let case = Case::new(&[2, 17, 9, 14], &[16, 17, kernel, kernel], &[1, 1], &[kernel / 2; 2], &[1, 1], 1);
        case.check_input(&vec![1e-30f32; case.y.numel()], &vec![-1e-30f32; case.w.numel()]);
    }
}

#[test]
fn kernels_of_one_tap_leave_out_what_nobody_reads() {
    Case::new(&[3, 20, 9, 10], &[18, 20, 1, 1], &[2, 2], &[0, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[2, 6, 9, 10], &[8, 3, 1, 1], &[3, 2], &[1, 2], &[2, 1], 2).check::<f32>();
    Case::new(&[2, 6, 8, 21], &[8, 6, 3, 1], &[2, 4], &[1, 0], &[1, 1], 1).check::<half::bf16>();
    Case::new(&[2, 6, 8, 13], &[8, 6, 1, 3], &[2, 3], &[0, 1], &[1, 1], 1).check::<f64>();
    Case::new(&[2, 5, 4, 5, 6], &[4, 5, 1, 2, 1], &[3, 2, 2], &[1, 0, 1], &[1, 1, 1], 1).check::<f32>();
}

#[test]
fn no_samples_and_padding_beyond_the_kernel() {
    Case::new(&[0, 2, 5, 5], &[3, 2, 3, 3], &[1, 1], &[0, 0], &[1, 1], 1).check::<f32>();
    Case::new(&[2, 2, 1, 3], &[3, 2, 1, 2], &[1, 4], &[5, 6], &[1, 1], 1).check::<f32>();
}

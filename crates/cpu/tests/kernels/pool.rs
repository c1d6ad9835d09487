//! Pools have the bits of the order that `meshwork_graph::ops` states, for any windows.

use crate::common::{self, Numbers, assert_bits, everywhere, with_scratch};
use meshwork_cpu::gemm::{Element, Real};
use meshwork_cpu::{Operand, Output, pool};
use meshwork_graph::ops::{AvgPool, AvgPoolInput, MaxPool, MaxPoolInput, Spatial, Window, Windows};
use meshwork_graph::{DType, Layout, Shape};

fn fixed(kernel: usize, stride: usize, padding: usize, dilation: usize, ceil: bool) -> Window {
    Window::Fixed { kernel, stride, padding, dilation, ceil }
}

/// For every window of one plane: the positions inside, in row-major order, and what a mean counts.
fn windows(windows: &Windows, size: &[usize], border: bool) -> Vec<(Vec<usize>, usize)> {
    let mut all = vec![(vec![0usize], 1usize)];
    for (window, &n) in windows.iter().zip(size) {
        let one: Vec<(Vec<usize>, usize)> = (0..window.output(n).unwrap())
            .map(|i| {
                let (start, length, step) = window.span(i, n);
                let at = |k: usize| start + (k * step) as isize;
                let inside = (0..length).map(at).filter(|&p| p >= 0 && p < n as isize).map(|p| p as usize).collect();
                (inside, window.count(i, n, border))
            })
            .collect();
        all = all
            .iter()
            .flat_map(|(outer, count)| {
                one.iter().map(move |(inner, other)| {
                    (outer.iter().flat_map(|o| inner.iter().map(move |i| o * n + i)).collect(), count * other)
                })
            })
            .collect();
    }
    all
}

fn check<T: Element + std::fmt::Debug>(w: &[Window], shape: &[usize], include: bool, special: bool) {
    let w = Windows::from_slice(w);
    let x_shape = Shape::new(shape);
    let listed = windows(&w, &shape[2..], include);
    let mut y_shape = Shape::new(&shape[..2]);
    y_shape.0.extend(w.iter().zip(&shape[2..]).map(|(w, &n)| w.output(n).unwrap()));
    let (plane, planes) = (shape[2..].iter().product::<usize>(), shape[0] * shape[1]);
    let mut numbers = Numbers(5);
    let mut x: Vec<T> = numbers.elements(planes * plane);
    let v: Vec<T> = numbers.elements(planes * plane);
    let mut dy: Vec<T> = numbers.elements(planes * listed.len());
    if special {
        for (i, x) in x.iter_mut().enumerate() {
            let odd = [f64::NAN, 0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY];
            if let Some(&s) = odd.get(i * 7 % 11) {
                *x = common::from_f64(s);
            }
        }
        dy.iter_mut().step_by(3).for_each(|d| *d = common::from_f64(-0.0));
    }
    let real = |x: T| x.widen();
    let (mut mean, mut mean_back) = (vec![], vec![T::Real::ZERO; x.len()]);
    let (mut most, mut maxima, mut most_back) = (vec![], vec![], vec![T::Real::ZERO; x.len()]);
    for p in 0..planes {
        for (i, (positions, count)) in listed.iter().enumerate() {
            let d = real(dy[p * listed.len() + i]);
            let sum = positions.iter().fold(T::Real::ZERO, |s, &at| s + real(x[p * plane + at]));
            mean.push(T::narrow(sum / T::Real::count(*count)));
            let mut best: Option<usize> = None;
            for at in positions.iter().map(|at| p * plane + at) {
                mean_back[at] = mean_back[at] + d / T::Real::count(*count);
                let nan = |i: usize| real(x[i]).partial_cmp(&real(x[i])).is_none();
                if best.is_none_or(|b| !nan(b) && (nan(at) || real(x[at]) > real(x[b]))) {
                    best = Some(at);
                }
            }
            let at_best = |v: &[T]| best.map_or(common::from_f64(f64::NEG_INFINITY), |b| v[b]);
            most.push(at_best(&v));
            maxima.push(at_best(&x));
            if let Some(b) = best {
                most_back[b] = most_back[b] + d;
            }
        }
    }
    let narrow = |v: Vec<T::Real>| v.into_iter().map(T::narrow).collect::<Vec<T>>();
    let (mean_back, most_back) = (narrow(mean_back), narrow(most_back));

    let (xl, yl) = (Layout::contiguous(&x_shape), Layout::contiguous(&y_shape));
    let (xo, vo, dyo) = (Operand::of(&x, &xl), Operand::of(&v, &xl), Operand::of(&dy, &yl));
    let avg = AvgPool { windows: w.clone(), count_include_pad: include };
    let avg_input = AvgPoolInput { pool: avg.clone(), size: Spatial::from_slice(&shape[2..]) };
    let (max, max_input) = (MaxPool { windows: w.clone() }, MaxPoolInput { windows: w.clone() });
    everywhere(|context, whom| {
        let threads = context.par.lanes();
        let what = |name: &str| format!("{name} {w:?} over {x_shape} {} on {whom}", T::DTYPE);
        let mut y = vec![T::narrow(T::Real::LEAST); mean.len()];
        with_scratch(pool::avg::scratch(&avg, T::DTYPE, &[&xl], threads), |scratch| {
            pool::avg::run(&avg, &[xo], Output::of(&mut y, &y_shape), scratch, context);
        });
        if !special {
            assert_bits(&y, &mean, &what("avg"));
        }
        for (v, most, name) in [(vo, &most, "element at max"), (xo, &maxima, "max")] {
            with_scratch(pool::max::scratch(&max, T::DTYPE, &[&xl, &xl], threads), |scratch| {
                pool::max::run(&max, &[xo, v], Output::of(&mut y, &y_shape), scratch, context);
            });
            assert_bits(&y, most, &what(name));
        }
        let mut dx = vec![T::narrow(T::Real::LEAST); x.len()];
        with_scratch(pool::avg::gradient::scratch(&avg_input, T::DTYPE, &[&yl], threads), |scratch| {
            pool::avg::gradient::run(&avg_input, &[dyo], Output::of(&mut dx, &x_shape), scratch, context);
        });
        assert_bits(&dx, &mean_back, &what("gradient of avg"));
        with_scratch(pool::max::gradient::scratch(&max_input, T::DTYPE, &[&xl, &yl], threads), |scratch| {
            pool::max::gradient::run(&max_input, &[xo, dyo], Output::of(&mut dx, &x_shape), scratch, context);
        });
        assert_bits(&dx, &most_back, &what("gradient of max"));
    });
}

#[test]
fn halves() {
    for shape in [[3, 4, 6, 8], [2, 3, 7, 9], [1, 1, 2, 2], [5, 7, 26, 26], [1, 2, 5, 34]] {
        for ceil in [false, true] {
            let w = [fixed(2, 2, 0, 1, ceil); 2];
            check::<f32>(&w, &shape, true, false);
            check::<f32>(&w, &shape, true, true);
            check::<f64>(&w, &shape, false, true);
            check::<half::bf16>(&w, &shape, true, false);
        }
    }
}

#[test]
fn any_windows() {
    let mut numbers = Numbers(3);
    for round in 0..60 {
        let spatial = 1 + round % 3;
        let (mut shape, mut w) = (vec![1 + numbers.below(3), 1 + numbers.below(4)], vec![]);
        for _ in 0..spatial {
            let size = 5 + numbers.below(9);
            shape.push(size);
            w.push(if numbers.below(3) == 0 {
                Window::Adaptive { output: 1 + numbers.below(size + 2) }
            } else {
                let kernel = 1 + numbers.below(3);
                fixed(
                    kernel,
                    1 + numbers.below(3),
                    numbers.below(kernel / 2 + 1),
                    1 + numbers.below(2),
                    numbers.below(2) == 0,
                )
            });
        }
        check::<f32>(&w, &shape, round % 2 == 0, round % 5 == 0);
        if round % 4 == 0 {
            check::<half::f16>(&w, &shape, round % 2 == 0, false);
            check::<f64>(&w, &shape, round % 2 == 0, false);
        }
    }
}

/// Rows of more windows than are taken together, and taps that lie in the border for some of them.
#[test]
fn long_rows() {
    let mut numbers = Numbers(11);
    for round in 0..30 {
        let (spatial, kernel) = (1 + round % 3, 1 + numbers.below(5));
        let long = fixed(
            kernel,
            1 + numbers.below(3),
            numbers.below(kernel / 2 + 1),
            1 + numbers.below(3),
            numbers.below(2) == 0,
        );
        let mut shape = vec![1, 1 + numbers.below(3)];
        shape.extend((1..spatial).map(|_| 3 + numbers.below(4)));
        shape.push([900, 160, 70][spatial - 1] + numbers.below(40));
        let mut w = vec![fixed(3, 2, 1, 1, false); spatial - 1];
        w.push(if round % 7 == 6 { Window::Adaptive { output: shape[spatial + 1] / 3 } } else { long });
        check::<f32>(&w, &shape, round % 2 == 0, round % 5 == 0);
        if round % 4 == 0 {
            check::<half::bf16>(&w, &shape, round % 2 == 0, round % 8 == 0);
            check::<f64>(&w, &shape, round % 2 == 1, true);
        }
    }
    // Windows that have none of their first positions inside, and whose last ones are beyond the end.
    check::<f32>(&[fixed(9, 2, 4, 2, true)], &[1, 2, 90], true, true);
    check::<f32>(&[fixed(2, 2, 0, 1, false)], &[2, 3, 1200], true, true);
    check::<f32>(&[Window::Adaptive { output: 40 }], &[2, 3, 120], true, true);
}

/// Planes that are cut, in each dimension; and small ones, of which many lie abreast.
#[test]
fn large_planes_and_many_small_ones() {
    let mut numbers = Numbers(17);
    let shapes: [&[usize]; 9] = [
        &[1, 1, 90_000],
        &[1, 2, 300, 270],
        &[1, 1, 40, 50, 45],
        &[3, 70, 7, 7],
        &[2, 90, 5, 9],
        &[2, 40, 4, 5, 6],
        &[4, 100, 13],
        &[2, 160, 1, 12],
        &[1, 3, 129, 131],
    ];
    for (round, shape) in shapes.iter().cycle().take(36).enumerate() {
        let mut window = |size: &usize| {
            let kernel = 1 + numbers.below(5.min(*size));
            let (stride, padding) = (1 + numbers.below(5), numbers.below(kernel / 2 + 1));
            let dilation = if kernel * 2 < *size { 1 + numbers.below(2) } else { 1 };
            fixed(kernel, stride, padding, dilation, numbers.below(2) == 0)
        };
        let w: Vec<Window> = shape[2..].iter().map(&mut window).collect();
        check::<f32>(&w, shape, round % 2 == 0, round % 3 == 0);
        if round % 9 == 3 {
            check::<half::f16>(&w, shape, round % 2 == 0, false);
            check::<f64>(&w, shape, round % 2 == 1, true);
        }
    }
    // Columns of windows that are cut, of which each has all rows.
    check::<f32>(&[Window::Adaptive { output: 1 }, fixed(3, 2, 1, 1, false)], &[1, 1, 7, 30_000], true, true);
    // Whole planes, whole rows, and windows side by side.
    for shape in [[3, 50, 7, 7], [2, 3, 60, 70], [2, 40, 8, 12]] {
        for w in [
            [fixed(shape[2], 1, 0, 1, false), fixed(shape[3], 3, 0, 1, false)],
            [fixed(1, 1, 0, 1, false), fixed(2, 2, 0, 1, false)],
        ] {
            check::<f32>(&w, &shape, true, true);
        }
        check::<f32>(&[Window::Adaptive { output: 1 }; 2], &shape, true, false);
        check::<f32>(&[Window::Adaptive { output: 1 }, fixed(3, 2, 1, 1, false)], &shape, true, false);
        check::<half::bf16>(&[fixed(7, 2, 3, 1, true), fixed(5, 3, 2, 1, false)], &shape, false, false);
    }
}

#[test]
fn a_window_without_positions_and_no_samples() {
    check::<f32>(&[fixed(2, 1, 1, 2, false)], &[1, 1, 1], true, false);
    check::<f32>(&[fixed(2, 2, 0, 1, false); 2], &[0, 3, 4, 4], true, false);
}

#[test]
fn rounding_up_does_not_count_beyond_the_border() {
    // Five elements, padding 1: windows -1..2, 2..5 and, rounded up, 5..8, of which 5 is the border.
    let op = AvgPool { windows: Windows::from_slice(&[fixed(3, 3, 1, 1, true)]), count_include_pad: true };
    let (shape, out) = (Shape::new(&[1, 1, 6]), Shape::new(&[1, 1, 3]));
    let (x, layout) = ([3.0f32; 6], Layout::contiguous(&shape));
    everywhere(|context, _| {
        let mut y = [0.0f32; 3];
        with_scratch(pool::avg::scratch(&op, DType::F32, &[&layout], context.par.lanes()), |scratch| {
            pool::avg::run(&op, &[Operand::of(&x, &layout)], Output::of(&mut y, &out), scratch, context);
        });
        assert_eq!(y, [2.0, 3.0, 1.5]);
    });
}

//! Convolutions and pooling.

use super::array::{Array, assert_equal, indices};
use meshwork::grad;
use meshwork::tensor::{ConvOptions, ConvTransposeOptions, PoolOptions, grad_with};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Geometry {
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
}

fn pair(range: std::ops::Range<usize>) -> impl Strategy<Value = [usize; 2]> {
    [range.clone(), range]
}

fn geometry() -> impl Strategy<Value = Geometry> {
    (pair(1..4), pair(0..3), pair(1..3)).prop_map(|(stride, padding, dilation)| Geometry { stride, padding, dilation })
}

impl Geometry {
    /// Number of windows along `d`, if there is one.
    fn output(&self, d: usize, size: usize, kernel: usize) -> Option<usize> {
        let span = self.dilation[d] * (kernel - 1) + 1;
        Some((size + 2 * self.padding[d]).checked_sub(span)? / self.stride[d] + 1)
    }

    /// The input position of a tap, if it is not in the border.
    fn position(&self, d: usize, window: usize, tap: usize, size: usize) -> Option<usize> {
        let position = (window * self.stride[d] + tap * self.dilation[d]).checked_sub(self.padding[d])?;
        (position < size).then_some(position)
    }
}

/// Calls `f(output index, weight index, input index)` for every product of a convolution.
fn products(
    g: &Geometry,
    x: &[usize],
    w: &[usize],
    y: &[usize],
    groups: usize,
    mut f: impl FnMut(&[usize], &[usize], &[usize]),
) {
    let (inner, outer) = (w[1], w[0] / groups);
    for out in indices(y) {
        for tap in indices(&w[1..]) {
            let group = out[1] / outer;
            let (Some(h), Some(v)) = (g.position(0, out[2], tap[1], x[2]), g.position(1, out[3], tap[2], x[3])) else {
                continue;
            };
            f(&out, &[&[out[1]], &tap[..]].concat(), &[out[0], group * inner + tap[0], h, v]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn convolution_and_gradients(
        g in geometry(),
        (n, groups) in (0usize..4, 1usize..3),
        (inner, outer) in (1usize..4, 1usize..4),
        size in pair(1..8),
        kernel in pair(1..4),
        seed in any::<u64>(),
    ) {
        let outputs = (g.output(0, size[0], kernel[0]), g.output(1, size[1], kernel[1]));
        let (Some(h), Some(v)) = outputs else { return Ok(()) };
        let x = Array::numbered(&[n, inner * groups, size[0], size[1]], seed);
        let w = Array::numbered(&[outer * groups, inner, kernel[0], kernel[1]], seed ^ 1);
        let shape = [n, outer * groups, h, v];
        let c = Array::numbered(&shape, seed ^ 2);
        let (mut y, mut dx, mut dw) = (Array::of(&shape, |_| 0.0), Array::of(&x.shape, |_| 0.0), Array::of(&w.shape, |_| 0.0));
        let add = |to: &mut Array, index: &[usize], value: f64| {
            let position = index.iter().zip(&to.shape).fold(0, |p, (&i, &n)| p * n + i);
            to.data[position] += value;
        };
        products(&g, &x.shape, &w.shape, &shape, groups, |out, weight, input| {
            add(&mut y, out, x.at(input) * w.at(weight));
            add(&mut dx, input, c.at(out) * w.at(weight));
            add(&mut dw, weight, c.at(out) * x.at(input));
        });
        let options = ConvOptions {
            stride: g.stride.into(), padding: g.padding.into(), dilation: g.dilation.into(), groups,
        };
        let (xt, wt) = (x.tensor().variable(), w.tensor().variable());
        let yt = xt.conv2d(&wt, None, &options);
        let gradients = grad_with(&[&yt], Some(&[&c.tensor()]), &[&xt, &wt], false);
        assert_equal(&yt, &y);
        assert_equal(&gradients[0], &dx);
        assert_equal(&gradients[1], &dw);

        // The transposed convolution is the gradient by the input, up to rows that no window reaches.
        let reach = |d: usize, out: usize| (out - 1) * g.stride[d] + g.dilation[d] * (kernel[d] - 1) + 1;
        let extra = [0, 1].map(|d| (size[d] + 2 * g.padding[d]).checked_sub(reach(d, [h, v][d])));
        if let [Some(a), Some(b)] = extra
            && a < g.stride[0].max(g.dilation[0])
            && b < g.stride[1].max(g.dilation[1])
        {
            let options = ConvTransposeOptions {
                stride: g.stride.into(),
                padding: g.padding.into(),
                output_padding: [a, b].into(),
                dilation: g.dilation.into(),
                groups,
            };
            assert_equal(&c.tensor().conv_transpose2d(&w.tensor(), None, &options), &dx);
        }
    }

    #[test]
    fn pools(
        mut g in geometry(),
        (n, channels) in (0usize..3, 1usize..3),
        size in pair(1..9),
        kernel in pair(1..4),
        include in any::<bool>(),
        seed in any::<u64>(),
    ) {
        g.padding = [g.padding[0].min(kernel[0] / 2), g.padding[1].min(kernel[1] / 2)];
        let mut plain = g.clone();
        plain.dilation = [1, 1];
        let x = Array::numbered(&[n, channels, size[0], size[1]], seed);
        let options = || PoolOptions {
            stride: Some(g.stride.into()),
            padding: g.padding.into(),
            count_include_pad: include,
            ..PoolOptions::from(kernel)
        };
        let inside = |g: &Geometry, out: &[usize]| -> Vec<f64> {
            let taps = indices(&kernel);
            let places = taps.iter().filter_map(|t| Some((g.position(0, out[2], t[0], size[0])?, g.position(1, out[3], t[1], size[1])?)));
            places.map(|(h, v)| x.at(&[out[0], out[1], h, v])).collect()
        };
        if let (Some(h), Some(v)) = (plain.output(0, size[0], kernel[0]), plain.output(1, size[1], kernel[1])) {
            let average = Array::of(&[n, channels, h, v], |out| {
                let values = inside(&plain, out);
                let count = if include { kernel[0] * kernel[1] } else { values.len() };
                values.iter().sum::<f64>() / count as f64
            });
            let xt = x.tensor().variable();
            let yt = xt.avg_pool2d(options());
            let gradient = grad(&yt.sum(..), &[&xt]).remove(0);
            assert_equal(&yt, &average);
            if include && g.padding == [0, 0] {
                // Every window hands out its cotangent of 1.
                prop_assert!((gradient.sum(..).item() - average.data.len() as f64).abs() < 1e-9);
            }
        }
        // A dilated window may lie in the border altogether; then there is no maximum to compare.
        if let (Some(h), Some(v)) = (g.output(0, size[0], kernel[0]), g.output(1, size[1], kernel[1])) {
            let shape = [n, channels, h, v];
            prop_assume!(indices(&shape).iter().all(|out| !inside(&g, out).is_empty()));
            let maximum = Array::of(&shape, |out| inside(&g, out).into_iter().fold(f64::NEG_INFINITY, f64::max));
            let xt = x.tensor().variable();
            let yt = xt.max_pool2d(PoolOptions { dilation: g.dilation.into(), ..options() });
            let gradient = grad(&yt.sum(..), &[&xt]).remove(0);
            assert_equal(&yt, &maximum);
            prop_assert_eq!(gradient.sum(..).item(), maximum.data.len() as f64);
        }
    }

    #[test]
    fn adaptive_pools(n in 0usize..3, size in 1usize..12, output in 1usize..14, seed in any::<u64>()) {
        let x = Array::numbered(&[n, 2, size], seed);
        let window = |i: usize| i * size / output..((i + 1) * size).div_ceil(output);
        let shape = [n, 2, output];
        let average = Array::of(&shape, |o| {
            window(o[2]).map(|i| x.at(&[o[0], o[1], i])).sum::<f64>() / window(o[2]).len() as f64
        });
        let maximum = Array::of(&shape, |o| window(o[2]).map(|i| x.at(&[o[0], o[1], i])).fold(f64::NEG_INFINITY, f64::max));
        assert_equal(&x.tensor().adaptive_avg_pool1d(output), &average);
        assert_equal(&x.tensor().adaptive_max_pool1d(output), &maximum);
    }
}

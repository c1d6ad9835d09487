//! The windows over one plane, in three dimensions (missing ones have size 1).

use meshwork_graph::ops::{Window, Windows};

/// One window along one dimension: the positions that lie inside the input.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first position inside.
    pub first: usize,
    /// Positions inside.
    pub length: usize,
    /// Distance between them.
    pub step: usize,
    /// What a mean counts.
    pub count: usize,
}

/// A plane and its windows.
pub struct Plane {
    /// Spatial sizes of the input.
    pub input: [usize; 3],
    /// Number of windows of each dimension.
    pub output: [usize; 3],
    /// The windows of each dimension, unless they are [`halves`](Self::halves).
    spans: [Vec<Span>; 3],
    /// Whether they [are halves](are_halves).
    pub halves: bool,
}

const ONE: Window = Window::Fixed { kernel: 1, stride: 1, padding: 0, dilation: 1, ceil: false };

/// Whether windows are 2 × 2 in the last two dimensions, 2 apart, and wholly inside.
pub fn are_halves(windows: &Windows, size: &[usize]) -> bool {
    let half = |window: &Window, size: usize| {
        matches!(*window, Window::Fixed { kernel: 2, stride: 2, padding: 0, dilation: 1, ceil }
            if !ceil || size.is_multiple_of(2))
    };
    let outer = windows.len().saturating_sub(2);
    let pairs = size[..outer].iter().all(|size| *size == 1) || size[outer].is_multiple_of(2);
    let mut inner = windows[outer..].iter().zip(&size[outer..]);
    windows.len() >= 2
        && windows[..outer].iter().all(|window| *window == ONE)
        && pairs
        && inner.all(|(window, size)| half(window, *size))
}

impl Plane {
    /// The windows over an input of spatial sizes `size`; `border` as in [`Window::count`].
    pub fn new(windows: &Windows, size: &[usize], border: bool) -> Self {
        let missing = 3 - windows.len();
        let window = |d: usize| if d < missing { ONE } else { windows[d - missing] };
        let input = std::array::from_fn(|d| if d < missing { 1 } else { size[d - missing] });
        let output = std::array::from_fn(|d| window(d).output(input[d]).unwrap_or(0));
        let halves = are_halves(windows, size);
        let count = |d: usize| if halves { 0 } else { output[d] };
        let span = |d: usize| move |i: usize| Span::new(&window(d), i, input[d], border);
        let spans: [Vec<Span>; 3] = std::array::from_fn(|d| (0..count(d)).map(span(d)).collect());
        Plane { input, output, spans, halves }
    }

    /// Elements of the input.
    pub fn input_len(&self) -> usize {
        self.input.iter().product()
    }

    /// Rows of the input that have windows, where these are [`halves`](Self::halves).
    pub fn whole_rows(&self) -> usize {
        if self.output[2] == 0 { 0 } else { self.input[0] * 2 * self.output[1] }
    }

    /// Number of windows.
    pub fn output_len(&self) -> usize {
        self.output.iter().product()
    }

    /// Calls `visit` for every line of the input that a row of windows has, with its number and where it begins.
    #[inline(always)]
    pub fn lines(&self, [a, b]: [&Span; 2], mut visit: impl FnMut(usize, usize)) {
        for i in 0..a.length {
            for j in 0..b.length {
                let line = ((a.first + i * a.step) * self.input[1] + b.first + j * b.step) * self.input[2];
                visit(i * b.length + j, line);
            }
        }
    }

    /// Calls `visit` for every window in row-major order, where they are not [`halves`](Self::halves).
    #[inline(always)]
    pub fn windows(&self, mut visit: impl FnMut(usize, [&Span; 3])) {
        let mut i = 0;
        for a in &self.spans[0] {
            for b in &self.spans[1] {
                for c in &self.spans[2] {
                    visit(i, [a, b, c]);
                    i += 1;
                }
            }
        }
    }

    /// Calls `visit` with the index of every position of a window in row-major order.
    #[inline(always)]
    pub fn positions(&self, window: [&Span; 3], mut visit: impl FnMut(usize)) {
        let [a, b, c] = window;
        self.lines([a, b], |_, line| {
            for k in 0..c.length {
                visit(line + c.first + k * c.step);
            }
        });
    }
}

impl Span {
    fn new(window: &Window, i: usize, size: usize, border: bool) -> Self {
        let (start, length, step) = window.span(i, size);
        let inside = |k: &usize| (0..size as isize).contains(&(start + (k * step) as isize));
        let first = (0..length).find(inside);
        Span {
            first: first.map_or(0, |k| (start + (k * step) as isize) as usize),
            length: (0..length).filter(inside).count(),
            step,
            count: window.count(i, size, border),
        }
    }
}

//! Windows that are evenly apart in the last dimension, a row of them at a time: a *tap* is one position of each of them, and
//! the taps of a row are taken one after the other, for many windows at once.
//!
//! A window's positions come in row-major order that way. What an input position receives comes in the order of the windows if
//! a line's taps are taken from the last to the first.

use super::spans::{Plane, Span};
use meshwork_graph::ops::Window;
use std::ops::Range;

/// Windows that are taken together, at most.
pub const TOGETHER: usize = 256;

/// Windows below which they are better taken one by one: taps of few windows make no vectors.
const FEW: usize = 32;

/// A row of windows.
pub struct Row {
    /// Distance between windows.
    pub stride: usize,
    taps: Vec<Tap>,
    /// What a mean counts in each window.
    counts: Vec<usize>,
}

/// One position of every window.
struct Tap {
    /// That of the first window, which may lie before the input.
    first: isize,
    /// The windows that have it inside.
    windows: Range<usize>,
    /// Those of them before this one have none of the taps before.
    fresh: usize,
}

/// A tap of windows that are taken together.
pub struct Step {
    /// Number of the tap among those of all lines.
    pub number: u32,
    /// The windows that have it inside, counted from the first that is taken.
    pub windows: Range<usize>,
    /// How many of them, the first ones, have none of the taps before.
    pub fresh: usize,
    /// Where it lies for the first of `windows`, in the plane.
    pub position: usize,
}

impl Row {
    /// The row of windows over `size` elements, if they are evenly apart and enough; `spans` are all of them.
    pub fn new(window: &Window, size: usize, spans: &[Span]) -> Option<Self> {
        let (kernel, stride, padding, dilation) = match *window {
            Window::Fixed { kernel, stride, padding, dilation, .. } => (kernel, stride, padding, dilation),
            Window::Adaptive { output } if output > 0 && size.is_multiple_of(output) => {
                (size / output, size / output, 0, 1)
            }
            Window::Adaptive { .. } => return None,
        };
        if spans.len() < FEW {
            return None;
        }
        // The windows whose first position lies from `padding` on have tap 0, and so on.
        let from = |tap: usize| padding.saturating_sub(tap * dilation).div_ceil(stride).min(spans.len());
        let to = |tap: usize| (size + padding).saturating_sub(tap * dilation).div_ceil(stride).min(spans.len());
        let taps = (0..kernel).map(|tap| {
            let windows = from(tap)..to(tap).max(from(tap));
            let fresh = if tap == 0 { windows.end } else { from(tap - 1) };
            Tap { first: (tap * dilation) as isize - padding as isize, windows, fresh }
        });
        Some(Row { stride, taps: taps.collect(), counts: spans.iter().map(|span| span.count).collect() })
    }

    /// What a mean counts in each of some windows.
    pub fn counts(&self, windows: &Range<usize>) -> &[usize] {
        &self.counts[windows.clone()]
    }

    /// The windows of a row, cut into ranges that are taken together.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let count = self.counts.len();
        (0..count).step_by(TOGETHER).map(move |start| start..(start + TOGETHER).min(count))
    }

    /// The taps of some windows, those of a line one after the other.
    #[inline(always)]
    pub fn forward(&self, plane: &Plane, lines: [&Span; 2], windows: &Range<usize>, mut visit: impl FnMut(Step)) {
        plane.lines(lines, |line, start| {
            for tap in 0..self.taps.len() {
                self.step(line, start, tap, windows, &mut visit);
            }
        });
    }

    /// As [`forward`](Self::forward), but the taps of a line from the last to the first.
    #[inline(always)]
    pub fn backward(&self, plane: &Plane, lines: [&Span; 2], windows: &Range<usize>, mut visit: impl FnMut(Step)) {
        plane.lines(lines, |line, start| {
            for tap in (0..self.taps.len()).rev() {
                self.step(line, start, tap, windows, &mut visit);
            }
        });
    }

    #[inline(always)]
    fn step(&self, line: usize, start: usize, tap: usize, together: &Range<usize>, visit: &mut impl FnMut(Step)) {
        let Tap { first, windows, fresh } = &self.taps[tap];
        let here = windows.start.max(together.start)..windows.end.min(together.end);
        if here.is_empty() {
            return;
        }
        let fresh = if line == 0 { fresh.clamp(&here.start, &here.end) - here.start } else { 0 };
        visit(Step {
            number: (line * self.taps.len() + tap) as u32,
            windows: here.start - together.start..here.end - together.start,
            fresh,
            position: start.wrapping_add_signed(first + (here.start * self.stride) as isize),
        });
    }
}

/// Calls `visit(i, i * stride)` for so many windows, the last of which lies inside of `len` elements.
///
/// # Panics
/// If it does not.
#[inline(always)]
pub fn along(stride: usize, count: usize, len: usize, mut visit: impl FnMut(usize, usize)) {
    assert!(count == 0 || (count - 1) * stride < len, "windows reach beyond a plane");
    // Strides that are known when this is compiled make vectors.
    match stride {
        1 => (0..count).for_each(|i| visit(i, i)),
        2 => (0..count).for_each(|i| visit(i, 2 * i)),
        _ => (0..count).for_each(|i| visit(i, stride * i)),
    }
}

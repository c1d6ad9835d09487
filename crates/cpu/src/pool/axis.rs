//! Windows that are evenly apart in one dimension.

use meshwork_graph::ops::Window;

/// The windows of one dimension.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    pub size: usize,
    pub windows: usize,
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
    pub dilation: usize,
}

impl Axis {
    /// Of a dimension that is missing.
    pub const ONE: Axis = Axis { size: 1, windows: 1, kernel: 1, stride: 1, padding: 0, dilation: 1 };

    /// Those over so many elements, if they are evenly apart and there are any.
    pub fn new(window: &Window, size: usize) -> Option<Axis> {
        let windows = window.output(size).filter(|n| *n > 0 && size > 0)?;
        match *window {
            Window::Fixed { kernel, stride, padding, dilation, .. } => {
                Some(Axis { size, windows, kernel, stride, padding, dilation })
            }
            Window::Adaptive { output } => size.is_multiple_of(output).then(|| {
                let kernel = size / output;
                Axis { size, windows, kernel, stride: kernel, padding: 0, dilation: 1 }
            }),
        }
    }

    /// Whether each position is a window.
    pub fn is_one_to_one(&self) -> bool {
        (self.kernel, self.stride, self.padding) == (1, 1, 0)
    }

    /// Whether one window has all positions.
    pub fn is_whole(&self) -> bool {
        (self.windows, self.kernel, self.padding) == (1, self.size, 0) && (self.dilation == 1 || self.size == 1)
    }

    /// Whether windows lie in runs of `stride` positions that make up all of the input.
    pub fn is_apart(&self) -> bool {
        self.padding == 0 && self.dilation * (self.kernel - 1) < self.stride && self.windows * self.stride == self.size
    }

    /// The last shift.
    pub fn reach(&self) -> usize {
        (self.kernel - 1) * self.dilation / self.stride
    }

    /// Positions of a phase: the windows and the last shift beyond them, and all of the input.
    pub fn extent(&self) -> usize {
        (self.windows + self.reach()).max((self.size + self.padding - 1) / self.stride + 1)
    }

    /// The position in the input of one in a phase.
    pub fn position(&self, phase: usize, at: isize) -> Option<usize> {
        let padded = at * self.stride as isize + phase as isize;
        usize::try_from(padded - self.padding as isize).ok().filter(|position| *position < self.size)
    }

    /// The first tap of a window that lies inside the input.
    pub fn first_tap(&self, window: usize) -> Option<usize> {
        let tap = self.padding.saturating_sub(window * self.stride).div_ceil(self.dilation);
        let position = window * self.stride + tap * self.dilation - self.padding;
        (tap < self.kernel && position < self.size).then_some(tap)
    }

    /// What a mean over a window counts; `border` as in [`Window::count`].
    pub fn count(&self, window: usize, border: bool) -> usize {
        let Axis { size, kernel, stride, padding, dilation, .. } = *self;
        Window::Fixed { kernel, stride, padding, dilation, ceil: false }.count(window, size, border)
    }
}

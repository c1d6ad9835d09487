//! Windows that are evenly apart, and their inputs laid out so that every tap is a shift.
//!
//! The input with its border is cut into *phases*: positions `stride` apart in each dimension. In a phase neighbours belong to
//! neighbouring windows, so what a tap gives to all windows is the phase from some element on, over the ends of rows, slices
//! and planes: what comes to lie between the windows there is of no meaning. That makes long vectors of any windows. Small planes
//! lie *abreast*, so that neighbours are of different planes.

use super::axis::Axis;
use super::rows::WOVEN;
use crate::gemm::Offsets;
use meshwork_graph::ops::Windows;
use std::ops::Range;

/// Elements of the phases of a task, about: they stay in the second-level cache.
const STAGED: usize = 24 << 10;

/// Tasks for each thread, if there is enough to do.
const TASKS: usize = 4;

/// Elements that passes take at a time at most. They may read, and write, so many beyond the end.
pub const TOGETHER: usize = 64;

/// Elements of a cache line of f32.
pub const LINE: usize = 16;

/// Columns below which planes lie abreast, if there are so many of them: copying short rows takes longer than turning them.
const NARROW: usize = 16;
const MANY: usize = 16;

/// Planes and their windows, cut into tasks.
#[derive(Clone, Debug)]
pub struct Phases {
    planes: usize,
    pub(super) axes: [Axis; 3],
    owned: Cut,
    /// Planes of a task.
    together: usize,
    /// Whether they lie abreast.
    pub(super) abreast: bool,
    /// The dimension that is cut, and into how many parts.
    cut: usize,
    parts: usize,
}

/// What tasks own parts of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Windows,
    Inputs,
}

/// A tap of all windows.
#[derive(Clone, Copy, Debug)]
pub struct Tap {
    /// Its number in row-major order.
    pub number: usize,
    /// The phase that it reads.
    pub phase: usize,
    /// How far behind that of a window.
    pub shift: usize,
}

/// The number of a position.
fn number(sizes: &[usize; 3], [slice, row, column]: [usize; 3]) -> usize {
    (slice * sizes[1] + row) * sizes[2] + column
}

/// What a task reads: planes, and in each dimension some positions of the phases.
#[derive(Clone, Debug)]
pub struct Part {
    pub planes: Range<usize>,
    /// The first position of each dimension, and how many there are.
    pub(super) first: [isize; 3],
    pub(super) extents: [usize; 3],
    /// Those of them that the task writes.
    pub(super) own: [Range<usize>; 3],
    /// Elements from position to position, and from plane to plane.
    pub step: usize,
    pub plane: usize,
}

impl Part {
    /// Elements of a phase.
    pub fn len(&self) -> usize {
        self.planes.len() * self.extents.iter().product::<usize>()
    }

    /// The element of a phase that a position of a plane is.
    pub(super) fn at(&self, plane: usize, position: [usize; 3]) -> usize {
        plane * self.plane + number(&self.extents, position) * self.step
    }

    /// Elements from the first to the last that the task writes.
    pub fn written(&self) -> Range<usize> {
        let first = self.at(0, self.own.each_ref().map(|own| own.start));
        first..self.at(self.planes.len() - 1, self.own.each_ref().map(|own| own.end - 1)) + 1
    }
}

/// A row of windows.
pub struct Line {
    /// The place of the first one among what is laid out as windows.
    pub at: usize,
    pub count: usize,
    /// The number of the first one in each dimension.
    pub window: [usize; 3],
}

impl Line {
    /// The number of window `i` in each dimension.
    pub fn nth(&self, i: usize) -> [usize; 3] {
        let [slice, row, column] = self.window;
        [slice, row, column + i]
    }
}

impl Phases {
    /// The windows over `planes` planes of these sizes, for so many threads; `None` where windows are not evenly apart, or
    /// there is nothing to do.
    pub fn new(windows: &Windows, planes: usize, size: &[usize], owned: Cut, threads: usize) -> Option<Self> {
        let (mut axes, missing) = ([Axis::ONE; 3], 3 - windows.len());
        for (d, (window, size)) in windows.iter().zip(size).enumerate() {
            axes[missing + d] = Axis::new(window, *size)?;
        }
        let mut planes = Some(planes).filter(|n| *n > 0)?;
        // Windows that have whole rows and slices are runs of a plane, and what lies apart lies apart over all rows and planes.
        for _ in 0..2 {
            let [a, b, c] = axes;
            if b.is_whole() && c.is_whole() {
                let size = b.size * c.size;
                axes = [Axis::ONE, a, Axis { size, windows: 1, kernel: size, stride: size, padding: 0, dilation: 1 }];
            }
        }
        for _ in 0..2 {
            let [a, b, c] = axes;
            if b.is_one_to_one() && c.is_apart() {
                axes = [Axis::ONE, a, Axis { size: b.size * c.size, windows: b.size * c.windows, ..c }];
            }
        }
        if axes[0].is_one_to_one() && axes[1].is_one_to_one() && axes[2].is_apart() {
            let [a, b, c] = axes;
            let rows = planes * a.size * b.size;
            axes = [Axis::ONE, Axis::ONE, Axis { size: rows * c.size, windows: rows * c.windows, ..c }];
            planes = 1;
        }
        let all = Phases { planes, axes, owned, together: 1, abreast: false, cut: 0, parts: 1 };
        let cut = (0..3).find(|&d| axes[d].extent() > 1).unwrap_or(2);
        let staged = all.count() * axes.iter().map(Axis::extent).product::<usize>();
        let tasks = (TASKS * threads).min(1 + planes * staged / (STAGED / TASKS));
        let together = (STAGED / staged).min(planes / tasks).max(1);
        let parts = if together > 1 { 1 } else { staged.div_ceil(2 * STAGED).max(tasks.div_ceil(planes)) };
        let copied = if axes[2].stride > WOVEN { axes[2].extent() } else { axes[2].size };
        let abreast = together >= MANY && copied < NARROW;
        Some(Phases { together, abreast, cut, parts: parts.min(all.length(cut)), ..all })
    }

    /// Positions of a dimension of which tasks own parts.
    fn length(&self, d: usize) -> usize {
        match self.owned {
            Cut::Windows => self.axes[d].windows,
            Cut::Inputs => self.axes[d].extent(),
        }
    }

    /// Positions before and behind those that a part owns, in the dimension that is cut. Inputs have windows that begin before
    /// them, which have positions behind them.
    fn around(&self) -> [usize; 2] {
        let reach = self.axes[self.cut].reach();
        [if self.owned == Cut::Windows { 0 } else { reach }, reach]
    }

    /// Phases.
    pub fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.stride).product()
    }

    /// Tasks.
    pub fn tasks(&self) -> usize {
        self.planes.div_ceil(self.together) * self.parts
    }

    /// What a task reads and writes.
    pub fn part(&self, task: usize) -> Part {
        let (part, first) = (task % self.parts, task / self.parts * self.together);
        let planes = first..(first + self.together).min(self.planes);
        let mut extents = self.axes.map(|axis| axis.extent());
        let mut own = std::array::from_fn(|d| 0..self.length(d));
        let mut first = [0; 3];
        if self.parts > 1 {
            let (d, [before, behind]) = (self.cut, self.around());
            let [start, end] = [part, part + 1].map(|part| part * self.length(d) / self.parts);
            first[d] = start as isize - before as isize;
            extents[d] = before + (end - start) + behind;
            own[d] = before..before + (end - start);
        }
        let positions = extents.iter().product();
        let (step, plane) = if self.abreast { (planes.len(), 1) } else { (1, positions) };
        Part { planes, first, extents, own, step, plane }
    }

    /// Positions in each dimension of any task at most.
    fn most(&self) -> [usize; 3] {
        let mut extents = self.axes.map(|axis| axis.extent());
        if self.parts > 1 {
            extents[self.cut] = self.length(self.cut).div_ceil(self.parts) + self.around().iter().sum::<usize>();
        }
        extents
    }

    /// Elements from phase to phase.
    pub fn distance(&self) -> usize {
        // An odd number of lines, so that the same element of all phases does not come to the same lines of a cache.
        (self.most_len().div_ceil(LINE) | 1) * LINE
    }

    /// Elements of all phases, and as many more as passes may reach beyond them.
    pub fn all_phases(&self) -> usize {
        self.count() * self.distance() + self.margin() + TOGETHER
    }

    /// Elements of what is laid out as windows, and as many more as passes may reach beyond and before them.
    pub fn all_windows(&self) -> usize {
        (self.most_len() + 2 * self.margin() + TOGETHER).next_multiple_of(LINE)
    }

    /// Elements of a phase of any task at most.
    fn most_len(&self) -> usize {
        self.together * self.most().iter().product::<usize>()
    }

    /// The last shift of any task, in whole lines: as far before the windows taps reach.
    pub fn margin(&self) -> usize {
        let last = number(&self.most(), self.axes.map(|axis| axis.reach()));
        (last * if self.abreast { self.together } else { 1 }).next_multiple_of(LINE)
    }

    /// The taps of the windows in some dimensions, in row-major order, and of the phases in these.
    pub fn taps_in(&self, part: &Part, dims: Range<usize>) -> Vec<Tap> {
        let mut taps = vec![Tap { number: 0, phase: 0, shift: 0 }];
        for d in dims {
            let (axis, mut unit) = (&self.axes[d], [0; 3]);
            unit[d] = part.step;
            let apart = number(&part.extents, unit);
            let next = |tap: Tap| {
                (0..axis.kernel).map(move |i| Tap {
                    number: tap.number * axis.kernel + i,
                    phase: tap.phase * axis.stride + i * axis.dilation % axis.stride,
                    shift: tap.shift + i * axis.dilation / axis.stride * apart,
                })
            };
            taps = taps.into_iter().flat_map(next).collect();
        }
        taps
    }

    /// The taps of the windows in row-major order.
    pub fn taps(&self, part: &Part) -> Vec<Tap> {
        self.taps_in(part, 0..3)
    }

    /// Phases in some dimensions, and taps.
    pub fn counts_in(&self, dims: Range<usize>) -> [usize; 2] {
        let axes = self.axes[dims].iter();
        [axes.clone().map(|axis| axis.stride).product(), axes.map(|axis| axis.kernel).product()]
    }

    /// For every phase the taps that read it, the last one first: so the windows that have a position come in row-major order.
    pub fn by_phase(&self, part: &Part) -> Vec<Vec<Tap>> {
        let mut phases = vec![Vec::new(); self.count()];
        self.taps(part).into_iter().rev().for_each(|tap| phases[tap.phase].push(tap));
        phases
    }

    /// The rows of windows of a plane that a part has whole.
    pub fn lines(&self, part: &Part) -> Vec<Line> {
        let [slices, rows, columns]: [Range<usize>; 3] = std::array::from_fn(|d| {
            let end = self.axes[d].windows as isize - part.first[d];
            let first = (-part.first[d]).max(0) as usize;
            first..(end.max(0) as usize).min(part.extents[d] - self.axes[d].reach())
        });
        let mut lines = Vec::with_capacity(slices.len() * rows.len());
        for slice in slices.filter(|_| !columns.is_empty()) {
            for row in rows.clone() {
                let at = [slice, row, columns.start];
                let window = std::array::from_fn(|d| (part.first[d] + at[d] as isize) as usize);
                lines.push(Line { at: part.at(0, at), count: columns.len(), window });
            }
        }
        lines
    }

    /// Elements of a plane.
    pub fn size(&self) -> usize {
        self.axes.iter().map(|axis| axis.size).product()
    }

    /// Windows of a plane.
    pub fn windows(&self) -> usize {
        self.axes.iter().map(|axis| axis.windows).product()
    }

    /// The number of a window in its plane.
    pub fn window(&self, window: [usize; 3]) -> usize {
        number(&self.axes.map(|axis| axis.windows), window)
    }

    /// Whether what a part owns of a plane is one range.
    pub fn owns_ranges(&self) -> bool {
        self.parts == 1 || self.axes[..self.cut].iter().all(|axis| axis.size == 1)
    }

    /// The elements of a plane that a part owns, if [it is one range](Self::owns_ranges).
    pub fn owned(&self, part: &Part) -> Range<usize> {
        if self.parts == 1 {
            return 0..self.size();
        }
        let (d, axis) = (self.cut, &self.axes[self.cut]);
        let inner: usize = self.axes[d + 1..].iter().map(|axis| axis.size).product();
        let at = |at: usize| {
            let padded = (part.first[d] + at as isize) * axis.stride as isize;
            (padded - axis.padding as isize).clamp(0, axis.size as isize) as usize * inner
        };
        at(part.own[d].start)..at(part.own[d].end)
    }

    /// From where a window begins to each of its taps.
    pub fn offsets(&self) -> Vec<isize> {
        let steps = [self.axes[1].size * self.axes[2].size, self.axes[2].size, 1];
        let axis =
            |offsets: Offsets, (axis, step): (&Axis, usize)| offsets.axis(axis.kernel, (axis.dilation * step) as isize);
        self.axes.iter().zip(steps).fold(Offsets::new(), axis).all()
    }

    /// Where a window begins, which may be before its plane, and the distance to the next one of its row.
    pub fn begin(&self, window: [usize; 3]) -> (isize, usize) {
        let at = |d: usize| (window[d] * self.axes[d].stride) as isize - self.axes[d].padding as isize;
        let sizes = self.axes.map(|axis| axis.size as isize);
        ((at(0) * sizes[1] + at(1)) * sizes[2] + at(2), self.axes[2].stride)
    }

    /// Where all windows are runs of memory of at least so many elements, side by side but for some elements behind each: elements of
    /// one, and from one to the next.
    pub fn runs(&self, least: usize) -> Option<[usize; 2]> {
        let [a, b, c] = &self.axes;
        let one = self.planes == 1 && a.size == 1 && b.size == 1 && c.is_apart() && c.dilation == 1;
        (one && c.kernel >= least).then_some([c.kernel, c.stride])
    }

    /// What means over the windows of each dimension count, or one number where it is that of all; `border` as in [`Window::count`].
    pub fn counts(&self, border: bool) -> [Vec<usize>; 3] {
        self.axes.map(|axis| {
            let count = |i| axis.count(i, border);
            if axis.is_apart() || (1..axis.windows).all(|i| count(i) == count(0)) {
                return vec![count(0)];
            }
            (0..axis.windows).map(count).collect()
        })
    }

    /// The first tap of a window that lies inside the input.
    pub fn first_tap(&self, window: [usize; 3]) -> Option<usize> {
        self.axes
            .iter()
            .zip(window)
            .try_fold(0, |number, (axis, window)| axis.first_tap(window).map(|tap| number * axis.kernel + tap))
    }
}

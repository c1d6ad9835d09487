//! Windows that are evenly apart, and their inputs laid out so that every tap is a shift.
//!
//! The input with its border is cut into *phases*: positions `stride` apart in each dimension. In a phase neighbours belong to
//! neighbouring windows, so what a tap gives to all windows is the phase from some element on, over the ends of rows, slices
//! and planes: what comes to lie between the windows there is of no meaning. That makes long vectors of any windows.

use crate::gemm::Element;
use meshwork_graph::ops::{Window, Windows};
use std::ops::Range;

/// Elements of the phases of a task, about: they stay in the second-level cache.
const STAGED: usize = 24 << 10;

/// Tasks for each thread, if there is enough to do.
const TASKS: usize = 4;

/// Elements that passes take at a time at most. They may read, and write, so many beyond the end.
pub const TOGETHER: usize = 64;

/// Elements of a cache line of f32.
const LINE: usize = 16;

/// The windows of one dimension.
#[derive(Clone, Copy, Debug)]
struct Axis {
    size: usize,
    windows: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
}

impl Axis {
    const ONE: Axis = Axis { size: 1, windows: 1, kernel: 1, stride: 1, padding: 0, dilation: 1 };

    fn new(window: &Window, size: usize) -> Option<Axis> {
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
    fn is_one_to_one(&self) -> bool {
        (self.kernel, self.stride, self.padding) == (1, 1, 0)
    }

    /// Whether one window has all positions.
    fn is_whole(&self) -> bool {
        (self.windows, self.kernel, self.padding) == (1, self.size, 0) && (self.dilation == 1 || self.size == 1)
    }

    /// Whether windows lie in runs of `stride` positions that make up all of the input.
    fn is_apart(&self) -> bool {
        self.padding == 0 && self.dilation * (self.kernel - 1) < self.stride && self.windows * self.stride == self.size
    }

    /// The last shift.
    fn reach(&self) -> usize {
        (self.kernel - 1) * self.dilation / self.stride
    }

    /// Positions of a phase: the windows and the last shift beyond them, and all of the input.
    fn extent(&self) -> usize {
        (self.windows + self.reach()).max((self.size + self.padding - 1) / self.stride + 1)
    }

    /// The position in the input of one in a phase.
    fn position(&self, phase: usize, at: isize) -> Option<usize> {
        let padded = at * self.stride as isize + phase as isize;
        usize::try_from(padded - self.padding as isize).ok().filter(|position| *position < self.size)
    }

    /// What a mean over a window counts; `border` as in [`Window::count`].
    fn count(&self, window: usize, border: bool) -> usize {
        let Axis { size, kernel, stride, padding, dilation, .. } = *self;
        Window::Fixed { kernel, stride, padding, dilation, ceil: false }.count(window, size, border)
    }
}

/// Planes and their windows, cut into tasks.
#[derive(Clone, Debug)]
pub struct Phases {
    planes: usize,
    axes: [Axis; 3],
    /// Planes of a task.
    together: usize,
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

/// Elements from a position in a phase to one so many slices, rows and columns behind it.
fn shift(extents: &[usize; 3], [slices, rows, columns]: [usize; 3]) -> usize {
    (slices * extents[1] + rows) * extents[2] + columns
}

/// What a task reads: planes, and in each dimension some positions of the phases.
#[derive(Clone, Debug)]
pub struct Part {
    planes: Range<usize>,
    /// The first position of each dimension, and how many there are.
    first: [isize; 3],
    extents: [usize; 3],
    /// Those of them that the task writes.
    own: [Range<usize>; 3],
}

impl Part {
    /// Positions of a phase.
    pub fn len(&self) -> usize {
        self.planes.len() * self.extents.iter().product::<usize>()
    }

    /// The element of a phase where a row begins.
    fn row(&self, plane: usize, [slice, row]: [usize; 2]) -> usize {
        ((plane * self.extents[0] + slice) * self.extents[1] + row) * self.extents[2]
    }

    /// Elements from the first to the last that the task writes.
    pub fn written(&self) -> Range<usize> {
        let [slices, rows, columns] = &self.own;
        let first = self.row(0, [slices.start, rows.start]) + columns.start;
        let last = self.row(self.planes.len() - 1, [slices.end - 1, rows.end - 1]) + columns.end;
        first..last
    }
}

/// A run of a row of the input that lies in one phase.
struct Run {
    /// The first element of the phase's row, and of the run.
    row: usize,
    first: usize,
    count: usize,
}

/// Some columns of rows of the input, in their phases.
struct Columns {
    /// Columns of the input.
    range: Range<usize>,
    /// The runs that begin at the first column, the second, …, as many as the stride.
    runs: Vec<Run>,
    /// Elements of a phase's row.
    extent: usize,
}

impl Columns {
    /// Those of a part at `at` of its own positions, in phases `distance` apart.
    fn new(axis: &Axis, first: isize, at: Range<usize>, extent: usize, distance: usize) -> Self {
        let stride = axis.stride;
        let column = |at: usize| (first + at as isize) * stride as isize - axis.padding as isize;
        let range = column(at.start).clamp(0, axis.size as isize)..column(at.end).clamp(0, axis.size as isize);
        let lead = (range.start - column(0)) as usize;
        let range = range.start as usize..range.end as usize;
        let run = |c: usize| Run {
            row: (lead + c) % stride * distance,
            first: ((lead + c) / stride).min(extent),
            count: range.len().saturating_sub(c).div_ceil(stride),
        };
        Columns { runs: (0..stride).map(run).collect(), range, extent }
    }
}

impl Phases {
    /// The windows over `planes` planes of these sizes, for so many threads; `None` where windows are not evenly apart, or
    /// there is nothing to do.
    pub fn new(windows: &Windows, planes: usize, size: &[usize], cut: Cut, threads: usize) -> Option<Self> {
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
        let all = Phases { planes, axes, together: 1, cut: 0, parts: 1 };
        let dim = (0..3).find(|&d| axes[d].extent() > 1).unwrap_or(2);
        let staged = all.count() * axes.iter().map(Axis::extent).product::<usize>();
        let tasks = (TASKS * threads).min(1 + planes * staged / (STAGED / TASKS));
        let together = (STAGED / staged.max(1)).min(planes / tasks).max(1);
        let length = match cut {
            Cut::Windows => axes[dim].windows,
            Cut::Inputs => axes[dim].extent(),
        };
        let parts = if together > 1 { 1 } else { staged.div_ceil(2 * STAGED).max(tasks.div_ceil(planes)).min(length) };
        Some(Phases { together, cut: dim, parts, ..all })
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
    pub fn part(&self, cut: Cut, task: usize) -> Part {
        let (part, first) = (task % self.parts, task / self.parts * self.together);
        let planes = first..(first + self.together).min(self.planes);
        let mut all =
            Part { planes, first: [0; 3], extents: self.axes.map(|axis| axis.extent()), own: Default::default() };
        for (d, axis) in self.axes.iter().enumerate() {
            let length = if cut == Cut::Windows { axis.windows } else { axis.extent() };
            all.own[d] = 0..length;
            if d == self.cut && self.parts > 1 {
                let own = part * length / self.parts..(part + 1) * length / self.parts;
                // Inputs have windows that begin before them, which have positions behind them.
                let before = if cut == Cut::Windows { 0 } else { axis.reach() };
                all.first[d] = own.start as isize - before as isize;
                all.extents[d] = before + own.len() + axis.reach();
                all.own[d] = before..before + own.len();
            }
        }
        all
    }

    /// Positions in each dimension of any task at most.
    fn most(&self, cut: Cut) -> [usize; 3] {
        std::array::from_fn(|d| match (d == self.cut && self.parts > 1, cut) {
            (false, _) => self.axes[d].extent(),
            (true, Cut::Windows) => self.axes[d].windows.div_ceil(self.parts) + self.axes[d].reach(),
            (true, Cut::Inputs) => self.axes[d].extent().div_ceil(self.parts) + 2 * self.axes[d].reach(),
        })
    }

    /// Elements from phase to phase, and of what is laid out as windows.
    pub fn distance(&self, cut: Cut) -> usize {
        let room = self.together * self.most(cut).iter().product::<usize>() + self.margin(cut) + TOGETHER;
        // An odd number of lines, so that the same element of all phases does not come to the same lines of a cache.
        (room.div_ceil(LINE) | 1) * LINE
    }

    /// The last shift of any task, in whole lines: as far before the windows taps reach.
    pub fn margin(&self, cut: Cut) -> usize {
        shift(&self.most(cut), self.axes.map(|axis| axis.reach())).next_multiple_of(LINE)
    }

    /// The taps of the windows in row-major order.
    pub fn taps(&self, part: &Part) -> Vec<Tap> {
        let [a, b, c] = &self.axes;
        let mut taps = Vec::with_capacity(a.kernel * b.kernel * c.kernel);
        for i in 0..a.kernel {
            for j in 0..b.kernel {
                for k in 0..c.kernel {
                    let at = [i * a.dilation, j * b.dilation, k * c.dilation];
                    let [x, y, z] = std::array::from_fn(|d| at[d] % self.axes[d].stride);
                    let shift = shift(&part.extents, std::array::from_fn(|d| at[d] / self.axes[d].stride));
                    taps.push(Tap { number: taps.len(), phase: (x * b.stride + y) * c.stride + z, shift });
                }
            }
        }
        taps
    }

    /// For every phase the taps that read it, the last one first: so the windows that have a position come in row-major order.
    pub fn by_phase(&self, part: &Part) -> Vec<Vec<Tap>> {
        let mut phases = vec![Vec::new(); self.count()];
        self.taps(part).into_iter().rev().for_each(|tap| phases[tap.phase].push(tap));
        phases
    }

    /// Copies what a part reads into its phases, `distance` apart, with `border` around.
    ///
    /// # Safety
    /// `x` must have all planes, and `to` all phases.
    #[inline(always)]
    pub unsafe fn split<S: Element>(
        &self,
        part: &Part,
        x: *const S,
        border: S::Real,
        to: *mut S::Real,
        distance: usize,
    ) {
        let c = &self.axes[2];
        let columns = Columns::new(c, part.first[2], 0..part.extents[2], part.extents[2], distance);
        for Row { phases, input } in self.rows(part, [0..part.extents[0], 0..part.extents[1]], distance) {
            let to = to.wrapping_add(phases);
            match input {
                // SAFETY: the row of the input; rows of the phases.
                Some(input) => unsafe { columns.split(x.add(input + columns.range.start), to, border) },
                None => {
                    for phase in 0..c.stride {
                        // SAFETY: a row of a phase.
                        unsafe { std::slice::from_raw_parts_mut(to.add(phase * distance), columns.extent) }
                            .fill(border);
                    }
                }
            }
        }
    }

    /// Copies what a part owns from its phases to where it belongs.
    ///
    /// # Safety
    /// `from` must have all phases, and `x` all planes.
    #[inline(always)]
    pub unsafe fn join<S: Element>(&self, part: &Part, from: *const S::Real, distance: usize, x: *mut S) {
        let c = &self.axes[2];
        let columns = Columns::new(c, part.first[2], part.own[2].clone(), part.extents[2], distance);
        for Row { phases, input } in self.rows(part, [part.own[0].clone(), part.own[1].clone()], distance) {
            if let Some(input) = input {
                // SAFETY: rows of the phases; the row of the input.
                unsafe { columns.join(from.add(phases), x.add(input + columns.range.start)) };
            }
        }
    }

    /// The rows at these positions of all phases, in the order of the input.
    fn rows(&self, part: &Part, at: [Range<usize>; 2], distance: usize) -> Vec<Row> {
        let [a, b, c] = &self.axes;
        let mut rows = Vec::with_capacity(part.planes.len() * at[0].len() * a.stride * at[1].len() * b.stride);
        for plane in 0..part.planes.len() {
            for (slice, i) in at[0].clone().flat_map(|slice| (0..a.stride).map(move |i| (slice, i))) {
                let x = a.position(i, part.first[0] + slice as isize);
                for (row, j) in at[1].clone().flat_map(|row| (0..b.stride).map(move |j| (row, j))) {
                    let y = b.position(j, part.first[1] + row as isize);
                    let input =
                        x.zip(y).map(|(x, y)| (((part.planes.start + plane) * a.size + x) * b.size + y) * c.size);
                    let phases = (i * b.stride + j) * c.stride * distance + part.row(plane, [slice, row]);
                    rows.push(Row { phases, input });
                }
            }
        }
        rows
    }

    /// The rows of windows that a part has whole.
    pub fn windows(&self, part: &Part) -> Vec<Line> {
        let [slices, rows, columns]: [Range<usize>; 3] = std::array::from_fn(|d| {
            let end = self.axes[d].windows as isize - part.first[d];
            let first = (-part.first[d]).max(0) as usize;
            first..(end.max(0) as usize).min(part.extents[d] - self.axes[d].reach())
        });
        let [a, b, c] = &self.axes;
        let mut lines = Vec::with_capacity(part.planes.len() * slices.len() * rows.len());
        for plane in (0..part.planes.len()).filter(|_| !columns.is_empty()) {
            for slice in slices.clone() {
                for row in rows.clone() {
                    let at = [slice, row, columns.start];
                    let window = std::array::from_fn(|d| (part.first[d] + at[d] as isize) as usize);
                    let [x, y, z] = window;
                    let number = (((part.planes.start + plane) * a.windows + x) * b.windows + y) * c.windows + z;
                    let at = part.row(plane, [slice, row]) + columns.start;
                    lines.push(Line { at, number, count: columns.len(), window });
                }
            }
        }
        lines
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

    /// Where the plane begins that has window `number`.
    pub fn plane(&self, number: usize) -> usize {
        let [windows, size] =
            [|axis: &Axis| axis.windows, |axis: &Axis| axis.size].map(|of| self.axes.iter().map(of).product::<usize>());
        number / windows * size
    }

    /// The positions of a window in its plane, in row-major order, with the tap's number.
    pub fn positions(&self, window: [usize; 3]) -> impl Iterator<Item = (usize, usize)> {
        let [a, b, c] = self.axes;
        let inside = move |axis: Axis, d: usize| {
            (0..axis.kernel).filter_map(move |tap| {
                let at = window[d] * axis.stride + tap * axis.dilation;
                at.checked_sub(axis.padding).filter(|at| *at < axis.size).map(|at| (tap, at))
            })
        };
        inside(a, 0).flat_map(move |(i, x)| {
            inside(b, 1).flat_map(move |(j, y)| {
                inside(c, 2).map(move |(k, z)| ((i * b.kernel + j) * c.kernel + k, (x * b.size + y) * c.size + z))
            })
        })
    }
}

/// A row of the input.
struct Row {
    /// Where it begins in the first of the phases that its columns are in.
    phases: usize,
    /// Where it begins in the input, if it does not lie in the border.
    input: Option<usize>,
}

/// A row of windows.
pub struct Line {
    /// The place of the first one among what is laid out as windows, and its number among those of all planes.
    pub at: usize,
    pub number: usize,
    pub count: usize,
    /// The number of the first one in each dimension.
    pub window: [usize; 3],
}

impl Columns {
    /// # Safety
    /// `from` must have the columns, and `to` the rows of all phases.
    #[inline(always)]
    unsafe fn split<S: Element>(&self, from: *const S, to: *mut S::Real, border: S::Real) {
        for run in &self.runs {
            // SAFETY: a row of a phase.
            let row = unsafe { std::slice::from_raw_parts_mut(to.add(run.row), self.extent) };
            row[..run.first].fill(border);
            row[run.first + run.count..].fill(border);
        }
        // SAFETY: the columns.
        let from = unsafe { std::slice::from_raw_parts(from, self.range.len()) };
        let to = |run: usize| to.wrapping_add(self.runs[run].row + self.runs[run].first);
        // SAFETY: every run has room in its row.
        unsafe {
            match self.runs.len() {
                1 => split_runs::<S, 1>(from, to),
                2 => split_runs::<S, 2>(from, to),
                3 => split_runs::<S, 3>(from, to),
                4 => split_runs::<S, 4>(from, to),
                stride => {
                    for (i, run) in self.runs.iter().enumerate() {
                        let to = to(i);
                        for j in 0..run.count {
                            *to.add(j) = from.get_unchecked(i + j * stride).widen();
                        }
                    }
                }
            }
        }
    }

    /// # Safety
    /// `from` must have the rows of all phases, and `to` the columns.
    #[inline(always)]
    unsafe fn join<S: Element>(&self, from: *const S::Real, to: *mut S) {
        // SAFETY: the columns.
        let to = unsafe { std::slice::from_raw_parts_mut(to, self.range.len()) };
        let from = |run: usize| from.wrapping_add(self.runs[run].row + self.runs[run].first);
        // SAFETY: every run lies in its row.
        unsafe {
            match self.runs.len() {
                1 => join_runs::<S, 1>(from, to),
                2 => join_runs::<S, 2>(from, to),
                3 => join_runs::<S, 3>(from, to),
                4 => join_runs::<S, 4>(from, to),
                stride => {
                    for (i, run) in self.runs.iter().enumerate() {
                        let from = from(i);
                        for j in 0..run.count {
                            *to.get_unchecked_mut(i + j * stride) = S::narrow(*from.add(j));
                        }
                    }
                }
            }
        }
    }
}

/// Calls a function of so many elements at a time, the last ones of which overlap those before, since rows are often shorter than
/// what a loop would be unrolled to.
macro_rules! overlapping {
    ($count:expr, $name:ident::<$element:ty, $stride:ident>($($arg:expr),*)) => {
        match $count {
            16.. => $name::<$element, $stride, 16>($($arg),*),
            8.. => $name::<$element, $stride, 8>($($arg),*),
            4.. => $name::<$element, $stride, 4>($($arg),*),
            _ => $name::<$element, $stride, 1>($($arg),*),
        }
    };
}

/// Copies every `STRIDE`-th element to a run of its own.
///
/// # Safety
/// There must be room where `to` says that each run begins.
#[inline(always)]
unsafe fn split_runs<S: Element, const STRIDE: usize>(from: &[S], to: impl Fn(usize) -> *mut S::Real) {
    let (groups, rest) = from.as_chunks::<STRIDE>();
    let to: [_; STRIDE] = std::array::from_fn(to);
    // SAFETY: the caller's promise.
    unsafe {
        overlapping!(groups.len(), split_groups::<S, STRIDE>(groups, to));
        for (x, to) in rest.iter().zip(to) {
            *to.add(groups.len()) = x.widen();
        }
    }
}

#[inline(always)]
unsafe fn split_groups<S: Element, const STRIDE: usize, const N: usize>(
    from: &[[S; STRIDE]],
    to: [*mut S::Real; STRIDE],
) {
    for i in (0..from.len()).step_by(N) {
        let i = i.min(from.len() - N);
        let from = &from[i..][..N];
        for (c, to) in to.iter().enumerate() {
            let run: [S::Real; N] = std::array::from_fn(|k| from[k][c].widen());
            // SAFETY: the caller's promise.
            unsafe { to.add(i).cast::<[S::Real; N]>().write_unaligned(run) };
        }
    }
}

/// Copies runs to every `STRIDE`-th element.
///
/// # Safety
/// There must be elements where `from` says that each run begins.
#[inline(always)]
unsafe fn join_runs<S: Element, const STRIDE: usize>(from: impl Fn(usize) -> *const S::Real, to: &mut [S]) {
    let (groups, rest) = to.as_chunks_mut::<STRIDE>();
    let from: [_; STRIDE] = std::array::from_fn(from);
    // SAFETY: the caller's promise.
    unsafe {
        overlapping!(groups.len(), join_groups::<S, STRIDE>(from, groups));
        for (from, to) in from.into_iter().zip(rest) {
            *to = S::narrow(*from.add(groups.len()));
        }
    }
}

#[inline(always)]
unsafe fn join_groups<S: Element, const STRIDE: usize, const N: usize>(
    from: [*const S::Real; STRIDE],
    to: &mut [[S; STRIDE]],
) {
    let count = to.len();
    for i in (0..count).step_by(N) {
        let i = i.min(count - N);
        // SAFETY: the caller's promise.
        let runs = from.map(|from| unsafe { from.add(i).cast::<[S::Real; N]>().read_unaligned() });
        let groups: [[S; STRIDE]; N] = std::array::from_fn(|k| std::array::from_fn(|c| S::narrow(runs[c][k])));
        to[i..][..N].copy_from_slice(&groups);
    }
}

/// Copies a row of numbers to elements.
#[inline(always)]
pub fn narrow_row<S: Element>(from: &[S::Real], to: &mut [S]) {
    let from = from[..to.len()].as_ptr();
    // SAFETY: one run of as many elements.
    unsafe { join_runs::<S, 1>(|_| from, to) };
}

/// Copies a row of elements to numbers.
#[inline(always)]
pub fn widen_row<S: Element>(from: &[S], to: &mut [S::Real]) {
    let to = to[..from.len()].as_mut_ptr();
    // SAFETY: room for one run of as many elements.
    unsafe { split_runs::<S, 1>(from, |_| to) };
}

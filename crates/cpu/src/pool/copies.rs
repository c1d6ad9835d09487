//! What is copied: the input into phases and back, and what windows have, as it lies and as it is laid out.

use super::axis::Axis;
use super::phases::{Line, Part, Phases};
use super::rows::{Columns, narrow_row, widen_row};
use super::turn::{turn, turn_back};
use crate::Level;
use crate::gemm::Element;
use std::ops::Range;

/// A row of the input.
struct Row {
    /// Where it begins in the first of the phases that its columns are in.
    phases: usize,
    /// Where it begins in the plane, if it does not lie in the border.
    input: Option<usize>,
}

impl Phases {
    /// Copies what a part reads into its phases, with `border` around.
    ///
    /// # Safety
    /// `x` must have all planes, and `to` all phases.
    pub unsafe fn split<S: Element>(&self, level: Level, part: &Part, x: *const S, border: S::Real, to: *mut S::Real) {
        split(level, self, part, x, border, to);
    }

    /// Copies what a part owns from its phases to where it belongs.
    ///
    /// # Safety
    /// `from` must have all phases, and `x` all planes.
    pub unsafe fn join<S: Element>(&self, level: Level, part: &Part, from: *const S::Real, x: *mut S) {
        join(level, self, part, from, x);
    }

    /// Copies what is laid out as windows of a part to where they belong.
    ///
    /// # Safety
    /// `from` must have the windows, and `out` those of all planes.
    pub unsafe fn join_windows<S: Element>(&self, level: Level, part: &Part, from: *const S::Real, out: *mut S) {
        join_windows(level, self, part, from, out);
    }

    /// Lays out what the windows of a part have.
    ///
    /// # Safety
    /// `from` must have the windows of all planes, and `to` room for those of the part.
    pub unsafe fn split_windows<S: Element>(&self, level: Level, part: &Part, from: *const S, to: *mut S::Real) {
        split_windows(level, self, part, from, to);
    }

    /// Where the positions of planes that lie abreast are in the phases.
    fn places(&self, part: &Part) -> Vec<usize> {
        let [a, b, c] = &self.axes;
        let of = |axis: &Axis, i: usize| ((i + axis.padding) % axis.stride, (i + axis.padding) / axis.stride);
        let mut places = Vec::with_capacity(self.size());
        for (i, x) in (0..a.size).map(|i| of(a, i)) {
            for (j, y) in (0..b.size).map(|j| of(b, j)) {
                for (k, z) in (0..c.size).map(|k| of(c, k)) {
                    places.push(((i * b.stride + j) * c.stride + k) * self.distance() + part.at(0, [x, y, z]));
                }
            }
        }
        places
    }

    /// Where the windows of planes that lie abreast are among what is laid out as windows.
    fn window_places(&self, part: &Part) -> Vec<usize> {
        let place = |line: &Line, i: usize| line.at + i * part.step;
        self.lines(part).iter().flat_map(|line| (0..line.count).map(move |i| place(line, i))).collect()
    }

    /// The rows of a plane at these positions of all phases, in the order of the input.
    fn rows(&self, part: &Part, at: [Range<usize>; 2]) -> Vec<Row> {
        let ([a, b, c], distance) = (&self.axes, self.distance());
        let mut rows = Vec::with_capacity(at[0].len() * a.stride * at[1].len() * b.stride);
        for (slice, i) in at[0].clone().flat_map(|slice| (0..a.stride).map(move |i| (slice, i))) {
            let x = a.position(i, part.first[0] + slice as isize);
            for (row, j) in at[1].clone().flat_map(|row| (0..b.stride).map(move |j| (row, j))) {
                let y = b.position(j, part.first[1] + row as isize);
                let input = x.zip(y).map(|(x, y)| (x * b.size + y) * c.size);
                let phases = (i * b.stride + j) * c.stride * distance + part.at(0, [slice, row, 0]);
                rows.push(Row { phases, input });
            }
        }
        rows
    }
}

meshwork_simd::multiversion! {
    fn split<S: Element>(phases: &Phases, part: &Part, x: *const S, border: S::Real, to: *mut S::Real) = split_at_level;
}

meshwork_simd::multiversion! {
    fn join<S: Element>(phases: &Phases, part: &Part, from: *const S::Real, x: *mut S) = join_at_level;
}

meshwork_simd::multiversion! {
    fn join_windows<S: Element>(phases: &Phases, part: &Part, from: *const S::Real, out: *mut S) = join_windows_at_level;
}

meshwork_simd::multiversion! {
    fn split_windows<S: Element>(phases: &Phases, part: &Part, from: *const S, to: *mut S::Real) = split_windows_at_level;
}

#[inline(always)]
fn split_at_level<S: Element>(phases: &Phases, part: &Part, x: *const S, border: S::Real, to: *mut S::Real) {
    let (c, distance, size) = (&phases.axes[2], phases.distance(), phases.size());
    let x = x.wrapping_add(part.planes.start * size);
    if phases.abreast {
        if phases.count() * part.len() > part.planes.len() * size {
            // SAFETY: the phases.
            unsafe { std::slice::from_raw_parts_mut(to, phases.count() * distance) }.fill(border);
        }
        // SAFETY: the planes of the part, and their phases.
        return unsafe { turn(x, size, part.planes.len(), to, &phases.places(part)) };
    }
    let columns = Columns::new(c, part.first[2], 0..part.extents[2], part.extents[2], distance);
    let rows = phases.rows(part, [0..part.extents[0], 0..part.extents[1]]);
    for plane in 0..part.planes.len() {
        let (x, to) = (x.wrapping_add(plane * size), to.wrapping_add(plane * part.plane));
        for Row { phases, input } in &rows {
            let to = to.wrapping_add(*phases);
            match input {
                // SAFETY: the row of the input; rows of the phases.
                Some(input) => unsafe { columns.split(x.add(input + columns.range.start), to, border) },
                None => {
                    for phase in 0..c.stride {
                        // SAFETY: a row of a phase.
                        let row = unsafe { std::slice::from_raw_parts_mut(to.add(phase * distance), columns.extent) };
                        row.fill(border);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn join_at_level<S: Element>(phases: &Phases, part: &Part, from: *const S::Real, x: *mut S) {
    let size = phases.size();
    let x = x.wrapping_add(part.planes.start * size);
    if phases.abreast {
        // SAFETY: the planes of the part, and their phases.
        return unsafe { turn_back(from, &phases.places(part), x, size, part.planes.len()) };
    }
    let columns = Columns::new(&phases.axes[2], part.first[2], part.own[2].clone(), part.extents[2], phases.distance());
    let rows = phases.rows(part, [part.own[0].clone(), part.own[1].clone()]);
    for plane in 0..part.planes.len() {
        let (x, from) = (x.wrapping_add(plane * size), from.wrapping_add(plane * part.plane));
        for Row { phases, input } in &rows {
            if let Some(input) = input {
                // SAFETY: rows of the phases; the row of the input.
                unsafe { columns.join(from.add(*phases), x.add(input + columns.range.start)) };
            }
        }
    }
}

#[inline(always)]
fn join_windows_at_level<S: Element>(phases: &Phases, part: &Part, from: *const S::Real, out: *mut S) {
    let windows = phases.windows();
    let out = out.wrapping_add(part.planes.start * windows);
    if phases.abreast {
        // SAFETY: the windows of the part's planes.
        return unsafe { turn_back(from, &phases.window_places(part), out, windows, part.planes.len()) };
    }
    let lines = phases.lines(part);
    for plane in 0..part.planes.len() {
        for line in &lines {
            // SAFETY: a row of windows.
            unsafe {
                let from = std::slice::from_raw_parts(from.add(plane * part.plane + line.at), line.count);
                let to = out.add(plane * windows + phases.window(line.window));
                narrow_row(from, std::slice::from_raw_parts_mut(to, line.count));
            }
        }
    }
}

#[inline(always)]
fn split_windows_at_level<S: Element>(phases: &Phases, part: &Part, from: *const S, to: *mut S::Real) {
    let windows = phases.windows();
    let from = from.wrapping_add(part.planes.start * windows);
    if phases.abreast {
        // SAFETY: the windows of the part's planes.
        return unsafe { turn(from, windows, part.planes.len(), to, &phases.window_places(part)) };
    }
    let lines = phases.lines(part);
    for plane in 0..part.planes.len() {
        for line in &lines {
            // SAFETY: a row of windows.
            unsafe {
                let from = from.add(plane * windows + phases.window(line.window));
                let to = std::slice::from_raw_parts_mut(to.add(plane * part.plane + line.at), line.count);
                widen_row(std::slice::from_raw_parts(from, line.count), to);
            }
        }
    }
}

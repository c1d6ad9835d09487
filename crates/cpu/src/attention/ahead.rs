//! What the kernels of a task ask for while they compute: the rows that the next task reads. Those of a head lie far apart, a
//! line or two of each, which no processor's prefetcher follows.

use super::rows::Matrix;
use meshwork_simd::line::{LINE, Lines};
use meshwork_simd::microkernel::ASKING;
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;
use std::mem::size_of;

/// Lines that are asked for, at most, or none: the second-level cache keeps them beside what the task needs.
const MOST: usize = 2048;

/// Lines, of which the first ones have been asked for.
pub struct Ahead {
    state: RefCell<State>,
    /// How many more there may be.
    room: usize,
}

struct State {
    /// Behind the last run is one of none.
    runs: SmallVec<[Lines; 20]>,
    /// The first run of which not all have been asked for.
    next: usize,
}

impl Ahead {
    /// No lines.
    pub fn new() -> Self {
        Ahead { state: RefCell::new(State { runs: smallvec![*Lines::NONE], next: 0 }), room: MOST }
    }

    /// Adds so many rows of `width` elements. There are no lines at all where there would be too many.
    pub fn add<T>(&mut self, rows: Matrix<T>, count: usize, width: usize) {
        let across = (width * size_of::<T>()).div_ceil(LINE);
        let runs = &mut self.state.get_mut().runs;
        runs.pop();
        match self.room.checked_sub(count * across) {
            Some(room) if count > 0 => {
                let (first, step) = (rows.first.cast::<u8>(), rows.step * size_of::<T>() as isize);
                runs.extend((0..across).map(|i| Lines { first: first.wrapping_add(i * LINE), step, count }));
                self.room = room;
            }
            Some(_) => {}
            None => {
                runs.clear();
                self.room = 0;
            }
        }
        runs.push(*Lines::NONE);
    }

    /// Calls a kernel with the lines that it asks for during so many terms.
    pub fn during(&self, terms: usize, kernel: impl FnOnce(*const Lines)) {
        let state = &mut *self.state.borrow_mut();
        kernel(state.runs[state.next..].as_ptr());
        let mut asked = terms / ASKING;
        while asked > 0 && state.next + 1 < state.runs.len() {
            let run = &mut state.runs[state.next];
            let count = asked.min(run.count);
            run.first = run.first.wrapping_offset(run.step * count as isize);
            (run.count, asked) = (run.count - count, asked - count);
            state.next += usize::from(run.count == 0);
        }
    }
}

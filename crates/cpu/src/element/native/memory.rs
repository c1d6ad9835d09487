//! Memory that holds machine code.

use super::assemble::entries;
use super::{Rows, Run, Stored};
use memmap2::{Mmap, MmapMut};
use meshwork_graph::canonical::LANES;
use smallvec::SmallVec;
use std::ops::Range;

/// Machine code of a run.
#[derive(Debug)]
pub struct Native {
    code: Mmap,
    /// What the code reads besides its operands.
    constants: Vec<Line>,
    /// Elements that are computed at once.
    lanes: usize,
    rest: Rest,
    /// Which addresses are those of sums' lanes.
    sums: Range<usize>,
    /// Elements of the sums' blocks.
    block: usize,
    /// Whether rows are cut into vectors by the code.
    cuts_rows: bool,
}

/// How elements are computed that fill no vector.
#[derive(Debug)]
pub enum Rest {
    /// By the code, which is told which elements there are.
    Masked,
    /// As a vector whose other elements have no meaning, in memory of its own.
    Apart { inputs: SmallVec<[Stored; 8]>, outputs: SmallVec<[Stored; 4]> },
}

impl Rest {
    pub fn apart(run: &Run) -> Rest {
        let outputs = run.outputs.iter().map(|&(_, stored)| stored).collect();
        Rest::Apart { inputs: run.inputs.iter().copied().collect(), outputs }
    }
}

/// `(table, constants, elements of a row in whole vectors, which elements of its last vector there are)`. The table is changed.
type Function = unsafe extern "sysv64" fn(*mut usize, *const u32, usize, u32);

/// As much as is computed at once: a line of the caches.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u32; LANES]);

impl Native {
    /// Makes code of a run for so many elements at once executable, if the system allows it.
    pub fn new(code: &[u8], constants: &[u32], lanes: usize, rest: Rest, run: &Run) -> Option<Native> {
        let mut room = MmapMut::map_anon(code.len()).ok()?;
        room.copy_from_slice(code);
        let line = |numbers: &[u32]| Line(std::array::from_fn(|i| numbers.get(i).copied().unwrap_or(0)));
        let constants = constants.chunks(LANES).map(line).collect();
        let [_, sums, asks, _] = run.addresses().map(usize::from);
        let (code, sums) = (room.make_exec().ok()?, sums..asks);
        Some(Native { code, constants, lanes, rest, sums, block: run.block, cuts_rows: run.cuts_rows })
    }

    /// Runs the code on `count` elements of each row at the addresses, inputs first and outputs, sums and what is asked for behind
    /// them, which are so many bytes further in the next row.
    ///
    /// # Safety
    /// The processor must be able to run the code; the inputs must hold `count` elements in every row as the run says and the
    /// outputs have room for them, and those of sums for a line for each block. An output may be where an input is if their
    /// elements have the same size.
    pub unsafe fn run(&self, addresses: &[*mut u8], rows: Rows, count: usize) {
        let rest = count % self.lanes;
        let whole = count - rest;
        let blocks = self.blocks(count);
        // SAFETY: the caller's promise.
        unsafe {
            match &self.rest {
                Rest::Masked if self.cuts_rows => self.call(addresses, rows, (count, 0), blocks),
                Rest::Masked => self.call(addresses, rows, (whole, (1 << rest) - 1), blocks),
                Rest::Apart { inputs, outputs } => {
                    if whole > 0 {
                        self.call(addresses, rows, (whole, 0), blocks);
                    }
                    let mut addresses: SmallVec<[*mut u8; 16]> = addresses.into();
                    let rows_of_rests = if rest > 0 { rows.count } else { 0 };
                    for row in 0..rows_of_rests {
                        let at = (row + 1) * blocks;
                        let lanes = self.sums.clone().map(|sum| addresses[sum].cast::<Line>().wrapping_add(at - 1));
                        let lanes: SmallVec<[*mut Line; 4]> = lanes.collect();
                        for lanes in lanes.iter().filter(|_| blocks > self.blocks(whole)) {
                            lanes.write_unaligned(Line([0; LANES]));
                        }
                        self.apart(&addresses, (inputs, outputs, &lanes), whole, rest);
                        for ((i, address), &step) in addresses.iter_mut().enumerate().zip(rows.steps) {
                            *address = address.wrapping_offset(if self.sums.contains(&i) { 0 } else { step });
                        }
                    }
                }
            }
        }
    }

    /// Blocks of so many elements.
    fn blocks(&self, count: usize) -> usize {
        if self.sums.is_empty() { 0 } else { count.div_ceil(self.block) }
    }

    /// Elements of a row in whole vectors and which ones of its last vector; rows have so many blocks, of which the last one may
    /// have no whole vectors.
    unsafe fn call(&self, addresses: &[*mut u8], rows: Rows, (whole, rest): (usize, u32), blocks: usize) {
        let here = self.blocks(whole + rest.count_ones() as usize);
        let mut table: SmallVec<[usize; 32]> = SmallVec::from_elem(0, entries::ADDRESSES);
        table[entries::ROWS] = rows.count;
        table[entries::ONES] = usize::MAX;
        table[entries::LAST] = here.saturating_sub(1) * self.block;
        table.extend(addresses.iter().map(|address| address.expose_provenance()));
        // Nobody reads those of a single row.
        let first = table.len();
        table.extend(rows.steps.iter().map(|&step| step as usize));
        if rows.count > 1 {
            // The code has gone from block to block.
            self.sums.clone().for_each(|sum| table[first + sum] = (blocks + 1 - here) * size_of::<Line>());
        }
        // SAFETY: the memory holds the code of such a function, written by `assemble`; the caller promises the rest.
        unsafe {
            let function: Function = std::mem::transmute(self.code.as_ptr());
            function(table.as_mut_ptr(), self.constants.as_ptr().cast(), whole, rest);
        }
    }

    /// `count` elements from `start` on, fewer than those of a vector, which belong to blocks with these lanes.
    unsafe fn apart(
        &self,
        addresses: &[*mut u8],
        (inputs, outputs, sums): (&[Stored], &[Stored], &[*mut Line]),
        start: usize,
        count: usize,
    ) {
        let mut lines: SmallVec<[Line; 16]> = SmallVec::from_elem(Line([0; LANES]), addresses.len());
        // SAFETY: the caller's promise, for the elements behind `start`.
        unsafe {
            let mut own: SmallVec<[*mut u8; 16]> = lines.iter_mut().map(|line| line.0.as_mut_ptr().cast()).collect();
            for ((own, &address), &stored) in own.iter_mut().zip(addresses).zip(inputs) {
                let bytes = stored.bytes() as usize;
                match stored {
                    Stored::One => *own = address,
                    _ => address.add(start * bytes).copy_to_nonoverlapping(*own, count * bytes),
                }
            }
            self.call(&own, Rows::ONE, (self.lanes, 0), 1);
            for ((own, &address), &stored) in own.iter().zip(addresses).skip(inputs.len()).zip(outputs) {
                let bytes = stored.bytes() as usize;
                own.copy_to_nonoverlapping(address.add(start * bytes), count * bytes);
            }
            for (own, lanes) in own[self.sums.clone()].iter().zip(sums) {
                for i in 0..count {
                    let (term, lane) = (own.cast::<f32>().add(i), lanes.cast::<f32>().add(i));
                    lane.write_unaligned(lane.read_unaligned() + term.read());
                }
            }
        }
    }
}

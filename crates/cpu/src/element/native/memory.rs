//! Memory that holds machine code.

use super::{Rows, Run, Stored};
use memmap2::{Mmap, MmapMut};
use smallvec::SmallVec;

/// Machine code of a run.
#[derive(Debug)]
pub struct Native {
    code: Mmap,
    /// What the code reads besides its operands.
    constants: Vec<Line>,
    /// Elements that are computed at once.
    lanes: usize,
    rest: Rest,
}

/// How elements are computed that fill no vector.
#[derive(Debug)]
pub enum Rest {
    /// By the code, which is told which elements there are.
    Masked,
    /// As a vector whose other elements have no meaning, in memory of its own.
    Apart { inputs: SmallVec<[Stored; 8]>, outputs: SmallVec<[Stored; 4]>, sums: usize },
}

impl Rest {
    pub fn apart(run: &Run) -> Rest {
        let outputs = run.outputs.iter().map(|&(_, stored)| stored).collect();
        Rest::Apart { inputs: run.inputs.iter().copied().collect(), outputs, sums: run.sums.len() }
    }
}

/// `(table, constants, elements of a row in whole vectors, which elements of its last vector there are)`. The table is changed.
type Function = unsafe extern "sysv64" fn(*mut usize, *const u32, usize, u32);

/// As much as is computed at once: a line of the caches.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u32; 16]);

impl Native {
    /// Makes code for so many elements at once executable, if the system allows it.
    pub fn new(code: &[u8], constants: &[u32], lanes: usize, rest: Rest) -> Option<Native> {
        let mut room = MmapMut::map_anon(code.len()).ok()?;
        room.copy_from_slice(code);
        let line = |numbers: &[u32]| Line(std::array::from_fn(|i| numbers.get(i).copied().unwrap_or(0)));
        let constants = constants.chunks(16).map(line).collect();
        Some(Native { code: room.make_exec().ok()?, constants, lanes, rest })
    }

    /// Runs the code on `count` elements of each row at the addresses, inputs first and outputs, sums and what is asked for behind
    /// them, which are so many bytes further in the next row.
    ///
    /// # Safety
    /// The processor must be able to run the code; the inputs must hold `count` elements in every row as the run says and the
    /// outputs have room for them, and those of sums for a line. An output may be where an input is if their elements have the same size.
    pub unsafe fn run(&self, addresses: &[*mut u8], rows: Rows, count: usize) {
        let rest = count % self.lanes;
        let whole = count - rest;
        // SAFETY: the caller's promise.
        unsafe {
            match &self.rest {
                Rest::Masked => self.call(addresses, rows, whole, (1 << rest) - 1),
                Rest::Apart { inputs, outputs, sums } => {
                    if whole > 0 {
                        self.call(addresses, rows, whole, 0);
                    }
                    let mut addresses: SmallVec<[*mut u8; 8]> = addresses.into();
                    let first = inputs.len() + outputs.len();
                    let rows_of_rests = if rest > 0 { rows.count } else { 0 };
                    for _ in 0..rows_of_rests {
                        for lanes in addresses[first..first + sums].iter().filter(|_| whole == 0) {
                            lanes.cast::<Line>().write_unaligned(Line([0; 16]));
                        }
                        self.apart(&addresses, (inputs, outputs, *sums), whole, rest);
                        for (address, &step) in addresses.iter_mut().zip(rows.steps) {
                            *address = address.wrapping_offset(step);
                        }
                    }
                }
            }
        }
    }

    unsafe fn call(&self, addresses: &[*mut u8], rows: Rows, whole: usize, rest: u32) {
        let mut table: SmallVec<[usize; 32]> = SmallVec::new();
        table.push(rows.count);
        table.extend(addresses.iter().map(|address| address.expose_provenance()));
        // Nobody reads those of a single row.
        table.extend(rows.steps.iter().map(|&step| step as usize));
        // SAFETY: the memory holds the code of such a function, written by `assemble`; the caller promises the rest.
        unsafe {
            let function: Function = std::mem::transmute(self.code.as_ptr());
            function(table.as_mut_ptr(), self.constants.as_ptr().cast(), whole, rest);
        }
    }

    /// `count` elements from `start` on, fewer than those of a vector.
    unsafe fn apart(
        &self,
        addresses: &[*mut u8],
        (inputs, outputs, sums): (&[Stored], &[Stored], usize),
        start: usize,
        count: usize,
    ) {
        let mut lines: SmallVec<[Line; 8]> = SmallVec::from_elem(Line([0; 16]), addresses.len());
        // SAFETY: the caller's promise, for the elements behind `start`.
        unsafe {
            let mut own: SmallVec<[*mut u8; 8]> = lines.iter_mut().map(|line| line.0.as_mut_ptr().cast()).collect();
            for ((own, &address), &stored) in own.iter_mut().zip(addresses).zip(inputs) {
                let bytes = stored.bytes() as usize;
                match stored {
                    Stored::One => *own = address,
                    _ => address.add(start * bytes).copy_to_nonoverlapping(*own, count * bytes),
                }
            }
            self.call(&own, Rows::ONE, self.lanes, 0);
            for ((own, &address), &stored) in own.iter().zip(addresses).skip(inputs.len()).zip(outputs) {
                let bytes = stored.bytes() as usize;
                own.copy_to_nonoverlapping(address.add(start * bytes), count * bytes);
            }
            let first = inputs.len() + outputs.len();
            for (own, &lanes) in own[first..first + sums].iter().zip(&addresses[first..]) {
                for i in 0..count {
                    let (term, lane) = (own.cast::<f32>().add(i), lanes.cast::<f32>().add(i));
                    lane.write_unaligned(lane.read_unaligned() + term.read());
                }
            }
        }
    }
}

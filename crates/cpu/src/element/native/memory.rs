//! Memory that holds machine code.

use memmap2::{Mmap, MmapMut};

/// Machine code of a run.
#[derive(Debug)]
pub struct Native {
    code: Mmap,
    /// What the code reads besides its operands.
    constants: Vec<u32>,
}

/// `(addresses, constants, elements in whole vectors, which elements of the last vector there are)`.
type Function = unsafe extern "sysv64" fn(*const *mut u8, *const u32, usize, u32);

/// Elements of a vector.
pub const LANES: usize = 16;

impl Native {
    /// Makes code executable, if the system allows it.
    pub fn new(code: &[u8], constants: Vec<u32>) -> Option<Native> {
        let mut room = MmapMut::map_anon(code.len()).ok()?;
        room.copy_from_slice(code);
        Some(Native { code: room.make_exec().ok()?, constants })
    }

    /// Runs the code on `count` elements at the addresses, inputs first and outputs behind them.
    ///
    /// # Safety
    /// The processor must be able to run AVX-512; the inputs must hold `count` elements as the run says and the outputs
    /// have room for them. An output may be where an input is if their elements have the same size.
    pub unsafe fn run(&self, addresses: &[*mut u8], count: usize) {
        let (whole, rest) = (count / LANES * LANES, count % LANES);
        // SAFETY: the memory holds the code of such a function, written by `assemble`; the caller promises the rest.
        unsafe {
            let function: Function = std::mem::transmute(self.code.as_ptr());
            function(addresses.as_ptr(), self.constants.as_ptr(), whole, (1 << rest) - 1);
        }
    }
}

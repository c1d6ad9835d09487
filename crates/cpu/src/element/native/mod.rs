//! Runs of simple instructions as machine code. Loops over one instruction each read and write the first cache for every
//! operation; here a vector of elements is loaded once, goes through all instructions in registers, and is stored. The code goes
//! from row to row, where operands may be one element of each.
//!
//! `lower` chooses machine instructions that do the arithmetic of `ops.rs` to the bit (`program` is their list), `assemble`
//! gives their values registers and writes the loop, `memory` makes it executable. What instruction sets differ in is a
//! `target`: there are `avx512` and `avx2`. Other levels, and systems that allow no new code, run the loops.

#[cfg(target_arch = "x86_64")]
mod assemble;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod lower;
#[cfg(target_arch = "x86_64")]
mod memory;
#[cfg(target_arch = "x86_64")]
mod program;
#[cfg(target_arch = "x86_64")]
mod target;

use super::is_constant;
use crate::Level;
use meshwork_graph::DType;
use meshwork_graph::canonical::LANES;
use meshwork_graph::ops::{BinaryOp, Code, Element, Fused, Instr, UnaryOp};

/// How elements lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    F32,
    /// Results written past the caches, whole lines of them.
    F32PastCaches,
    F16,
    BF16,
    /// Bytes 0 and 1.
    Bool,
    /// One f32 for all elements.
    One,
}

impl Stored {
    /// How registers of a dtype are held in memory, if there are instructions for it.
    pub fn held(dtype: DType) -> Option<Stored> {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Some(Stored::F32),
            DType::Bool => Some(Stored::Bool),
            _ => None,
        }
    }

    /// How elements of a dtype are stored.
    pub fn of(dtype: DType) -> Option<Stored> {
        match dtype {
            DType::F16 => Some(Stored::F16),
            DType::BF16 => Some(Stored::BF16),
            _ => Stored::held(dtype),
        }
    }

    /// Bytes of an element, of which there may be one for all.
    #[cfg(target_arch = "x86_64")]
    fn bytes(self) -> u32 {
        match self {
            Stored::F32 | Stored::F32PastCaches | Stored::One => 4,
            Stored::F16 | Stored::BF16 => 2,
            Stored::Bool => 1,
        }
    }
}

/// Instructions that run one after the other on the same elements. Registers are numbered as in [`Fused`]: first the
/// inputs, then the results of the instructions.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub struct Run {
    pub inputs: Vec<Stored>,
    pub code: Vec<Instr>,
    /// The registers that are stored.
    pub outputs: Vec<(u16, Stored)>,
    /// Registers of f32 whose elements are summed, every sixteenth one of a block into the same lane; the lanes of all blocks are
    /// stored, row by row.
    pub sums: Vec<u16>,
    /// Elements of the sums' blocks, a multiple of the lanes.
    pub block: usize,
    /// Elements of so many bytes each whose lines are asked for meanwhile.
    pub asks: Vec<u32>,
    /// Whether rows do not all begin with a line of the caches, past which there are results. The first ones do, rows have a
    /// vector of elements at least and follow each other, and there are no sums.
    pub cuts_rows: bool,
}

impl Run {
    /// Where the addresses of outputs, of sums' lanes and of what is asked for begin, behind those of the inputs, and where they
    /// end.
    pub fn addresses(&self) -> [u16; 4] {
        let mut end = self.inputs.len();
        [0, self.outputs.len(), self.sums.len(), self.asks.len()].map(|count| {
            end += count;
            end as u16
        })
    }

    /// Both, on other operands: first the inputs of this one and then those of the other, then the outputs alike, and the sums, if
    /// they have blocks of as many elements. It asks for nothing.
    pub fn beside(&self, other: &Run) -> Run {
        let (own, inputs) = (self.inputs.len(), self.inputs.len() + other.inputs.len());
        let number = |register: u16, is_own: bool| {
            let register = usize::from(register);
            let number = match is_own {
                true if register < own => register,
                true => register + other.inputs.len(),
                false if register < other.inputs.len() => own + register,
                false => inputs + self.code.len() + register - other.inputs.len(),
            };
            number as u16
        };
        let code = |run: &Run, is_own: bool| {
            let of = |instr: &Instr| {
                let mut instr = instr.clone();
                instr.args[..instr.op.arity()].iter_mut().for_each(|arg| *arg = number(*arg, is_own));
                instr
            };
            run.code.iter().map(of).collect::<Vec<_>>()
        };
        let outputs = |run: &Run, is_own: bool| {
            run.outputs.iter().map(|&(register, stored)| (number(register, is_own), stored)).collect::<Vec<_>>()
        };
        let sums = |run: &Run, is_own: bool| run.sums.iter().map(|&r| number(r, is_own)).collect::<Vec<_>>();
        Run {
            inputs: [&self.inputs[..], &other.inputs].concat(),
            code: [code(self, true), code(other, false)].concat(),
            outputs: [outputs(self, true), outputs(other, false)].concat(),
            sums: [sums(self, true), sums(other, false)].concat(),
            block: self.block.max(other.block),
            asks: vec![],
            cuts_rows: false,
        }
    }
}

/// Whether an instruction can be part of a run at this level.
pub fn is_simple(op: &Fused, instr: &Instr, level: Level) -> bool {
    use BinaryOp::*;
    use UnaryOp::*;
    let float = |dtype: DType| Stored::held(dtype) == Some(Stored::F32);
    let arg = |i: usize| op.dtype_of(instr.args[i]);
    let constant = |i: usize| is_constant(op, instr.args[i]);
    let Code::Element(element) = instr.op else { return false };
    let known = match element {
        Element::Unary(Neg | Abs | Sign | Recip | Sqrt | Rsqrt | Floor | Ceil | Round | Relu) => float(arg(0)),
        Element::Unary(Exp | Expm1 | Log | Log1p | Tanh | Sigmoid | Erf) => float(arg(0)),
        Element::Unary(Not) => !constant(0),
        Element::Binary(Add | Sub | Mul | Div | Max | Min | Eq | Ne | Lt | Le | Gt | Ge) => float(arg(0)),
        Element::Binary(And | Or | Xor) => !constant(0) && !constant(1),
        Element::Select => float(instr.dtype) && !constant(0),
        Element::Cast(DType::Bool) => float(arg(0)),
        Element::Cast(to) => float(to) && (float(arg(0)) || arg(0) == DType::Bool && !constant(0)),
        _ => false,
    };
    known && has_code(level)
}

/// Whether there is machine code for a level.
pub fn has_code(level: Level) -> bool {
    cfg!(target_arch = "x86_64") && level >= Level::Avx2
}

/// Whether masks take the elements that fill no vector.
fn has_masks(level: Level) -> bool {
    cfg!(target_arch = "x86_64") && level >= Level::Avx512
}

/// Elements of a row from which code goes from row to row: of fewer it computes all rows of a tile as one.
pub fn least_row(level: Level) -> usize {
    if has_masks(level) { 8 } else { 32 }
}

/// Whether code can go past the caches in rows of so many elements that do not begin with a line of them.
pub fn cuts_rows(columns: usize, level: Level) -> bool {
    has_masks(level) && columns >= LANES
}

/// Whether an instruction can be part of a run on elements of one row: there a value of the row is one for all.
pub fn is_simple_in_a_row(op: &Fused, instr: &Instr, level: Level) -> bool {
    let is_spread = instr.op == Code::Spread && Stored::held(instr.dtype) == Some(Stored::F32);
    is_simple(op, instr, level) || is_spread && has_code(level)
}

/// The rows that a run computes.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    pub count: usize,
    /// For each operand how many bytes it is from row to row, but for sums; none where there is one row.
    pub steps: &'a [isize],
}

impl Rows<'_> {
    pub const ONE: Rows<'static> = Rows { count: 1, steps: &[] };
}

/// Machine code of a run.
#[cfg(target_arch = "x86_64")]
pub use memory::Native;

/// Machine code of a run, of which there is none for this processor.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug)]
pub enum Native {}

#[cfg(not(target_arch = "x86_64"))]
impl Native {
    /// See the version for x86-64.
    pub unsafe fn run(&self, _: &[*mut u8], _: Rows, _: usize) {
        match *self {}
    }
}

/// Why there is no machine code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub enum Refused {
    /// More values than registers, or fewer elements at once than lanes of a sum.
    Registers,
    /// The system gave no memory for code.
    Memory,
}

/// The machine code of a run for a level.
pub fn compile(run: &Run, level: Level) -> Result<Native, Refused> {
    #[cfg(target_arch = "x86_64")]
    match level {
        Level::Avx512 | Level::Avx512Bf16 => return code::<avx512::Avx512>(run),
        Level::Avx2 => return code::<avx2::Avx2>(run),
        Level::Portable | Level::Neon => {}
    }
    let _ = (run, level);
    Err(Refused::Memory)
}

#[cfg(target_arch = "x86_64")]
fn code<T: target::Target>(run: &Run) -> Result<Native, Refused> {
    let one = lower::lower::<T>(run);
    if T::HAS_MASKS {
        let (code, constants) = assemble::assemble::<T>(&one)?;
        return Native::new(&code, &constants, T::LANES, memory::Rest::Masked, run).ok_or(Refused::Memory);
    }
    // Two vectors at once, if there are registers for them.
    let two = one.doubled();
    let (lanes, assembled) = match assemble::assemble::<T>(&two) {
        Ok(assembled) => (2 * T::LANES, assembled),
        Err(_) => (T::LANES, assemble::assemble::<T>(&one)?),
    };
    let (code, constants) = assembled;
    Native::new(&code, &constants, lanes, memory::Rest::apart(run), run).ok_or(Refused::Memory)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

//! Elementwise regions, run tile by tile: all instructions on 1,024 elements, whose registers stay in the first
//! cache, then on the next ones.

mod ops;
#[cfg(test)]
mod tests;

pub use ops::{extremum_f32, extremum_f64};

use crate::number::{Number, by_dtype};
use crate::operand::Shared;
use crate::walk::{Walk, extent};
use crate::{Context, Level, Operand, Output, narrow, stream};
use half::{bf16, f16};
use meshwork_graph::ops::{BinaryOp, Element, Fused, UnaryOp};
use meshwork_graph::{DType, Scalar};
use ops::{Tile, held};
use smallvec::SmallVec;
use std::cell::RefCell;

/// Elements of a tile.
const TILE: usize = 1024;
/// Bytes from one register to the next; not a power of two, so that registers do not compete for cache lines.
const SLOT: usize = TILE * 8 + 192;
/// Tiles that one thread takes before a second one helps.
const GRAIN: usize = 16;

/// Where the value of a register is while a tile runs.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the memory of a dense input.
    Input(usize),
    Slot(usize),
    /// In the memory of the output.
    Output,
}

#[derive(Debug)]
enum Step {
    /// Brings a tile of an input into a slot.
    Load { input: usize, slot: usize },
    /// Runs an instruction.
    Compute { index: usize, to: Place },
}

struct Source {
    walk: Walk,
    first: Shared<u8>,
    dtype: DType,
}

/// A region with places for its registers.
struct Plan<'a> {
    op: &'a Fused,
    sources: Vec<Source>,
    places: Vec<Place>,
    /// Registers that are the same in every tile.
    fixed: Vec<u16>,
    steps: Vec<Step>,
    slots: usize,
    /// Slot for the narrowed result where it is streamed.
    spare: usize,
    output: Shared<u8>,
    dtype: DType,
    len: usize,
    streams: bool,
    level: Level,
}

/// Computes the region. An input may lie where the output does if it is dense and has elements of the same size.
///
/// # Panics
/// When shapes or dtypes differ from what the region says.
pub fn run(op: &Fused, inputs: &[Operand], output: Output, context: Context) {
    assert_eq!(op.inputs.len(), inputs.len(), "inputs of a fused region");
    for (operand, &dtype) in inputs.iter().zip(&op.inputs) {
        assert_eq!(operand.dtype, dtype, "dtype of an input of a fused region");
        assert_eq!(operand.shape(), output.shape, "shape of an input of a fused region");
    }
    let len = output.shape.numel();
    if len == 0 {
        return;
    }
    let plan = Plan::new(op, inputs, output, context.level);
    context.par.ranges(len.div_ceil(TILE), GRAIN, &|tiles| plan.tiles(tiles));
}

impl<'a> Plan<'a> {
    fn new(op: &'a Fused, inputs: &[Operand], output: Output, level: Level) -> Self {
        let (len, dtype) = (output.shape.numel(), output.dtype);
        let sources: Vec<Source> = inputs
            .iter()
            .map(|operand| {
                // SAFETY: the offset is that of an element.
                let first = unsafe { operand.bytes().add(operand.layout.offset * operand.dtype.size()) };
                Source { walk: Walk::new(operand.layout), first: Shared(first.cast_mut()), dtype: operand.dtype }
            })
            .collect();
        let output = Shared(output.bytes());
        let written = output.0 as usize..output.0 as usize + len * dtype.size();
        let in_place = sources.iter().any(|source| {
            let read = extent(&source.walk, source.first.0 as usize, source.dtype.size());
            let overlaps = read.start < written.end && written.start < read.end;
            assert!(
                !overlaps || read == written && source.walk.is_dense(),
                "an input overlaps the output without being the same dense elements"
            );
            overlaps
        });
        let streams = !in_place && len * dtype.size() >= stream::STREAM_BYTES;
        let mut plan = Plan {
            op,
            places: vec![Place::Output; sources.len() + op.code.len()],
            sources,
            fixed: vec![],
            steps: vec![],
            slots: 0,
            spare: 0,
            output,
            dtype,
            len,
            streams,
            level,
        };
        plan.place(in_place || streams || is_half(dtype));
        plan
    }

    /// Gives every register a place. A slot is used again after the last instruction that reads it.
    fn place(&mut self, buffered: bool) {
        let inputs = self.sources.len();
        let count = self.places.len();
        let mut last_use = vec![usize::MAX; count];
        for (index, instr) in self.op.code.iter().enumerate() {
            for &arg in &instr.args[..arity(instr.op)] {
                last_use[usize::from(arg)] = index;
            }
        }
        let mut free: Vec<usize> = vec![];
        let mut slots = 0;
        let mut take = |free: &mut Vec<usize>| {
            free.pop().unwrap_or_else(|| {
                slots += 1;
                slots - 1
            })
        };
        let mut loaded = vec![false; count];
        // Slots of fixed registers are never given to others, so they come first.
        for register in 0..count {
            let fixed = match self.sources.get(register) {
                Some(source) => source.walk.is_constant() && last_use[register] != usize::MAX,
                None => matches!(self.op.code[register - inputs].op, Element::Const(_)),
            };
            if fixed {
                self.places[register] = Place::Slot(take(&mut free));
                self.fixed.push(register as u16);
                loaded[register] = true;
                last_use[register] = usize::MAX;
            } else if register < inputs
                && self.sources[register].walk.is_dense()
                && !is_half(self.sources[register].dtype)
            {
                self.places[register] = Place::Input(register);
                loaded[register] = true;
            }
        }
        for (index, instr) in self.op.code.iter().enumerate() {
            let register = inputs + index;
            if loaded[register] {
                continue;
            }
            let args = &instr.args[..arity(instr.op)];
            for &arg in args {
                let arg = usize::from(arg);
                if !loaded[arg] {
                    let slot = take(&mut free);
                    self.places[arg] = Place::Slot(slot);
                    loaded[arg] = true;
                    self.steps.push(Step::Load { input: arg, slot });
                }
            }
            let last = register + 1 == count;
            let to = if last && !buffered { Place::Output } else { Place::Slot(take(&mut free)) };
            self.places[register] = to;
            loaded[register] = true;
            self.steps.push(Step::Compute { index, to });
            for (i, &arg) in args.iter().enumerate() {
                if let Place::Slot(slot) = self.places[usize::from(arg)]
                    && last_use[usize::from(arg)] == index
                    && !args[..i].contains(&arg)
                {
                    free.push(slot);
                }
            }
            if let Place::Slot(slot) = to
                && last_use[register] == usize::MAX
                && !last
            {
                free.push(slot);
            }
        }
        self.spare = take(&mut free);
        self.slots = slots;
    }

    fn tiles(&self, tiles: std::ops::Range<usize>) {
        let mut arena = ARENA.take();
        arena.resize((self.slots * SLOT).div_ceil(size_of::<Line>()).max(arena.len()), Line([0; 64]));
        let slots = arena.as_mut_ptr().cast::<u8>();
        self.fill_fixed(slots);
        for tile in tiles {
            let start = tile * TILE;
            self.tile(slots, start, TILE.min(self.len - start));
        }
        if self.streams {
            stream::fence();
        }
        ARENA.set(arena);
    }

    /// The address of a register's elements from `start`.
    fn address(&self, slots: *mut u8, place: Place, start: usize) -> *mut u8 {
        // SAFETY: slots lie inside the arena; `start` is an element of the input or output.
        unsafe {
            match place {
                Place::Slot(slot) => slots.add(slot * SLOT),
                Place::Input(input) => {
                    self.sources[input].first.pointer().add(start * self.sources[input].dtype.size())
                }
                Place::Output => self.output.pointer().add(start * self.dtype.size()),
            }
        }
    }

    fn fill_fixed(&self, slots: *mut u8) {
        for &register in &self.fixed {
            let register = usize::from(register);
            let to = self.address(slots, self.places[register], 0);
            match self.sources.get(register) {
                Some(source) => self.load(source, to, 0, TILE),
                None => {
                    let instr = &self.op.code[register - self.sources.len()];
                    let Element::Const(value) = instr.op else { unreachable!("only constants are fixed") };
                    // SAFETY: a slot has room for a tile of any dtype.
                    unsafe { fill(value, instr.dtype, to) };
                }
            }
        }
    }

    fn load(&self, source: &Source, to: *mut u8, start: usize, count: usize) {
        let first = source.first.0;
        // SAFETY: a slot has room for a tile of any dtype; the elements are the source's.
        unsafe {
            if source.walk.is_dense() && !source.walk.is_constant() {
                let from = first.add(start * source.dtype.size());
                return ops::widen(source.dtype, &Tile { args: [from; 3], out: to, count, level: self.level });
            }
            let walk = &source.walk;
            match source.dtype {
                DType::F16 => walk.gather(first.cast::<f16>(), start, slice(to, count), narrow::f16_to_f32),
                DType::BF16 => walk.gather(first.cast::<bf16>(), start, slice(to, count), narrow::bf16_to_f32),
                DType::F64 | DType::I64 => walk.gather(first.cast::<u64>(), start, slice(to, count), |x: u64| x),
                DType::F32 | DType::I32 => walk.gather(first.cast::<u32>(), start, slice(to, count), |x: u32| x),
                DType::U8 | DType::Bool => walk.gather(first, start, slice(to, count), |x: u8| x),
            }
        }
    }

    fn tile(&self, slots: *mut u8, start: usize, count: usize) {
        for step in &self.steps {
            match *step {
                Step::Load { input, slot } => {
                    self.load(&self.sources[input], self.address(slots, Place::Slot(slot), 0), start, count);
                }
                Step::Compute { index, to } => {
                    let instr = &self.op.code[index];
                    let args =
                        instr.args.map(|arg| self.address(slots, self.places[usize::from(arg)], start).cast_const());
                    let tile = Tile { args, out: self.address(slots, to, start), count, level: self.level };
                    let from = self.op.dtype_of(instr.args[0]);
                    // SAFETY: the arguments were computed or loaded as their dtypes are held; the result has a place
                    // of its own.
                    unsafe {
                        match instr.op {
                            Element::Unary(op) => ops::unary(op, held(from), &tile),
                            Element::Binary(op) => ops::binary(op, held(from), &tile),
                            Element::Select => ops::select(held(instr.dtype).size(), &tile),
                            Element::Cast(to) => ops::cast(held(from), to, &tile),
                            Element::Const(_) => unreachable!("constants are fixed"),
                        }
                        // The last result is rounded when it is stored.
                        let last = index + 1 == self.op.code.len();
                        if is_half(instr.dtype) && !last && !is_exact(instr.op) {
                            ops::round(instr.dtype, &tile);
                        }
                    }
                }
            }
        }
        let place = self.places[self.places.len() - 1];
        if !matches!(place, Place::Output) {
            self.store(slots, place, start, count);
        }
    }

    /// The elements of the dense inputs from `start`.
    fn ahead(&self, start: usize) -> SmallVec<[stream::Ahead; 4]> {
        let dense = self.sources.iter().filter(|source| source.walk.is_dense());
        dense
            .map(|source| {
                let size = source.dtype.size();
                stream::Ahead {
                    from: source.first.0.wrapping_add(start * size),
                    lines: size.div_ceil(self.dtype.size()),
                }
            })
            .collect()
    }

    /// Moves the result from its slot to the output.
    fn store(&self, slots: *mut u8, place: Place, start: usize, count: usize) {
        let output = self.address(slots, Place::Output, start);
        let mut tile =
            Tile { args: [self.address(slots, place, start).cast_const(); 3], out: output, count, level: self.level };
        // SAFETY: the slot holds the result; the output has room for it and is not read any more in this tile.
        unsafe {
            if self.streams {
                if is_half(self.dtype) {
                    tile.out = self.address(slots, Place::Slot(self.spare), 0);
                    ops::store(self.dtype, &tile);
                    tile.args[0] = tile.out;
                }
                stream::copy(tile.args[0], output, count * self.dtype.size(), &self.ahead(start + count));
            } else {
                ops::store(self.dtype, &tile);
            }
        }
    }
}

/// A cache line of registers.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

thread_local! {
    /// The registers of this thread.
    static ARENA: RefCell<Vec<Line>> = const { RefCell::new(vec![]) };
}

unsafe fn slice<'a, T>(at: *mut u8, count: usize) -> &'a mut [T] {
    // SAFETY: the caller passes a slot.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), count) }
}

/// Fills a register with a constant, rounded to its dtype.
unsafe fn fill(value: Scalar, dtype: DType, to: *mut u8) {
    // SAFETY: the caller passes a slot.
    unsafe {
        match dtype {
            DType::F16 => slice(to, TILE).fill(narrow::f16_to_f32(f16::from_scalar(value))),
            DType::BF16 => slice(to, TILE).fill(narrow::bf16_to_f32(bf16::from_scalar(value))),
            _ => by_dtype!(dtype, T => slice(to, TILE).fill(T::from_scalar(value))),
        }
    }
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

fn arity(op: Element) -> usize {
    match op {
        Element::Unary(_) | Element::Cast(_) => 1,
        Element::Binary(_) => 2,
        Element::Select => 3,
        Element::Const(_) => 0,
    }
}

/// Whether the result of narrow floats needs no rounding.
fn is_exact(op: Element) -> bool {
    use UnaryOp::*;
    matches!(
        op,
        Element::Select
            | Element::Unary(Neg | Abs | Sign | Floor | Ceil | Round | Relu)
            | Element::Binary(BinaryOp::Max | BinaryOp::Min)
    )
}

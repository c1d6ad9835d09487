//! What is done to a tile of a region, step by step, and the memory in which its registers are.

use super::cut::Span;
use super::operands::is_half;
use super::ops::{self, Tile, held};
use super::rows::{self, Rows};
use super::turned::{Held, Strip, Turned};
use super::{Place, Plan, SEVERAL, Step, native};
use crate::copy;
use crate::narrow;
use crate::number::{Number, by_dtype};
use crate::reduce::Lanes;
use crate::stream::{self, Share};
use half::{bf16, f16};
use meshwork_graph::ops::{Code, Element, PartOf};
use meshwork_graph::{DType, Scalar};
use meshwork_simd::line::Line;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};

thread_local! {
    /// The registers of this thread.
    static ARENA: RefCell<Vec<Line>> = const { RefCell::new(vec![]) };
}

/// The memory of one thread.
#[derive(Clone, Copy)]
pub struct Room<'a> {
    slots: *mut u8,
    /// The rows of every source that are there, where it is read by strips.
    held: &'a [Cell<Held>],
}

impl Plan<'_> {
    /// Calls `body` with the memory of this thread.
    pub(super) fn run(&self, body: impl FnOnce(Room)) {
        let mut arena = ARENA.take();
        let bytes = self.placement.slots * self.slot_bytes() + self.placement.kept + self.behind;
        arena.resize(bytes.div_ceil(size_of::<Line>()).max(arena.len()), Line([0; 64]));
        let held: SmallVec<[Cell<Held>; 8]> = self.sources.iter().map(|_| Cell::default()).collect();
        let room = Room { slots: arena.as_mut_ptr().cast(), held: &held };
        self.fill_fixed(room);
        body(room);
        if self.sinks.iter().any(|sink| sink.streams) {
            stream::fence();
        }
        ARENA.set(arena);
    }

    /// Bytes from one register to the next; not a power of two, so that registers do not compete for cache lines.
    fn slot_bytes(&self) -> usize {
        (self.cut.slot() * 8).next_multiple_of(size_of::<Line>()) + 192
    }

    pub(super) fn slot(&self, room: Room, slot: usize) -> *mut u8 {
        // SAFETY: slots lie inside the arena.
        unsafe { room.slots.add(slot * self.slot_bytes()) }
    }

    /// The address of a register's elements in a tile.
    pub(super) fn address(&self, room: Room, place: Place, span: Span) -> *mut u8 {
        match place {
            Place::Slot(slot) => self.slot(room, slot),
            Place::Repeated { input, slot } => {
                let source = &self.sources[input];
                let at = span.elements(source.of_rows).0 % source.period * held(source.dtype).size();
                // SAFETY: the slot holds the elements from each of the first ones on.
                unsafe { self.slot(room, slot).add(at) }
            }
            Place::Combined(_) => unreachable!("rows of this tile do not lie beside each other"),
            Place::Turned(i) => room.held[i].get().place,
            // SAFETY: the arena has room for the row.
            Place::Kept { at, size } => unsafe { self.slot(room, self.placement.slots).add(at + span.column * size) },
            Place::Input(i) => self.sources[i].address(span.elements(self.sources[i].of_rows).0),
            Place::Output(k) => {
                let sink = &self.sinks[k];
                // SAFETY: the tile's elements are elements of the output.
                unsafe { sink.first.pointer().add(span.elements(sink.of_rows).0 * sink.dtype.size()) }
            }
        }
    }

    /// How an input is read by strips, if it is, and its strip.
    fn turned<'r>(&self, input: usize, room: Room<'r>) -> Option<(&Turned, Strip<'r>)> {
        let (turned, at) = self.sources[input].turned.as_ref()?;
        // SAFETY: the arena has room for the strip.
        let first = unsafe { self.slot(room, self.placement.slots).add(self.placement.kept + *at) };
        Some((turned, Strip { first, held: &room.held[input] }))
    }

    fn fill_fixed(&self, room: Room) {
        for &register in &self.placement.fixed {
            let register = usize::from(register);
            let (Place::Slot(slot) | Place::Repeated { slot, .. }) = self.placement.places[register] else {
                unreachable!("fixed registers are in slots")
            };
            let to = self.slot(room, slot);
            match self.sources.get(register) {
                Some(source) => {
                    let is_row = self.cut.by_rows && !source.of_rows && source.period == self.cut.columns;
                    let most = self.cut.slot() * size_of::<u64>() / held(source.dtype).size();
                    let count = match self.placement.places[register] {
                        _ if is_row => self.cut.columns,
                        Place::Repeated { .. } => most.min(self.cut.slot() + source.period),
                        _ => self.cut.slot(),
                    };
                    let count = count.min(source.walk.len());
                    self.load(register, to, 0, count, room);
                }
                None => {
                    let instr = &self.op.code[register - self.sources.len()];
                    let Code::Const(value) = instr.op else { unreachable!("only constants are fixed") };
                    // SAFETY: a slot has room for a tile of any dtype.
                    unsafe { fill(value, instr.dtype, to, self.cut.slot()) };
                }
            }
        }
    }

    pub(super) fn load(&self, input: usize, to: *mut u8, start: usize, count: usize, room: Room) {
        let source = &self.sources[input];
        let first = source.first.0;
        if let Some((turned, strip)) = self.turned(input, room) {
            // SAFETY: a slot has room for a tile of any dtype, and the arena for the strip; the elements are the source's.
            return unsafe { turned.read(self.level, first, (start, count), to, strip) };
        }
        // SAFETY: a slot has room for a tile of any dtype; the elements are the source's.
        unsafe {
            if source.walk.is_dense() && !source.walk.is_constant() {
                let from = first.add(start * source.dtype.size());
                return ops::widen(source.dtype, &Tile { args: [from; 3], out: to, count, level: self.level });
            }
            let (walk, pairs, range) = (&source.walk, &source.pairs, start..start + count);
            match source.dtype {
                DType::F16 => walk.gather(first.cast::<f16>(), start, slice(to, count), narrow::f16_to_f32),
                DType::BF16 => walk.gather(first.cast::<bf16>(), start, slice(to, count), narrow::bf16_to_f32),
                DType::F64 | DType::I64 => copy::gather::<u64>(pairs, range, first.cast(), to.cast()),
                DType::F32 | DType::I32 => copy::gather::<u32>(pairs, range, first.cast(), to.cast()),
                DType::U8 | DType::Bool => copy::gather::<u8>(pairs, range, first, to),
            }
        }
    }

    /// Computes a tile, and asks for the next one where there is time for that.
    pub(super) fn tile(&self, room: Room, span: Span, next: Option<Span>) {
        let (places, steps) = (&self.placement.places, &self.placement.steps);
        let next = next.filter(|_| steps.len() >= SEVERAL);
        let asks = steps.iter().any(Step::asks);
        for (number, step) in steps.iter().enumerate() {
            match step {
                &Step::Load { input, slot } => self.load_tile(input, slot, room, span),
                &Step::Turn { input } => self.turn(input, room, span),
                &Step::Compute { index, to } => self.compute(places, room, span, index, to),
                Step::Run { native, operands, asks, of_rows, steps, .. } => {
                    let own = operands.iter().map(|&place| self.address(room, place, span));
                    let next = next.unwrap_or(span);
                    let asked = asks.places.iter().map(|&place| self.address_of_share(room, place, next, asks.share));
                    let operands: SmallVec<[*mut u8; 8]> = own.chain(asked).collect();
                    self.native_at(*native, &operands, (*of_rows, steps), span);
                }
                &Step::Sum { index, lanes, to } => self.sum(room, span, (index, lanes), to),
            }
            if let Some(next) = next.filter(|_| !asks) {
                self.ask_for(room, next, Share { index: number, count: steps.len() });
            }
        }
        for k in (0..self.sinks.len()).filter(|&k| self.placement.stored[k]) {
            self.store(places, k, room, span);
        }
    }

    pub(super) fn native_at(
        &self,
        native: usize,
        operands: &[*mut u8],
        (of_rows, steps): (bool, &[isize]),
        span: Span,
    ) {
        let (rows, count) = match steps {
            [] => (native::Rows::ONE, span.elements(of_rows).1),
            steps => (native::Rows { count: span.rows, steps }, span.columns),
        };
        // SAFETY: the operands hold the tile's elements as `place.rs` has said.
        unsafe { self.placement.natives[native].run(operands, rows, count) };
    }

    pub(super) fn load_tile(&self, input: usize, slot: usize, room: Room, span: Span) {
        let source = &self.sources[input];
        let (start, count) = span.elements(source.of_rows);
        self.load(input, self.slot(room, slot), start, count, room);
    }

    fn turn(&self, input: usize, room: Room, span: Span) {
        let (turned, strip) = self.turned(input, room).expect("an input that is read by strips");
        // SAFETY: the arena has room for the strip; the elements are the source's.
        unsafe { turned.hold(self.level, self.sources[input].first.0, span.elements(false).0, strip) };
    }

    /// What an instruction reads and writes in a tile.
    pub(super) fn rows_of(&self, places: &[Place], room: Room, span: Span, index: usize, to: Place) -> Rows<'_> {
        let args = self.op.code[index].args.map(|arg| self.address(room, places[usize::from(arg)], span).cast_const());
        let (out, level) = (self.address(room, to, span), self.level);
        Rows { args, out, rows: span.rows, columns: span.columns, level, refused: &self.refused }
    }

    /// Which part of the dimension that is indexed the columns of a tile are.
    pub(super) fn part_of(&self, part_of: Option<PartOf>, span: Span) -> Option<PartOf> {
        if span.columns == span.width {
            return part_of;
        }
        let PartOf { start, size } = part_of.unwrap_or(PartOf { start: 0, size: span.width });
        Some(PartOf { start: start + span.column, size })
    }

    pub(super) fn compute(&self, places: &[Place], room: Room, span: Span, index: usize, to: Place) {
        let instr = &self.op.code[index];
        let rows = self.rows_of(places, room, span, index, to);
        let (_, count) = span.elements(instr.of_rows);
        let tile = Tile { args: rows.args, out: rows.out, count, level: self.level };
        let dtype = |arg: usize| self.op.dtype_of(instr.args[arg]);
        let result = held(instr.dtype);
        // SAFETY: the arguments were computed or loaded as their dtypes are held, for rows or elements as the region
        // says; the result has a place of its own.
        unsafe {
            match instr.op {
                Code::Element(op) => return self.element(op, index, &tile),
                Code::Reduce(op, block) => rows::reduce(op, block, result, &rows),
                Code::Spread => rows::spread(result, &rows),
                Code::Gather(dim, part_of) => rows::gather((dim, self.part_of(part_of, span)), result, dtype(1), &rows),
                Code::Scatter(dim, part_of) => {
                    rows::scatter((dim, self.part_of(part_of, span)), result, dtype(0), &rows)
                }
                Code::Const(_) => unreachable!("constants are fixed"),
            }
            self.round(index, &tile);
        }
    }

    /// Runs an instruction of single elements.
    ///
    /// # Safety
    /// The arguments must be there as their dtypes are held, and there must be room for the result, which overlaps none of them.
    pub(super) unsafe fn element(&self, op: Element, index: usize, tile: &Tile) {
        let instr = &self.op.code[index];
        let (from, result) = (held(self.op.dtype_of(instr.args[0])), held(instr.dtype));
        // SAFETY: the caller's promise.
        unsafe {
            match op {
                Element::Unary(op) => ops::unary(op, from, tile),
                Element::Binary(op) => ops::binary(op, from, tile),
                Element::Select => ops::select(result.size(), tile),
                Element::Cast(to) => ops::cast(from, to, tile),
            }
            self.round(index, tile);
        }
    }

    /// Rounds what an instruction has computed, where others read it.
    ///
    /// # Safety
    /// As for [`ops::round`].
    pub(super) unsafe fn round(&self, index: usize, tile: &Tile) {
        if self.placement.rounded[index] {
            // SAFETY: the caller's promise.
            unsafe { ops::round(self.op.code[index].dtype, tile) };
        }
    }

    /// Adds up the lanes of a sum's blocks, which lie in a slot.
    fn sum(&self, room: Room, span: Span, (index, lanes): (usize, usize), to: Place) {
        let Code::Reduce(_, block) = self.op.code[index].op else { unreachable!("a sum") };
        let (lanes, out) = (self.slot(room, lanes), self.address(room, to, span));
        let blocks = span.columns.div_ceil(block);
        // SAFETY: the slot has the lanes of all blocks, and there is room for a value for each row.
        unsafe {
            let lanes: &[Lanes<f32>] = std::slice::from_raw_parts(lanes.cast(), span.rows * blocks);
            rows::sum_blocks(self.level, lanes, blocks, slice(out, span.rows));
            self.round(index, &Tile { args: [out.cast_const(); 3], out, count: span.rows, level: self.level });
        }
    }

    /// What the dense inputs hold from `start`, as far as results of `size` bytes an element are streamed meanwhile.
    fn ahead(&self, start: usize, size: usize) -> SmallVec<[stream::Ahead; 4]> {
        let dense = self.sources.iter().filter(|source| !source.of_rows && source.walk.is_dense());
        dense
            .map(|source| stream::Ahead {
                from: source.first.pointer().wrapping_add(start * source.dtype.size()),
                lines: source.dtype.size().div_ceil(size),
            })
            .collect()
    }

    /// Moves a result from its slot to the output, rounding it.
    pub(super) fn store(&self, places: &[Place], k: usize, room: Room, span: Span) {
        let sink = &self.sinks[k];
        let (start, count) = span.elements(sink.of_rows);
        let (dtype, from) = (sink.dtype, self.address(room, places[sink.register], span).cast_const());
        // SAFETY: `start` is an element of the output.
        let output = unsafe { sink.first.pointer().add(start * dtype.size()) };
        let mut tile = Tile { args: [from; 3], out: output, count, level: self.level };
        // SAFETY: the slot holds the result; the output has room for it, and what it overlaps is not read any more in
        // this tile.
        unsafe {
            if sink.streams {
                if is_half(dtype) {
                    tile.out = self.slot(room, self.placement.spare);
                    ops::store(dtype, &tile);
                    tile.args[0] = tile.out;
                }
                let ahead = self.ahead(start + count, dtype.size());
                stream::copy(tile.args[0], output, count * dtype.size(), &ahead);
            } else {
                ops::store(dtype, &tile);
            }
        }
    }
}

pub unsafe fn slice<'a, T>(at: *mut u8, count: usize) -> &'a mut [T] {
    // SAFETY: the caller passes a slot.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), count) }
}

/// Fills a register of so many elements with a constant, rounded to its dtype.
pub unsafe fn fill(value: Scalar, dtype: DType, to: *mut u8, count: usize) {
    // SAFETY: the caller passes a slot with as many.
    unsafe {
        match dtype {
            DType::F16 => slice(to, count).fill(narrow::f16_to_f32(f16::from_scalar(value))),
            DType::BF16 => slice(to, count).fill(narrow::bf16_to_f32(bf16::from_scalar(value))),
            _ => by_dtype!(dtype, T => slice(to, count).fill(T::from_scalar(value))),
        }
    }
}

//! Chains: a thread takes a range of samples and runs all kernels on it, by itself, before it takes the next one.
//!
//! What only the chain needs lies in rooms of the thread that stay in its second cache. Of a sum over the samples every
//! range gives the root of a sub-tree; the roots are added in the end.

use crate::gemm::scratch::{Arena, room};
use crate::kernel::{self, CpuTarget};
use crate::operand::Shared;
use crate::par::Par;
use crate::par::with_slots;
use crate::reduce::add_rows_by_tree;
use crate::{Context, Operand, Output, conv};
use meshwork_graph::ops::{Chain, Link, Register};
use meshwork_graph::program::Target;
use meshwork_graph::{Layout, Op, Shape, Type};
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes that the kernels should write for a range, at most: they stay in the second cache.
const RANGE: usize = 384 << 10;
/// Bytes that the rooms of a range may take where no smaller one is possible.
const LARGEST: usize = 2 << 20;
/// Bytes that must be read where they were just written for a chain to be worth its kernels' starts.
const LEAST: usize = 128 << 10;
/// Bytes of the roots of all sums, at most.
const ROOTS: usize = 256 << 10;

/// How a chain is cut into ranges of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    samples: usize,
    ranges: usize,
    /// Samples of all ranges but the last one, where they must be sub-trees. Otherwise ranges are as equal as they can be.
    step: Option<usize>,
}

impl Cut {
    fn new(op: &Chain, threads: usize) -> Self {
        let samples = op.samples;
        let most = RANGE / per_sample(op).max(1);
        let Some(block) = op.links.iter().filter_map(|link| link.block).max() else {
            let ranges = samples.div_ceil(most.max(1)).next_multiple_of(threads);
            return Cut { samples, ranges: ranges.min(samples).max(1), step: None };
        };
        let mut step = block;
        while 2 * step <= most && samples.div_ceil(2 * step) >= 4 * threads {
            step *= 2;
        }
        Cut { samples, ranges: samples.div_ceil(step).max(1), step: Some(step) }
    }

    fn range(self, range: usize) -> Range<usize> {
        let start = |range: usize| match self.step {
            Some(step) => (range * step).min(self.samples),
            None => range * self.samples / self.ranges,
        };
        start(range)..start(range + 1)
    }

    /// Most samples of a range.
    fn longest(self) -> usize {
        self.step.map_or(self.samples.div_ceil(self.ranges), |step| step.min(self.samples))
    }

    /// The lengths that ranges have.
    fn lengths(self) -> SmallVec<[usize; 2]> {
        let shortest = match self.step {
            Some(_) => self.range(self.ranges - 1).len(),
            None => self.samples / self.ranges,
        };
        let mut lengths = SmallVec::from_slice(&[self.longest(), shortest]);
        lengths.dedup();
        lengths
    }
}

/// Bytes that the kernels write for a sample.
fn per_sample(op: &Chain) -> usize {
    let written = op.registers().filter(|r| r.link.is_some() && r.cut).map(|r| r.ty.bytes());
    written.sum::<usize>() / op.samples.max(1)
}

/// Whether the kernels are faster as a chain, on so many threads.
pub fn pays(op: &Chain, threads: usize) -> bool {
    let plan = Plan::new(op, threads);
    let (cut, registers) = (plan.cut, &plan.registers);
    let blocks: SmallVec<[usize; 4]> = op.links.iter().filter_map(|link| link.block).collect();
    let sums = registers.iter().filter(|r| r.link.is_some() && !r.cut).map(|r| r.ty.bytes()).sum::<usize>();
    op.links.iter().all(|link| starts_cheaply(link, registers))
        && blocks.iter().all(|&block| block == blocks[0])
        && (cut.ranges.is_multiple_of(threads) || cut.ranges >= 4 * threads)
        && op.kept_in_cache() >= LEAST
        && plan.rooms <= LARGEST
        && sums * cut.ranges <= ROOTS
}

/// Whether a kernel takes little time to start, so that it may be started for every range.
fn starts_cheaply(link: &Link, registers: &[Register]) -> bool {
    let shape = |i: usize| &registers[usize::from(link.args[i])].ty.shape;
    match &link.op {
        Op::Conv(op) => conv::forward::starts_cheaply(op, shape(0), shape(1), &link.results[0].shape),
        Op::ConvWeight(op) => conv::weight::starts_cheaply(op, shape(0), shape(1)),
        Op::ConvInput(_) | Op::Dot(_) => false,
        _ => true,
    }
}

/// Where the elements of a register lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Input(usize),
    Output(usize),
    /// In the rooms of a thread, from this byte on, those of a range.
    Room(usize),
    /// A sum's roots behind each other, one for each range, from this byte of all roots on.
    Roots {
        output: usize,
        start: usize,
    },
}

/// A chain with places for its registers.
struct Plan<'a> {
    cut: Cut,
    registers: Vec<Register<'a>>,
    places: Vec<Place>,
    /// Bytes of all roots.
    roots: usize,
    /// Bytes of a thread's rooms.
    rooms: usize,
    slots: usize,
}

/// A part of a thread's rooms.
struct Room {
    start: usize,
    bytes: usize,
    /// The last kernel that needs what is in it.
    until: usize,
    /// What is in it.
    register: usize,
}

impl<'a> Plan<'a> {
    fn new(op: &'a Chain, threads: usize) -> Self {
        let (cut, registers) = (Cut::new(op, threads), op.registers().collect::<Vec<_>>());
        let mut plan = Plan { cut, registers, places: Vec::new(), roots: 0, rooms: 0, slots: threads.min(cut.ranges) };
        plan.place(op);
        plan
    }

    /// Bytes of a register for so many samples.
    fn bytes(&self, register: usize, samples: usize) -> usize {
        let Register { ty, cut, .. } = self.registers[register];
        if cut { ty.bytes() / self.cut.samples.max(1) * samples } else { ty.bytes() }
    }

    /// Gives every register a place. A room is used again after the last kernel that reads it, or by that one, if it is a region
    /// that goes from element to element.
    fn place(&mut self, op: &Chain) {
        let last = op.last_readers();
        let mut rooms: Vec<Room> = Vec::new();
        for (number, register) in self.registers.iter().enumerate() {
            let output = op.outputs.iter().position(|&r| usize::from(r) == number);
            let place = match (register.link, output) {
                (None, _) => Place::Input(number),
                (Some(_), Some(k)) if register.cut || self.cut.ranges == 1 => Place::Output(k),
                (Some(_), Some(output)) => {
                    let start = self.roots;
                    self.roots += room::<u8>(self.bytes(number, 0) * self.cut.ranges);
                    Place::Roots { output, start }
                }
                (Some(link), None) => {
                    let bytes = room::<u8>(self.bytes(number, self.cut.longest()));
                    let until = last[number].unwrap_or(link);
                    let is_free =
                        |x: &&mut Room| x.until < link || x.until == link && op.may_replace(number, x.register);
                    match rooms.iter_mut().filter(is_free).find(|x| x.bytes >= bytes) {
                        Some(free) => {
                            (free.until, free.register) = (until, number);
                            Place::Room(free.start)
                        }
                        None => {
                            rooms.push(Room { start: self.rooms, bytes, until, register: number });
                            self.rooms += bytes;
                            Place::Room(self.rooms - bytes)
                        }
                    }
                }
            };
            self.places.push(place);
        }
    }

    /// The kernels for ranges of so many samples.
    fn kernels(&self, op: &Chain, layouts: &[&Layout], samples: usize) -> Vec<Kernel> {
        let ty = |register: usize| {
            let mut ty = self.registers[register].ty.clone();
            if self.registers[register].cut {
                ty.shape.0[0] = samples;
            }
            ty
        };
        let layout = |register: usize, shape: &Shape| match layouts.get(register) {
            Some(layout) => Layout { shape: shape.clone(), strides: layout.strides.clone(), offset: 0 },
            None => Layout::contiguous(shape),
        };
        let mut next = op.inputs.len();
        let kernel = |link: &Link| {
            let results = (next..next + link.results.len()).map(|register| (register, ty(register))).collect();
            next += link.results.len();
            let arg = |&register: &u16| {
                let (register, ty) = (usize::from(register), ty(register.into()));
                (register, layout(register, &ty.shape), ty)
            };
            Kernel { op: link.of_samples(samples), args: link.args.iter().map(arg).collect(), results }
        };
        op.links.iter().map(kernel).collect()
    }
}

/// A kernel for ranges of one length.
struct Kernel {
    op: Op,
    /// Registers with layouts and types.
    args: SmallVec<[(usize, Layout, Type); 4]>,
    results: SmallVec<[(usize, Type); 2]>,
}

impl Kernel {
    /// Bytes of scratch memory.
    fn scratch(&self) -> usize {
        let inputs: SmallVec<[(&Type, &Layout); 4]> = self.args.iter().map(|(_, layout, ty)| (ty, layout)).collect();
        CpuTarget { threads: 1 }.scratch(&self.op, &inputs, &self.results[0].1)
    }
}

/// Bytes of scratch memory for [`run`].
pub fn scratch(op: &Chain, layouts: &[&Layout], threads: usize) -> usize {
    let plan = Plan::new(op, threads);
    let lengths = plan.cut.lengths();
    let kernels = lengths.iter().flat_map(|&samples| plan.kernels(op, layouts, samples));
    let most = kernels.map(|kernel| kernel.scratch()).max().unwrap_or(0);
    plan.roots + plan.slots * (plan.rooms + room::<u8>(most))
}

/// Computes the chain, with as much scratch memory as [`scratch()`] says for these threads.
///
/// # Panics
/// When the operands are not those of the chain.
pub fn run(op: &Chain, inputs: &[Operand], outputs: &[Output], scratch: &mut [u8], context: Context) {
    assert_eq!((op.inputs.len(), op.outputs.len()), (inputs.len(), outputs.len()), "operands of a chain");
    for (input, operand) in op.inputs.iter().zip(inputs) {
        assert!(input.ty.dtype == operand.dtype && input.ty.shape == *operand.shape(), "type of an input of a chain");
    }
    for (ty, output) in op.results().iter().zip(outputs) {
        assert!(ty.dtype == output.dtype && ty.shape == *output.shape, "type of a result of a chain");
    }
    let layouts: SmallVec<[&Layout; 8]> = inputs.iter().map(|x| x.layout).collect();
    let plan = Plan::new(op, context.par.lanes());
    let of_length = |samples: usize| (samples, plan.kernels(op, &layouts, samples));
    let kernels: SmallVec<[(usize, Vec<Kernel>); 2]> = plan.cut.lengths().into_iter().map(of_length).collect();
    let slot_bytes = scratch.len().checked_sub(plan.roots).expect("scratch memory of a chain") / plan.slots;
    assert!(slot_bytes >= plan.rooms && slot_bytes.is_multiple_of(room::<u8>(1)), "scratch memory of a chain");
    let mut arena = Arena::new(scratch);
    let rooms = arena.slots(plan.slots, slot_bytes);
    let roots = Shared(arena.take::<u8>(plan.roots));
    let firsts: Vec<Shared<u8>> =
        inputs.iter().map(|x| Shared(x.bytes().cast_mut().wrapping_add(x.layout.offset * x.dtype.size()))).collect();
    let results: Vec<Shared<u8>> = outputs.iter().map(|x| Shared(x.bytes())).collect();
    with_slots(context.par, plan.slots, plan.cut.ranges, |slot, number| {
        let range = plan.cut.range(number);
        let own: *mut u8 = rooms.room(slot).take(slot_bytes);
        // Where the range's elements of a register begin.
        let at = |register: usize| {
            let Register { ty, cut, .. } = plan.registers[register];
            match plan.places[register] {
                Place::Input(i) if cut => {
                    let stride = layouts[i].strides[0] * ty.dtype.size() as isize;
                    firsts[i].pointer().wrapping_offset(range.start as isize * stride)
                }
                Place::Input(i) => firsts[i].pointer(),
                Place::Output(k) if cut => results[k].pointer().wrapping_add(plan.bytes(register, range.start)),
                Place::Output(k) => results[k].pointer(),
                Place::Room(start) => own.wrapping_add(start),
                Place::Roots { start, .. } => roots.pointer().wrapping_add(start + number * plan.bytes(register, 0)),
            }
        };
        let (_, kernels) = kernels.iter().find(|(length, _)| *length == range.len()).expect("kernels of the length");
        for kernel in kernels {
            // SAFETY: the range's elements of the inputs; no other range writes what this one does, and rooms
            // are used again only after their last reader.
            let (args, results) = unsafe {
                let args: SmallVec<[Operand; 4]> =
                    kernel.args.iter().map(|(r, layout, ty)| Operand::new(at(*r), ty.dtype, layout)).collect();
                let results = kernel.results.iter().map(|(r, ty)| Output::new(at(*r), ty.dtype, &ty.shape)).collect();
                (args, results)
            };
            // SAFETY: the rest of the slot's memory.
            let scratch =
                unsafe { std::slice::from_raw_parts_mut(own.wrapping_add(plan.rooms), slot_bytes - plan.rooms) };
            kernel::run(&kernel.op, &args, results, scratch, Context { par: Par::serial(), ..context });
        }
    });
    for place in &plan.places {
        if let Place::Roots { output, start } = *place {
            // SAFETY: the roots of all ranges, which nobody writes any more.
            unsafe {
                let rows = roots.pointer().add(start);
                add_rows_by_tree(rows, plan.cut.ranges, &outputs[output], context.level);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwork_graph::DType;
    use meshwork_graph::canonical::Blocking;
    use meshwork_graph::ops::{
        AvgPool, BinaryOp, ChainInput, Element, Fused, Instr, Reduce, ReduceOp, Source, Space, Window,
    };

    /// Pooling of 8 channels of 32 × 32, and sums of it over the samples.
    fn chain(samples: usize, block: Option<usize>) -> Chain {
        let ty = |shape: &[usize]| Type::new(DType::F32, shape);
        let window = Window::Fixed { kernel: 2, stride: 2, padding: 0, dilation: 1, ceil: false };
        let pool = AvgPool { windows: SmallVec::from_slice(&[window; 2]), count_include_pad: true };
        let pooled = ty(&[samples, 8, 32, 32]);
        let mut links = vec![Link {
            op: pool.into(),
            args: SmallVec::from_slice(&[0]),
            results: SmallVec::from_iter([pooled.clone()]),
            block: None,
        }];
        if let Some(block) = block {
            let mut sum = Reduce::new(ReduceOp::Sum, &[0, 2, 3]);
            sum.blocking = Blocking::Every(block);
            let results = SmallVec::from_iter([ty(&[8])]);
            links.push(Link { op: sum.into(), args: SmallVec::from_slice(&[1]), results, block: Some(block) });
        }
        let inputs = vec![ChainInput { ty: ty(&[samples, 8, 64, 64]), cut: true }];
        Chain { samples, inputs, links, outputs: SmallVec::from_slice(&[1]) }
    }

    #[test]
    fn ranges_cover_the_samples_in_few_lengths() {
        for samples in [0, 1, 2, 7, 33, 100, 256] {
            for threads in [1, 2, 3, 5, 16] {
                for block in [None, Some(1), Some(4)] {
                    let cut = Cut::new(&chain(samples, block), threads);
                    let ranges: Vec<_> = (0..cut.ranges).map(|i| cut.range(i)).collect();
                    let covered: Vec<usize> = ranges.iter().cloned().flatten().collect();
                    assert_eq!(covered, (0..samples).collect::<Vec<_>>());
                    let lengths = cut.lengths();
                    assert!(ranges.iter().all(|range| lengths.contains(&range.len())), "{cut:?}");
                    assert_eq!(lengths[0], ranges.iter().map(|range| range.len()).max().unwrap());
                    if let (Some(block), Some(step)) = (block, cut.step) {
                        assert!(step.is_multiple_of(block) && (step / block).is_power_of_two());
                        assert!(ranges.iter().all(|range| range.start.is_multiple_of(step)));
                    }
                    assert!(
                        block.is_some()
                            || samples < threads
                            || cut.ranges.is_multiple_of(threads)
                            || cut.ranges == samples
                    );
                }
            }
        }
    }

    /// Two pools, and a region of both that writes where one of them was.
    #[test]
    fn a_region_takes_the_room_of_an_operand() {
        let mut chain = chain(256, None);
        let pooled = chain.links[0].results[0].clone();
        chain.links.push(chain.links[0].clone());
        let add =
            Instr { op: Element::Binary(BinaryOp::Add).into(), args: [0, 1, 0], of_rows: false, dtype: DType::F32 };
        let source = Source { dtype: DType::F32, of_rows: false };
        let fused = Fused {
            space: Space::elements(pooled.shape.clone()),
            inputs: vec![source; 2],
            code: vec![add],
            outputs: SmallVec::from_slice(&[2]),
        };
        let args = SmallVec::from_slice(&[1, 2]);
        chain.links.push(Link { op: fused.into(), args, results: SmallVec::from_iter([pooled.clone()]), block: None });
        let pool = Link { args: SmallVec::from_slice(&[3]), ..chain.links[0].clone() };
        chain.links.push(pool);
        chain.outputs = SmallVec::from_slice(&[4]);
        let plan = Plan::new(&chain, 2);
        assert_eq!(plan.rooms, 2 * plan.bytes(1, plan.cut.longest()));
    }

    #[test]
    fn chains_pay_where_much_is_kept_in_the_cache_and_all_threads_work() {
        assert!(pays(&chain(256, Some(8)), 2));
        assert!(!pays(&chain(256, None), 2), "nothing is read again");
        assert!(!pays(&chain(2, Some(1)), 2), "64 KiB are read again");
        assert!(!pays(&chain(8, Some(8)), 2), "one thread would do it all");
        assert!(!pays(&chain(12, Some(4)), 2), "three ranges for two threads");
    }
}

//! Chains: a thread takes a range of samples and runs all kernels on it, by itself, before it takes the next one.
//!
//! What only the chain needs lies in rooms of the thread that stay in its second cache. An elementwise kernel that is
//! the last to read such a value writes its result over it. Of a sum over the samples every range gives the root of a
//! sub-tree; the roots are added in the end.

use crate::gemm::drive::with_slots;
use crate::gemm::scratch::room;
use crate::kernel::{self, CpuTarget};
use crate::operand::Shared;
use crate::par::Par;
use crate::reduce::add_rows_by_tree;
use crate::{Context, Operand, Output, conv};
use meshwork_graph::ops::{Chain, Link, Register};
use meshwork_graph::program::Target;
use meshwork_graph::{Layout, Op, Shape, Type};
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes that the kernels should write for a range, at most: they stay in the second cache.
const RANGE: usize = 256 << 10;
/// Bytes that a range may take where no smaller one is possible.
const LARGEST: usize = 2 << 20;
/// Bytes that must be read where they were just written for a chain to be worth its kernels' starts.
const LEAST: usize = 256 << 10;
/// Bytes of the roots of all sums, at most.
const ROOTS: usize = 256 << 10;

/// How a chain is cut into ranges of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    samples: usize,
    /// Samples of a range; the last one may have fewer.
    step: usize,
}

impl Cut {
    fn new(op: &Chain, threads: usize) -> Self {
        let samples = op.samples;
        let written = op.registers().filter(|r| r.link.is_some() && r.cut).map(|r| r.ty.bytes()).sum::<usize>();
        let most = RANGE / (written / samples.max(1)).max(1);
        let step = match op.links.iter().filter_map(|link| link.block).max() {
            None => {
                let ranges = samples.div_ceil(most.max(1)).next_multiple_of(threads);
                samples.div_ceil(ranges.max(1))
            }
            Some(block) => {
                let mut step = block;
                while 2 * step <= most && samples.div_ceil(2 * step) >= 4 * threads {
                    step *= 2;
                }
                step
            }
        };
        Cut { samples, step: step.max(1) }
    }

    fn ranges(self) -> usize {
        self.samples.div_ceil(self.step).max(1)
    }

    fn range(self, range: usize) -> Range<usize> {
        range * self.step..((range + 1) * self.step).min(self.samples)
    }

    /// The lengths that ranges have.
    fn lengths(self) -> SmallVec<[usize; 2]> {
        let last = self.range(self.ranges() - 1).len();
        if last == self.step { SmallVec::from_slice(&[last]) } else { SmallVec::from_slice(&[self.step, last]) }
    }
}

/// Whether the kernels are faster as a chain, on so many threads.
pub fn pays(op: &Chain, threads: usize) -> bool {
    let cut = Cut::new(op, threads);
    let (ranges, most) = (cut.ranges(), cut.step * op.samples);
    let registers: Vec<Register> = op.registers().collect();
    let bytes = |cut: bool| registers.iter().filter(move |r| r.link.is_some() && r.cut == cut).map(|r| r.ty.bytes());
    let mut blocks = op.links.iter().filter_map(|link| link.block);
    let block = blocks.next();
    most > 0
        && op.links.iter().all(|link| starts_cheaply(link, &registers))
        && blocks.all(|other| Some(other) == block)
        && (ranges.is_multiple_of(threads) || ranges >= 4 * threads)
        && op.kept_in_cache() >= LEAST
        && bytes(true).sum::<usize>() / op.samples * cut.step <= LARGEST
        && bytes(false).sum::<usize>() * ranges <= ROOTS
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
    /// Behind each other, the root of each range: so many bytes from the start of all roots.
    Roots(usize, usize),
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

impl<'a> Plan<'a> {
    fn new(op: &'a Chain, layouts: &[&Layout], threads: usize) -> Self {
        let (cut, registers) = (Cut::new(op, threads), op.registers().collect::<Vec<_>>());
        let mut plan =
            Plan { cut, registers, places: Vec::new(), roots: 0, rooms: 0, slots: threads.min(cut.ranges()) };
        plan.place(op, layouts);
        plan
    }

    /// Bytes of a register for so many samples.
    fn bytes(&self, register: usize, samples: usize) -> usize {
        let Register { ty, cut, .. } = self.registers[register];
        if cut { ty.bytes() / self.cut.samples.max(1) * samples } else { ty.bytes() }
    }

    /// Gives every register a place.
    fn place(&mut self, op: &Chain, layouts: &[&Layout]) {
        let (inputs, last) = (op.inputs.len(), op.last_readers());
        let homes = self.homes(op, layouts, &last);
        let output = |register: usize| op.outputs.iter().position(|&r| usize::from(r) == register);
        // Rooms, and the last kernel that needs what is in them.
        let mut rooms: Vec<(usize, Option<usize>)> = Vec::new();
        let mut of_home: Vec<Option<usize>> = vec![None; self.registers.len()];
        let mut room_of: Vec<Option<usize>> = vec![None; self.registers.len()];
        for register in 0..self.registers.len() {
            let home = homes[register];
            let place = match (self.registers[register].link, output(home)) {
                (None, _) => Place::Input(register),
                (Some(_), Some(k)) if self.registers[home].cut || self.cut.ranges() == 1 => Place::Output(k),
                (Some(_), Some(k)) => {
                    let at = self.roots;
                    self.roots += room::<u8>(self.bytes(home, 0) * self.cut.ranges());
                    Place::Roots(k, at)
                }
                (Some(link), None) => {
                    let bytes = room::<u8>(self.bytes(register, self.cut.step));
                    let until = (0..homes.len()).filter(|&r| homes[r] == home).filter_map(|r| last[r]).max();
                    let number = of_home[home].unwrap_or_else(|| {
                        let free = rooms.iter().position(|(_, until)| until.is_some_and(|until| until < link));
                        free.unwrap_or_else(|| {
                            rooms.push((0, None));
                            rooms.len() - 1
                        })
                    });
                    of_home[home] = Some(number);
                    room_of[register] = Some(number);
                    // A result that nobody reads is written by its own kernel only.
                    rooms[number] = (rooms[number].0.max(bytes), until.max(Some(link)));
                    Place::Room(0)
                }
            };
            debug_assert!(matches!(place, Place::Input(_)) == (register < inputs));
            self.places.push(place);
        }
        let starts: Vec<usize> = rooms
            .iter()
            .map(|(bytes, _)| {
                self.rooms += bytes;
                self.rooms - bytes
            })
            .collect();
        for (place, number) in self.places.iter_mut().zip(room_of) {
            if let Some(number) = number {
                *place = Place::Room(starts[number]);
            }
        }
    }

    /// For each register the one in whose place it lies, which is later and has elements of the same size: the result of
    /// an elementwise kernel that is the last to read it.
    fn homes(&self, op: &Chain, layouts: &[&Layout], last: &[Option<usize>]) -> Vec<usize> {
        let mut homes: Vec<usize> = (0..self.registers.len()).collect();
        let mut taken = vec![false; homes.len()];
        let output = |register: usize| op.outputs.iter().position(|&r| usize::from(r) == register);
        // An output may lie where an input does, which is still read.
        let over_input = |k: usize, bytes: usize| {
            let same = |i: usize| op.inputs[i].ty.bytes() == bytes && layouts[i].is_contiguous();
            (0..op.inputs.len()).any(|i| same(i) && op.may_overwrite(i, k))
        };
        for register in (op.inputs.len()..homes.len()).rev() {
            let from = self.registers[register];
            let Some(reader) = last[register].filter(|_| output(register).is_none()) else { continue };
            if !matches!(op.links[reader].op, Op::Fused(_)) {
                continue;
            }
            let fits = |&to: &usize| {
                let into = self.registers[to];
                let sizes = |ty: &Type| (ty.bytes(), ty.dtype.size());
                into.link == Some(reader)
                    && !taken[to]
                    && sizes(into.ty) == sizes(from.ty)
                    && output(homes[to]).is_none_or(|k| !over_input(k, from.ty.bytes()))
            };
            if let Some(to) = (0..homes.len()).find(fits) {
                taken[to] = true;
                homes[register] = homes[to];
            }
        }
        homes
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
            Some(layout) => Layout { shape: shape.clone(), ..(*layout).clone() },
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
    let plan = Plan::new(op, layouts, threads);
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
    let plan = Plan::new(op, &layouts, context.par.threads());
    let kernels: SmallVec<[Vec<Kernel>; 2]> =
        plan.cut.lengths().iter().map(|&samples| plan.kernels(op, &layouts, samples)).collect();
    let slot_bytes = scratch.len().checked_sub(plan.roots).expect("scratch memory of a chain") / plan.slots;
    assert!(slot_bytes >= plan.rooms, "scratch memory of a chain");
    let roots = Shared(scratch.as_mut_ptr());
    let firsts: Vec<Shared<u8>> = inputs.iter().map(|x| Shared(x.bytes().cast_mut())).collect();
    let results: Vec<Shared<u8>> = outputs.iter().map(|x| Shared(x.bytes())).collect();
    with_slots(context.par, plan.slots, plan.cut.ranges(), &|slot, number| {
        let range = plan.cut.range(number);
        let own = roots.pointer().wrapping_add(plan.roots + slot * slot_bytes);
        // Where the range's elements of a register begin; for an input the start of its buffer, moved as far.
        let at = |register: usize| {
            let Register { ty, cut, .. } = plan.registers[register];
            let samples = if cut { range.start } else { 0 };
            match plan.places[register] {
                Place::Input(i) => {
                    let stride = if cut { layouts[i].strides[0] * ty.dtype.size() as isize } else { 0 };
                    firsts[i].pointer().wrapping_offset(samples as isize * stride)
                }
                Place::Output(k) => results[k].pointer().wrapping_add(plan.bytes(register, samples)),
                Place::Room(start) => own.wrapping_add(start),
                Place::Roots(_, start) => roots.pointer().wrapping_add(start + number * plan.bytes(register, 0)),
            }
        };
        for kernel in &kernels[usize::from(range.len() < plan.cut.step && kernels.len() > 1)] {
            // SAFETY: the range's elements of the inputs; no other range writes what this one does, and within a
            // range values share a place only as elementwise kernels allow it.
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
        if let Place::Roots(k, start) = *place {
            // SAFETY: the roots of all ranges, which nobody writes any more.
            unsafe {
                let rows = roots.pointer().add(start);
                add_rows_by_tree(rows, plan.cut.ranges(), &outputs[k], context.level);
            }
        }
    }
}

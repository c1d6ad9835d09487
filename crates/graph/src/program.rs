//! A compiled graph: kernels in order, with every buffer placed.

use crate::op::Op;
use crate::ops::{Chain, Epilogue};
use crate::shape::{Layout, Type};
use smallvec::SmallVec;

/// What the compiler must know of the device that a program is for.
pub trait Target {
    /// Whether the kernel of `op` reads its operand number `input` in this layout; otherwise a dense copy is made.
    fn accepts(&self, op: &Op, input: usize, layout: &Layout) -> bool;

    /// Bytes of scratch memory that the kernel needs.
    fn scratch(&self, op: &Op, inputs: &[(&Type, &Layout)], output: &Type) -> usize;

    /// Whether these kernels are faster as a chain than one after the other, and without the last of them slower or no
    /// chain.
    fn chains(&self, _chain: &Chain) -> bool {
        false
    }

    /// Whether the kernel of a product, of operands of these types, runs what follows on tiles of its result.
    fn has_epilogues(&self, _epilogue: &Epilogue, _inputs: &[&Type]) -> bool {
        false
    }
}

/// For every input whether nobody needs it after the run, so that its memory may hold an output.
pub type Donation = SmallVec<[bool; 16]>;

/// Where a value's elements are while a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// In the buffer bound to an input.
    Input(usize),
    /// In the buffer of an output.
    Output(usize),
    /// At this byte of the program's arena.
    Arena(usize),
}

/// An operand of a kernel.
#[derive(Clone, Debug)]
pub struct View {
    /// The buffer.
    pub location: Location,
    /// Where the elements lie in it.
    pub layout: Layout,
    /// Their type.
    pub ty: Type,
}

/// Where a kernel writes a result, which is dense.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The buffer.
    pub location: Location,
    /// Type of the result.
    pub ty: Type,
}

/// One kernel call.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is computed. A [`Op::Reshape`] step copies its operand into dense order.
    pub op: Op,
    /// Its operands.
    pub inputs: Vec<View>,
    /// Its results: see [`Op::results`].
    pub outputs: SmallVec<[Destination; 1]>,
    /// First byte and size of the scratch memory in the arena.
    pub scratch: (usize, usize),
}

impl Step {
    /// Floating-point operations of the step.
    pub fn flops(&self) -> u64 {
        let types: Vec<&Type> = self.inputs.iter().map(|v| &v.ty).collect();
        self.op.operation().flops(&types, &self.outputs[0].ty)
    }

    /// Bytes that the step must at least read and write.
    pub fn bytes(&self) -> u64 {
        let distinct = |v: &View| {
            let sizes = v.layout.shape.iter().zip(&v.layout.strides).filter(|(_, s)| **s != 0).map(|(n, _)| *n);
            (sizes.product::<usize>() * v.ty.dtype.size()) as u64
        };
        let written: usize = self.outputs.iter().map(|o| o.ty.bytes()).sum();
        self.inputs.iter().map(distinct).sum::<u64>() + written as u64
    }
}

/// What a program needs in memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Inputs, donated ones included.
    pub inputs: usize,
    /// Outputs that need new memory (not in place of a donated input).
    pub outputs: usize,
    /// Everything between, scratch memory included; lives only during the run.
    pub arena: usize,
}

impl Memory {
    /// Most bytes in use at a time.
    pub fn peak(&self) -> usize {
        self.inputs + self.outputs + self.arena
    }
}

/// How an output comes to its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPlace {
    /// Type of the value, which is dense.
    pub ty: Type,
    /// The donated input whose memory it takes over.
    pub donated: Option<usize>,
}

/// A compiled graph.
#[derive(Clone, Debug)]
pub struct Program {
    /// Types of the inputs.
    pub inputs: Vec<Type>,
    /// The outputs.
    pub outputs: Vec<OutputPlace>,
    /// The kernels in order.
    pub steps: Vec<Step>,
    /// Bytes needed.
    pub memory: Memory,
}

impl Program {
    /// Floating-point operations of one run.
    pub fn flops(&self) -> u64 {
        self.steps.iter().map(Step::flops).sum()
    }
}

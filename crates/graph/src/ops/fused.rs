//! Regions of elementwise operations and reductions of rows that run as one kernel, and their results.

use crate::dtype::{DType, Scalar};
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::ops::element::pointwise;
use crate::ops::{Element, PartOf, ReduceOp};
use crate::region::Region;
use crate::rule::{Kind, SplitRule};
use crate::shape::{Shape, Type};
use smallvec::SmallVec;
use std::ops::Range;

/// Columns of a tile. Rows with more are taken tile by tile, in several passes.
pub const TILE_COLUMNS: usize = 1024;

/// What an instruction of a fused region computes. Operands and results have one value for each element, or one for
/// each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A constant.
    Const(Scalar),
    /// An elementwise operation, of elements or of rows.
    Element(Element),
    /// `x -> row`: each row's elements combined as [`Reduce`](crate::ops::Reduce) does it, in blocks of so many terms.
    Reduce(ReduceOp, usize),
    /// `row -> x`: the value of the row at each of its elements.
    Spread,
    /// `(x, index) -> row`: the element in the column that the row's index names, as
    /// [`Gather`](crate::ops::Gather) reads it along this dimension, of which the columns may be a part.
    Gather(usize, Option<PartOf>),
    /// `(index, value) -> x`: 0 except in the column that the row's index names, where it is 0 + the row's value, as
    /// [`ScatterAdd`](crate::ops::ScatterAdd) into zeros gives it along this dimension, of which the columns may be a part.
    Scatter(usize, Option<PartOf>),
}

impl From<Element> for Code {
    fn from(op: Element) -> Code {
        Code::Element(op)
    }
}

impl Code {
    /// Number of operands.
    pub fn arity(self) -> usize {
        match self {
            Code::Const(_) => 0,
            Code::Element(op) => op.arity(),
            Code::Reduce(..) | Code::Spread => 1,
            Code::Gather(..) | Code::Scatter(..) => 2,
        }
    }

    /// The name in printed graphs.
    pub fn name(self) -> &'static str {
        match self {
            Code::Const(_) => "const",
            Code::Element(op) => op.name(),
            Code::Reduce(op, _) => op.name(),
            Code::Spread => "spread",
            Code::Gather(..) => "gather",
            Code::Scatter(..) => "scatter",
        }
    }
}

/// One instruction of a fused region, in static single assignment: it defines the next register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instr {
    /// What is computed.
    pub op: Code,
    /// Registers read; unused entries are 0. Registers 0..inputs are the region's inputs, register
    /// `inputs + i` is the result of instruction `i`.
    pub args: [u16; 3],
    /// Whether the result is a value of rows. Constants, which are values of elements, are good for both.
    pub of_rows: bool,
    /// Type of the result. Values of f16 and bf16 are rounded after every instruction, as if stored.
    pub dtype: DType,
}

impl Instr {
    /// The registers that are read.
    pub fn reads(&self) -> &[u16] {
        &self.args[..self.op.arity()]
    }
}

/// What a region computes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Space {
    /// The shape of values with one element each.
    pub shape: Shape,
    /// The first so many dimensions number the rows.
    pub row_dims: usize,
    /// So do the last so many, in which neighbouring rows lie beside each other. Values of rows have the shape of both.
    pub inner_dims: usize,
}

impl Space {
    /// Elements of `shape` that have nothing to do with each other.
    pub fn elements(shape: Shape) -> Space {
        Space::rows(shape.rank(), shape)
    }

    /// Rows of the last dimensions behind the first `row_dims`.
    pub fn rows(row_dims: usize, shape: Shape) -> Space {
        Space { shape, row_dims, inner_dims: 0 }
    }

    /// The dimensions of the columns.
    pub fn column_dims(&self) -> Range<usize> {
        self.row_dims..self.shape.rank() - self.inner_dims
    }

    /// Keeps the rows of a region of the elements, or of the rows, which cuts no dimensions but those ahead of the columns'.
    pub(crate) fn keep_rows(&mut self, region: &Region) {
        self.shape.0[..self.row_dims].copy_from_slice(&region.sizes[..self.row_dims]);
    }

    /// The shape of values of rows.
    pub fn row_shape(&self) -> Shape {
        let columns = self.column_dims();
        self.shape[..columns.start].iter().chain(&self.shape[columns.end..]).copied().collect()
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.shape[self.column_dims()].iter().product()
    }

    /// Sizes of the dimensions ahead of the columns', multiplied.
    pub fn outer(&self) -> usize {
        self.shape[..self.row_dims].iter().product()
    }

    /// Whether there are rows beside each other.
    pub fn is_beside(&self) -> bool {
        self.inner_dims > 0
    }

    /// Neighbouring rows that lie beside each other: as many elements as there are between two of a row.
    pub fn inner(&self) -> usize {
        self.shape[self.column_dims().end..].iter().product()
    }

    /// Whether values of this shape are values of rows, with the columns' dimensions left out or of size 1.
    pub fn is_of_rows(&self, shape: &Shape) -> bool {
        let columns = self.column_dims();
        let (ahead, behind) = (&self.shape[..columns.start], &self.shape[columns.end..]);
        !columns.is_empty()
            && shape.starts_with(ahead)
            && shape.ends_with(behind)
            && (shape.rank() == ahead.len() + behind.len()
                || shape.rank() == self.shape.rank() && shape[columns].iter().all(|&n| n == 1))
    }
}

/// An input of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Element type.
    pub dtype: DType,
    /// Whether it is a value of rows.
    pub of_rows: bool,
}

/// A region that runs tile by tile and may have several results: elementwise operations, and operations that combine
/// the elements of a row.
///
/// As a value of the graph it is its first result; the others are [`Part`]s of it. Fusing never changes a value: every
/// instruction does the arithmetic that its operation does alone (no contraction of a product and a sum into one
/// rounding, sums in canonical order).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fused {
    /// Rows and columns.
    pub space: Space,
    /// The inputs.
    pub inputs: Vec<Source>,
    /// At least one instruction.
    pub code: Vec<Instr>,
    /// The registers of instructions that are the results, each once; at least one.
    pub outputs: SmallVec<[u16; 4]>,
}

/// Another result of a node that has several ([`Op::results`](crate::Op::results)), its only operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Which one; 0 is the node's own value.
    pub index: usize,
    /// Its type.
    pub ty: Type,
}

impl Fused {
    /// A region of one elementwise operation.
    pub fn single(op: Element, shape: Shape, inputs: &[DType], dtype: DType) -> Fused {
        let mut args = [0; 3];
        for (i, arg) in args.iter_mut().enumerate().take(inputs.len()) {
            *arg = i as u16;
        }
        Fused {
            space: Space::elements(shape),
            inputs: inputs.iter().map(|&dtype| Source { dtype, of_rows: false }).collect(),
            code: vec![Instr { op: Code::Element(op), args, of_rows: false, dtype }],
            outputs: SmallVec::from_slice(&[inputs.len() as u16]),
        }
    }

    /// Element type of a register.
    pub fn dtype_of(&self, register: u16) -> DType {
        let register = usize::from(register);
        match self.inputs.get(register) {
            Some(source) => source.dtype,
            None => self.code[register - self.inputs.len()].dtype,
        }
    }

    /// Whether a register is a value of rows.
    pub fn of_rows(&self, register: u16) -> bool {
        let register = usize::from(register);
        match self.inputs.get(register) {
            Some(source) => source.of_rows,
            None => self.code[register - self.inputs.len()].of_rows,
        }
    }

    /// The types of all results.
    pub fn results(&self, inputs: &[&Type]) -> Result<SmallVec<[Type; 4]>, OpError> {
        let registers = self.inputs.len()..self.inputs.len() + self.code.len();
        if self.outputs.is_empty() || !self.outputs.iter().all(|&r| registers.contains(&r.into())) {
            return Err(OpError("fused: a region without results".into()));
        }
        let picks = |instr: &Instr| matches!(instr.op, Code::Gather(..) | Code::Scatter(..));
        if self.space.row_dims + self.space.inner_dims > self.space.shape.rank() {
            return Err(OpError(format!("fused: more dimensions of rows than {} has", self.space.shape)));
        }
        if self.space.is_beside() && self.code.iter().any(picks) {
            return Err(OpError("fused: rows that lie beside each other are not indexed".into()));
        }
        if inputs.len() != self.inputs.len() {
            return Err(OpError(format!("fused: {} operands instead of {}", inputs.len(), self.inputs.len())));
        }
        for (ty, source) in inputs.iter().zip(&self.inputs) {
            let fits = if source.of_rows { self.space.is_of_rows(&ty.shape) } else { ty.shape == self.space.shape };
            if !fits || ty.dtype != source.dtype {
                return Err(OpError(format!("fused: operand {ty} of a region of {}", self.space.shape)));
            }
        }
        let shape = |r: u16| if self.of_rows(r) { self.space.row_shape() } else { self.space.shape.clone() };
        Ok(self.outputs.iter().map(|&r| Type { dtype: self.dtype_of(r), shape: shape(r) }).collect())
    }

    /// For every register whether result number `output` depends on it.
    pub fn dependencies(&self, output: usize) -> Vec<bool> {
        let mut needed = vec![false; self.inputs.len() + self.code.len()];
        needed[usize::from(self.outputs[output])] = true;
        for (i, instr) in self.code.iter().enumerate().rev() {
            if needed[self.inputs.len() + i] {
                instr.reads().iter().for_each(|&r| needed[usize::from(r)] = true);
            }
        }
        needed
    }

    /// Whether result number `output` depends on indices, which may be out of range.
    pub fn depends_on_indices(&self, output: usize) -> bool {
        let needed = self.dependencies(output);
        let is_index = |instr: &Instr| matches!(instr.op, Code::Gather(..) | Code::Scatter(..));
        self.code.iter().zip(&needed[self.inputs.len()..]).any(|(instr, needed)| *needed && is_index(instr))
    }
}

impl Operation for Fused {
    fn name(&self) -> &'static str {
        "fused"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        Ok(self.results(inputs)?.swap_remove(0))
    }

    fn gradient(&self, _: &mut Graph, _: &Backward) -> Vec<Option<NodeId>> {
        unreachable!("gradients are taken of recorded graphs, before fusing")
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        let rows = 0..self.space.row_dims;
        rows.fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &vec![Some(d); inputs.len()], Some(d)))
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        let (elements, rows) = (self.space.shape.numel() as u64, self.space.row_shape().numel() as u64);
        let flops = |instr: &Instr| match instr.op {
            Code::Element(Element::Unary(_) | Element::Binary(_)) if instr.of_rows => rows,
            Code::Element(Element::Unary(_) | Element::Binary(_)) | Code::Reduce(..) => elements,
            _ => 0,
        };
        self.code.iter().map(flops).sum()
    }
}

impl Operation for Part {
    fn name(&self) -> &'static str {
        "part"
    }

    fn infer(&self, _: &[&Type]) -> Result<Type, OpError> {
        Ok(self.ty.clone())
    }

    fn gradient(&self, _: &mut Graph, _: &Backward) -> Vec<Option<NodeId>> {
        unreachable!("gradients are taken of recorded graphs, before fusing")
    }

    fn rule(&self, _: &[&Type], output: &Type) -> SplitRule {
        pointwise(output.shape.rank(), 1)
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}

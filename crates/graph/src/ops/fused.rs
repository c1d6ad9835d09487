//! Regions of elementwise operations that run as one kernel, and their results.

use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::ops::Element;
use crate::ops::element::{pointwise, same_shape};
use crate::rule::SplitRule;
use crate::shape::Type;
use smallvec::SmallVec;

/// One instruction of a fused region, in static single assignment: it defines the next register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instr {
    /// What is computed.
    pub op: Element,
    /// Registers read; unused entries are 0. Registers 0..inputs are the region's inputs, register
    /// `inputs + i` is the result of instruction `i`.
    pub args: [u16; 3],
    /// Type of the result. Values of f16 and bf16 are rounded after every instruction, as if stored.
    pub dtype: DType,
}

impl Instr {
    /// The registers that are read.
    pub fn reads(&self) -> &[u16] {
        &self.args[..self.op.arity()]
    }
}

/// A region of elementwise operations that runs tile by tile and may have several results.
///
/// As a value of the graph it is its first result; the others are [`Part`]s of it. Fusing never changes a value: every
/// instruction does the arithmetic that its operation does alone (no contraction of a product and a sum into one
/// rounding).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fused {
    /// Element types of the inputs; their shapes are the results'.
    pub inputs: Vec<DType>,
    /// At least one instruction.
    pub code: Vec<Instr>,
    /// The registers of instructions that are the results, each once; at least one.
    pub outputs: SmallVec<[u16; 4]>,
}

/// Another result of a [`Fused`] region, its only operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Which one; 0 is the region's own value.
    pub index: usize,
    /// Its type.
    pub ty: Type,
}

impl Fused {
    /// A region of one operation.
    pub fn single(op: Element, inputs: &[DType], dtype: DType) -> Fused {
        let mut args = [0; 3];
        for (i, arg) in args.iter_mut().enumerate().take(inputs.len()) {
            *arg = i as u16;
        }
        let outputs = SmallVec::from_slice(&[inputs.len() as u16]);
        Fused { inputs: inputs.to_vec(), code: vec![Instr { op, args, dtype }], outputs }
    }

    /// Element type of a register.
    pub fn dtype_of(&self, register: u16) -> DType {
        let register = usize::from(register);
        match self.inputs.get(register) {
            Some(&dtype) => dtype,
            None => self.code[register - self.inputs.len()].dtype,
        }
    }

    /// The types of all results.
    pub fn results(&self, inputs: &[&Type]) -> Result<SmallVec<[Type; 4]>, OpError> {
        let registers = self.inputs.len()..self.inputs.len() + self.code.len();
        if self.outputs.is_empty() || !self.outputs.iter().all(|&r| registers.contains(&r.into())) {
            return Err(OpError("fused: a region without results".into()));
        }
        let shape = same_shape("fused", inputs)?;
        Ok(self.outputs.iter().map(|&r| Type { dtype: self.dtype_of(r), shape: shape.clone() }).collect())
    }

    /// For every input whether result number `output` depends on it.
    pub fn dependencies(&self, output: usize) -> Vec<bool> {
        let mut needed = vec![false; self.inputs.len() + self.code.len()];
        needed[usize::from(self.outputs[output])] = true;
        for (i, instr) in self.code.iter().enumerate().rev() {
            if needed[self.inputs.len() + i] {
                instr.reads().iter().for_each(|&r| needed[usize::from(r)] = true);
            }
        }
        needed.truncate(self.inputs.len());
        needed
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

    fn rule(&self, inputs: &[&Type], output: &Type) -> SplitRule {
        pointwise(output.shape.rank(), inputs.len())
    }

    fn flops(&self, _: &[&Type], output: &Type) -> u64 {
        let counted = |i: &&Instr| matches!(i.op, Element::Unary(_) | Element::Binary(_));
        (self.code.iter().filter(counted).count() * output.shape.numel()) as u64
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

//! Kernels that follow each other on the same samples and run as one, range of samples by range: what one of them has
//! computed for a range is still in the cache when the next one reads it.

use crate::canonical::Blocking;
use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, Op, OpError, Operation};
use crate::region::Region;
use crate::rule::{Kind, SplitRule};
use crate::shape::Type;
use smallvec::SmallVec;

/// How a kernel runs on ranges of samples, the indices of dimension 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BySamples {
    /// Number of samples.
    pub samples: usize,
    /// For each operand whether its dimension 0 are the samples; of others every range needs all.
    pub cut: SmallVec<[bool; 4]>,
    /// For a sum over the samples the number of samples in a block: a range must be a sub-tree of its blocks, and gives the
    /// root. Otherwise the result's dimension 0 are the samples.
    pub block: Option<usize>,
}

impl BySamples {
    /// What the factors of an operation allow. `None` also for operations that may fail: a chain never does.
    pub fn new(op: &Op, inputs: &[&Type], output: &Type) -> Option<Self> {
        let never_fails = match op {
            Op::Fused(fused) => (0..fused.outputs.len()).all(|k| !fused.depends_on_indices(k)),
            Op::Conv(_) | Op::ConvInput(_) | Op::ConvWeight(_) | Op::Dot(_) | Op::Reduce(_) => true,
            Op::AvgPool(_) | Op::AvgPoolInput(_) | Op::MaxPool(_) | Op::MaxPoolInput(_) => true,
            _ => false,
        };
        if !never_fails {
            return None;
        }
        op.operation().rule(inputs, output).factors.iter().find_map(|factor| {
            let samples = factor.size(inputs, output);
            let leads = |dim: Option<usize>, ty: &Type| match dim {
                None => Some(false),
                Some(0) if ty.shape[0] == samples => Some(true),
                Some(_) => None,
            };
            let cut: Option<SmallVec<_>> = factor.inputs.iter().zip(inputs).map(|(dim, ty)| leads(*dim, ty)).collect();
            let cut = cut.filter(|cut| cut.contains(&true))?;
            // Sums of narrower floats are rounded only once, after all blocks.
            let adds = matches!(output.dtype, DType::F32 | DType::F64);
            let block = match factor.kind {
                Kind::Mapped => leads(factor.output, output)?.then_some(None)?,
                Kind::Sum if adds => Some(factor.granularity?),
                _ => return None,
            };
            Some(BySamples { samples, cut, block })
        })
    }
}

/// A kernel of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// What it computes.
    pub op: Op,
    /// The registers that it reads.
    pub args: SmallVec<[u16; 4]>,
    /// Types of its results.
    pub results: SmallVec<[Type; 2]>,
    /// For a sum over the samples the number of samples in a block.
    pub block: Option<usize>,
}

impl Link {
    /// The kernel for so many samples.
    pub fn of_samples(&self, samples: usize) -> Op {
        let mut part = self.op.clone();
        match self.block {
            Some(block) => *part.blocking_mut().expect("a sum that can be cut") = Blocking::Every(block),
            None => {
                let mut region = Region::whole(&self.results[0].shape);
                region.set(0, 0..samples);
                part = part.of_region(&self.results[0].shape, &region);
            }
        }
        part
    }
}

/// An input of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChainInput {
    /// Its type.
    pub ty: Type,
    /// Whether its dimension 0 are the samples.
    pub cut: bool,
}

/// Kernels that run range of samples by range. Registers `0..inputs` are the inputs, further ones the results of the kernels
/// in order. Results of sums over the samples are read by no kernel of the chain.
///
/// As a value of the graph it is its first result; the others are [`Part`](crate::ops::Part)s of it. A chain never changes a
/// value: samples do not depend on each other, and sums over them are cut between sub-trees of their blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// Number of samples.
    pub samples: usize,
    /// The inputs.
    pub inputs: Vec<ChainInput>,
    /// The kernels.
    pub links: Vec<Link>,
    /// The registers that are the results, each once; at least one.
    pub outputs: SmallVec<[u16; 4]>,
}

/// A register of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Register<'a> {
    /// Its type.
    pub ty: &'a Type,
    /// The kernel that computes it; `None` for an input.
    pub link: Option<usize>,
    /// Whether its dimension 0 are the samples.
    pub cut: bool,
}

impl Chain {
    /// All registers in order.
    pub fn registers(&self) -> impl Iterator<Item = Register<'_>> {
        let inputs = self.inputs.iter().map(|input| Register { ty: &input.ty, link: None, cut: input.cut });
        inputs.chain(self.links.iter().enumerate().flat_map(|(i, link)| {
            link.results.iter().map(move |ty| Register { ty, link: Some(i), cut: link.block.is_none() })
        }))
    }

    /// For each register the last kernel that reads it.
    pub fn last_readers(&self) -> Vec<Option<usize>> {
        let mut last = vec![None; self.registers().count()];
        for (i, link) in self.links.iter().enumerate() {
            link.args.iter().for_each(|&r| last[usize::from(r)] = Some(i));
        }
        last
    }

    /// Types of all results.
    pub fn results(&self) -> SmallVec<[Type; 4]> {
        let registers: Vec<Register> = self.registers().collect();
        self.outputs.iter().map(|&r| registers[usize::from(r)].ty.clone()).collect()
    }

    /// For every register whether result number `output` depends on it.
    pub fn dependencies(&self, output: usize) -> Vec<bool> {
        let mut needed = vec![false; self.registers().count()];
        needed[usize::from(self.outputs[output])] = true;
        let mut end = needed.len();
        for link in self.links.iter().rev() {
            let first = end - link.results.len();
            for k in (0..link.results.len()).filter(|k| needed[first + k]).collect::<Vec<_>>() {
                let reads = match &link.op {
                    Op::Fused(fused) => fused.dependencies(k),
                    _ => vec![true; link.args.len()],
                };
                let reads = link.args.iter().zip(reads).filter(|(_, reads)| *reads);
                reads.for_each(|(&arg, _)| needed[usize::from(arg)] = true);
            }
            end = first;
        }
        needed
    }

    /// Whether result number `output` may lie where a dense input of the same size does: it is elementwise, and no later
    /// kernel reads the input.
    pub fn may_overwrite(&self, input: usize, output: usize) -> bool {
        let register = self.registers().nth(self.outputs[output].into()).expect("a register");
        let link = register.link.expect("results are computed");
        let elementwise = matches!(self.links[link].op, Op::Fused(_));
        let read_later = self.links[link + 1..].iter().any(|later| later.args.contains(&(input as u16)));
        self.inputs[input].cut && elementwise && !read_later
    }

    /// Whether a register may lie where another one does that its kernel is the last to read: it goes from element to element, and
    /// so does what is read there.
    pub fn may_replace(&self, register: usize, operand: usize) -> bool {
        let registers: Vec<Register> = self.registers().collect();
        let (from, to) = (registers[operand], registers[register]);
        let Some(link) = to.link.map(|link| &self.links[link]) else { return false };
        let Op::Fused(fused) = &link.op else { return false };
        from.ty.shape == fused.space.shape && from.ty == to.ty && link.args.contains(&(operand as u16))
    }

    /// The names that `name` gives the kernels: `conv + relu + avg_pool`.
    pub fn names(&self, name: impl Fn(&Op) -> String) -> String {
        self.links.iter().map(|link| name(&link.op)).collect::<Vec<_>>().join(" + ")
    }

    /// Bytes of the results that kernels of the chain read.
    pub fn kept_in_cache(&self) -> usize {
        let inner =
            self.registers().zip(self.last_readers()).filter(|(r, reader)| r.link.is_some() && reader.is_some());
        inner.map(|(register, _)| register.ty.bytes()).sum()
    }

    fn check(&self, inputs: &[&Type]) -> Result<(), String> {
        if inputs.len() != self.inputs.len() || inputs.iter().zip(&self.inputs).any(|(ty, input)| **ty != input.ty) {
            return Err("operands of other types".to_string());
        }
        let registers: Vec<Register> = self.registers().collect();
        for (i, link) in self.links.iter().enumerate() {
            let name = link.op.operation().name();
            let args: Vec<Register> = link.args.iter().map(|&r| registers[usize::from(r)]).collect();
            if args.iter().any(|arg| arg.link.is_some_and(|from| from >= i)) {
                return Err(format!("kernel {i} ({name}) reads what comes later"));
            }
            let types: Vec<&Type> = args.iter().map(|arg| arg.ty).collect();
            let results = link.op.results(&types).map_err(|e| e.0)?;
            if results[..] != link.results[..] {
                return Err(format!("kernel {i} ({name}) has other results"));
            }
            let way = BySamples::new(&link.op, &types, &results[0]).filter(|way| {
                way.samples == self.samples
                    && way.block == link.block
                    && args.iter().map(|arg| arg.cut).eq(way.cut.iter().copied())
            });
            if way.is_none() {
                return Err(format!("kernel {i} ({name}) does not run by samples like that"));
            }
        }
        let computed = |r: &u16| registers.get(usize::from(*r)).is_some_and(|register| register.link.is_some());
        if self.outputs.is_empty() || !self.outputs.iter().all(computed) {
            return Err("a result that no kernel computes".to_string());
        }
        Ok(())
    }
}

impl Operation for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        self.check(inputs).map_err(|what| OpError(format!("chain: {what}")))?;
        Ok(self.results().swap_remove(0))
    }

    fn gradient(&self, _: &mut Graph, _: &Backward) -> Vec<Option<NodeId>> {
        unreachable!("gradients are taken of recorded graphs, before kernels are chained")
    }

    fn rule(&self, _: &[&Type], _: &Type) -> SplitRule {
        unreachable!("graphs are split before kernels are chained")
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        let registers: Vec<Register> = self.registers().collect();
        let flops = |link: &Link| {
            let types: Vec<&Type> = link.args.iter().map(|&r| registers[usize::from(r)].ty).collect();
            link.op.operation().flops(&types, &link.results[0])
        };
        self.links.iter().map(flops).sum()
    }
}

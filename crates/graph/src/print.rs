//! Graphs and programs as text, one line a node, in the manner of a jaxpr.

use crate::canonical::Blocking;
use crate::graph::{Graph, Node};
use crate::op::Op;
use crate::ops::{Chain, Code, Element, Fused, PartOf};
use crate::program::{Location, Program, Step};
use crate::region::Region;
use crate::shape::Shape;
use std::fmt;

impl Op {
    /// The parameters of the operation as they stand behind its name in printed graphs.
    pub fn attributes(&self) -> String {
        let debug = match self {
            Op::Input(_) | Op::Custom(_) => return String::new(),
            Op::Element(Element::Cast(dtype)) => return format!("[{dtype}]"),
            Op::Element(_) => return String::new(),
            Op::Const(c) => return format!("[{}]", c.value),
            Op::Fused(fused) => return format!("[{fused}]"),
            Op::Attention(op) => return format!("[{op}]"),
            Op::Chain(chain) => return format!("[{chain}]"),
            Op::Epilogue(op) => {
                return format!("{}[{} -> {}]", Op::Dot((*op.dot).clone()).attributes(), op.fused, op.at);
            }
            Op::Part(part) => return format!("[{}]", part.index),
            Op::Reduce(op) => return format!("[dims={:?}{}]", op.dims, chosen(op.blocking)),
            Op::Iota(op) => return format!("[dim: {}{}]", op.dim, part(&op.shape, &op.region)),
            Op::Random(op) => return format!("[distribution: {:?}{}]", op.distribution, part(&op.shape, &op.region)),
            Op::Conv(op) => return format!("[geometry: {:?}{}]", op.geometry, chosen(op.blocking)),
            Op::ConvInput(op) => {
                return format!("[geometry: {:?}, size: {:?}{}]", op.geometry, op.size, chosen(op.blocking));
            }
            Op::ConvWeight(op) => {
                return format!("[geometry: {:?}, kernel: {:?}{}]", op.geometry, op.kernel, chosen(op.blocking));
            }
            Op::Gather(op) => return format!("[dim: {}{}]", op.dim, indexed(op.part_of)),
            Op::IndexSelect(op) => return format!("[dim: {}{}]", op.dim, indexed(op.part_of)),
            Op::ScatterAdd(op) => return format!("[dim: {}{}{}]", op.dim, indexed(op.part_of), chosen(op.blocking)),
            Op::IndexAdd(op) => {
                return format!("[dim: {}, size: {}{}{}]", op.dim, op.size, indexed(op.part_of), chosen(op.blocking));
            }
            Op::Reshape(_) | Op::Expand(_) => return String::new(),
            Op::Permute(op) => return format!("{:?}", op.dims),
            Op::Dot(op) => {
                return format!(
                    "[batch={:?}|{:?} contract={:?}|{:?} {:?}]",
                    op.lhs_batch, op.rhs_batch, op.lhs_contract, op.rhs_contract, op.blocking
                );
            }
            op => format!("{op:?}"),
        };
        // `Conv(Conv { … })` without the names.
        let inner = debug.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'));
        let fields = inner.split_once(['{', '(']).map_or(inner, |(_, rest)| rest.trim_end_matches('}'));
        format!("[{}]", fields.trim())
    }
}

/// Which part of a value is computed, where it is not all.
fn part(whole: &Shape, region: &Option<Region>) -> String {
    region.as_ref().map_or(String::new(), |region| format!(", from {:?} of {whole}", region.starts))
}

/// Which part of the dimension that is indexed there is, where it is not all.
fn indexed(part: Option<PartOf>) -> String {
    part.map_or(String::new(), |part| format!(", from {} of {}", part.start, part.size))
}

/// How a sum is cut, where that was chosen for it and does not follow from its operation.
fn chosen(blocking: Blocking) -> String {
    match blocking {
        Blocking::Samples | Blocking::Features => String::new(),
        Blocking::SamplesOf(_) | Blocking::Every(_) => format!(", {blocking:?}"),
    }
}

/// The name of a register: those of `inputs` inputs are `a`, `b`, …, those of values `t0`, `t1`, ….
fn register(number: u16, inputs: usize) -> String {
    match usize::from(number) {
        r if r < inputs => ((b'a' + r as u8) as char).to_string(),
        r => format!("t{}", r - inputs),
    }
}

impl fmt::Display for Fused {
    /// The results are named where there are several.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |r: u16| register(r, self.inputs.len());
        for (i, instr) in self.code.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            if let Code::Const(value) = instr.op {
                write!(f, "t{i}={value}")?;
                continue;
            }
            write!(f, "t{i}={}", instr.op.name())?;
            instr.reads().iter().try_for_each(|&r| write!(f, " {}", name(r)))?;
            if let Code::Element(Element::Cast(dtype)) = instr.op {
                write!(f, " {dtype}")?;
            }
        }
        if self.outputs.len() > 1 {
            f.write_str(" ->")?;
            self.outputs.iter().try_for_each(|&r| write!(f, " {}", name(r)))?;
        }
        Ok(())
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |r: &u16| register(*r, self.inputs.len());
        let mut next = self.inputs.len() as u16;
        for link in &self.links {
            let results: Vec<u16> = (next..).take(link.results.len()).collect();
            next += link.results.len() as u16;
            let (results, args) = (listed(results.iter().map(name)), listed(link.args.iter().map(name)));
            write!(f, "{results}={}{} {args}; ", link.op.operation().name(), link.op.attributes())?;
        }
        write!(f, "-> {}", listed(self.outputs.iter().map(name)))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}{}", self.ty, self.op.operation().name(), self.op.attributes())?;
        self.inputs.iter().try_for_each(|x| write!(f, " {x}"))
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, node) in self.ids().zip(&self.nodes) {
            writeln!(f, "{id}: {node}")?;
        }
        f.write_str("return")?;
        self.outputs.iter().try_for_each(|o| write!(f, " {o}"))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Input(i) => write!(f, "in{i}"),
            Location::Output(o) => write!(f, "out{o}"),
            Location::Arena(byte) => write!(f, "@{byte}"),
        }
    }
}

/// A number of bytes for people: `1.25 MiB`.
pub fn human_bytes(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.2} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

fn listed(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(" ")
}

/// What a table of kernels calls an operation.
fn kernel_name(op: &Op) -> String {
    match op {
        Op::Reshape(_) => "copy".to_string(),
        Op::Fused(fused) => format!("fused({})", fused.code.len()),
        Op::Chain(chain) => chain.names(kernel_name),
        Op::Epilogue(epilogue) => epilogue.names(kernel_name),
        op => op.operation().name().to_string(),
    }
}

impl Step {
    /// Types of the operands and results: `f32[2, 3] f32[3] -> f32[2]`.
    pub fn types(&self) -> String {
        let inputs = listed(self.inputs.iter().map(|v| v.ty.to_string()));
        format!("{inputs} -> {}", listed(self.outputs.iter().map(|o| o.ty.to_string())))
    }
}

impl fmt::Display for Program {
    /// One line a kernel: number, operation, shapes, where the result goes, FLOPs, bytes moved, scratch memory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.steps.iter().map(|step| kernel_name(&step.op)).collect();
        let width = names.iter().map(String::len).fold(16, usize::max);
        writeln!(
            f,
            "{:>4}  {:<width$} {:<44} {:>10} {:>10} {:>10} {:>10}",
            "step", "kernel", "shapes", "output", "MFLOP", "moved", "scratch"
        )?;
        for (i, (step, name)) in self.steps.iter().zip(&names).enumerate() {
            writeln!(
                f,
                "{i:>4}  {name:<width$} {:<44} {:>10} {:>10.2} {:>10} {:>10}",
                step.types(),
                listed(step.outputs.iter().map(|o| o.location.to_string())),
                step.flops() as f64 / 1e6,
                human_bytes(step.bytes() as usize),
                human_bytes(step.scratch.1),
            )?;
        }
        let donated = self.outputs.iter().filter(|o| o.donated.is_some()).count();
        write!(
            f,
            "total {:.2} MFLOP in {} kernels; memory: inputs {}, new outputs {} ({donated} of {} updated in place), arena {}, peak {}",
            self.flops() as f64 / 1e6,
            self.steps.len(),
            human_bytes(self.memory.inputs),
            human_bytes(self.memory.outputs),
            self.outputs.len(),
            human_bytes(self.memory.arena),
            human_bytes(self.memory.peak()),
        )
    }
}

//! Programs, with kernels that run as one or one after the other.

use super::{Line, Numbers};
use meshwork_cpu::kernel::{self, CpuTarget};
use meshwork_cpu::{Context, Level, Operand, Output, Par};
use meshwork_graph::ops::{Chain, Epilogue, Input};
use meshwork_graph::passes::compile;
use meshwork_graph::program::{Donation, Location, Program, Target};
use meshwork_graph::{DType, Graph, Layout, NodeId, Op, Type};

/// What becomes one kernel wherever it can.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    Nothing,
    Chains,
    Epilogues,
}

/// The kernels of the processor.
struct Joining {
    kernels: CpuTarget,
    what: Joined,
}

impl Target for Joining {
    fn accepts(&self, op: &Op, input: usize, layout: &Layout) -> bool {
        self.kernels.accepts(op, input, layout)
    }

    fn scratch(&self, op: &Op, inputs: &[(&Type, &Layout)], output: &Type) -> usize {
        self.kernels.scratch(op, inputs, output)
    }

    fn chains(&self, _: &Chain) -> bool {
        self.what == Joined::Chains
    }

    fn has_epilogues(&self, _: &Epilogue, _: &[&Type]) -> bool {
        self.what == Joined::Epilogues
    }
}

pub fn compiled(graph: &Graph, donation: &Donation, threads: usize, what: Joined) -> Program {
    compile(graph, donation, &Joining { kernels: CpuTarget { threads }, what }, &mut |_, _| {})
}

/// The kernels of a program: those that are several with all names.
fn kernels(program: &Program) -> Vec<String> {
    fn name(op: &Op) -> String {
        match op {
            Op::Chain(chain) => chain.names(name),
            Op::Epilogue(epilogue) => epilogue.names(name),
            op => op.operation().name().to_string(),
        }
    }
    program.steps.iter().map(|step| name(&step.op)).collect()
}

/// Memory for so many bytes, aligned as kernels want it, with other bytes in it.
fn memory(bytes: usize) -> Vec<Line> {
    vec![Line([0xA5; 64]); bytes.div_ceil(64)]
}

/// Values whose sums depend on the order.
fn values(number: u64, ty: &Type) -> Vec<Line> {
    let mut lines = memory(ty.bytes());
    let (at, mut numbers) = (lines.as_mut_ptr(), Numbers(number));
    for i in 0..ty.shape.numel() {
        let x = numbers.number();
        // SAFETY: an element of the value.
        unsafe {
            match ty.dtype {
                DType::F64 => at.cast::<f64>().add(i).write(x),
                DType::F32 => at.cast::<f32>().add(i).write(x as f32),
                DType::F16 => at.cast::<half::f16>().add(i).write(half::f16::from_f64(x)),
                DType::BF16 => at.cast::<half::bf16>().add(i).write(half::bf16::from_f64(x)),
                other => panic!("no test values of {other}"),
            }
        }
    }
    lines
}

/// The bytes of all outputs.
fn run(program: &Program, context: Context) -> Vec<Vec<u8>> {
    let mut inputs: Vec<Vec<Line>> = program.inputs.iter().zip(0..).map(|(ty, number)| values(number, ty)).collect();
    let mut outputs: Vec<Vec<Line>> = program.outputs.iter().map(|output| memory(output.ty.bytes())).collect();
    let mut arena = memory(program.memory.arena);
    let inputs: Vec<*mut u8> = inputs.iter_mut().map(|x| x.as_mut_ptr().cast()).collect();
    let new: Vec<*mut u8> = outputs.iter_mut().map(|x| x.as_mut_ptr().cast()).collect();
    let output = |k: usize| program.outputs[k].donated.map_or(new[k], |i| inputs[i]);
    let arena: *mut u8 = arena.as_mut_ptr().cast();
    let at = |location: Location| match location {
        Location::Input(i) => inputs[i],
        Location::Output(k) => output(k),
        Location::Arena(byte) => arena.wrapping_add(byte),
    };
    for step in &program.steps {
        // SAFETY: the program gives every value its place, and the scratch memory to the step alone.
        unsafe {
            let operands: Vec<Operand> =
                step.inputs.iter().map(|x| Operand::new(at(x.location), x.ty.dtype, &x.layout)).collect();
            let results = step.outputs.iter().map(|x| Output::new(at(x.location), x.ty.dtype, &x.ty.shape)).collect();
            let scratch = std::slice::from_raw_parts_mut(arena.wrapping_add(step.scratch.0), step.scratch.1);
            kernel::run(&step.op, &operands, results, scratch, context);
        }
    }
    let bytes = |k: usize| {
        let ty = &program.outputs[k].ty;
        // SAFETY: the value's bytes, which have been written.
        unsafe { std::slice::from_raw_parts(output(k), ty.bytes()) }.to_vec()
    };
    (0..program.outputs.len()).map(bytes).collect()
}

/// Compares the graph with what is joined with the graph without, on many numbers of threads and at every level; its
/// kernels must be these.
pub fn same_bits(graph: &Graph, donated: &[usize], what: Joined, expected: &[&str]) {
    let inputs = graph.nodes.iter().filter(|node| matches!(node.op, Op::Input(_))).count();
    let donation: Donation = (0..inputs).map(|i| donated.contains(&i)).collect();
    let (one, plain) = (Par::new(1), compiled(graph, &donation, 1, Joined::Nothing));
    let want = run(&plain, Context { par: &one, level: Level::Portable });
    for threads in [1, 2, 3, 5, 16] {
        let (par, program) = (Par::new(threads), compiled(graph, &donation, threads, what));
        assert_eq!(kernels(&program), expected);
        assert!(program.memory.outputs <= plain.memory.outputs, "as much is updated in place");
        for level in Level::available() {
            let found = run(&program, Context { par: &par, level });
            assert!(found == want, "other bits on {threads} threads at {level:?}:\n{graph}");
        }
    }
}

pub fn input(g: &mut Graph, dtype: DType, shape: &[usize]) -> NodeId {
    g.add_node(Input { ty: Type::new(dtype, shape) }, &[])
}

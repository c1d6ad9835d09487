//! From an operation to its kernel.

use crate::{Context, Operand, Output};
use crate::{arg, attention, chain, concat, conv, copy, dot, element, epilogue};
use crate::{index, leaf, pad, pool, random, reduce, scan};
use meshwork_graph::ops::{Chain, CustomInput, Epilogue};
use meshwork_graph::program::Target;
use meshwork_graph::{Layout, Op, Type};
use smallvec::SmallVec;

/// The results of a kernel.
pub type Outputs<'a> = SmallVec<[Output<'a>; 1]>;

/// The kernels of this crate as the compiler sees them.
pub struct CpuTarget {
    /// Number of threads that the kernels will find work and room for ([`Par::lanes`](crate::Par::lanes)); it decides how much
    /// scratch memory they ask for.
    pub threads: usize,
}

impl Target for CpuTarget {
    fn accepts(&self, op: &Op, input: usize, layout: &Layout) -> bool {
        match op {
            Op::Chain(op) => op.links.iter().all(|link| {
                let reads = |j: &usize| usize::from(link.args[*j]) == input;
                (0..link.args.len()).filter(reads).all(|j| self.accepts(&link.op, j, layout))
            }),
            Op::Fused(_) | Op::Dot(_) | Op::Epilogue(_) | Op::Reduce(_) | Op::Reshape(_) => true,
            Op::Attention(_) if layout.shape.rank() > 1 => attention::is_readable(layout),
            _ => layout.is_contiguous(),
        }
    }

    fn scratch(&self, op: &Op, inputs: &[(&Type, &Layout)], output: &Type) -> usize {
        let layouts: Vec<&Layout> = inputs.iter().map(|(_, layout)| *layout).collect();
        let threads = self.threads;
        match op {
            Op::Attention(op) => attention::scratch(op, inputs[0].0.dtype, &layouts, threads),
            Op::Dot(op) => dot::scratch(op, output.dtype, &layouts, threads),
            Op::Conv(op) => conv::forward::scratch(op, output.dtype, &layouts, threads),
            Op::ConvInput(op) => conv::input::scratch(op, output.dtype, &layouts, threads),
            Op::ConvWeight(op) => conv::weight::scratch(op, output.dtype, &layouts, threads),
            Op::AvgPool(op) => pool::avg::scratch(op, output.dtype, &layouts, threads),
            Op::AvgPoolInput(op) => pool::avg::gradient::scratch(op, output.dtype, &layouts, threads),
            Op::MaxPool(op) => pool::max::scratch(op, output.dtype, &layouts, threads),
            Op::MaxPoolInput(op) => pool::max::gradient::scratch(op, output.dtype, &layouts, threads),
            Op::ScatterAdd(op) => index::scatter_add_scratch(op, output.dtype, &layouts, threads),
            Op::IndexAdd(op) => index::index_add_scratch(op, output.dtype, &layouts, threads),
            Op::Random(op) => random::scratch(op, output.dtype, &layouts, threads),
            Op::Reduce(op) => reduce::scratch(op, output.dtype, &layouts, threads),
            Op::Chain(op) => chain::scratch(op, &layouts, threads),
            Op::Epilogue(op) => epilogue::scratch(op, &layouts, threads),
            _ => 0,
        }
    }

    fn chains(&self, chain: &Chain) -> bool {
        chain::pays(chain, self.threads)
    }

    fn has_epilogues(&self, epilogue: &Epilogue, inputs: &[&Type]) -> bool {
        epilogue::pays(epilogue, inputs, self.threads)
    }
}

/// Runs the kernel of an operation; regions, attention, chains and epilogues may have several outputs. A [`Op::Reshape`] copies
/// its operand into dense order.
///
/// # Panics
/// When the data is wrong in a way that shapes do not show, such as an index outside of its dimension.
pub fn run(op: &Op, inputs: &[Operand], mut outputs: Outputs, scratch: &mut [u8], context: Context) {
    match op {
        Op::Fused(op) => return element::run(op, inputs, &outputs, context),
        Op::Attention(op) => return attention::run(op, inputs, outputs, scratch, context),
        Op::Chain(op) => return chain::run(op, inputs, &outputs, scratch, context),
        Op::Epilogue(op) => return epilogue::run(op, inputs, &outputs, scratch, context),
        _ => {}
    }
    assert_eq!(outputs.len(), 1, "results of {}", op.operation().name());
    let output = outputs.remove(0);
    match op {
        Op::Const(op) => leaf::constant(op, output),
        Op::Iota(op) => leaf::iota(op, output, context),
        Op::Random(op) => random::run(op, inputs, output, scratch, context),
        Op::Reduce(op) => reduce::run(op, inputs, output, scratch, context),
        Op::ArgReduce(op) => arg::run(op, inputs, output, context),
        Op::CumSum(op) => scan::run(op, inputs, output, context),
        Op::Dot(op) => dot::run(op, inputs, output, scratch, context),
        Op::Conv(op) => conv::forward::run(op, inputs, output, scratch, context),
        Op::ConvInput(op) => conv::input::run(op, inputs, output, scratch, context),
        Op::ConvWeight(op) => conv::weight::run(op, inputs, output, scratch, context),
        Op::AvgPool(op) => pool::avg::run(op, inputs, output, scratch, context),
        Op::AvgPoolInput(op) => pool::avg::gradient::run(op, inputs, output, scratch, context),
        Op::MaxPool(op) => pool::max::run(op, inputs, output, scratch, context),
        Op::MaxPoolInput(op) => pool::max::gradient::run(op, inputs, output, scratch, context),
        Op::Reshape(_) => copy::run(inputs[0], output, context),
        Op::Pad(op) => pad::run(op, inputs, output, context),
        Op::Concat(op) => concat::run(op, inputs, output, context),
        Op::Gather(op) => index::gather(op, inputs, output, context),
        Op::ScatterAdd(op) => index::scatter_add(op, inputs, output, scratch, context),
        Op::IndexSelect(op) => index::index_select(op, inputs, output, context),
        Op::IndexAdd(op) => index::index_add(op, inputs, output, scratch, context),
        Op::Custom(op) => custom(op, inputs, output, context),
        Op::Fused(_) | Op::Attention(_) | Op::Chain(_) | Op::Epilogue(_) => unreachable!("done above"),
        Op::Input(_)
        | Op::Element(_)
        | Op::Part(_)
        | Op::Permute(_)
        | Op::Expand(_)
        | Op::Slice(_)
        | Op::ToDevice(_)
        | Op::Place(_)
        | Op::Barrier(_) => unreachable!("{} is compiled away", op.operation().name()),
    }
}

fn custom(op: &meshwork_graph::ops::Custom, inputs: &[Operand], mut output: Output, context: Context) {
    let types: Vec<Type> = inputs.iter().map(|x| Type { dtype: x.dtype, shape: x.layout.shape.clone() }).collect();
    let views: Vec<CustomInput> =
        inputs.iter().zip(&types).map(|(x, ty)| CustomInput { ty, bytes: x.contents() }).collect();
    op.0.run(&views, output.contents(), context.par);
}

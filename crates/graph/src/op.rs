//! The closed set of operations, and what each one must say about itself.

use crate::canonical::{Blocking, Blocks};
use crate::graph::{Graph, NodeId};
use crate::ops::*;
use crate::region::Region;
use crate::rule::SplitRule;
use crate::shape::{Dims, Shape, Type};
use smallvec::{SmallVec, smallvec};
use std::fmt;

/// A mistake in shapes or dtypes; the text names the operation and both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpError(pub String);

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpError {}

/// What a gradient rule sees of the node that it differentiates.
pub struct Backward<'a> {
    /// The node's inputs.
    pub inputs: &'a [NodeId],
    /// The node itself, whose value the rule may use.
    pub output: NodeId,
    /// The gradient of the loss by the node's value; same type.
    pub grad: NodeId,
}

/// Everything mathematical about an operation.
pub trait Operation {
    /// The name in printed graphs.
    fn name(&self) -> &'static str;

    /// The type of the result, or what is wrong with the inputs.
    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError>;

    /// Adds the nodes that compute the gradients by each input; `None` where there is none.
    fn gradient(&self, graph: &mut Graph, backward: &Backward) -> Vec<Option<NodeId>>;

    /// How the operation may be split over devices.
    fn rule(&self, inputs: &[&Type], output: &Type) -> SplitRule;

    /// Floating-point operations; a fused multiply-add counts as two.
    fn flops(&self, inputs: &[&Type], output: &Type) -> u64;
}

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident($struct:ty),)*) => {
        /// One operation of the graph. The compiler names every place where a new one must be handled.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[$doc])* $variant($struct),)*
        }

        impl Op {
            /// The operation as the trait that all of them share.
            pub fn operation(&self) -> &dyn Operation {
                match self {
                    $(Op::$variant(op) => op,)*
                }
            }
        }

        $(impl From<$struct> for Op {
            fn from(op: $struct) -> Op {
                Op::$variant(op)
            }
        })*
    };
}

operations! {
    /// A value bound when the program runs.
    Input(Input),
    /// A number that is part of the structure.
    Const(Const),
    /// Positions along a dimension.
    Iota(Iota),
    /// Random values addressed by a key.
    Random(Random),
    /// Elementwise.
    Element(Element),
    /// A region of elementwise operations.
    Fused(Fused),
    /// Another result of a node that has several.
    Part(Part),
    /// Kernels that run range of samples by range.
    Chain(Chain),
    /// A product, and what follows on its elements.
    Epilogue(Epilogue),
    /// Sum, product, maximum or minimum over dimensions.
    Reduce(Reduce),
    /// Position of the maximum or minimum.
    ArgReduce(ArgReduce),
    /// Running sum.
    CumSum(CumSum),
    /// Generalised matrix product.
    Dot(Dot),
    /// Convolution.
    Conv(Conv),
    /// Gradient of a convolution by its input; also the transposed convolution.
    ConvInput(ConvInput),
    /// Gradient of a convolution by its weight.
    ConvWeight(ConvWeight),
    /// Attention, or a part of its gradient.
    Attention(Attention),
    /// Average pooling.
    AvgPool(AvgPool),
    /// Gradient of average pooling.
    AvgPoolInput(AvgPoolInput),
    /// Maximum pooling.
    MaxPool(MaxPool),
    /// Gradient of maximum pooling.
    MaxPoolInput(MaxPoolInput),
    /// Same elements, other shape.
    Reshape(Reshape),
    /// Other order of dimensions.
    Permute(Permute),
    /// Repetition along dimensions of size 1.
    Expand(Expand),
    /// Every step-th element.
    Slice(Slice),
    /// A border of a constant.
    Pad(Pad),
    /// Several values behind each other.
    Concat(Concat),
    /// One index per output element.
    Gather(Gather),
    /// Adds at one index per source element.
    ScatterAdd(ScatterAdd),
    /// One index per slice.
    IndexSelect(IndexSelect),
    /// Adds slices at indices.
    IndexAdd(IndexAdd),
    /// The same value on another device.
    ToDevice(ToDevice),
    /// A placement on a mesh.
    Place(Place),
    /// A value after another one.
    Barrier(Barrier),
    /// A user's own operation.
    Custom(Custom),
}

impl Op {
    /// Whether it changes the type of elements and nothing else.
    pub fn is_cast(&self) -> bool {
        matches!(self, Op::Element(Element::Cast(_)))
    }

    /// The types of all results: the node's own value, and its [`Part`]s.
    pub fn results(&self, inputs: &[&Type]) -> Result<SmallVec<[Type; 4]>, OpError> {
        match self {
            Op::Fused(op) => op.results(inputs),
            Op::Attention(op) => op.types(inputs),
            Op::Chain(op) => op.infer(inputs).map(|_| op.results()),
            Op::Epilogue(op) => op.results(inputs),
            op => Ok(smallvec![op.operation().infer(inputs)?]),
        }
    }

    /// For every operand whether result number `result` depends on it.
    pub fn dependencies(&self, result: usize, operands: usize) -> Vec<bool> {
        let mut needed = match self {
            Op::Fused(op) => op.dependencies(result),
            Op::Chain(op) => op.dependencies(result),
            Op::Epilogue(op) => op.dependencies(result),
            _ => vec![true; operands],
        };
        needed.truncate(operands);
        needed
    }

    /// How the sum of the operation is cut, where that can be chosen.
    pub fn blocking_mut(&mut self) -> Option<&mut Blocking> {
        match self {
            Op::Dot(op) => Some(&mut op.blocking),
            Op::Reduce(op) => Some(&mut op.blocking),
            Op::Conv(op) => Some(&mut op.blocking),
            Op::ConvInput(op) => Some(&mut op.blocking),
            Op::ConvWeight(op) => Some(&mut op.blocking),
            Op::ScatterAdd(op) => Some(&mut op.blocking),
            Op::IndexAdd(op) => Some(&mut op.blocking),
            _ => None,
        }
    }

    /// Which part of the dimension that is read at indices the data are, where they can be one: see
    /// [`Kind::Picked`](crate::rule::Kind::Picked).
    pub fn part_of_mut(&mut self) -> Option<&mut Option<PartOf>> {
        match self {
            Op::Gather(op) => Some(&mut op.part_of),
            Op::IndexSelect(op) => Some(&mut op.part_of),
            _ => None,
        }
    }

    /// The cut of the sum for operands of these types, where it can be chosen.
    pub fn blocks(&self, inputs: &[&Type]) -> Option<Blocks> {
        match self {
            Op::Dot(op) => Some(op.blocks(&inputs[0].shape)),
            Op::Reduce(op) => Some(op.blocks(&inputs[0].shape)),
            Op::Conv(op) => Some(op.blocks(&inputs[1].shape)),
            Op::ConvInput(op) => Some(op.blocks(&inputs[1].shape)),
            Op::ConvWeight(op) => Some(op.blocks(&inputs[1].shape)),
            Op::ScatterAdd(op) => Some(op.blocks(&inputs[1].shape)),
            Op::IndexAdd(op) => Some(op.blocks(&inputs[1].shape)),
            _ => None,
        }
    }

    /// The operation that computes a region of the result, of shape `whole`, from the parts of the operands that belong to
    /// it by the operation's factors. How a split sum is cut is not changed, nor which part of what is read at indices the
    /// data are: see [`blocking_mut`](Self::blocking_mut) and [`part_of_mut`](Self::part_of_mut).
    pub fn of_region(&self, whole: &Shape, region: &Region) -> Op {
        debug_assert!(region.is_inside(whole), "{region:?} of {whole}");
        let mut part = self.clone();
        let spatial = |sizes: &Dims| Spatial::from_slice(&sizes[2..]);
        match &mut part {
            Op::Input(op) => op.ty.shape = region.shape(),
            Op::Iota(op) => restrict(&op.shape, &mut op.region, region),
            Op::Random(op) => restrict(&op.shape, &mut op.region, region),
            Op::Fused(op) => op.space.keep_rows(region),
            Op::Part(op) => op.ty.shape = region.shape(),
            Op::Conv(op) => op.geometry.keep_groups(region.sizes[1], whole[1]),
            Op::ConvInput(op) => {
                op.geometry.keep_groups(region.sizes[1], whole[1]);
                op.size = spatial(&region.sizes);
            }
            Op::ConvWeight(op) => op.geometry.keep_groups(region.sizes[0], whole[0]),
            Op::Attention(op) => op.keep_region(region),
            Op::AvgPool(op) => keep_windows(&mut op.windows, &region.sizes, whole),
            Op::AvgPoolInput(op) => {
                keep_windows(&mut op.pool.windows, &region.sizes, whole);
                op.size = spatial(&region.sizes);
            }
            Op::MaxPool(op) => keep_windows(&mut op.windows, &region.sizes, whole),
            Op::MaxPoolInput(op) => keep_windows(&mut op.windows, &region.sizes, whole),
            Op::Reshape(op) => op.shape = region.shape(),
            Op::Expand(op) => op.shape = region.shape(),
            Op::Slice(op) => op.sizes = region.sizes.clone(),
            Op::Custom(op) => op.keep_region(whole, region),
            // Shapes of the operands say it all.
            Op::Const(_) | Op::Element(_) | Op::Reduce(_) | Op::ArgReduce(_) | Op::CumSum(_) | Op::Dot(_) => {}
            Op::Permute(_) | Op::Pad(_) | Op::Concat(_) | Op::ToDevice(_) | Op::Place(_) | Op::Barrier(_) => {}
            Op::Gather(_) | Op::IndexSelect(_) => {}
            Op::ScatterAdd(op) => op.keep_part(region.range(op.dim), whole[op.dim]),
            Op::IndexAdd(op) => op.keep_part(region.range(op.dim)),
            Op::Chain(_) | Op::Epilogue(_) => unreachable!("graphs are split before kernels are joined"),
        }
        part
    }

    /// Makes the operation one on a part of a batch that has `batch` samples in all: a sum over samples gets the blocks
    /// of the whole batch, so that [`batch::merge`](crate::batch::merge) continues it.
    ///
    /// An operation does not know which of its sums over samples are sums over this batch; for one over something
    /// else (the rows of a weight, say) this must not be called. [`blocks`](Self::blocks) tells how many samples it has.
    pub fn part_of_batch(&mut self, batch: usize) {
        if let Op::Custom(op) = self {
            op.part_of_batch(batch);
        } else if let Some(blocking @ Blocking::Samples) = self.blocking_mut() {
            *blocking = Blocking::SamplesOf(batch);
        }
    }
}

//! Attention: softmax(q · kᵀ) · v in one operation, and its gradients, without the matrix of scores.

mod composed;

use crate::dtype::{DType, Scalar};
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::ops::{Reduce, ReduceOp};
use crate::region::Region;
use crate::rule::{Kind, SplitRule};
use crate::shape::{Shape, Type};
use smallvec::{SmallVec, smallvec};
use std::fmt;

/// What of attention is computed. Sizes: batch B, queries T, keys S, query heads H, key heads G (H a multiple of G; query
/// head h reads key head h / (H / G)), D features of queries and keys, E of values. Heads are inside of positions, as a
/// linear layer gives them, so that nothing is copied before or behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttentionResult {
    /// `(q, k, v) -> [B, T, H, E]`: the weighted means of the values; 0 where a query sees nothing.
    Output,
    /// `(q, k) -> [B, T, H]`: the logarithm of the sum of the exponentials of the scores, in f32 at least; −∞ where a query
    /// sees nothing.
    Normalizer,
    /// `(q, k, v, normalizer, gradient, delta) -> [B, T, H, D]`: the gradient by the queries.
    Query,
    /// The same operands to `[B, S, G, D]`: the gradient by the keys.
    Key,
    /// `(q, k, normalizer, gradient) -> [B, S, G, E]`: the gradient by the values.
    Value,
}

/// An operand of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttentionInput {
    /// `[B, T, H, D]`.
    Query,
    /// `[B, S, G, D]`.
    Key,
    /// `[B, S, G, E]`.
    Value,
    /// `[B, T, H]`: [`AttentionResult::Normalizer`].
    Normalizer,
    /// `[B, T, H, E]`: the gradient of the loss by the output.
    Gradient,
    /// `[B, T, H]`: what the normalization takes from the gradient of every score of a row, the sum over E of gradient
    /// times output.
    Delta,
    /// `[B]`, i64: keys at and after it are padding, which nobody sees.
    Lengths,
}

/// A loop of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    Batch,
    Queries,
    Keys,
    QueryHeads,
    KeyHeads,
    Depth,
    Width,
}

/// Sizes of the loops, in the order of [`Index`].
type Sizes = [usize; 7];

impl AttentionResult {
    /// The operands that it is computed from.
    fn inputs(self) -> &'static [AttentionInput] {
        use AttentionInput::*;
        match self {
            AttentionResult::Output => &[Query, Key, Value],
            AttentionResult::Normalizer => &[Query, Key],
            AttentionResult::Query | AttentionResult::Key => &[Query, Key, Value, Normalizer, Gradient, Delta],
            AttentionResult::Value => &[Query, Key, Normalizer, Gradient],
        }
    }

    fn dims(self) -> &'static [Index] {
        match self {
            AttentionResult::Output => AttentionInput::Gradient.dims(),
            AttentionResult::Normalizer => AttentionInput::Normalizer.dims(),
            AttentionResult::Query => AttentionInput::Query.dims(),
            AttentionResult::Key => AttentionInput::Key.dims(),
            AttentionResult::Value => AttentionInput::Value.dims(),
        }
    }

    /// Whether it belongs to the backward pass.
    pub fn is_gradient(self) -> bool {
        self >= AttentionResult::Query
    }
}

impl AttentionInput {
    fn dims(self) -> &'static [Index] {
        use Index::*;
        match self {
            AttentionInput::Query => &[Batch, Queries, QueryHeads, Depth],
            AttentionInput::Key => &[Batch, Keys, KeyHeads, Depth],
            AttentionInput::Value => &[Batch, Keys, KeyHeads, Width],
            AttentionInput::Gradient => &[Batch, Queries, QueryHeads, Width],
            AttentionInput::Normalizer | AttentionInput::Delta => &[Batch, Queries, QueryHeads],
            AttentionInput::Lengths => &[Batch],
        }
    }

    fn name(self) -> &'static str {
        match self {
            AttentionInput::Query => "query",
            AttentionInput::Key => "key",
            AttentionInput::Value => "value",
            AttentionInput::Normalizer => "normalizer",
            AttentionInput::Gradient => "gradient",
            AttentionInput::Delta => "delta",
            AttentionInput::Lengths => "lengths",
        }
    }
}

/// Which keys a query sees. A query and a key have positions: the first ones are given, so that a part of a sequence knows
/// where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionMask {
    /// Only keys whose position is not after the query's.
    pub causal: bool,
    /// Only keys whose position is before the sample's length, an operand.
    pub padded: bool,
    /// Position of the first query.
    pub first_query: i64,
    /// Position of the first key.
    pub first_key: i64,
}

impl AttentionMask {
    /// Every query sees every key.
    pub const NONE: AttentionMask = AttentionMask { causal: false, padded: false, first_query: 0, first_key: 0 };

    /// The last of so many queries sees all of so many keys, the one before it all but the last one, and so on.
    pub fn causal(queries: usize, keys: usize) -> AttentionMask {
        AttentionMask { causal: true, first_query: keys as i64 - queries as i64, ..AttentionMask::NONE }
    }

    /// How many of `keys` keys query number `query` sees, `length` being the length of its sample: the first ones.
    pub fn seen(&self, query: usize, keys: usize, length: Option<i64>) -> usize {
        let mut end = i64::MAX;
        if self.causal {
            end = self.first_query + query as i64 + 1;
        }
        if let Some(length) = length {
            end = end.min(length);
        }
        end.saturating_sub(self.first_key).clamp(0, keys as i64) as usize
    }
}

/// Scaled dot-product attention (Vaswani et al., 2017) or its gradients, with an online softmax (Milakov and Gimelshein,
/// 2018) over tiles of the scores, as FlashAttention does it (Dao et al., 2022; Dao, 2023). Scores are `scale · q · k`.
///
/// Operands are those of [`AttentionResult`], and behind them [`AttentionInput::Lengths`] if the mask is padded. f16 and
/// bf16 are computed in f32 and rounded once; with bf16 the weights, and the gradients by the scores, are rounded to bf16
/// before they are multiplied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// What is computed: one result where it is recorded; several, in order and of the same pass, after
    /// [`join`](crate::passes::join).
    pub results: SmallVec<[AttentionResult; 3]>,
    /// Factor of the scores.
    pub scale: Scalar,
    /// Which keys a query sees.
    pub mask: AttentionMask,
}

impl Attention {
    /// The forward pass.
    pub fn new(scale: f64, mask: AttentionMask) -> Attention {
        Attention { results: smallvec![AttentionResult::Output], scale: Scalar::Float(scale), mask }
    }

    /// Another result with the same parameters.
    pub fn with(&self, result: AttentionResult) -> Attention {
        Attention { results: smallvec![result], ..self.clone() }
    }

    /// What the operands are, in order.
    pub fn inputs(&self) -> SmallVec<[AttentionInput; 7]> {
        let mut inputs: SmallVec<[AttentionInput; 7]> =
            self.results.iter().flat_map(|result| result.inputs()).copied().collect();
        inputs.extend(self.mask.padded.then_some(AttentionInput::Lengths));
        inputs.sort_unstable();
        inputs.dedup();
        inputs
    }

    /// The sizes of the loops, or what does not fit.
    fn sizes(&self, types: &[&Type]) -> Result<Sizes, OpError> {
        let inputs = self.inputs();
        let name = self.name();
        if types.len() != inputs.len() {
            return Err(OpError(format!("{name}: {} operands instead of {}", types.len(), inputs.len())));
        }
        let (mut sizes, mut bound) = (Sizes::default(), [None; 7]);
        for (&input, ty) in inputs.iter().zip(types) {
            let dims = input.dims();
            if ty.shape.rank() != dims.len() {
                return Err(OpError(format!("{name}: {} {ty} needs {} dims", input.name(), dims.len())));
            }
            for (&dim, &size) in dims.iter().zip(ty.shape.iter()) {
                let first = *bound[dim as usize].get_or_insert((input, size));
                if first.1 != size {
                    let other = types[inputs.iter().position(|x| *x == first.0).expect("seen before")];
                    return Err(OpError(format!(
                        "{name}: {} {other} and {} {ty} do not fit: {} and {size}",
                        first.0.name(),
                        input.name(),
                        first.1
                    )));
                }
                sizes[dim as usize] = size;
            }
            let wanted = match input {
                AttentionInput::Lengths => DType::I64,
                AttentionInput::Normalizer | AttentionInput::Delta => wide(types[0].dtype),
                _ => types[0].dtype,
            };
            if !types[0].dtype.is_float() || ty.dtype != wanted {
                return Err(OpError(format!("{name}: {} {ty} with {} {}", input.name(), inputs[0].name(), types[0])));
            }
        }
        let (heads, groups) = (sizes[Index::QueryHeads as usize], sizes[Index::KeyHeads as usize]);
        if !heads.is_multiple_of(groups) {
            return Err(OpError(format!("{name}: {heads} query heads are no multiple of {groups} key heads")));
        }
        Ok(sizes)
    }

    /// The types of all results.
    pub fn types(&self, inputs: &[&Type]) -> Result<SmallVec<[Type; 4]>, OpError> {
        let sizes = self.sizes(inputs)?;
        let ty = |result: &AttentionResult| {
            let dtype = inputs[0].dtype;
            let dtype = if *result == AttentionResult::Normalizer { wide(dtype) } else { dtype };
            Type { dtype, shape: result.dims().iter().map(|&dim| sizes[dim as usize]).collect() }
        };
        Ok(self.results.iter().map(ty).collect())
    }

    /// Makes the operation one on the part of its queries or keys that belongs to a region of its result.
    pub(crate) fn keep_region(&mut self, region: &Region) {
        for (dim, &start) in self.results[0].dims().iter().zip(&region.starts) {
            match dim {
                Index::Queries => self.mask.first_query += start as i64,
                Index::Keys => self.mask.first_key += start as i64,
                _ => {}
            }
        }
    }
}

/// The dtype that an element is computed in.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

impl Operation for Attention {
    fn name(&self) -> &'static str {
        match self.results[..] {
            [AttentionResult::Normalizer] => "attention_normalizer",
            [AttentionResult::Query] => "attention_query",
            [AttentionResult::Key] => "attention_key",
            [AttentionResult::Value] => "attention_value",
            [first, ..] if first.is_gradient() => "attention_gradients",
            _ => "attention",
        }
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        Ok(self.types(inputs)?.swap_remove(0))
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        if self.results[..] != [AttentionResult::Output] {
            return composed::gradient(self, g, b);
        }
        let (qkv, lengths) = b.inputs.split_at(3);
        let normalizer = g.add_node(self.with(AttentionResult::Normalizer), &[&qkv[..2], lengths].concat());
        let dtype = wide(g.ty(b.grad).dtype);
        let (grad, output) = (g.cast(b.grad, dtype), g.cast(b.output, dtype));
        let product = g.mul(grad, output);
        let delta = g.reduce(Reduce::new(ReduceOp::Sum, &[3]), product);
        let all = [qkv, &[normalizer, b.grad, delta], lengths].concat();
        let few = [&qkv[..2], &[normalizer, b.grad], lengths].concat();
        let results = [AttentionResult::Query, AttentionResult::Key, AttentionResult::Value];
        let gradient = |result| {
            let inputs = if result == AttentionResult::Value { &few } else { &all };
            Some(g.add_node(self.with(result), inputs))
        };
        results.map(gradient).into_iter().chain(lengths.iter().map(|_| None)).collect()
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        let (names, result) = (self.inputs(), self.results[0]);
        let place = |dims: &[Index], carries: &dyn Fn(Index) -> bool| dims.iter().position(|&dim| carries(dim));
        let mapped = |rule: SplitRule, carries: &dyn Fn(Index) -> bool| {
            let operands: Vec<Option<usize>> = names.iter().map(|input| place(input.dims(), carries)).collect();
            match place(result.dims(), carries) {
                Some(output) => rule.factor(Kind::Mapped, &operands, Some(output)),
                None => rule,
            }
        };
        let key = names.iter().position(|&input| input == AttentionInput::Key).expect("an operand of all results");
        let query = names.iter().position(|&input| input == AttentionInput::Query).expect("an operand of all results");
        // One key head is for all query heads, wherever they are.
        let is_shared = inputs[key].shape[2] == 1 && inputs[query].shape[2] > 1;
        let is_head = |dim| dim == Index::QueryHeads || dim == Index::KeyHeads && !is_shared;
        let mut rule = mapped(SplitRule::whole(), &|dim| dim == Index::Batch);
        rule = mapped(rule, &is_head);
        rule = mapped(rule, &|dim| dim == Index::Queries);
        rule = mapped(rule, &|dim| dim == Index::Keys);
        match result {
            AttentionResult::Output | AttentionResult::Value => mapped(rule, &|dim| dim == Index::Width),
            _ => rule,
        }
    }

    fn flops(&self, inputs: &[&Type], _: &Type) -> u64 {
        let Ok([batch, queries, keys, heads, _, depth, width]) = self.sizes(inputs) else { return 0 };
        let pairs: usize = (0..queries).map(|query| self.mask.seen(query, keys, None)).sum();
        let has = |result| self.results.contains(&result);
        let scores = has(AttentionResult::Query) || has(AttentionResult::Key);
        let by_depth = 1 + usize::from(has(AttentionResult::Query)) + usize::from(has(AttentionResult::Key));
        let by_width = [has(AttentionResult::Output), has(AttentionResult::Value), scores];
        let by_width = by_width.iter().filter(|has| **has).count();
        (2 * batch * heads * pairs * (by_depth * depth + by_width * width)) as u64
    }
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.results.len() > 1 {
            write!(f, "{:?} ", self.results)?;
        }
        write!(f, "scale={}", self.scale)?;
        let AttentionMask { causal, padded, first_query, first_key } = self.mask;
        if causal {
            write!(f, " causal from {first_query}, {first_key}")?;
        }
        if padded {
            write!(f, " padded from {first_key}")?;
        }
        Ok(())
    }
}

/// A part of attention, its operands' shapes: what kernels work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSizes {
    /// Samples.
    pub batch: usize,
    /// Queries of a sample.
    pub queries: usize,
    /// Keys of a sample.
    pub keys: usize,
    /// Heads of the queries.
    pub query_heads: usize,
    /// Heads of the keys and values.
    pub key_heads: usize,
    /// Features of queries and keys.
    pub depth: usize,
    /// Features of values; 0 where they do not matter.
    pub width: usize,
}

impl Attention {
    /// The sizes for operands of these shapes, which fit.
    pub fn sizes_of(&self, shapes: &[&Shape]) -> AttentionSizes {
        let mut sizes = Sizes::default();
        for (input, shape) in self.inputs().iter().zip(shapes) {
            input.dims().iter().zip(shape.iter()).for_each(|(&dim, &size)| sizes[dim as usize] = size);
        }
        let [batch, queries, keys, query_heads, key_heads, depth, width] = sizes;
        AttentionSizes { batch, queries, keys, query_heads, key_heads, depth, width }
    }
}

//! The graph: operations in an order in which every operand comes before its use.

use crate::dtype::{DType, Scalar};
use crate::op::{Op, OpError};
use crate::ops::*;
use crate::shape::{Dims, Shape, Type};
use smallvec::SmallVec;
use std::fmt;

/// The position of a node in its graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The position as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Operands of a node; inline up to three.
pub type Operands = SmallVec<[NodeId; 3]>;

/// One value: how it is computed and its type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Its operands, all earlier in the graph.
    pub inputs: Operands,
    /// Type of the value.
    pub ty: Type,
}

/// A program of values in single static assignment.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Graph {
    /// The nodes, operands first.
    pub nodes: Vec<Node>,
    /// The values that are wanted.
    pub outputs: Vec<NodeId>,
}

impl Graph {
    /// A graph without nodes.
    pub fn new() -> Self {
        Graph::default()
    }

    /// Adds a node, or says why the operands do not fit.
    pub fn try_add(&mut self, op: impl Into<Op>, inputs: &[NodeId]) -> Result<NodeId, OpError> {
        let op = op.into();
        let types: SmallVec<[&Type; 3]> = inputs.iter().map(|&i| self.ty(i)).collect();
        let ty = op.operation().infer(&types)?;
        drop(types);
        self.nodes.push(Node { op, inputs: Operands::from_slice(inputs), ty });
        Ok(NodeId(self.nodes.len() as u32 - 1))
    }

    /// Adds a node whose operands are known to fit.
    ///
    /// # Panics
    /// When they do not: passes and gradient rules must only build legal nodes.
    #[track_caller]
    pub fn add_node(&mut self, op: impl Into<Op>, inputs: &[NodeId]) -> NodeId {
        self.try_add(op, inputs).unwrap_or_else(|e| panic!("illegal node: {e}"))
    }

    /// The node at a position.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The type of a value.
    pub fn ty(&self, id: NodeId) -> &Type {
        &self.nodes[id.index()].ty
    }

    /// All positions in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Checks that operands come first and that every type is the one that its operation gives.
    pub fn verify(&self) -> Result<(), OpError> {
        for (i, node) in self.nodes.iter().enumerate() {
            let wrong = |what: String| Err(OpError(format!("%{i} = {}: {what}", node.op.operation().name())));
            if node.inputs.iter().any(|x| x.index() >= i) {
                return wrong("an operand does not come before it".into());
            }
            let types: Vec<&Type> = node.inputs.iter().map(|&x| self.ty(x)).collect();
            match node.op.operation().infer(&types) {
                Err(e) => return wrong(e.0),
                Ok(ty) if ty != node.ty => return wrong(format!("has type {}, its operation gives {ty}", node.ty)),
                Ok(_) => {}
            }
            if let Op::Part(part) = &node.op {
                let whole = self.node(node.inputs[0]);
                let types: Vec<&Type> = whole.inputs.iter().map(|&x| self.ty(x)).collect();
                if whole.op.results(&types)?.get(part.index) != Some(&part.ty) {
                    return wrong(format!("result {} of {} has another type", part.index, node.inputs[0]));
                }
            }
        }
        match self.outputs.iter().find(|o| o.index() >= self.nodes.len()) {
            Some(o) => Err(OpError(format!("output {o} is not in the graph"))),
            None => Ok(()),
        }
    }
}

/// Short names for building nodes in gradient rules and passes. All panic on operands that do not fit.
impl Graph {
    /// A 0-d constant of a dtype.
    pub fn constant(&mut self, value: f64, dtype: DType) -> NodeId {
        let value = if dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i64) };
        self.add_node(Const { value, dtype }, &[])
    }

    /// A constant with the type of `x`.
    pub fn scalar_like(&mut self, x: NodeId, value: f64) -> NodeId {
        let ty = self.ty(x).clone();
        let c = self.constant(value, ty.dtype);
        self.spread(c, ty.shape)
    }

    /// Zeros with the type of `x`.
    pub fn zeros_like(&mut self, x: NodeId) -> NodeId {
        self.scalar_like(x, 0.0)
    }

    /// A 0-d value repeated to a shape.
    pub fn spread(&mut self, scalar: NodeId, shape: Shape) -> NodeId {
        self.expand(scalar, shape)
    }

    /// Undoes the removal of reduced dimensions: reinserts them with size 1 and repeats to `shape`.
    pub fn restore(&mut self, x: NodeId, dims: &[usize], shape: &Shape) -> NodeId {
        let are_first = dims.iter().all(|&d| d < dims.len());
        let kept = (0..shape.rank()).map(|d| if dims.contains(&d) { 1 } else { shape[d] });
        let x = if are_first { x } else { self.reshape(x, kept.collect()) };
        self.expand(x, shape.clone())
    }

    /// One operand, elementwise.
    pub fn unary(&mut self, op: UnaryOp, x: NodeId) -> NodeId {
        self.add_node(Element::Unary(op), &[x])
    }

    /// Two operands of one type, elementwise.
    pub fn binary(&mut self, op: BinaryOp, a: NodeId, b: NodeId) -> NodeId {
        self.add_node(Element::Binary(op), &[a, b])
    }

    /// a + b.
    pub fn add(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.binary(BinaryOp::Add, a, b)
    }

    /// a − b.
    pub fn sub(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.binary(BinaryOp::Sub, a, b)
    }

    /// a · b.
    pub fn mul(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.binary(BinaryOp::Mul, a, b)
    }

    /// a / b.
    pub fn div(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.binary(BinaryOp::Div, a, b)
    }

    /// `a` where `condition` holds, else `b`.
    pub fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId) -> NodeId {
        self.add_node(Element::Select, &[condition, a, b])
    }

    /// Another dtype; the value itself when it has it already.
    pub fn cast(&mut self, x: NodeId, dtype: DType) -> NodeId {
        if self.ty(x).dtype == dtype { x } else { self.add_node(Element::Cast(dtype), &[x]) }
    }

    /// A reduction.
    pub fn reduce(&mut self, reduce: Reduce, x: NodeId) -> NodeId {
        self.add_node(reduce, &[x])
    }

    /// Another shape; the value itself, or the one that it is a reshape of, when that has it already.
    pub fn reshape(&mut self, x: NodeId, shape: Shape) -> NodeId {
        let node = self.node(x);
        let before = node.inputs.first().filter(|_| matches!(node.op, Op::Reshape(_)));
        let same = std::iter::once(&x).chain(before).copied().find(|&same| self.ty(same).shape == shape);
        same.unwrap_or_else(|| self.add_node(Reshape { shape }, &[x]))
    }

    /// Another order of dimensions; the value itself for the order that it has.
    pub fn permute(&mut self, x: NodeId, dims: &[usize]) -> NodeId {
        if dims.iter().copied().eq(0..dims.len()) {
            return x;
        }
        self.add_node(Permute { dims: Dims::from_slice(dims) }, &[x])
    }

    /// Repetition of dimensions of size 1, and along new ones before; the value itself when it has the shape already.
    pub fn expand(&mut self, x: NodeId, shape: Shape) -> NodeId {
        if self.ty(x).shape == shape { x } else { self.add_node(Expand { shape }, &[x]) }
    }

    /// `size` elements of `dim` from `start`.
    pub fn narrow(&mut self, x: NodeId, dim: usize, start: usize, size: usize) -> NodeId {
        let shape = self.ty(x).shape.clone();
        let mut slice = Slice {
            starts: Dims::from_elem(0, shape.rank()),
            sizes: shape.0.clone(),
            steps: SmallVec::from_elem(1, shape.rank()),
        };
        slice.starts[dim] = start;
        slice.sizes[dim] = size;
        self.add_node(slice, &[x])
    }

    /// Reversal along dimensions.
    pub fn flip(&mut self, x: NodeId, dims: &[usize]) -> NodeId {
        let shape = self.ty(x).shape.clone();
        if dims.is_empty() {
            return x;
        }
        let mut slice = Slice {
            starts: Dims::from_elem(0, shape.rank()),
            sizes: shape.0.clone(),
            steps: SmallVec::from_elem(1, shape.rank()),
        };
        for &d in dims {
            slice.starts[d] = shape[d].saturating_sub(1);
            slice.steps[d] = -1;
        }
        self.add_node(slice, &[x])
    }
}

//! Elementwise operations.

use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Factor, Kind, SplitRule};
use crate::shape::{Shape, Type};

/// Operations of one operand. `Not` is for bool, the transcendental ones are for floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum UnaryOp {
    Neg,
    Abs,
    /// −1, 0 or 1; NaN stays NaN.
    Sign,
    Recip,
    Exp,
    /// exp(x) − 1 without cancellation near 0.
    Expm1,
    Log,
    /// log(1 + x) without cancellation near 0.
    Log1p,
    Sqrt,
    /// 1 / sqrt(x), as that quotient.
    Rsqrt,
    Sin,
    Cos,
    Tanh,
    /// 1 / (1 + exp(−x)).
    Sigmoid,
    /// The error function.
    Erf,
    Floor,
    Ceil,
    /// To the nearest integer, halves to even.
    Round,
    /// max(x, 0); NaN stays NaN.
    Relu,
    Not,
}

/// Operations of two operands of one dtype and shape. Comparisons give bool.
///
/// Integer division truncates toward zero and gives 0 for a zero divisor; integer overflow wraps.
/// `Max` and `Min` give NaN when either operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Max,
    Min,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    Xor,
}

impl BinaryOp {
    /// Whether the result is bool whatever the operands are.
    pub fn compares(self) -> bool {
        use BinaryOp::*;
        matches!(self, Eq | Ne | Lt | Le | Gt | Ge)
    }
}

/// One elementwise operation; all operands have the result's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// One operand, same dtype.
    Unary(UnaryOp),
    /// Two operands of the same dtype.
    Binary(BinaryOp),
    /// `(condition: bool, a, b)`: `a` where the condition holds, else `b`.
    Select,
    /// To another dtype: floats to integers truncate toward zero and saturate, to bool is `!= 0`, to a
    /// narrower float rounds to nearest even.
    Cast(DType),
}

impl Element {
    /// Number of operands.
    pub fn arity(self) -> usize {
        match self {
            Element::Unary(_) | Element::Cast(_) => 1,
            Element::Binary(_) => 2,
            Element::Select => 3,
        }
    }

    /// What most operations cost.
    pub const SIMPLE: u64 = 3;

    /// What the operation costs for an element of its first operand's dtype, measured in f32 in halves of the time in which two
    /// cores move a byte.
    pub fn cost(self, dtype: DType) -> u64 {
        use UnaryOp::*;
        let cost = match self {
            Element::Unary(Recip) | Element::Binary(BinaryOp::Div) => 5,
            Element::Unary(Sqrt) => 7,
            Element::Unary(Rsqrt) => 12,
            Element::Unary(Exp | Expm1) => 18,
            Element::Unary(Sigmoid) => 26,
            Element::Unary(Tanh) => 30,
            Element::Unary(Log | Log1p | Sin | Cos) => 36,
            Element::Unary(Erf) => 22,
            Element::Binary(BinaryOp::Pow) => 120,
            _ => Element::SIMPLE,
        };
        match dtype {
            // Functions of f64 are not vectorised.
            DType::F64 if cost > 12 => 40 * cost,
            // Every instruction rounds.
            DType::F16 | DType::BF16 => cost + 2 * Element::SIMPLE,
            _ => cost,
        }
    }
}

fn same_shape<'a>(name: &str, inputs: &[&'a Type]) -> Result<&'a Shape, OpError> {
    let shape = &inputs[0].shape;
    match inputs.iter().find(|t| t.shape != *shape) {
        None => Ok(shape),
        Some(other) => Err(OpError(format!("{name}: shapes {shape} and {} differ", other.shape))),
    }
}

pub(super) fn pointwise(rank: usize, inputs: usize) -> SplitRule {
    let factors = (0..rank)
        .map(|d| Factor { kind: Kind::Mapped, inputs: vec![Some(d); inputs], output: Some(d), ..Factor::default() })
        .collect();
    SplitRule { factors }
}

impl Operation for Element {
    fn name(&self) -> &'static str {
        match self {
            Element::Unary(op) => match op {
                UnaryOp::Neg => "neg",
                UnaryOp::Abs => "abs",
                UnaryOp::Sign => "sign",
                UnaryOp::Recip => "recip",
                UnaryOp::Exp => "exp",
                UnaryOp::Expm1 => "expm1",
                UnaryOp::Log => "log",
                UnaryOp::Log1p => "log1p",
                UnaryOp::Sqrt => "sqrt",
                UnaryOp::Rsqrt => "rsqrt",
                UnaryOp::Sin => "sin",
                UnaryOp::Cos => "cos",
                UnaryOp::Tanh => "tanh",
                UnaryOp::Sigmoid => "sigmoid",
                UnaryOp::Erf => "erf",
                UnaryOp::Floor => "floor",
                UnaryOp::Ceil => "ceil",
                UnaryOp::Round => "round",
                UnaryOp::Relu => "relu",
                UnaryOp::Not => "not",
            },
            Element::Binary(op) => match op {
                BinaryOp::Add => "add",
                BinaryOp::Sub => "sub",
                BinaryOp::Mul => "mul",
                BinaryOp::Div => "div",
                BinaryOp::Pow => "pow",
                BinaryOp::Max => "max",
                BinaryOp::Min => "min",
                BinaryOp::Eq => "eq",
                BinaryOp::Ne => "ne",
                BinaryOp::Lt => "lt",
                BinaryOp::Le => "le",
                BinaryOp::Gt => "gt",
                BinaryOp::Ge => "ge",
                BinaryOp::And => "and",
                BinaryOp::Or => "or",
                BinaryOp::Xor => "xor",
            },
            Element::Select => "where",
            Element::Cast(_) => "cast",
        }
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let shape = same_shape(self.name(), inputs)?.clone();
        let dtype = inputs[0].dtype;
        let wrong = |what: &str| Err(OpError(format!("{}: {what}, not {dtype}", self.name())));
        let dtype = match self {
            Element::Unary(UnaryOp::Not) if dtype != DType::Bool => return wrong("needs bool"),
            Element::Unary(UnaryOp::Not) => DType::Bool,
            Element::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Relu) if dtype == DType::Bool => {
                return wrong("needs numbers");
            }
            Element::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Relu) => dtype,
            Element::Unary(UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round) => dtype,
            Element::Unary(_) if !dtype.is_float() => return wrong("needs a floating-point tensor (cast it first)"),
            Element::Unary(_) => dtype,
            Element::Binary(op) => {
                if inputs[1].dtype != dtype {
                    return Err(OpError(format!("{}: dtypes {dtype} and {} differ", self.name(), inputs[1].dtype)));
                }
                match op {
                    BinaryOp::And | BinaryOp::Or | BinaryOp::Xor if dtype != DType::Bool => return wrong("needs bool"),
                    BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Pow
                        if dtype == DType::Bool =>
                    {
                        return wrong("needs numbers");
                    }
                    op if op.compares() => DType::Bool,
                    _ => dtype,
                }
            }
            Element::Select => {
                if dtype != DType::Bool {
                    return wrong("the condition must be bool");
                }
                if inputs[1].dtype != inputs[2].dtype {
                    let (a, b) = (inputs[1].dtype, inputs[2].dtype);
                    return Err(OpError(format!("where: dtypes {a} and {b} of the two branches differ")));
                }
                inputs[1].dtype
            }
            Element::Cast(to) => *to,
        };
        Ok(Type { dtype, shape })
    }

    fn gradient(&self, graph: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let g = graph;
        match self {
            Element::Unary(op) => vec![unary_gradient(*op, g, b.inputs[0], b.output, b.grad)],
            Element::Binary(op) => binary_gradient(*op, g, b.inputs[0], b.inputs[1], b.output, b.grad),
            Element::Select => {
                let zero = g.zeros_like(b.grad);
                let c = b.inputs[0];
                vec![None, Some(g.select(c, b.grad, zero)), Some(g.select(c, zero, b.grad))]
            }
            Element::Cast(_) => {
                let from = g.ty(b.inputs[0]).dtype;
                vec![from.is_float().then(|| g.cast(b.grad, from))]
            }
        }
    }

    fn rule(&self, inputs: &[&Type], output: &Type) -> SplitRule {
        pointwise(output.shape.rank(), inputs.len())
    }

    fn flops(&self, _: &[&Type], output: &Type) -> u64 {
        match self {
            Element::Cast(_) | Element::Select => 0,
            _ => output.shape.numel() as u64,
        }
    }
}

fn unary_gradient(op: UnaryOp, g: &mut Graph, x: NodeId, y: NodeId, grad: NodeId) -> Option<NodeId> {
    use UnaryOp::*;
    Some(match op {
        Neg => g.unary(Neg, grad),
        Abs => {
            let s = g.unary(Sign, x);
            g.mul(grad, s)
        }
        Sign | Floor | Ceil | Round | Not => return None,
        Recip => {
            // −1/x²
            let yy = g.mul(y, y);
            let p = g.mul(grad, yy);
            g.unary(Neg, p)
        }
        Exp => g.mul(grad, y),
        Expm1 => {
            let one = g.scalar_like(y, 1.0);
            let e = g.add(y, one);
            g.mul(grad, e)
        }
        Log => g.div(grad, x),
        Log1p => {
            let one = g.scalar_like(x, 1.0);
            let d = g.add(x, one);
            g.div(grad, d)
        }
        Sqrt => {
            let two = g.scalar_like(y, 2.0);
            let d = g.mul(y, two);
            g.div(grad, d)
        }
        Rsqrt => {
            // −½ y³
            let half = g.scalar_like(y, -0.5);
            let yy = g.mul(y, y);
            let yyy = g.mul(yy, y);
            let d = g.mul(yyy, half);
            g.mul(grad, d)
        }
        Sin => {
            let c = g.unary(Cos, x);
            g.mul(grad, c)
        }
        Cos => {
            let s = g.unary(Sin, x);
            let p = g.mul(grad, s);
            g.unary(Neg, p)
        }
        Tanh => {
            let one = g.scalar_like(y, 1.0);
            let yy = g.mul(y, y);
            let d = g.sub(one, yy);
            g.mul(grad, d)
        }
        Sigmoid => {
            let one = g.scalar_like(y, 1.0);
            let rest = g.sub(one, y);
            let d = g.mul(y, rest);
            g.mul(grad, d)
        }
        Erf => {
            // 2/√π · exp(−x²)
            let c = g.scalar_like(x, std::f64::consts::FRAC_2_SQRT_PI);
            let xx = g.mul(x, x);
            let n = g.unary(Neg, xx);
            let e = g.unary(Exp, n);
            let d = g.mul(e, c);
            g.mul(grad, d)
        }
        Relu => {
            let zero = g.zeros_like(y);
            let positive = g.binary(BinaryOp::Gt, y, zero);
            let none = g.zeros_like(grad);
            g.select(positive, grad, none)
        }
    })
}

fn binary_gradient(op: BinaryOp, g: &mut Graph, a: NodeId, b: NodeId, y: NodeId, grad: NodeId) -> Vec<Option<NodeId>> {
    use BinaryOp::*;
    match op {
        Add => vec![Some(grad), Some(grad)],
        Sub => vec![Some(grad), Some(g.unary(UnaryOp::Neg, grad))],
        Mul => vec![Some(g.mul(grad, b)), Some(g.mul(grad, a))],
        Div => {
            let da = g.div(grad, b);
            let t = g.mul(da, y);
            vec![Some(da), Some(g.unary(UnaryOp::Neg, t))]
        }
        Pow => {
            // a: b·a^(b−1), 0 where b = 0; b: y·log a, 0 where a = 0 and b ≥ 0.
            let (zero_a, zero_b) = (g.zeros_like(a), g.zeros_like(b));
            let one = g.scalar_like(b, 1.0);
            let less = g.sub(b, one);
            let power = g.binary(Pow, a, less);
            let slope = g.mul(b, power);
            let da = g.mul(grad, slope);
            let flat = g.binary(Eq, b, zero_b);
            let da = g.select(flat, zero_a, da);
            let log = g.unary(UnaryOp::Log, a);
            let ylog = g.mul(y, log);
            let db = g.mul(grad, ylog);
            let at_zero = g.binary(Eq, a, zero_a);
            let rising = g.binary(Ge, b, zero_b);
            let both = g.binary(And, at_zero, rising);
            vec![Some(da), Some(g.select(both, zero_b, db))]
        }
        Max | Min => {
            // Equal operands share the gradient.
            let wins = g.binary(if op == Max { Gt } else { Lt }, a, b);
            let ties = g.binary(Eq, a, b);
            let half = g.scalar_like(grad, 0.5);
            let shared = g.mul(grad, half);
            let zero = g.zeros_like(grad);
            let left = g.select(wins, grad, zero);
            let right = g.select(wins, zero, grad);
            vec![Some(g.select(ties, shared, left)), Some(g.select(ties, shared, right))]
        }
        Eq | Ne | Lt | Le | Gt | Ge | And | Or | Xor => vec![None, None],
    }
}

//! Elementwise arithmetic, comparison and logic, with NumPy broadcasting and PyTorch's dtype promotion.

use crate::tensor::{Tensor, policy};
use meshwork_graph::ops::{BinaryOp, Element, Expand, UnaryOp};
use meshwork_graph::{DType, Shape};
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

/// The right-hand side of an operation: a tensor, or a number.
///
/// A number takes the tensor's dtype, except that a float makes an integer tensor f32. Its value is an input of
/// the program, so a learning rate that changes from step to step compiles nothing anew.
pub trait Operand {
    /// The operand as a tensor that goes with `other`.
    fn operand(&self, other: &Tensor) -> Tensor;
}

impl Operand for Tensor {
    fn operand(&self, _: &Tensor) -> Tensor {
        self.clone()
    }
}

impl Operand for &Tensor {
    fn operand(&self, _: &Tensor) -> Tensor {
        (*self).clone()
    }
}

impl Operand for f64 {
    fn operand(&self, other: &Tensor) -> Tensor {
        let dtype = if other.dtype().is_float() { other.dtype() } else { DType::F32 };
        Tensor::scalar(*self, dtype)
    }
}

macro_rules! integer_operand {
    ($($int:ty),*) => {
        $(impl Operand for $int {
            fn operand(&self, other: &Tensor) -> Tensor {
                let dtype = if other.dtype() == DType::Bool { DType::I64 } else { other.dtype() };
                Tensor::scalar(*self as f64, dtype)
            }
        })*
    };
}

integer_operand!(i32, i64);

impl Tensor {
    /// The tensor in another dtype. Floats become integers by truncation, anything becomes bool by `!= 0`.
    pub fn to_dtype(&self, dtype: DType) -> Tensor {
        if self.dtype() == dtype { self.clone() } else { Tensor::record(Element::Cast(dtype), &[self]) }
    }

    /// The tensor repeated to a shape that it broadcasts to.
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[usize]) -> Tensor {
        if self.shape() == shape {
            return self.clone();
        }
        Tensor::record(Expand { shape: Shape::new(shape) }, &[self])
    }

    /// One operand, elementwise.
    #[track_caller]
    pub(crate) fn unary(&self, op: UnaryOp) -> Tensor {
        Tensor::record(Element::Unary(op), &[self])
    }

    /// Two operands, broadcast and promoted.
    #[track_caller]
    pub(crate) fn binary(&self, op: BinaryOp, other: &Tensor) -> Tensor {
        if self.ty() == other.ty() {
            return Tensor::record(Element::Binary(op), &[self, other]);
        }
        let dtype = self.dtype().promote(other.dtype());
        let Some(shape) = self.ty().shape.broadcast(&other.ty().shape) else {
            let op: Element = Element::Binary(op);
            let name = meshwork_graph::Operation::name(&op);
            panic!("{name}: shapes {} and {} do not broadcast", self.ty().shape, other.ty().shape);
        };
        let (a, b) = (self.to_dtype(dtype), other.to_dtype(dtype));
        Tensor::record(Element::Binary(op), &[&a.broadcast_to(&shape), &b.broadcast_to(&shape)])
    }

    /// The tensor as a floating-point one: integers become f32.
    pub(crate) fn float(&self) -> Tensor {
        if self.dtype().is_float() { self.clone() } else { self.to_dtype(DType::F32) }
    }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident => $op:ident $(, $float:ident)?;)*) => {
        impl Tensor {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Tensor {
                let [x] = policy!(stringify!($name)).cast([self]);
                x$(.$float())?.unary(UnaryOp::$op)
            })*
        }
    };
}

unary_methods! {
    /// Absolute value.
    abs => Abs;
    /// −1, 0 or 1 by sign.
    sign => Sign;
    /// 1 / x.
    reciprocal => Recip, float;
    /// The exponential function.
    exp => Exp, float;
    /// exp(x) − 1, accurate near 0.
    expm1 => Expm1, float;
    /// The natural logarithm.
    log => Log, float;
    /// log(1 + x), accurate near 0.
    log1p => Log1p, float;
    /// The square root.
    sqrt => Sqrt, float;
    /// 1 / sqrt(x).
    rsqrt => Rsqrt, float;
    /// The sine of radians.
    sin => Sin, float;
    /// The cosine of radians.
    cos => Cos, float;
    /// The hyperbolic tangent.
    tanh => Tanh, float;
    /// 1 / (1 + exp(−x)).
    sigmoid => Sigmoid, float;
    /// The error function.
    erf => Erf, float;
    /// The next integer below.
    floor => Floor;
    /// The next integer above.
    ceil => Ceil;
    /// The nearest integer, halves to even.
    round => Round;
    /// max(x, 0).
    relu => Relu;
    /// Logical negation of a bool tensor.
    logical_not => Not;
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Tensor {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: impl Operand) -> Tensor {
                self.binary(BinaryOp::$op, &other.operand(self))
            })*
        }
    };
}

binary_methods! {
    /// The larger of two elements; NaN if either is.
    maximum => Max;
    /// The smaller of two elements; NaN if either is.
    minimum => Min;
    /// Whether elements are equal (bool).
    eq => Eq;
    /// Whether elements differ (bool).
    ne => Ne;
    /// Whether self < other (bool).
    lt => Lt;
    /// Whether self <= other (bool).
    le => Le;
    /// Whether self > other (bool).
    gt => Gt;
    /// Whether self >= other (bool).
    ge => Ge;
}

impl Tensor {
    /// self / other; integers are divided as f32.
    #[track_caller]
    pub fn true_divide(&self, other: impl Operand) -> Tensor {
        let other = other.operand(self);
        if self.dtype().is_float() || other.dtype().is_float() {
            return self.binary(BinaryOp::Div, &other);
        }
        self.float().binary(BinaryOp::Div, &other.float())
    }

    /// self to the power of other, elementwise.
    #[track_caller]
    pub fn pow(&self, exponent: impl Operand) -> Tensor {
        let [x] = policy!("pow").cast([self]);
        let [exponent] = policy!("pow").cast([&exponent.operand(&x)]);
        x.binary(BinaryOp::Pow, &exponent)
    }

    /// self to a fixed power; 0.5, ±1, 2 and 3 become products, roots and quotients, as in PyTorch.
    #[track_caller]
    pub fn powf(&self, exponent: f64) -> Tensor {
        match exponent {
            0.5 => self.sqrt(),
            -0.5 => self.rsqrt(),
            1.0 => self.clone(),
            2.0 => self.square(),
            3.0 => self.square().binary(BinaryOp::Mul, self),
            -1.0 => self.reciprocal(),
            -2.0 => self.square().reciprocal(),
            _ => self.pow(exponent),
        }
    }

    /// x · x.
    #[track_caller]
    pub fn square(&self) -> Tensor {
        self.binary(BinaryOp::Mul, self)
    }

    /// Elements limited to `min..=max`; a missing limit does not limit. Equal limits and elements let the gradient
    /// pass, as in PyTorch.
    ///
    /// # Panics
    /// When both limits are missing.
    #[track_caller]
    pub fn clamp(&self, min: Option<f64>, max: Option<f64>) -> Tensor {
        assert!(min.is_some() || max.is_some(), "clamp needs a minimum, a maximum or both");
        let mut x = self.clone();
        if let Some(min) = min {
            let low = x.constant_like(min);
            x = where_(&x.lt(&low), &low, &x);
        }
        if let Some(max) = max {
            let high = x.constant_like(max);
            x = where_(&x.gt(&high), &high, &x);
        }
        x
    }

    /// The values not equal to 0, as bool.
    pub(crate) fn truth(&self) -> Tensor {
        self.to_dtype(DType::Bool)
    }

    /// Whether both are true (not 0).
    #[track_caller]
    pub fn logical_and(&self, other: &Tensor) -> Tensor {
        self.truth().binary(BinaryOp::And, &other.truth())
    }

    /// Whether one of both is true (not 0).
    #[track_caller]
    pub fn logical_or(&self, other: &Tensor) -> Tensor {
        self.truth().binary(BinaryOp::Or, &other.truth())
    }

    /// Whether exactly one of both is true (not 0).
    #[track_caller]
    pub fn logical_xor(&self, other: &Tensor) -> Tensor {
        self.truth().binary(BinaryOp::Xor, &other.truth())
    }
}

/// `a` where the bool `condition` holds, else `b`; all three broadcast.
#[track_caller]
pub fn where_(condition: &Tensor, a: &Tensor, b: &Tensor) -> Tensor {
    let dtype = a.dtype().promote(b.dtype());
    let shapes = [condition, a, b].map(|t| &t.ty().shape);
    let shape = shapes[0].broadcast(shapes[1]).and_then(|s| s.broadcast(shapes[2]));
    let Some(shape) = shape else {
        panic!("where: shapes {}, {} and {} do not broadcast", shapes[0], shapes[1], shapes[2]);
    };
    let (a, b) = (a.to_dtype(dtype).broadcast_to(&shape), b.to_dtype(dtype).broadcast_to(&shape));
    Tensor::record(Element::Select, &[&condition.broadcast_to(&shape), &a, &b])
}

macro_rules! operators {
    ($($trait:ident $method:ident => |$a:ident, $b:ident| $body:expr;)*) => {
        $(
            impl<R: Operand> $trait<R> for &Tensor {
                type Output = Tensor;
                #[track_caller]
                fn $method(self, other: R) -> Tensor {
                    let ($a, $b) = (self, other.operand(self));
                    $body
                }
            }

            impl<R: Operand> $trait<R> for Tensor {
                type Output = Tensor;
                #[track_caller]
                fn $method(self, other: R) -> Tensor {
                    let ($a, $b) = (&self, other.operand(&self));
                    $body
                }
            }
        )*
    };
}

operators! {
    Add add => |a, b| a.binary(BinaryOp::Add, &b);
    Sub sub => |a, b| a.binary(BinaryOp::Sub, &b);
    Mul mul => |a, b| a.binary(BinaryOp::Mul, &b);
    Div div => |a, b| a.true_divide(&b);
    BitAnd bitand => |a, b| a.logical_and(&b);
    BitOr bitor => |a, b| a.logical_or(&b);
    BitXor bitxor => |a, b| a.logical_xor(&b);
}

macro_rules! number_first {
    ($($trait:ident $method:ident => $op:ident),*) => {
        $(
            impl $trait<&Tensor> for f64 {
                type Output = Tensor;
                #[track_caller]
                fn $method(self, other: &Tensor) -> Tensor {
                    self.operand(other).binary(BinaryOp::$op, &other.float())
                }
            }

            impl $trait<Tensor> for f64 {
                type Output = Tensor;
                #[track_caller]
                fn $method(self, other: Tensor) -> Tensor {
                    self.$method(&other)
                }
            }
        )*
    };
}

number_first!(Add add => Add, Sub sub => Sub, Mul mul => Mul, Div div => Div);

impl Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        self.unary(UnaryOp::Neg)
    }
}

impl Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        self.unary(UnaryOp::Neg)
    }
}

impl Not for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn not(self) -> Tensor {
        self.truth().unary(UnaryOp::Not)
    }
}

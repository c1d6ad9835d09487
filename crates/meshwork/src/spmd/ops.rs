//! What each rank computes by itself.

use super::{Dist, Distribution, Joins, Local};
use crate::tensor::Tensor;
use std::ops::{Add, Div, Mul, Neg, Sub};

impl<K: Distribution> Dist<K> {
    /// A local computation with two values of one group.
    #[track_caller]
    fn with<J: Distribution>(
        &self,
        other: &Dist<J>,
        f: impl FnOnce(&Tensor, &Tensor) -> Tensor,
    ) -> Dist<<K as Joins<J>>::Output>
    where
        K: Joins<J>,
    {
        let (own, others) = (self.group().ranks(), other.group().ranks());
        assert!(own == others, "values of different groups, {own:?} and {others:?}");
        Dist::new(f(self.tensor(), other.tensor()), self.trail().and(other.trail()), self.group().clone())
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {
        impl<K: Local> Dist<K> {
            $(
                $(#[$doc])*
                #[track_caller]
                pub fn $name(&self $(, $argument: $type)*) -> Dist<K> {
                    self.map(|x| x.$name($($argument),*))
                }
            )*
        }
    };
}

unary! {
    /// max(x, 0).
    relu();
    /// Gaussian error linear unit: see [`Tensor::gelu`].
    gelu();
    /// The hyperbolic tangent.
    tanh();
    /// 1 / (1 + exp(−x)).
    sigmoid();
    /// The exponential function.
    exp();
    /// The natural logarithm.
    log();
    /// The square root.
    sqrt();
    /// x · x.
    square();
    /// Softmax along a dimension of each rank's tensor.
    softmax(dim: isize);
    /// The logarithm of softmax along a dimension of each rank's tensor.
    log_softmax(dim: isize);
    /// The elements in another shape: see [`Tensor::reshape`].
    reshape(shape: &[isize]);
    /// Dimensions from `start` on as one.
    flatten(start: isize);
    /// Two dimensions exchanged.
    transpose(a: isize, b: isize);
    /// A dimension of size 1 more.
    unsqueeze(dim: isize);
    /// A range of a dimension of each rank's tensor.
    narrow(dim: isize, start: usize, size: usize);
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        impl<K: Local> Dist<K> {
            $(
                $(#[$doc])*
                #[track_caller]
                pub fn $name<J: Distribution>(&self, other: &Dist<J>) -> Dist<<K as Joins<J>>::Output>
                where
                    K: Joins<J>,
                {
                    self.with(other, |a, b| a.$name(b))
                }
            )*
        }
    };
}

binary! {
    /// The matrix product of each rank's tensors: see [`Tensor::matmul`].
    matmul;
    /// The larger of two elements; NaN if either is.
    maximum;
    /// The mean cross entropy of logits and classes: see [`Tensor::cross_entropy`].
    cross_entropy;
}

impl<K: Local> Dist<K> {
    /// x · weightᵀ: `[…, in]`, weight `[out, in]` to `[…, out]`.
    #[track_caller]
    pub fn linear<J: Distribution>(&self, weight: &Dist<J>) -> Dist<<K as Joins<J>>::Output>
    where
        K: Joins<J>,
    {
        self.with(weight, |x, weight| x.linear(weight, None))
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident;)*) => {
        $(
            impl<K: Joins<J>, J: Distribution> $trait<&Dist<J>> for &Dist<K> {
                type Output = Dist<K::Output>;

                #[track_caller]
                fn $method(self, other: &Dist<J>) -> Self::Output {
                    self.with(other, |a, b| a.$method(b))
                }
            }

            impl<K: Local> $trait<f64> for &Dist<K> {
                type Output = Dist<K>;

                #[track_caller]
                fn $method(self, other: f64) -> Dist<K> {
                    self.map(|a| a.$method(other))
                }
            }
        )*
    };
}

operators! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

impl<K: Local> Neg for &Dist<K> {
    type Output = Dist<K>;

    fn neg(self) -> Dist<K> {
        self.map(|a| -a)
    }
}

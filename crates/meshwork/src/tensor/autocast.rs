//! Mixed precision: a scope in which the operations that gain most from it compute on 16-bit floats (Micikevicius et al.,
//! 2018).
//!
//! Casts are recorded like everything else, so gradients come back through them in the type of what was cast: those of an
//! f32 parameter are f32. Where values are rounded is a matter of the recorded graph alone, not of the layout.

use super::Tensor;
use meshwork_graph::DType;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt;

thread_local! {
    static PRECISION: Cell<Precision> = const { Cell::new(Precision::F32) };
}

/// The type that operations which gain from it compute on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floats: nothing is cast.
    #[default]
    F32,
    /// bfloat16: the range of f32 with 8 bits of precision.
    BF16,
    /// IEEE 16-bit floats: 11 bits of precision in a small range, so that a loss must be
    /// [scaled](crate::optim::LossScale).
    F16,
}

impl Precision {
    /// The type itself.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::BF16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }

    /// The precision in force on this thread.
    pub fn current() -> Precision {
        PRECISION.get()
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.dtype().name())
    }
}

/// What an operation does with its floating-point operands under [`autocast`]. f64 is never cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastPolicy {
    /// They are cast to the type of the scope. Sums accumulate in f32 and are rounded once.
    Narrow,
    /// Narrow ones are cast to f32, and so is the result.
    Wide,
    /// The result has the type of the operand, but everything in between is f32.
    RoundedOnce,
    /// The result has the widest type of them, as outside of a scope.
    Widest,
}

/// What each operation does. Operations that are not named are [`CastPolicy::Widest`]: arithmetic, comparisons, `where_`,
/// `concat`, views, embeddings, pools, `relu`, `tanh`, `sigmoid`, …
///
/// The lists are those of PyTorch's `torch.amp`, with these exceptions. Means, variances and batch normalisations give f32,
/// as sums and the other normalisations do. Functions that are single kernels there and several operations here are rounded
/// once, as there.
pub const CAST_POLICIES: &[(&str, CastPolicy)] = {
    use CastPolicy::*;
    &[
        // Products: nearly all of the arithmetic, and rounding errors that average out.
        ("matmul", Narrow),
        ("linear", Narrow),
        ("conv1d", Narrow),
        ("conv2d", Narrow),
        ("conv3d", Narrow),
        ("conv_transpose1d", Narrow),
        ("conv_transpose2d", Narrow),
        ("conv_transpose3d", Narrow),
        ("scaled_dot_product_attention", Narrow),
        // Functions that leave the range, or make small differences large.
        ("exp", Wide),
        ("expm1", Wide),
        ("log", Wide),
        ("log1p", Wide),
        ("pow", Wide),
        ("reciprocal", Wide),
        ("rsqrt", Wide),
        ("softplus", Wide),
        ("log_sigmoid", Wide),
        ("softmax", Wide),
        ("log_softmax", Wide),
        // Sums of many terms.
        ("sum", Wide),
        ("sum_keepdim", Wide),
        ("prod", Wide),
        ("cumsum", Wide),
        ("mean", Wide),
        ("mean_keepdim", Wide),
        ("var", Wide),
        ("batch_statistics", Wide),
        ("batch_norm", Wide),
        ("layer_norm", Wide),
        ("group_norm", Wide),
        ("rms_norm", Wide),
        // Losses.
        ("cross_entropy", Wide),
        ("nll_loss", Wide),
        ("mse_loss", Wide),
        ("bce_with_logits", Wide),
        // Functions of each element that take several operations.
        ("gelu", RoundedOnce),
        ("gelu_tanh", RoundedOnce),
        ("silu", RoundedOnce),
        ("dropout", RoundedOnce),
        ("rotary", RoundedOnce),
    ]
};

/// Runs `body` in a precision: what it records follows [`CAST_POLICIES`]. A scope within another one replaces it.
///
/// Parameters stay f32, and so does what an optimizer keeps: take gradients and step outside.
///
/// ```
/// use meshwork::prelude::*;
/// use meshwork::tensor::{Precision, autocast, randn};
///
/// let model = sequential![Linear::new(8, 16), Gelu, Linear::new(16, 3)];
/// model.init(0);
/// let logits = autocast(Precision::BF16, || model.forward(&randn(&[4, 8])));
/// assert_eq!(logits.dtype(), DType::BF16);
/// let gradients = model.gradients(&logits.to_dtype(DType::F32).square().mean(..));
/// assert!(gradients.iter().all(|(_, gradient)| gradient.dtype() == DType::F32));
/// ```
pub fn autocast<R>(precision: Precision, body: impl FnOnce() -> R) -> R {
    struct Restore(Precision);
    impl Drop for Restore {
        fn drop(&mut self) {
            PRECISION.set(self.0);
        }
    }
    let _restore = Restore(PRECISION.replace(precision));
    body()
}

/// What an operation of this name does.
pub const fn cast_policy(operation: &str) -> CastPolicy {
    let mut i = 0;
    while i < CAST_POLICIES.len() {
        if is_same(CAST_POLICIES[i].0.as_bytes(), operation.as_bytes()) {
            return CAST_POLICIES[i].1;
        }
        i += 1;
    }
    CastPolicy::Widest
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// The policy of an operation, looked up when the program is compiled.
macro_rules! policy {
    ($operation:expr) => {
        const { $crate::tensor::cast_policy($operation) }
    };
}

pub(crate) use policy;

impl CastPolicy {
    /// Operands as an operation takes them.
    pub(crate) fn cast<const N: usize>(self, operands: [&Tensor; N]) -> [Tensor; N] {
        let precision = Precision::current();
        if precision == Precision::F32 {
            return operands.map(Tensor::clone);
        }
        match self {
            CastPolicy::Narrow if operands.iter().all(|x| is_f32_or_narrow(x)) => {
                operands.map(|x| x.to_dtype(precision.dtype()))
            }
            CastPolicy::Wide | CastPolicy::RoundedOnce => operands.map(widened),
            CastPolicy::Narrow | CastPolicy::Widest => operands.map(Tensor::clone),
        }
    }

    /// A function of one tensor, on the operand and with the result that the policy asks for.
    pub(crate) fn apply(self, operand: &Tensor, function: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        let [x] = self.cast([operand]);
        let y = function(&x);
        let rounds = self == CastPolicy::RoundedOnce && Precision::current() != Precision::F32;
        if rounds && operand.dtype().is_float() { y.to_dtype(operand.dtype()) } else { y }
    }
}

fn is_f32_or_narrow(x: &Tensor) -> bool {
    x.dtype().is_float() && x.dtype() != DType::F64
}

fn widened(x: &Tensor) -> Tensor {
    if is_f32_or_narrow(x) { x.to_dtype(DType::F32) } else { x.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_replace_each_other_and_end() {
        autocast(Precision::BF16, || {
            assert_eq!(Precision::current(), Precision::BF16);
            autocast(Precision::F32, || assert_eq!(Precision::current(), Precision::F32));
            assert_eq!(Precision::current(), Precision::BF16);
            let ended = std::panic::catch_unwind(|| autocast(Precision::F16, || panic!("in the middle")));
            assert!(ended.is_err());
            assert_eq!(Precision::current(), Precision::BF16);
        });
        assert_eq!(Precision::current(), Precision::F32);
    }

    #[test]
    fn no_operation_has_two_policies() {
        for (i, (name, policy)) in CAST_POLICIES.iter().enumerate() {
            assert!(CAST_POLICIES[..i].iter().all(|(other, _)| other != name), "{name}");
            assert_eq!(cast_policy(name), *policy);
        }
        assert_eq!(cast_policy("matmu"), CastPolicy::Widest);
        assert_eq!(cast_policy("matmuls"), CastPolicy::Widest);
    }
}

//! What a training makes smaller, and what it is judged by.

use crate::{DType, Tensor};

/// The mean cross entropy of logits `[…, C]` against classes (integers `[…]`): of `[N, C]` for samples, of `[N, T, C]` for
/// the tokens of sequences. Targets of class −100 do not count.
///
/// # Panics
/// When the shapes do not fit.
#[track_caller]
pub fn loss(logits: &Tensor, classes: &Tensor) -> Tensor {
    check(logits, classes);
    if logits.rank() <= 2 {
        return logits.cross_entropy(classes);
    }
    logits.reshape(&[-1, logits.size(-1) as isize]).cross_entropy(&classes.flatten(0))
}

/// How many of the classes (integers `[…]`) are those of the largest logits `[…, C]`; i64 `[]`.
///
/// # Panics
/// When the shapes do not fit.
#[track_caller]
pub fn hits(logits: &Tensor, classes: &Tensor) -> Tensor {
    check(logits, classes);
    logits.argmax(-1).eq(classes).to_dtype(DType::I64).sum(..)
}

#[track_caller]
fn check(logits: &Tensor, classes: &Tensor) {
    let fits = logits.rank() > 0 && logits.shape()[..logits.rank() - 1] == *classes.shape();
    assert!(fits, "classes {} do not fit logits {}, whose last dim are the classes", classes.ty(), logits.ty());
}

//! Activation checkpointing: what is not kept for the gradients, but computed again.

use std::cell::RefCell;
use std::sync::Arc;

/// Nodes that are recorded together, and computed again for their gradients.
pub(crate) struct Segment {
    /// The one in which this one was recorded.
    pub around: Option<Arc<Segment>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Segment>>> = const { RefCell::new(None) };
}

/// The segment that is being recorded.
pub(crate) fn current_segment() -> Option<Arc<Segment>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Runs `body` and keeps nothing of what it computes for the gradients but its results: when a gradient comes to it, it is
/// computed again from what it reads (Chen et al., 2016, "Training Deep Nets with Sublinear Memory Cost"; PyTorch's
/// `torch.utils.checkpoint`). Values and gradients have the same bits as without it, masks of dropout are the same, and
/// running statistics are updated once.
///
/// `body` itself runs once: what it records is recorded again, without its last part if no gradient needs that. Checkpoints
/// may be nested. What is computed before the gradients are taken (because a value is read, say) is kept none the less, and so
/// is what a gradient of a gradient needs. A body whose operations are on several devices is recorded as if it stood alone.
///
/// ```
/// use meshwork::Tensor;
/// use meshwork::tensor::{checkpoint, grad};
///
/// let x = Tensor::from_slice(&[0.5f32, 1.0], &[2]).variable();
/// let loss = checkpoint(|| x.exp().sin()).sum(..);
/// let same = x.exp().sin().sum(..);
/// assert_eq!(grad(&loss, &[&x])[0].to_vec::<f32>(), grad(&same, &[&x])[0].to_vec::<f32>());
/// ```
pub fn checkpoint<R>(body: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<Segment>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let around = current_segment();
    let _restore = Restore(CURRENT.replace(Some(Arc::new(Segment { around }))));
    body()
}

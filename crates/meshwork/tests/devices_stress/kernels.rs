//! Operations of users that take their time, or fail.

use meshwork::Tensor;
use meshwork::graph::Type;
use meshwork::graph::graph::{Graph, NodeId};
use meshwork::graph::op::{Backward, OpError};
use meshwork::graph::ops::{CustomInput, CustomOp, Parallel};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

type Action = dyn Fn(&dyn Parallel) + Send + Sync;

/// The value itself, after something else has been done.
struct Then {
    name: &'static str,
    key: u64,
    action: Box<Action>,
}

impl std::fmt::Debug for Then {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.key)
    }
}

impl CustomOp for Then {
    fn name(&self) -> &'static str {
        self.name
    }

    fn key(&self) -> u64 {
        self.key
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        Ok(inputs[0].clone())
    }

    fn run(&self, inputs: &[CustomInput], output: &mut [u8], parallel: &dyn Parallel) {
        (self.action)(parallel);
        output.copy_from_slice(inputs[0].bytes);
    }

    fn gradient(&self, _: &mut Graph, backward: &Backward) -> Vec<Option<NodeId>> {
        vec![Some(backward.grad)]
    }
}

fn then(x: &Tensor, name: &'static str, key: u64, action: impl Fn(&dyn Parallel) + Send + Sync + 'static) -> Tensor {
    Tensor::custom(Arc::new(Then { name, key, action: Box::new(action) }), &[x])
}

/// The value, a little later: after up to 300 µs, another time in each run.
pub fn dawdle(x: &Tensor) -> Tensor {
    static STATE: AtomicU64 = AtomicU64::new(1);
    then(x, "dawdle", 0, |_| {
        let state = STATE.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros((state ^ state >> 29) % 300));
    })
}

/// The value, after so many milliseconds.
pub fn late(x: &Tensor, milliseconds: u64) -> Tensor {
    then(x, "late", milliseconds, move |_| std::thread::sleep(Duration::from_millis(milliseconds)))
}

/// Fails.
pub fn boom(x: &Tensor) -> Tensor {
    then(x, "boom", 0, |_| panic!("boom, said the user's operation"))
}

/// The value, after an action in the kernel; no two are the same operation.
pub fn with_action(x: &Tensor, action: impl Fn() + Send + Sync + 'static) -> Tensor {
    then(x, "action", next_key(), move |_| action())
}

/// The value, after an action on every thread of the device.
pub fn with_action_on_threads(x: &Tensor, action: impl Fn() + Send + Sync + 'static) -> Tensor {
    then(x, "actions", next_key(), move |parallel| {
        let meet = std::sync::Barrier::new(parallel.threads());
        parallel.run(parallel.threads(), &|_| {
            meet.wait();
            action();
        });
    })
}

fn next_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

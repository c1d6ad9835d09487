//! Operations of users that take their time, or fail.
#![allow(dead_code)]

use meshwork::Tensor;
use meshwork::graph::graph::{Graph, NodeId};
use meshwork::graph::op::{Backward, OpError};
use meshwork::graph::ops::{Custom, CustomInput, CustomOp, Parallel};
use meshwork::graph::{Kind, SplitRule, Type};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

type Action = dyn Fn(&[u8], &dyn Parallel) + Send + Sync;

/// The value itself, after something else has been done.
#[derive(Clone)]
struct Then {
    name: &'static str,
    key: u64,
    action: Arc<Action>,
    /// Whether the same is done for the gradient.
    both_ways: bool,
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
        (self.action)(inputs[0].bytes, parallel);
        output.copy_from_slice(inputs[0].bytes);
    }

    fn gradient(&self, graph: &mut Graph, backward: &Backward) -> Vec<Option<NodeId>> {
        let again = |graph: &mut Graph| graph.add_node(Custom(Arc::new(self.clone())), &[backward.grad]);
        vec![Some(if self.both_ways { again(graph) } else { backward.grad })]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        let dims = 0..inputs[0].shape.rank();
        dims.fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &[Some(d)], Some(d)))
    }
}

fn then(x: &Tensor, name: &'static str, key: u64, action: impl Fn(&dyn Parallel) + Send + Sync + 'static) -> Tensor {
    let action = Arc::new(move |_: &[u8], parallel: &dyn Parallel| action(parallel));
    Tensor::custom(Arc::new(Then { name, key, action, both_ways: false }), &[x])
}

/// The value, a little later: after up to 300 µs, another time in each run.
pub fn dawdle(x: &Tensor) -> Tensor {
    then(x, "dawdle", 0, |_| a_little_later())
}

/// As [`dawdle`], and the gradient too.
pub fn dawdle_both_ways(x: &Tensor) -> Tensor {
    let action = Arc::new(|_: &[u8], _: &dyn Parallel| a_little_later());
    Tensor::custom(Arc::new(Then { name: "dawdle", key: 1, action, both_ways: true }), &[x])
}

fn a_little_later() {
    static STATE: AtomicU64 = AtomicU64::new(1);
    let state = STATE.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    std::thread::sleep(Duration::from_micros((state ^ state >> 29) % 300));
}

/// The value, after so many milliseconds.
pub fn late(x: &Tensor, milliseconds: u64) -> Tensor {
    then(x, "late", milliseconds, move |_| std::thread::sleep(Duration::from_millis(milliseconds)))
}

/// Fails.
pub fn boom(x: &Tensor) -> Tensor {
    then(x, "boom", 0, |_| panic!("boom, said the user's operation"))
}

/// Fails where one of the f32s that it is given is not a number.
pub fn boom_at_nan(x: &Tensor) -> Tensor {
    let is_nan = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes).is_nan();
    let action = Arc::new(move |bytes: &[u8], _: &dyn Parallel| {
        assert!(!bytes.as_chunks::<4>().0.iter().any(is_nan), "boom: a rank was given what is not a number");
    });
    Tensor::custom(Arc::new(Then { name: "boom at nan", key: 0, action, both_ways: false }), &[x])
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

/// The value, after so many tasks, which may run at the same time. Each is given the number of those that have begun.
pub fn with_tasks(x: &Tensor, count: usize, task: impl Fn(&AtomicU64) + Send + Sync + 'static) -> Tensor {
    then(x, "tasks", next_key(), move |parallel| {
        let begun = AtomicU64::new(0);
        parallel.run(count, &|_| {
            begun.fetch_add(1, Ordering::SeqCst);
            task(&begun);
        });
    })
}

fn next_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

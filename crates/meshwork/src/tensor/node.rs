//! Recorded values: the nodes behind tensors.

use meshwork_graph::{Op, Type};
use meshwork_runtime::Value;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Operands of a recorded node.
pub(crate) type Inputs = SmallVec<[Arc<Node>; 3]>;

/// A recorded value. Nodes know their operands, never their users.
pub(crate) struct Node {
    /// Position in the order of recording, over all threads.
    pub id: u64,
    /// How the value is computed; an input once it has been.
    pub op: Op,
    /// Its type.
    pub ty: Type,
    /// Whether gradients flow to or through it, so that its history outlives an early read.
    pub requires_grad: bool,
    /// Gradients do not flow from it into its operands.
    pub boundary: bool,
    /// A gradient has been taken through it: its history need not outlive the next run.
    pub released: AtomicBool,
    /// Tensors that hold it (clones of one count once): its value is wanted while there are any.
    pub holders: AtomicUsize,
    state: Mutex<State>,
}

/// How far a value has come.
pub(crate) enum State {
    /// Recorded, not computed.
    Pending(Inputs),
    /// Computed, or being computed by a device's queue. The history is there for values that gradients may still
    /// flow through.
    Ready { content: Content, history: Inputs },
    /// It was needed inside of a program only.
    Gone,
}

/// The value of a node.
#[derive(Clone)]
pub(crate) enum Content {
    /// On the device.
    Device(Value),
    /// A 0-d input, bound anew in each run.
    Scalar([u8; 8]),
}

static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Pending nodes that tensors of this thread have held.
    static PENDING: RefCell<Pending> = const { RefCell::new(Pending { nodes: Vec::new(), prune_at: 256 }) };
    static NO_GRAD: Cell<bool> = const { Cell::new(false) };
}

struct Pending {
    nodes: Vec<Weak<Node>>,
    prune_at: usize,
}

impl Node {
    /// Records an operation.
    pub fn pending(op: Op, ty: Type, inputs: Inputs, requires_grad: bool, boundary: bool) -> Arc<Node> {
        Self::new(op, ty, requires_grad, boundary, State::Pending(inputs))
    }

    /// A value that is there already.
    pub fn ready(ty: Type, content: Content) -> Arc<Node> {
        let op = meshwork_graph::ops::Input { ty: ty.clone() }.into();
        Self::new(op, ty, false, false, State::Ready { content, history: Inputs::new() })
    }

    fn new(op: Op, ty: Type, requires_grad: bool, boundary: bool, state: State) -> Arc<Node> {
        let requires_grad = requires_grad && ty.dtype.is_float();
        Arc::new(Node {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            op,
            ty,
            requires_grad,
            boundary,
            released: AtomicBool::new(false),
            holders: AtomicUsize::new(0),
            state: Mutex::new(state),
        })
    }

    /// A node of the same value at which gradients stop.
    pub fn leaf(&self, requires_grad: bool) -> Arc<Node> {
        let state = match &*self.state() {
            State::Pending(inputs) => State::Pending(inputs.clone()),
            State::Ready { content, .. } => State::Ready { content: content.clone(), history: Inputs::new() },
            State::Gone => State::Gone,
        };
        Self::new(self.op.clone(), self.ty.clone(), requires_grad, true, state)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn is_held(&self) -> bool {
        self.holders.load(Ordering::Relaxed) > 0
    }

    /// Whether gradients could once flow through the node, and its operands were let go after a run.
    pub fn history_was_freed(&self) -> bool {
        let freed = matches!(&*self.state(), State::Ready { history, .. } if history.is_empty());
        freed && !self.boundary && self.released.load(Ordering::Relaxed)
    }

    /// Lets the operands of a computed value go.
    pub fn forget_history(&self) {
        let forgotten = match &mut *self.state() {
            State::Ready { history, .. } => std::mem::take(history),
            _ => Inputs::new(),
        };
        drop(forgotten);
    }

    /// Whether the node's operands must be there after a run, for gradients yet to be taken.
    pub fn keeps_history(&self) -> bool {
        self.requires_grad && !self.boundary && !self.released.load(Ordering::Relaxed)
    }
}

/// Long chains of nodes are dropped one by one, not by recursion.
impl Drop for Node {
    fn drop(&mut self) {
        let mut stack = take_inputs(self);
        while let Some(node) = stack.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                stack.append(&mut take_inputs(&mut node));
            }
        }
    }
}

fn take_inputs(node: &mut Node) -> Inputs {
    match node.state.get_mut().unwrap_or_else(|e| e.into_inner()) {
        State::Pending(inputs) | State::Ready { history: inputs, .. } => std::mem::take(inputs),
        State::Gone => Inputs::new(),
    }
}

/// Remembers a pending node that a tensor of this thread holds.
pub(crate) fn remember(node: &Arc<Node>) {
    PENDING.with_borrow_mut(|pending| {
        if pending.nodes.len() >= pending.prune_at {
            pending.nodes.retain(|n| n.strong_count() > 0);
            pending.prune_at = (2 * pending.nodes.len()).max(256);
        }
        pending.nodes.push(Arc::downgrade(node));
    });
}

/// All pending nodes that tensors recorded by this thread hold; forgets them, since they are about to run.
pub(crate) fn take_held() -> Vec<Arc<Node>> {
    PENDING.with_borrow_mut(|pending| {
        let nodes = pending.nodes.drain(..).filter_map(|n| n.upgrade());
        nodes.filter(|n| n.is_held() && matches!(*n.state(), State::Pending(_))).collect()
    })
}

/// Whether gradients are switched off on this thread.
pub(crate) fn grad_is_off() -> bool {
    NO_GRAD.get()
}

/// Runs `body` without recording gradients: what it records does not depend, for gradients, on anything.
pub fn no_grad<R>(body: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            NO_GRAD.set(self.0);
        }
    }
    let _restore = Restore(NO_GRAD.replace(true));
    body()
}

//! Recorded values: the nodes behind tensors.

use super::checkpoint::{Segment, current_segment};
use super::kind::Kind;
use super::mesh::Spread;
use super::part::{PartId, common_part};
use super::still::{Guarded, Still};
use meshwork_graph::{Op, Type};
use meshwork_runtime::{DeviceId, Value};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Operands of a recorded node.
pub(crate) type Inputs = SmallVec<[Arc<Node>; 3]>;

/// A recorded value. Nodes know their operands, never their users.
pub(crate) struct Node {
    /// Position in the order of recording, over all threads.
    pub id: u64,
    /// How the value is computed, and its type.
    pub kind: Arc<Kind>,
    /// Where it belongs: the number of its device, or 0, and that of its part of a batch, or 0.
    device: AtomicU32,
    part: AtomicU32,
    /// Tensors that hold it: its value is wanted while there are any.
    holders: AtomicU32,
    /// Whether gradients flow to or through it, so that its history outlives an early read.
    pub requires_grad: bool,
    /// Gradients do not flow from it into its operands.
    pub boundary: bool,
    /// What it is computed again with for its gradient.
    pub segment: Option<Arc<Segment>>,
    /// A gradient has been taken through it: its history need not outlive the next run.
    pub released: AtomicBool,
    /// The walk that met it last, and the number that it got there: walks need no table of the nodes that they met.
    walk: AtomicU64,
    number: AtomicU32,
    state: Guarded<State>,
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
    /// On a mesh.
    Mesh(Arc<Spread>),
    /// A 0-d input, bound anew in each run.
    Scalar([u8; 8]),
}

static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Pending nodes that tensors of this thread have held.
    static PENDING: RefCell<Pending> = const { RefCell::new(Pending { nodes: Vec::new(), prune_at: 256 }) };
    static NO_GRAD: Cell<bool> = const { Cell::new(false) };
    /// Nodes of earlier runs that nobody refers to: a step needs as many again.
    static SPARE: RefCell<Vec<Arc<Node>>> = const { RefCell::new(Vec::new()) };
}

/// Nodes that there is room for on a stack: more than small models have.
pub(crate) const SOME: usize = 64;

/// Most nodes that a thread keeps for reuse.
const MAX_SPARE: usize = 1024;

struct Pending {
    nodes: Vec<Weak<Node>>,
    prune_at: usize,
}

/// Positions in the order of recording for this many nodes; the first of them.
pub(crate) fn next_ids(count: usize) -> u64 {
    NEXT.fetch_add(count as u64, Ordering::Relaxed)
}

/// What is recorded of an operation besides its kind and operands.
#[derive(Clone, Copy, Default)]
pub(crate) struct Recording {
    /// Position in the order of recording.
    pub id: u64,
    /// See [`Node`].
    pub requires_grad: bool,
    pub boundary: bool,
    pub released: bool,
}

impl Node {
    /// Records an operation, within the segment that is being recorded.
    pub fn pending<'a>(
        kind: Arc<Kind>,
        inputs: impl Iterator<Item = &'a Arc<Node>>,
        requires_grad: bool,
        boundary: bool,
    ) -> Arc<Node> {
        let recording = Recording { id: next_ids(1), requires_grad, boundary, released: false };
        Self::recorded(recording, kind, inputs, current_segment())
    }

    /// An operation that is computed later. It is written where it will lie: what is moved just after it was put together
    /// waits for its parts.
    pub fn recorded<'a>(
        recording: Recording,
        kind: Arc<Kind>,
        inputs: impl Iterator<Item = &'a Arc<Node>>,
        segment: Option<Arc<Segment>>,
    ) -> Arc<Node> {
        let Recording { id, requires_grad, boundary, released } = recording;
        let mut shared = match SPARE.with_borrow_mut(Vec::pop) {
            Some(spare) => spare,
            None => Arc::new(Self::new(id, kind.clone(), Place::default(), false, false, State::Gone)),
        };
        let Some(node) = Arc::get_mut(&mut shared) else { unreachable!("nobody else refers to spare nodes") };
        node.id = id;
        node.requires_grad = requires_grad && kind.ty.dtype.is_float();
        node.kind = kind;
        node.boundary = boundary;
        node.segment = segment;
        *node.released.get_mut() = released;
        *node.holders.get_mut() = 0;
        *node.walk.get_mut() = 0;
        let state = node.state.own();
        *state = State::Pending(Inputs::new());
        if let State::Pending(operands) = state {
            inputs.for_each(|x| operands.push(x.clone()));
            let place = Place::of(&node.kind, operands);
            *node.device.get_mut() = place.device.map_or(0, |device| device.0);
            *node.part.get_mut() = place.part.map_or(0, |part| part.0);
        }
        shared
    }

    /// A value that is there already.
    pub fn ready(ty: Type, content: Content) -> Node {
        let input: Op = meshwork_graph::ops::Input { ty }.into();
        let kind = Kind::of(&input, &[]).unwrap_or_else(|e| unreachable!("an input has any type: {e}"));
        let device = match &content {
            Content::Device(value) => Some(value.device()),
            Content::Mesh(spread) => Some(spread.mesh.id()),
            Content::Scalar(_) => None,
        };
        let place = Place { device, part: None };
        Self::new(next_ids(1), kind, place, false, false, State::Ready { content, history: Inputs::new() })
    }

    pub fn new(id: u64, kind: Arc<Kind>, place: Place, requires_grad: bool, boundary: bool, state: State) -> Node {
        Node {
            id,
            device: AtomicU32::new(place.device.map_or(0, |device| device.0)),
            part: AtomicU32::new(place.part.map_or(0, |part| part.0)),
            requires_grad: requires_grad && kind.ty.dtype.is_float(),
            kind,
            holders: AtomicU32::new(0),
            boundary,
            segment: None,
            released: AtomicBool::new(false),
            walk: AtomicU64::new(0),
            number: AtomicU32::new(0),
            state: Guarded::new(state),
        }
    }

    /// The node to be referred to, in memory of an earlier one if there is any.
    pub fn shared(self) -> Arc<Node> {
        let Some(mut spare) = SPARE.with_borrow_mut(Vec::pop) else { return Arc::new(self) };
        *Arc::get_mut(&mut spare).expect("nobody else refers to spare nodes") = self;
        spare
    }

    /// A node of the same value at which gradients stop.
    pub fn leaf(&self, requires_grad: bool, still: &Still) -> Node {
        let state = match self.state(still) {
            State::Pending(inputs) => State::Pending(inputs.clone()),
            State::Ready { content, .. } => State::Ready { content: content.clone(), history: Inputs::new() },
            State::Gone => State::Gone,
        };
        let place = Place { device: self.device(), part: self.part() };
        Self::new(next_ids(1), self.kind.clone(), place, requires_grad, true, state)
    }

    /// The device that computes it, or has it; none for what is computed wherever it is needed.
    pub fn device(&self) -> Option<DeviceId> {
        match self.device.load(Ordering::Relaxed) {
            0 => None,
            number => Some(DeviceId(number)),
        }
    }

    /// The part of a batch that it is computed from; none if it is no part, or of several.
    pub fn part(&self) -> Option<PartId> {
        match self.part.load(Ordering::Relaxed) {
            0 => None,
            number => Some(PartId(number)),
        }
    }

    /// Says which part of a batch the node is computed from.
    pub fn set_part(&self, part: Option<PartId>) {
        self.part.store(part.map_or(0, |part| part.0), Ordering::Relaxed);
    }

    /// Gives a node without a device one.
    pub fn commit(&self, device: DeviceId) {
        let _ = self.device.compare_exchange(0, device.0, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn ty(&self) -> &Type {
        &self.kind.ty
    }

    pub fn state<'a>(&'a self, still: &'a Still) -> &'a State {
        self.state.get(still)
    }

    /// The node was computed, or will be: its value is `content`, if it is kept, whose history stays where it `keeps_history`.
    pub fn settle(&self, content: Option<Content>, keeps_history: bool, still: &mut Still) {
        let state = self.state.get_mut(still);
        let history = match state {
            State::Pending(inputs) if keeps_history => std::mem::take(inputs),
            _ => Inputs::new(),
        };
        *state = content.map_or(State::Gone, |content| State::Ready { content, history });
    }

    pub fn is_pending(&self, still: &Still) -> bool {
        matches!(self.state(still), State::Pending(_))
    }

    /// The operands of a pending node.
    pub fn operands<'a>(&'a self, still: &'a Still) -> Option<&'a [Arc<Node>]> {
        match self.state(still) {
            State::Pending(inputs) => Some(inputs),
            _ => None,
        }
    }

    /// One more tensor holds the node.
    pub fn hold(&self) {
        self.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// A tensor has let it go.
    pub fn let_go(&self) {
        self.holders.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn is_held(&self) -> bool {
        self.holders.load(Ordering::Relaxed) > 0
    }

    /// Marks the node as met by a walk; false if the walk has met it before. Walks are made under the lock of
    /// [`Still`], one at a time.
    pub fn meet(&self, walk: u64) -> bool {
        let first = !self.was_met(walk);
        self.walk.store(walk, Ordering::Relaxed);
        first
    }

    pub fn was_met(&self, walk: u64) -> bool {
        self.walk.load(Ordering::Relaxed) == walk
    }

    /// The number that the last walk gave it.
    pub fn place(&self) -> usize {
        self.number.load(Ordering::Relaxed) as usize
    }

    pub fn set_place(&self, place: usize) {
        self.number.store(place as u32, Ordering::Relaxed);
    }

    /// Whether gradients could once flow through the node, and its operands were let go after a run.
    pub fn history_was_freed(&self, still: &Still) -> bool {
        let freed = matches!(self.state(still), State::Ready { history, .. } if history.is_empty());
        freed && !self.boundary && self.released.load(Ordering::Relaxed)
    }

    /// Whether it is a computed value whose operands are still there.
    pub fn has_history(&self, still: &Still) -> bool {
        matches!(self.state(still), State::Ready { history, .. } if !history.is_empty())
    }

    /// Lets the operands of a computed value go.
    pub fn forget_history(&self, still: &mut Still) {
        if let State::Ready { history, .. } = self.state.get_mut(still) {
            drop(std::mem::take(history));
        }
    }

    /// Whether the node's operands must be there after a run, for gradients yet to be taken.
    pub fn keeps_history(&self) -> bool {
        self.requires_grad && !self.boundary && !self.released.load(Ordering::Relaxed)
    }
}

/// Where a node belongs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    /// The device that computes it, or has it.
    pub device: Option<DeviceId>,
    /// The part of a batch that it is computed from.
    pub part: Option<PartId>,
}

impl Place {
    /// That of the operands that have one; an operation may name another device.
    pub fn of(kind: &Kind, inputs: &[Arc<Node>]) -> Place {
        let device = match &kind.op {
            Op::ToDevice(op) => Some(DeviceId(op.to)),
            _ => inputs.iter().find_map(|x| x.device()),
        };
        Place { device, part: common_part(inputs.iter().map(|x| x.part())) }
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
    match node.state.own() {
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
pub(crate) fn take_held(still: &Still, into: &mut Vec<Arc<Node>>) {
    PENDING.with_borrow_mut(|pending| {
        let nodes = pending.nodes.drain(..).filter_map(|n| n.upgrade());
        into.extend(nodes.filter(|n| n.is_held() && n.is_pending(still)));
    });
}

/// Lets nodes go. The memory of those that are gone for everybody is used again.
pub(crate) fn let_go(nodes: impl Iterator<Item = Arc<Node>>, still: &Still) {
    SPARE.with_borrow_mut(|spare| {
        for node in nodes {
            let gone = matches!(node.state(still), State::Gone) && Arc::strong_count(&node) == 1;
            if gone && Arc::weak_count(&node) == 0 && spare.len() < MAX_SPARE {
                spare.push(node);
            }
        }
    });
}

/// Numbers of what was found in the order of recording, from the positions in it, of which no two are equal.
pub(crate) fn in_order(ids: impl ExactSizeIterator<Item = u64> + Clone) -> SmallVec<[u32; SOME]> {
    let first = ids.clone().min().unwrap_or(0);
    let span = ids.clone().max().map_or(0, |last| (last - first) as usize + 1);
    if span > 8 * ids.len() {
        let mut found: Vec<(u64, u32)> = ids.zip(0..).collect();
        found.sort_unstable();
        return found.into_iter().map(|(_, i)| i).collect();
    }
    const NONE: u32 = u32::MAX;
    let mut places: SmallVec<[u32; 2 * SOME]> = SmallVec::from_elem(NONE, span);
    ids.zip(0..).for_each(|(id, i)| places[(id - first) as usize] = i);
    places.into_iter().filter(|&i| i != NONE).collect()
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

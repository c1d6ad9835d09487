//! Running what is pending: collect, compile (or find the compiled program), hand over.

use super::cache::Cache;
use super::device::{default_device, device};
use super::mesh::Spread;
use super::node::{Content, Node, State, in_order, let_go, take_held};
use super::planning::{is_planning, note_plan, note_results};
use super::still::{Still, hold_still};
use crate::inspect;
use crate::mesh::{Mesh, is_mesh, mesh};
use meshwork_cpu::kernel::CpuTarget;
use meshwork_graph::graph::{Graph, Node as GraphNode, Operands};
use meshwork_graph::mesh::{Placement, Placements};
use meshwork_graph::ops::Input;
use meshwork_graph::passes::plan;
use meshwork_graph::plan::{Plan, Task, ValueId};
use meshwork_graph::program::{Donation, Program, Target};
use meshwork_graph::{NodeId, Op};
use meshwork_runtime::{Binding, Device, DeviceId, Value, Width, one_at_a_time, wait_for_room};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Compiled plans.
#[derive(Default)]
struct Plans {
    known: Cache<Plan>,
    compiled: u64,
}

fn plans() -> MutexGuard<'static, Option<Plans>> {
    static PLANS: Mutex<Option<Plans>> = Mutex::new(None);
    PLANS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Counts how many evaluations have been compiled since the start of the process. A training loop that compiles
/// in its second step or later records a graph that changes from step to step.
pub fn compile_count() -> u64 {
    plans().as_ref().map_or(0, |p| p.compiled)
}

/// The plan that this thread has handed over last, for reports.
pub fn last_plan() -> Option<Arc<Plan>> {
    LAST.with_borrow(Clone::clone)
}

/// The first program of the plan that this thread has handed over last: all of it, where there is one device.
pub fn last_program() -> Option<Arc<Program>> {
    last_plan().and_then(|plan| plan.programs().next().cloned())
}

/// Runs everything alive and pending on this thread, and `also` with all that it needs. Returns before it is computed;
/// reading a value waits for it.
pub(crate) fn evaluate(also: Option<&Arc<Node>>) {
    wait_for_room();
    let mut still = hold_still();
    let mut collected = ROOM.take();
    collected.fill(also, &mut still);
    if !collected.nodes.is_empty() {
        let sites = Sites::of(&collected, &still);
        let donation = collected.donation(&still);
        let plan = collected.plan(&donation, &sites, &still);
        if is_planning() {
            note_plan(&plan, collected.ending(&donation, &still));
        }
        let held = (!is_planning()).then(|| one_at_a_time(sites.all().map(|(device, _)| device)));
        let values = collected.hand_over(&plan, &sites, &still);
        collected.settle(&plan, values, &mut still);
        drop(held);
    }
    ROOM.set(collected);
}

thread_local! {
    static LAST: RefCell<Option<Arc<Plan>>> = const { RefCell::new(None) };
    /// Room for what a run collects, used again and again.
    static ROOM: Cell<Collected> = Cell::default();
}

/// The pending nodes of one run with the leaves that they read, in the order of recording.
#[derive(Default)]
struct Collected {
    /// Numbered by their places.
    nodes: Vec<Arc<Node>>,
    /// How often each node is an operand.
    uses: Vec<u32>,
    /// Pending nodes whose values are wanted afterwards.
    kept: Vec<bool>,
    /// Which nodes keep their operands for gradients yet to be taken.
    history: Vec<bool>,
    /// The pending nodes in any order, until they are numbered.
    found: Vec<Option<Arc<Node>>>,
}

impl Collected {
    fn fill(&mut self, also: Option<&Arc<Node>>, still: &mut Still) {
        take_held(still, &mut self.nodes);
        self.nodes.extend(also.cloned().filter(|n| n.is_pending(still)));
        self.find(still);
        self.order(still);
        self.choose(still);
    }

    /// Goes from the roots to the pending nodes that they depend on.
    fn find(&mut self, still: &mut Still) {
        let walk = still.walk();
        let stack = &mut self.nodes;
        stack.retain(|root| root.meet(walk));
        while let Some(node) = stack.pop() {
            for x in node.operands(still).expect("pending nodes are followed") {
                match x.state(still) {
                    State::Pending(_) if x.meet(walk) => stack.push(x.clone()),
                    State::Pending(_) | State::Ready { .. } => {}
                    State::Gone => panic!("{GONE}"),
                }
            }
            self.found.push(Some(node));
        }
    }

    /// Brings the found nodes into the order of recording, each leaf just before its first use: the structure of a
    /// program does not depend on how old its inputs are.
    fn order(&mut self, still: &mut Still) {
        let walk = still.walk();
        let nodes = &mut self.nodes;
        let mut push = |node: Arc<Node>| {
            node.meet(walk);
            node.set_place(nodes.len());
            nodes.push(node);
        };
        let found = &mut self.found;
        let order = in_order(found.iter().map(|node| node.as_ref().map_or(0, |node| node.id)));
        for node in order.iter().filter_map(|&i| found[i as usize].take()) {
            for x in node.operands(still).unwrap_or_default() {
                if !x.was_met(walk) {
                    push(x.clone());
                }
            }
            push(node);
        }
        self.found.clear();
    }

    /// Says which values are kept, and which of them with their operands.
    fn choose(&mut self, still: &Still) {
        let Collected { nodes, uses, kept, history, .. } = self;
        uses.resize(nodes.len(), 0);
        let operands = |i: usize| nodes[i].operands(still).unwrap_or_default();
        for i in 0..nodes.len() {
            operands(i).iter().for_each(|x| uses[x.place()] += 1);
        }
        // What tensors hold is kept, and what others refer to: nodes that another thread has recorded and not run yet.
        let wanted = |n: &Arc<Node>, uses: u32| n.is_held() || Arc::strong_count(n) > uses as usize + 1;
        kept.extend(nodes.iter().zip(uses).map(|(n, uses)| wanted(n, *uses)));
        // Of those, nodes with a history keep what gradients through them will need: their pending operands, transitively.
        history.extend(nodes.iter().zip(&*kept).map(|(n, kept)| *kept && n.keeps_history()));
        for i in (0..nodes.len()).rev() {
            let is_pending = nodes[i].is_pending(still);
            kept[i] &= is_pending;
            if history[i] && is_pending {
                kept[i] = true;
                for x in operands(i) {
                    kept[x.place()] = true;
                    history[x.place()] |= x.keeps_history();
                }
            }
        }
    }
}

pub(crate) const GONE: &str = "the value is gone: it was an intermediate value of a run that nobody held, \
                               or its history was freed by taking a gradient (take both gradients before reading a value)";

impl Collected {
    fn leaves<'a>(&'a self, still: &'a Still) -> impl Iterator<Item = &'a Arc<Node>> {
        self.nodes.iter().filter(|node| !node.is_pending(still))
    }

    /// The plan that computes the kept nodes.
    fn plan(&self, donation: &Donation, sites: &Sites, still: &Still) -> Arc<Plan> {
        let mut guard = plans();
        let Plans { known, compiled } = guard.get_or_insert_default();
        let compile = || {
            let of = self.devices(still);
            let leaves = self.spread_leaves(still);
            let meshes = sites.meshes.iter().map(|mesh| (mesh.id().0, mesh.grid().clone())).collect();
            let places = meshwork_graph::passes::Sites { of: &of, meshes: &meshes, leaves: &leaves };
            let target = |number| {
                let threads = sites.with_width(DeviceId(number)).1.lanes();
                Box::new(CpuTarget { threads }) as Box<dyn Target>
            };
            let home = sites.home.id().0;
            let plan = plan(&self.graph(still), &places, home, donation, &target, &mut |pass, graph| {
                inspect::pass(pass, graph);
            });
            plan.programs().for_each(|program| inspect::program(program));
            *compiled += 1;
            plan
        };
        let plan = known.find(|words| self.describe(donation, sites, still, words), compile);
        LAST.set(Some(plan.clone()));
        plan
    }

    /// Spells everything that the plan depends on.
    fn describe(&self, donation: &Donation, sites: &Sites, still: &Still, words: &mut Vec<u64>) {
        words.extend([sites.others.len() as u64, self.nodes.len() as u64]);
        let spelled_width = |width: Width| (width.guests as u64) << 48 | (width.threads as u64) << 32;
        words.extend(sites.all().map(|(device, width)| spelled_width(width) | u64::from(device.id().0)));
        words.extend(donation.iter().map(|&donated| u64::from(donated)));
        for (node, &kept) in self.nodes.iter().zip(&self.kept) {
            match node.operands(still) {
                None => {
                    words.push(node.kind.ty_number);
                    if let Content::Mesh(spread) = content(node, still) {
                        words.extend(spread.placements.iter().flat_map(spelled));
                    }
                }
                Some(operands) => {
                    words.extend([node.kind.number, (operands.len() as u64) << 1 | u64::from(kept)]);
                    words.extend(operands.iter().map(|x| x.place() as u64));
                }
            }
        }
        if !sites.others.is_empty() || !sites.meshes.is_empty() {
            words.extend(self.nodes.iter().map(|node| u64::from(site(node, still).map_or(0, |device| device.0))));
        }
    }

    /// How the leaves on meshes lie.
    fn spread_leaves(&self, still: &Still) -> HashMap<NodeId, Placements> {
        let spread = |node: &Arc<Node>| match node.state(still) {
            State::Ready { content: Content::Mesh(spread), .. } => {
                Some((NodeId(node.place() as u32), spread.placements.clone()))
            }
            _ => None,
        };
        self.nodes.iter().filter_map(spread).collect()
    }

    /// Where each node is computed, or lies.
    fn devices(&self, still: &Still) -> Vec<Option<u32>> {
        self.nodes.iter().map(|node| site(node, still).map(|device| device.0)).collect()
    }

    fn graph(&self, still: &Still) -> Graph {
        let node = |node: &Arc<Node>| {
            let ty = node.ty().clone();
            match node.operands(still) {
                None => GraphNode { op: Op::Input(Input { ty: ty.clone() }), inputs: Operands::new(), ty },
                Some(operands) => {
                    let inputs = operands.iter().map(|x| NodeId(x.place() as u32)).collect();
                    GraphNode { op: node.kind.op.clone(), inputs, ty }
                }
            }
        };
        let kept = (0..self.nodes.len()).filter(|&i| self.kept[i]);
        Graph { nodes: self.nodes.iter().map(node).collect(), outputs: kept.map(|i| NodeId(i as u32)).collect() }
    }

    /// A leaf is donated when no tensor holds it, only nodes of this run refer to it, and its buffer is its own.
    fn donation(&self, still: &Still) -> Donation {
        let mut outlives = vec![false; self.nodes.len()];
        for (node, _) in self.nodes.iter().zip(&self.history).filter(|(_, history)| **history) {
            node.operands(still).unwrap_or_default().iter().for_each(|x| outlives[x.place()] = true);
        }
        let donated = |node: &Arc<Node>| {
            // One reference is ours; a pending operand list holds one per use.
            !node.is_held()
                && !outlives[node.place()]
                && Arc::strong_count(node) == self.uses[node.place()] as usize + 1
                && match node.state(still) {
                    State::Ready { content: Content::Device(value), .. } => value.is_unique(),
                    State::Ready { content: Content::Mesh(spread), .. } => {
                        Arc::strong_count(spread) == 1 && spread.values.iter().all(Value::is_unique)
                    }
                    _ => false,
                }
        };
        self.leaves(still).map(donated).collect()
    }

    /// Leaves of the plan that end with this run, with their devices and bytes.
    fn ending(&self, donation: &Donation, still: &Still) -> HashMap<ValueId, (u32, usize)> {
        let mut leaves: Vec<Option<&Value>> = Vec::new();
        for (leaf, &donated) in self.leaves(still).zip(donation) {
            match content(leaf, still) {
                Content::Device(value) => leaves.push(donated.then_some(value)),
                Content::Mesh(spread) => leaves.extend(spread.values.iter().map(|value| donated.then_some(value))),
                Content::Scalar(_) => leaves.push(None),
            }
        }
        let ending = |(id, value): (ValueId, &Option<&Value>)| {
            value.map(|value| (id, (value.device().0, value.buffer().bytes())))
        };
        leaves.iter().enumerate().filter_map(ending).collect()
    }

    /// Hands all tasks of a plan over and gives the values of the kept nodes. Where evaluations are planned, nothing runs, and
    /// the values will never be there.
    fn hand_over(&self, plan: &Plan, sites: &Sites, still: &Still) -> Vec<Value> {
        let mut leaves: SmallVec<[Leaf; 32]> = SmallVec::new();
        for leaf in self.leaves(still) {
            match content(leaf, still) {
                Content::Device(value) => leaves.push(Leaf::Value(value)),
                Content::Mesh(spread) => leaves.extend(spread.values.iter().map(Leaf::Value)),
                Content::Scalar(bytes) => leaves.push(Leaf::Scalar(*bytes)),
            }
        }
        let is_planned = is_planning();
        let mut made: SmallVec<[Option<Value>; 32]> = SmallVec::from_elem(None, plan.values - leaves.len());
        for task in &plan.tasks {
            let value = |id: usize| match leaves.get(id) {
                Some(Leaf::Value(value)) => Some(*value),
                Some(Leaf::Scalar(_)) => None,
                None => made[id - leaves.len()].as_ref(),
            };
            match task {
                Task::Run { device, program, inputs, outputs } => {
                    let binding = |&id: &usize| match leaves.get(id) {
                        Some(Leaf::Scalar(bytes)) => Binding::Scalar(u64::from_ne_bytes(*bytes)),
                        _ => Binding::from(value(id).expect(ORDERED)),
                    };
                    let bindings: Vec<Binding> = inputs.iter().map(binding).collect();
                    let (device, width) = sites.with_width(DeviceId(*device));
                    let values = match is_planned {
                        true => device.plan_run(program, &bindings),
                        false => device.run(program.clone(), bindings, width),
                    };
                    for (&id, value) in outputs.iter().zip(values) {
                        made[id - leaves.len()] = Some(value);
                    }
                }
                Task::Copy { value: id, offset, to, result, ty, after } => {
                    let after = after.map(|id| value(id).expect(ORDERED));
                    let device = sites.get(DeviceId(*to));
                    let copy = match is_planned {
                        true => device.plan_copy(ty),
                        false => device.copy(value(*id).expect(ORDERED), *offset, ty, after),
                    };
                    made[result - leaves.len()] = Some(copy);
                }
            }
        }
        sites.all().for_each(|(device, _)| device.end_of_hand_over());
        let output = |&id: &usize| match leaves.get(id) {
            Some(Leaf::Value(value)) => (*value).clone(),
            Some(Leaf::Scalar(_)) => unreachable!("numbers are no outputs"),
            None => made[id - leaves.len()].clone().expect(ORDERED),
        };
        let outputs: Vec<Value> = plan.outputs.iter().map(output).collect();
        if is_planned {
            note_results(&outputs);
        }
        outputs
    }

    fn clear(&mut self, still: &Still) {
        let_go(self.nodes.drain(..), still);
        self.uses.clear();
        self.kept.clear();
        self.history.clear();
    }

    /// Records that the nodes have been handed over, and lets them go.
    fn settle(&mut self, plan: &Plan, values: Vec<Value>, still: &mut Still) {
        let mut values = values.into_iter();
        let mut spread = plan.spread.iter();
        for (i, node) in self.nodes.iter().enumerate() {
            if !node.is_pending(still) {
                continue;
            }
            let mut content = || match spread.next() {
                Some(Some(placements)) => {
                    let mesh = node.device().and_then(mesh).expect("a node on a mesh");
                    let count = mesh.grid().stored(&node.ty().shape, placements).len();
                    let values = values.by_ref().take(count).collect();
                    Content::Mesh(Arc::new(Spread { mesh, placements: placements.clone(), values }))
                }
                _ => Content::Device(values.next().expect("one value for every kept node")),
            };
            let content = self.kept[i].then(&mut content);
            node.settle(content, self.history[i], still);
        }
        self.clear(still);
    }
}

/// What is bound to an input.
enum Leaf<'a> {
    Value(&'a Value),
    Scalar([u8; 8]),
}

/// Words that spell a placement.
fn spelled(placement: &Placement) -> [u64; 2] {
    match *placement {
        Placement::Replicated => [0, 0],
        Placement::Split { dim, unit } => [1 + 4 * dim as u64, unit as u64],
        Placement::Sharded { dim, unit } => [2 + 4 * dim as u64, unit as u64],
        Placement::Partial(merge) => [3, merge as u64],
    }
}

const ORDERED: &str = "tasks come after what they need";

/// The devices of one evaluation.
struct Sites {
    /// Where values go that could be computed anywhere: the only device, or the thread's default.
    home: Device,
    width: Width,
    /// All other devices, with what programs are compiled for, in the order in which the nodes name them.
    others: Vec<(Device, Width)>,
    /// The meshes, whose devices are among these.
    meshes: Vec<Mesh>,
}

impl Sites {
    fn of(collected: &Collected, still: &Still) -> Sites {
        let mut ids: SmallVec<[DeviceId; 4]> = SmallVec::new();
        let mut meshes: Vec<Mesh> = Vec::new();
        let add = |id: DeviceId, ids: &mut SmallVec<[DeviceId; 4]>| {
            if !ids.contains(&id) {
                ids.push(id);
            }
        };
        for id in collected.nodes.iter().filter_map(|node| site(node, still)) {
            if !is_mesh(id) {
                add(id, &mut ids);
            } else if !meshes.iter().any(|mesh| mesh.id() == id) {
                let mesh = mesh(id).expect("meshes stay");
                mesh.devices().iter().for_each(|device| add(device.id(), &mut ids));
                meshes.push(mesh);
            }
        }
        let home = match ids[..] {
            [only] => device(only),
            _ => default_device(),
        };
        let others = ids.into_iter().filter(|&id| id != home.id()).map(device);
        let others = others.map(|device| (device.clone(), device.width())).collect();
        Sites { width: home.width(), home, others, meshes }
    }

    fn all(&self) -> impl Iterator<Item = (&Device, Width)> + Clone {
        std::iter::once((&self.home, self.width)).chain(self.others.iter().map(|(device, width)| (device, *width)))
    }

    fn with_width(&self, id: DeviceId) -> (&Device, Width) {
        self.all().find(|(device, _)| device.id() == id).expect("a device of this evaluation")
    }

    fn get(&self, id: DeviceId) -> &Device {
        self.with_width(id).0
    }
}

/// Where a node is computed, or its value lies; none for numbers, and for what is computed wherever it is needed.
fn site(node: &Node, still: &Still) -> Option<DeviceId> {
    match node.state(still) {
        State::Ready { content: Content::Device(value), .. } => Some(value.device()),
        State::Ready { content: Content::Mesh(spread), .. } => Some(spread.mesh.id()),
        State::Ready { content: Content::Scalar(_), .. } => None,
        _ => node.device(),
    }
}

/// The value of a leaf.
fn content<'a>(leaf: &'a Node, still: &'a Still) -> &'a Content {
    match leaf.state(still) {
        State::Ready { content, .. } => content,
        _ => unreachable!("leaves are ready"),
    }
}

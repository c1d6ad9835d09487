//! Running what is pending: collect, compile (or find the compiled program), hand over.

use super::node::{Content, Inputs, Node, State, take_held};
use crate::inspect;
use meshwork_cpu::kernel::CpuTarget;
use meshwork_graph::graph::{Graph, Node as GraphNode, Operands};
use meshwork_graph::ops::Input;
use meshwork_graph::passes::compile;
use meshwork_graph::program::{Donation, Program};
use meshwork_graph::{NodeId, Op};
use meshwork_runtime::{Binding, Device};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What distinguishes one program from another.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    graph: Graph,
    donation: Donation,
    threads: usize,
}

/// Compiled programs, and the lock that makes collecting and handing over one step.
#[derive(Default)]
struct Cache {
    programs: FxHashMap<Key, Arc<Program>>,
    compiled: u64,
    last: Option<Arc<Program>>,
}

/// Programs kept; when there are more, all are forgotten. A training needs a handful.
const MAX_PROGRAMS: usize = 256;

static CACHE: Mutex<Option<Cache>> = Mutex::new(None);

/// Counts how many programs have been compiled since the start of the process. A training loop that compiles
/// in its second step or later records a graph that changes from step to step.
pub fn compile_count() -> u64 {
    let cache = CACHE.lock().unwrap_or_else(|e| e.into_inner());
    cache.as_ref().map_or(0, |c| c.compiled)
}

/// The program that was handed over last, for reports.
pub fn last_program() -> Option<Arc<Program>> {
    let cache = CACHE.lock().unwrap_or_else(|e| e.into_inner());
    cache.as_ref().and_then(|c| c.last.clone())
}

/// Keeps pending nodes pending: while the guard lives, no thread collects or hands over.
pub(crate) fn hold_still() -> MutexGuard<'static, impl Sized> {
    CACHE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Runs everything alive and pending on this thread, and `also` with all that it needs. Returns at once; reading a
/// value waits for it.
pub(crate) fn evaluate(also: Option<&Arc<Node>>) {
    let mut guard = CACHE.lock().unwrap_or_else(|e| e.into_inner());
    let cache = guard.get_or_insert_default();
    let mut roots = take_held();
    roots.extend(also.cloned().filter(|n| matches!(*n.state(), State::Pending(_))));
    if roots.is_empty() {
        return;
    }
    let collected = collect(roots);
    let device = Device::cpu(0).expect("the first device is always there");
    let threads = device.num_threads();

    let donation = collected.donation();
    let bindings = collected.bindings();
    let key = Key { graph: collected.graph(), donation, threads };
    let program = match cache.programs.get(&key) {
        Some(program) => program.clone(),
        None => {
            let target = CpuTarget { threads };
            let program = compile(&key.graph, &key.donation, &target, &mut |pass, graph| inspect::pass(pass, graph));
            inspect::program(&program);
            let program = Arc::new(program);
            cache.compiled += 1;
            if cache.programs.len() >= MAX_PROGRAMS {
                cache.programs.clear();
            }
            cache.programs.insert(key, program.clone());
            program
        }
    };
    cache.last = Some(program.clone());
    let values = device.run(program, bindings, threads);
    collected.settle(values);
}

/// The pending nodes of one run with the leaves that they read, in the order of recording.
struct Collected {
    nodes: Vec<Arc<Node>>,
    /// Operands of each node; `None` for leaves.
    inputs: Vec<Option<Operands>>,
    /// Nodes whose values are wanted afterwards.
    kept: Vec<usize>,
    /// Which nodes keep their operands for gradients yet to be taken.
    history: Vec<bool>,
}

fn collect(roots: Vec<Arc<Node>>) -> Collected {
    let mut seen: FxHashMap<*const Node, ()> = FxHashMap::default();
    let mut found: Vec<(Arc<Node>, Option<Inputs>)> = Vec::new();
    let mut stack = roots;
    while let Some(node) = stack.pop() {
        if seen.insert(Arc::as_ptr(&node), ()).is_some() {
            continue;
        }
        let inputs = match &*node.state() {
            State::Pending(inputs) => Some(inputs.clone()),
            State::Ready { .. } => None,
            State::Gone => panic!("{GONE}"),
        };
        stack.extend(inputs.iter().flatten().cloned());
        found.push((node, inputs));
    }
    let found = in_order(found);
    let index: FxHashMap<*const Node, u32> =
        found.iter().enumerate().map(|(i, (n, _))| (Arc::as_ptr(n), i as u32)).collect();
    let number = |n: &Arc<Node>| NodeId(index[&Arc::as_ptr(n)]);
    let inputs: Vec<Option<Operands>> =
        found.iter().map(|(_, inputs)| inputs.as_ref().map(|i| i.iter().map(number).collect())).collect();
    let nodes: Vec<Arc<Node>> = found.into_iter().map(|(node, _)| node).collect();

    // What tensors hold is kept, and what others refer to: nodes that another thread has recorded and not run yet.
    let uses = uses(&inputs);
    let mut kept: Vec<bool> =
        nodes.iter().zip(&uses).map(|(n, uses)| n.is_held() || Arc::strong_count(n) > uses + 1).collect();
    // Of those, nodes with a history keep what gradients through them will need: their pending operands, transitively.
    let mut history: Vec<bool> = nodes.iter().zip(&kept).map(|(n, kept)| *kept && n.keeps_history()).collect();
    for i in (0..nodes.len()).rev() {
        let Some(operands) = &inputs[i] else { continue };
        if history[i] {
            kept[i] = true;
            for x in operands {
                kept[x.index()] = true;
                history[x.index()] |= nodes[x.index()].keeps_history();
            }
        }
    }
    let kept = (0..nodes.len()).filter(|&i| kept[i] && inputs[i].is_some()).collect();
    Collected { nodes, inputs, kept, history }
}

/// How often each node is an operand.
fn uses(inputs: &[Option<Operands>]) -> Vec<usize> {
    let mut uses = vec![0; inputs.len()];
    for x in inputs.iter().flatten().flatten() {
        uses[x.index()] += 1;
    }
    uses
}

/// Pending nodes in the order of recording, each leaf just before its first use: the structure of a program does not
/// depend on how old its inputs are.
fn in_order(mut found: Vec<(Arc<Node>, Option<Inputs>)>) -> Vec<(Arc<Node>, Option<Inputs>)> {
    found.sort_unstable_by_key(|(node, _)| node.id);
    let mut leaves: FxHashMap<*const Node, ()> =
        found.iter().filter(|(_, inputs)| inputs.is_none()).map(|(leaf, _)| (Arc::as_ptr(leaf), ())).collect();
    let mut ordered = Vec::with_capacity(found.len());
    for (node, inputs) in found {
        let Some(inputs) = inputs else { continue };
        for x in &inputs {
            if leaves.remove(&Arc::as_ptr(x)).is_some() {
                ordered.push((x.clone(), None));
            }
        }
        ordered.push((node, Some(inputs)));
    }
    ordered
}

pub(crate) const GONE: &str = "the value is gone: it was an intermediate value of a run that nobody held, \
                               or its history was freed by taking a gradient (take both gradients before reading a value)";

impl Collected {
    fn leaves(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.iter().zip(&self.inputs).filter(|(_, inputs)| inputs.is_none()).map(|(node, _)| node)
    }

    fn graph(&self) -> Graph {
        let nodes = self.nodes.iter().zip(&self.inputs).map(|(node, inputs)| match inputs {
            Some(inputs) => GraphNode { op: node.op.clone(), inputs: inputs.clone(), ty: node.ty.clone() },
            None => {
                GraphNode { op: Op::Input(Input { ty: node.ty.clone() }), inputs: Operands::new(), ty: node.ty.clone() }
            }
        });
        Graph { nodes: nodes.collect(), outputs: self.kept.iter().map(|&i| NodeId(i as u32)).collect() }
    }

    /// A leaf is donated when no tensor holds it, only nodes of this run refer to it, and its buffer is its own.
    fn donation(&self) -> Donation {
        let uses = uses(&self.inputs);
        let mut outlives = vec![false; self.nodes.len()];
        for (i, inputs) in self.inputs.iter().enumerate() {
            for x in inputs.iter().flatten() {
                outlives[x.index()] |= self.history[i];
            }
        }
        let donated = |i: usize, node: &Arc<Node>| {
            // One reference is ours; a pending operand list holds one per use.
            !node.is_held()
                && !outlives[i]
                && Arc::strong_count(node) == uses[i] + 1
                && match &*node.state() {
                    State::Ready { content: Content::Device(value), .. } => value.is_unique(),
                    _ => false,
                }
        };
        let leaves = self.nodes.iter().enumerate().filter(|(i, _)| self.inputs[*i].is_none());
        leaves.map(|(i, node)| donated(i, node)).collect()
    }

    fn bindings(&self) -> Vec<Binding> {
        let binding = |node: &Arc<Node>| match &*node.state() {
            State::Ready { content: Content::Device(value), .. } => Binding::Value(value.clone()),
            State::Ready { content: Content::Scalar(bytes), .. } => Binding::Scalar(u64::from_ne_bytes(*bytes)),
            _ => unreachable!("leaves are ready"),
        };
        self.leaves().map(binding).collect()
    }

    /// Records that the nodes have been handed over.
    fn settle(self, values: Vec<meshwork_runtime::Value>) {
        let mut values = values.into_iter();
        let mut kept = self.kept.iter().copied().peekable();
        for (i, node) in self.nodes.iter().enumerate() {
            if self.inputs[i].is_none() {
                continue;
            }
            let wanted = kept.next_if_eq(&i).is_some();
            let mut state = node.state();
            let old = std::mem::replace(&mut *state, State::Gone);
            if wanted {
                let value = values.next().expect("one value for every kept node");
                let history = match old {
                    State::Pending(inputs) if self.history[i] => inputs,
                    _ => Inputs::new(),
                };
                *state = State::Ready { content: Content::Device(value), history };
            }
        }
    }
}

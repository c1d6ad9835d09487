//! Running what is pending: collect, compile (or find the compiled program), hand over.

use super::cache::Cache;
use super::node::{Content, Inputs, Node, State, let_go, take_held};
use super::still::{Still, hold_still};
use crate::inspect;
use meshwork_cpu::kernel::CpuTarget;
use meshwork_graph::graph::{Graph, Node as GraphNode, Operands};
use meshwork_graph::ops::Input;
use meshwork_graph::passes::compile;
use meshwork_graph::program::{Donation, Program};
use meshwork_graph::{NodeId, Op};
use meshwork_runtime::{Binding, Device, Value};
use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard};

/// Compiled programs.
#[derive(Default)]
struct Programs {
    known: Cache<Program>,
    compiled: u64,
    last: Option<Arc<Program>>,
}

fn programs() -> MutexGuard<'static, Option<Programs>> {
    static PROGRAMS: Mutex<Option<Programs>> = Mutex::new(None);
    PROGRAMS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Counts how many programs have been compiled since the start of the process. A training loop that compiles
/// in its second step or later records a graph that changes from step to step.
pub fn compile_count() -> u64 {
    programs().as_ref().map_or(0, |p| p.compiled)
}

/// The program that was handed over last, for reports.
pub fn last_program() -> Option<Arc<Program>> {
    programs().as_ref().and_then(|p| p.last.clone())
}

/// Runs everything alive and pending on this thread, and `also` with all that it needs. Returns before it is computed;
/// reading a value waits for it.
pub(crate) fn evaluate(also: Option<&Arc<Node>>) {
    let mut still = hold_still();
    let mut collected = ROOM.take();
    collected.fill(also, &mut still);
    if !collected.nodes.is_empty() {
        let device = Device::cpu(0).expect("the first device is always there");
        let threads = device.num_threads();
        let donation = collected.donation(&still);
        let program = collected.program(&donation, threads, &still);
        let values = device.run(program, collected.bindings(&still), threads);
        collected.settle(values, &mut still);
    }
    ROOM.set(collected);
}

thread_local! {
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
    /// The pending nodes in any order, and in that of recording.
    found: Vec<Arc<Node>>,
    sorted: Vec<Option<Arc<Node>>>,
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
            self.found.push(node);
        }
    }

    /// Brings the found nodes into the order of recording, each leaf just before its first use: the structure of a
    /// program does not depend on how old its inputs are.
    fn order(&mut self, still: &mut Still) {
        let ids = || self.found.iter().map(|node| node.id);
        let first = ids().min().unwrap_or(0);
        let span = ids().max().map_or(0, |last| (last - first) as usize + 1);
        if span <= 8 * self.found.len() {
            self.sorted.resize(span, None);
            for node in self.found.drain(..) {
                let at = (node.id - first) as usize;
                self.sorted[at] = Some(node);
            }
        } else {
            self.found.sort_unstable_by_key(|node| node.id);
            self.sorted.extend(self.found.drain(..).map(Some));
        }
        let walk = still.walk();
        let nodes = &mut self.nodes;
        let mut push = |node: Arc<Node>| {
            node.meet(walk);
            node.set_place(nodes.len());
            nodes.push(node);
        };
        for node in self.sorted.drain(..).flatten() {
            for x in node.operands(still).unwrap_or_default() {
                if !x.was_met(walk) {
                    push(x.clone());
                }
            }
            push(node);
        }
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

    /// The program that computes the kept nodes.
    fn program(&self, donation: &Donation, threads: usize, still: &Still) -> Arc<Program> {
        let mut guard = programs();
        let Programs { known, compiled, last } = guard.get_or_insert_default();
        let compile = || {
            let target = CpuTarget { threads };
            let program = compile(&self.graph(still), donation, &target, &mut |pass, graph| inspect::pass(pass, graph));
            inspect::program(&program);
            *compiled += 1;
            program
        };
        let program = known.find(|words| self.describe(donation, threads, still, words), compile);
        last.insert(program).clone()
    }

    /// Spells everything that the program depends on.
    fn describe(&self, donation: &Donation, threads: usize, still: &Still, words: &mut Vec<u64>) {
        words.extend([threads as u64, self.nodes.len() as u64]);
        words.extend(donation.iter().map(|&donated| u64::from(donated)));
        for (node, &kept) in self.nodes.iter().zip(&self.kept) {
            match node.operands(still) {
                None => words.push(node.kind.ty_number),
                Some(operands) => {
                    words.extend([node.kind.number, (operands.len() as u64) << 1 | u64::from(kept)]);
                    words.extend(operands.iter().map(|x| x.place() as u64));
                }
            }
        }
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
                && matches!(node.state(still), State::Ready { content: Content::Device(value), .. } if value.is_unique())
        };
        self.leaves(still).map(donated).collect()
    }

    fn bindings(&self, still: &Still) -> Vec<Binding> {
        let binding = |node: &Arc<Node>| match node.state(still) {
            State::Ready { content: Content::Device(value), .. } => Binding::from(value),
            State::Ready { content: Content::Scalar(bytes), .. } => Binding::Scalar(u64::from_ne_bytes(*bytes)),
            _ => unreachable!("leaves are ready"),
        };
        self.leaves(still).map(binding).collect()
    }

    /// Records that the nodes have been handed over, and lets them go.
    fn settle(&mut self, values: Vec<Value>, still: &mut Still) {
        let mut values = values.into_iter();
        for (i, node) in self.nodes.iter().enumerate() {
            if !node.is_pending(still) {
                continue;
            }
            let old = node.replace(State::Gone, still);
            if self.kept[i] {
                let value = values.next().expect("one value for every kept node");
                let history = match old {
                    State::Pending(inputs) if self.history[i] => inputs,
                    _ => Inputs::new(),
                };
                node.replace(State::Ready { content: Content::Device(value), history }, still);
            }
        }
        let_go(self.nodes.drain(..), still);
        self.uses.clear();
        self.kept.clear();
        self.history.clear();
    }
}

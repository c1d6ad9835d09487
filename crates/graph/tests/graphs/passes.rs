//! What each pass does, as printed graphs.

use meshwork_graph::canonical::Blocking;
use meshwork_graph::ops::*;
use meshwork_graph::passes::{chain, compile, differentiate, epilogue, fuse, order, simplify};
use meshwork_graph::program::{Donation, Location, Target};
use meshwork_graph::{DType, Dims, Graph, Layout, NodeId, Op, Shape, Type};

/// A device whose only demand is that convolutions and pools read dense operands.
struct Plain;

impl Target for Plain {
    fn accepts(&self, op: &Op, _: usize, layout: &Layout) -> bool {
        matches!(op, Op::Fused(_) | Op::Dot(_) | Op::Reduce(_)) || layout.is_contiguous()
    }

    fn scratch(&self, op: &Op, _: &[(&Type, &Layout)], _: &Type) -> usize {
        if matches!(op, Op::Dot(_)) { 100 } else { 0 }
    }
}

pub fn input(g: &mut Graph, shape: &[usize]) -> NodeId {
    g.add_node(Input { ty: Type::new(DType::F32, shape) }, &[])
}

pub fn linear(g: &mut Graph, x: NodeId, w: NodeId) -> NodeId {
    let dims = |d: &[usize]| Dims::from_slice(d);
    let dot = Dot {
        lhs_batch: dims(&[]),
        rhs_batch: dims(&[]),
        lhs_contract: dims(&[1]),
        rhs_contract: dims(&[1]),
        blocking: Blocking::Features,
    };
    g.add_node(dot, &[x, w])
}

/// One step of gradient descent on `Σ relu(x · wᵀ)`: inputs x, w, lr; outputs loss and new w.
fn step() -> Graph {
    let mut g = Graph::new();
    let (x, w) = (input(&mut g, &[4, 3]), input(&mut g, &[2, 3]));
    let lr = input(&mut g, &[]);
    let y = linear(&mut g, x, w);
    let y = g.unary(UnaryOp::Relu, y);
    let loss = g.reduce(Reduce::new(ReduceOp::Sum, &[0, 1]), y);
    let seed = g.constant(1.0, DType::F32);
    let grad = differentiate(&mut g, &[(loss, seed)], &[w])[0].expect("the loss depends on w");
    let rate = g.spread(lr, Shape::new(&[2, 3]));
    let change = g.mul(rate, grad);
    let new = g.sub(w, change);
    g.outputs = vec![loss, new];
    g.verify().unwrap();
    g
}

#[test]
fn a_step_through_every_pass() {
    let g = step();
    let simplified = simplify(&g);
    let fused = fuse(&simplified);
    let ordered = order(&fused);
    insta::assert_snapshot!("recorded", g);
    insta::assert_snapshot!("simplified", simplified);
    insta::assert_snapshot!("fused", fused);
    insta::assert_snapshot!("ordered", ordered);
}

#[test]
fn a_placed_step_updates_its_parameter_in_place() {
    let g = step();
    let donation = Donation::from_slice(&[false, true, false]);
    let program = compile(&g, &donation, &Plain, &mut |_, _| {});
    assert_eq!(program.outputs[1].donated, Some(1));
    assert_eq!(program.outputs[0].donated, None);
    insta::assert_snapshot!("placed", program);
}

#[test]
fn equal_subexpressions_are_computed_once_and_dead_ones_never() {
    let mut g = Graph::new();
    let x = input(&mut g, &[5]);
    let (a, b) = (g.unary(UnaryOp::Exp, x), g.unary(UnaryOp::Exp, x));
    let dead = g.unary(UnaryOp::Log, x);
    let sum = g.add(a, b);
    g.outputs = vec![sum];
    let simple = simplify(&g);
    assert!(dead.index() < g.nodes.len());
    insta::assert_snapshot!(simple, @r"
    %0: f32[5] = input
    %1: f32[5] = exp %0
    %2: f32[5] = add %1 %1
    return %2
    ");
}

#[test]
fn views_of_views_are_joined() {
    let mut g = Graph::new();
    let x = input(&mut g, &[2, 3, 4]);
    let a = g.permute(x, &[2, 0, 1]);
    let b = g.permute(a, &[1, 2, 0]);
    let c = g.reshape(b, Shape::new(&[6, 4]));
    let d = g.reshape(c, Shape::new(&[24]));
    let e = g.unary(UnaryOp::Neg, d);
    g.outputs = vec![e];
    insta::assert_snapshot!(simplify(&g), @r"
    %0: f32[2, 3, 4] = input
    %1: f32[24] = reshape %0
    %2: f32[24] = neg %1
    return %2
    ");
}

#[test]
fn a_value_with_users_inside_and_outside_of_a_region_ends_its_own() {
    let mut g = Graph::new();
    let x = input(&mut g, &[8]);
    let e = g.unary(UnaryOp::Exp, x);
    let twice = g.add(e, e);
    let sum = g.add_node(CumSum { dim: 0, reverse: false }, &[e]);
    let y = g.div(twice, sum);
    g.outputs = vec![y];
    insta::assert_snapshot!(fuse(&g), @r"
    %0: f32[8] = input
    %1: f32[8] = fused[t0=exp a] %0
    %2: f32[8] = cumsum[dim: 0, reverse: false] %1
    %3: f32[8] = fused[t0=add a a; t1=div t0 b] %1 %2
    return %3
    ");
}

/// One step of momentum: the new velocity is a result and is read by the new weight.
#[test]
fn a_region_has_several_results_in_the_memory_of_its_operands() {
    let mut g = Graph::new();
    let (w, v, grad) = (input(&mut g, &[8]), input(&mut g, &[8]), input(&mut g, &[8]));
    let kept = g.scalar_like(v, 0.9);
    let old = g.mul(v, kept);
    let velocity = g.add(old, grad);
    let new = g.sub(w, velocity);
    g.outputs = vec![new, velocity];
    let program = compile(&g, &Donation::from_slice(&[true, true, false]), &Plain, &mut |_, _| {});
    let mut donated: Vec<Option<usize>> = program.outputs.iter().map(|o| o.donated).collect();
    donated.sort();
    assert_eq!(donated, [Some(0), Some(1)]);
    assert_eq!(program.steps.len(), 1);
    insta::assert_snapshot!("several_results", fuse(&g));
}

#[test]
fn regions_that_read_the_same_value_join() {
    let mut g = Graph::new();
    let x = input(&mut g, &[8]);
    let (a, b) = (g.unary(UnaryOp::Exp, x), g.unary(UnaryOp::Tanh, x));
    let sums = [a, b].map(|x| g.add_node(CumSum { dim: 0, reverse: false }, &[x]));
    g.outputs = sums.to_vec();
    insta::assert_snapshot!("siblings", fuse(&g));
}

/// log softmax, the score of each row's class, and the gradient of its sum: one kernel.
#[test]
fn rows_are_reduced_and_picked_from_in_their_region() {
    let mut g = Graph::new();
    let x = input(&mut g, &[6, 4]);
    let class = g.add_node(Input { ty: Type::new(DType::I64, Shape::new(&[6, 1])) }, &[]);
    let shape = g.ty(x).shape.clone();
    let max = g.reduce(Reduce::new(ReduceOp::Max, &[1]), x);
    let max = g.restore(max, &[1], &shape);
    let shifted = g.sub(x, max);
    let exp = g.unary(UnaryOp::Exp, shifted);
    let sum = g.reduce(Reduce::new(ReduceOp::Sum, &[1]), exp);
    let log = g.unary(UnaryOp::Log, sum);
    let log = g.restore(log, &[1], &shape);
    let scores = g.sub(shifted, log);
    let picked = g.add_node(Gather::new(1), &[scores, class]);
    let seed = g.constant(1.0, DType::F32);
    let seed = g.spread(seed, Shape::new(&[6, 1]));
    let grad = differentiate(&mut g, &[(picked, seed)], &[x])[0].expect("the scores depend on x");
    g.outputs = vec![picked, grad];
    insta::assert_snapshot!("rows", fuse(&simplify(&g)));
}

/// log softmax along a dimension with others behind it, and its gradient: one kernel.
#[test]
fn rows_that_lie_beside_each_other_are_reduced_in_their_region() {
    for (shape, dim) in [(&[3, 5, 32][..], 1), (&[4, 8, 2, 8], 0)] {
        let mut g = Graph::new();
        let (x, seed) = (input(&mut g, shape), input(&mut g, shape));
        let shape = g.ty(x).shape.clone();
        let max = g.reduce(Reduce::new(ReduceOp::Max, &[dim]), x);
        let max = g.restore(max, &[dim], &shape);
        let shifted = g.sub(x, max);
        let exp = g.unary(UnaryOp::Exp, shifted);
        let sum = g.reduce(Reduce::new(ReduceOp::Sum, &[dim]), exp);
        let log = g.unary(UnaryOp::Log, sum);
        let log = g.restore(log, &[dim], &shape);
        let scores = g.sub(shifted, log);
        let grad = differentiate(&mut g, &[(scores, seed)], &[x])[0].expect("the scores depend on x");
        g.outputs = vec![scores, grad];
        let fused = fuse(&simplify(&g));
        fused.verify().unwrap();
        let kernels = fused.nodes.iter().filter(|node| matches!(node.op, Op::Fused(_) | Op::Reduce(_)));
        assert_eq!(kernels.count(), 1, "{fused}");
    }
}

/// A shape with dimensions missing stands for the last ones, whatever has been reduced.
#[test]
fn what_is_spread_along_other_dimensions_is_no_value_of_rows() {
    for (restored, kernels) in [(true, 1), (false, 2)] {
        let mut g = Graph::new();
        let x = input(&mut g, &[16, 16, 16]);
        let shape = g.ty(x).shape.clone();
        let max = g.reduce(Reduce::new(ReduceOp::Max, &[1]), x);
        let max = if restored { g.restore(max, &[1], &shape) } else { g.expand(max, shape) };
        let y = g.sub(x, max);
        g.outputs = vec![y];
        let fused = fuse(&simplify(&g));
        fused.verify().unwrap();
        let found = fused.nodes.iter().filter(|node| matches!(node.op, Op::Fused(_) | Op::Reduce(_)));
        assert_eq!(found.count(), kernels, "{fused}");
    }
}

/// The sum leaves the region and comes back transposed, so it cannot be one kernel.
#[test]
fn a_region_does_not_wait_for_itself() {
    let mut g = Graph::new();
    let x = input(&mut g, &[4, 4]);
    let e = g.unary(UnaryOp::Exp, x);
    let turned = g.permute(e, &[1, 0]);
    let y = g.add(e, turned);
    let rows = g.reduce(Reduce::new(ReduceOp::Sum, &[1]), y);
    let columns = g.reduce(Reduce::new(ReduceOp::Sum, &[0]), y);
    let total = g.add(rows, columns);
    let spread = g.restore(total, &[1], &Shape::new(&[4, 4]));
    let z = g.div(y, spread);
    g.outputs = vec![z];
    let fused = fuse(&g);
    fused.verify().unwrap();
    insta::assert_snapshot!("cycles", fused);
}

/// A value is used at once, and long after that the hyperbolic tangent of it; the value itself again if so said.
fn used_late(is_used_again: bool) -> Graph {
    let mut g = Graph::new();
    let x = input(&mut g, &[32, 32]);
    let soon = g.unary(UnaryOp::Exp, x);
    let mut y = soon;
    for _ in 0..8 {
        y = linear(&mut g, y, x);
    }
    let late = g.unary(UnaryOp::Tanh, soon);
    let end = linear(&mut g, late, if is_used_again { soon } else { y });
    g.outputs = vec![end, y];
    fuse(&g)
}

fn has_two_results(g: &Graph) -> bool {
    g.nodes.iter().any(|node| matches!(node.op, Op::Part(_)))
}

#[test]
fn a_value_that_is_needed_much_later_is_computed_later() {
    let fused = used_late(true);
    assert!(!has_two_results(&fused), "{fused}");
}

#[test]
fn a_value_that_is_needed_much_later_is_computed_with_what_would_be_kept_for_it_alone() {
    let fused = used_late(false);
    assert!(has_two_results(&fused), "{fused}");
}

/// A value is used at once, and many products later where it is positive it selects from their result; `kept` says that one
/// of these reads it at the end, too. The fused region that selects, and the dtypes of what it reads.
fn selected_late(size: usize, kept: bool) -> (Graph, Vec<DType>) {
    let mut g = Graph::new();
    let (x, w) = (input(&mut g, &[size, size]), input(&mut g, &[size, size]));
    let value = g.unary(UnaryOp::Relu, x);
    let mut y = linear(&mut g, value, w);
    for _ in 0..8 {
        y = linear(&mut g, y, w);
    }
    let zero = g.scalar_like(value, 0.0);
    let mask = g.binary(BinaryOp::Gt, value, zero);
    let selected = g.select(mask, y, zero);
    let end = linear(&mut g, selected, if kept { value } else { w });
    g.outputs = vec![end];
    let fused = fuse(&simplify(&g));
    fused.verify().unwrap();
    let selects = |fused: &Fused| fused.code.iter().any(|instr| instr.op == Code::Element(Element::Select));
    let region = fused.nodes.iter().find(|node| matches!(&node.op, Op::Fused(fused) if selects(fused)));
    let read = region.expect("a region that selects").inputs.iter().map(|&x| fused.ty(x).dtype).collect();
    (fused, read)
}

#[test]
fn a_mask_is_kept_instead_of_the_value_that_it_is_computed_from() {
    let (fused, read) = selected_late(128, false);
    assert_eq!(read, [DType::Bool, DType::F32], "{fused}");
    assert!(has_two_results(&fused), "{fused}");
}

#[test]
fn a_mask_is_not_kept_beside_the_value_that_it_is_computed_from() {
    let (fused, read) = selected_late(128, true);
    assert_eq!(read, [DType::F32, DType::F32], "{fused}");
    assert!(!has_two_results(&fused), "{fused}");
    // Neither is it where the first-level cache holds the value.
    let (fused, read) = selected_late(32, false);
    assert_eq!(read, [DType::F32, DType::F32], "{fused}");
}

#[test]
fn buffers_that_live_together_do_not_overlap() {
    let mut g = Graph::new();
    let x = input(&mut g, &[64, 32]);
    let w = input(&mut g, &[32, 32]);
    let mut layers = vec![x];
    for _ in 0..6 {
        let y = linear(&mut g, *layers.last().unwrap(), w);
        layers.push(g.unary(UnaryOp::Tanh, y));
    }
    let loss = g.reduce(Reduce::new(ReduceOp::Sum, &[0, 1]), *layers.last().unwrap());
    let seed = g.constant(1.0, DType::F32);
    let grad = differentiate(&mut g, &[(loss, seed)], &[w])[0].unwrap();
    g.outputs = vec![grad, loss];
    let program = compile(&g, &Donation::from_slice(&[false, false]), &Plain, &mut |_, _| {});

    // Live ranges of every arena byte range, found again from the steps alone.
    let mut writes: Vec<(usize, usize, usize)> = Vec::new();
    for (i, step) in program.steps.iter().enumerate() {
        for view in &step.inputs {
            if let Location::Arena(at) = view.location {
                let written = writes.iter().rev().find(|(from, to, _)| *from <= at && at < *to);
                assert_eq!(written.map(|w| w.0), Some(at), "step {i} reads what a later step has overwritten");
            }
        }
        for output in &step.outputs {
            if let Location::Arena(at) = output.location {
                assert!(at + output.ty.bytes() <= program.memory.arena);
                writes.push((at, at + output.ty.bytes(), i));
            }
        }
        if step.scratch.1 > 0 {
            writes.push((step.scratch.0, step.scratch.0 + step.scratch.1, i));
        }
    }
    let sum: usize = program.steps.iter().flat_map(|s| &s.outputs).map(|o| o.ty.bytes()).sum();
    assert!(program.memory.arena < sum, "the arena reuses memory");
}

#[test]
fn illegal_graphs_are_refused_by_name() {
    let mut g = Graph::new();
    let (a, b) = (input(&mut g, &[2, 3]), input(&mut g, &[3, 2]));
    let error = g.try_add(Element::Binary(BinaryOp::Add), &[a, b]).unwrap_err();
    assert_eq!(error.to_string(), "add: shapes [2, 3] and [3, 2] differ");
    g.nodes.swap(0, 1);
    let sum = g.add(a, a);
    g.nodes[sum.index()].inputs[0] = NodeId(7);
    assert!(g.verify().unwrap_err().to_string().contains("does not come before it"));
}

#[test]
fn parts_of_a_batch_sum_in_the_blocks_of_the_whole() {
    let s = Spatial::from_slice;
    let geometry = ConvGeometry { stride: s(&[1]), padding: s(&[0]), dilation: s(&[1]), groups: 1 };
    let mut g = Graph::new();
    let (image, kernel, table, w) =
        (input(&mut g, &[8, 1, 5]), input(&mut g, &[3, 1, 2]), input(&mut g, &[9, 12]), input(&mut g, &[6, 12]));
    let index = g.add_node(Input { ty: Type::new(DType::I64, [8]) }, &[]);
    let rows = g.add_node(Input { ty: Type::new(DType::I64, [8, 12]) }, &[]);
    let features = g.add_node(Conv::new(geometry), &[image, kernel]);
    let features = g.reshape(features, Shape::new(&[8, 12]));
    let embedded = g.add_node(IndexSelect::new(0), &[table, index]);
    let picked = g.add_node(Gather::new(0), &[table, rows]);
    let x = g.add(features, embedded);
    let x = g.add(x, picked);
    let y = linear(&mut g, x, w);
    let loss = g.reduce(Reduce::new(ReduceOp::Sum, &[0, 1]), y);
    let seed = g.constant(1.0, DType::F32);
    g.outputs = differentiate(&mut g, &[(loss, seed)], &[kernel, table, w]).into_iter().flatten().collect();
    g.outputs.push(loss);
    g.nodes.iter_mut().for_each(|node| node.op.part_of_batch(256));
    insta::assert_snapshot!("part_of_a_batch", simplify(&g));
}

/// A target that chains whatever can be chained.
struct Chaining;

impl Target for Chaining {
    fn accepts(&self, op: &Op, input: usize, layout: &Layout) -> bool {
        Plain.accepts(op, input, layout)
    }

    fn scratch(&self, _: &Op, _: &[(&Type, &Layout)], _: &Type) -> usize {
        0
    }

    fn chains(&self, _: &Chain) -> bool {
        true
    }
}

fn pooling() -> AvgPool {
    let window = Window::Fixed { kernel: 2, stride: 2, padding: 0, dilation: 1, ceil: false };
    AvgPool { windows: std::iter::repeat_n(window, 2).collect(), count_include_pad: true }
}

/// A layer with pooling: relu is wanted by pooling and by its gradient, which is pooled again.
fn layer() -> Graph {
    let s = Spatial::from_slice;
    let geometry = ConvGeometry { stride: s(&[1; 2]), padding: s(&[0; 2]), dilation: s(&[1; 2]), groups: 1 };
    let mut g = Graph::new();
    let (x, w) = (input(&mut g, &[8, 1, 6, 6]), input(&mut g, &[3, 1, 3, 3]));
    let y = g.add_node(Conv::new(geometry), &[x, w]);
    let y = g.unary(UnaryOp::Relu, y);
    let pooled = g.add_node(pooling(), &[y]);
    let flat = g.reshape(pooled, Shape::new(&[8, 12]));
    let loss = g.reduce(Reduce::new(ReduceOp::Sum, &[1]), flat);
    let seed = g.constant(1.0, DType::F32);
    let seed = g.spread(seed, Shape::new(&[8]));
    let grad = differentiate(&mut g, &[(loss, seed)], &[w])[0].expect("the loss depends on w");
    g.outputs = vec![loss, grad];
    order(&fuse(&simplify(&g)))
}

#[test]
fn kernels_that_compute_with_the_same_samples_are_chained() {
    let chained = chain(&layer(), &Chaining);
    chained.verify().unwrap();
    insta::assert_snapshot!("chained", chained);
}

#[test]
fn kernels_are_only_chained_where_the_target_wants_it() {
    assert_eq!(chain(&layer(), &Plain), layer());
}

/// Two kernels that have nothing to do with each other are no chain, but one with a third that reads both.
#[test]
fn kernels_that_stand_apart_are_chained_by_what_follows_both() {
    let graph = |reads_both: bool| {
        let mut g = Graph::new();
        let (x, y) = (input(&mut g, &[8, 3, 4, 4]), input(&mut g, &[8, 3, 4, 4]));
        let [a, b] = [x, y].map(|x| g.add_node(pooling(), &[x]));
        g.outputs = if reads_both { vec![g.add(a, b)] } else { vec![a, b] };
        order(&fuse(&g))
    };
    let chained = chain(&graph(true), &Chaining);
    let Op::Chain(found) = &chained.nodes.last().expect("nodes").op else { panic!("no chain: {chained}") };
    assert_eq!(found.links.len(), 3, "{chained}");
    assert_eq!(chain(&graph(false), &Chaining), graph(false));
}

/// The first two would be a chain, but the second one's other operand is computed between them from the first one's.
#[test]
fn a_chain_does_not_wait_for_itself() {
    let mut g = Graph::new();
    let x = input(&mut g, &[8, 3, 4, 4]);
    let y = g.add_node(pooling(), &[x]);
    let turned = g.permute(y, &[0, 1, 3, 2]);
    let sum = g.add(y, turned);
    g.outputs = vec![sum];
    let fused = order(&fuse(&g));
    assert_eq!(chain(&fused, &Chaining), fused);
}

/// An index may be out of range, and would spoil what else the chain computes.
#[test]
fn what_may_fail_is_in_no_chain() {
    let mut g = Graph::new();
    let x = input(&mut g, &[8, 3]);
    let index = g.add_node(Input { ty: Type::new(DType::I64, [8, 3]) }, &[]);
    let y = g.unary(UnaryOp::Exp, x);
    let y = g.add_node(CumSum { dim: 1, reverse: false }, &[y]);
    let picked = g.add_node(Gather::new(1), &[y, index]);
    let picked = g.unary(UnaryOp::Exp, picked);
    let sum = g.reduce(Reduce::new(ReduceOp::Max, &[1]), picked);
    g.outputs = vec![sum, y];
    let fused = order(&fuse(&g));
    let chained = chain(&fused, &Chaining);
    let never = |op: &Op| matches!(op, Op::Gather(_) | Op::CumSum(_));
    for node in &chained.nodes {
        if let Op::Chain(chain) = &node.op {
            assert!(!chain.links.iter().any(|link| never(&link.op)), "{chained}");
        }
    }
    assert!(chained.nodes.iter().any(|node| never(&node.op)), "{chained}");
}

#[test]
fn a_chain_counts_the_work_of_its_kernels_and_only_what_goes_in_and_out() {
    let programs = [&Plain as &dyn Target, &Chaining].map(|target| {
        let donation = Donation::from_slice(&[false, false]);
        compile(&layer(), &donation, target, &mut |_, _| {})
    });
    let [apart, chained] = &programs;
    assert!(chained.steps.len() < apart.steps.len());
    assert_eq!(chained.flops(), apart.flops());
    let bytes = |program: &meshwork_graph::program::Program| program.steps.iter().map(|step| step.bytes()).sum::<u64>();
    assert!(bytes(chained) < bytes(apart), "{} and {}", bytes(chained), bytes(apart));
    insta::assert_snapshot!("chained_program", chained);
}

#[test]
fn illegal_chains_are_refused_by_name() {
    let chained = chain(&layer(), &Chaining);
    let at = chained.nodes.iter().position(|node| matches!(node.op, Op::Chain(_))).expect("a chain");
    let error = |change: &dyn Fn(&mut Chain)| {
        let mut graph = chained.clone();
        let Op::Chain(chain) = &mut graph.nodes[at].op else { unreachable!("found above") };
        change(chain);
        graph.verify().unwrap_err().0
    };
    let said = |change: &dyn Fn(&mut Chain), text: &str| {
        let error = error(change);
        assert!(error.contains(text), "{error}");
    };
    said(&|chain| chain.inputs[0].cut = false, "chain: kernel 0 (conv) does not run by samples like that");
    said(&|chain| chain.samples = 7, "chain: kernel 0 (conv) does not run by samples like that");
    said(&|chain| chain.links[0].args[0] = 3, "chain: kernel 0 (conv) reads what comes later");
    said(&|chain| chain.links[1].results[0].dtype = DType::F64, "chain: kernel 1 (avg_pool_input) has other results");
    said(&|chain| chain.outputs[0] = 0, "chain: a result that no kernel computes");
    said(&|chain| chain.inputs[0].ty.dtype = DType::F64, "chain: operands of other types");
}

/// A device whose products run what follows on their elements.
struct Following;

impl Target for Following {
    fn accepts(&self, op: &Op, input: usize, layout: &Layout) -> bool {
        Plain.accepts(op, input, layout)
    }

    fn scratch(&self, op: &Op, inputs: &[(&Type, &Layout)], output: &Type) -> usize {
        Plain.scratch(op, inputs, output)
    }

    fn has_epilogues(&self, _: &Epilogue, _: &[&Type]) -> bool {
        true
    }
}

/// The kernels of a graph in order, products with their epilogues.
fn kernels(graph: &Graph) -> Vec<String> {
    let name = |op: &Op| op.operation().name().to_string();
    let kernel = |op: &Op| match op {
        Op::Epilogue(epilogue) => Some(epilogue.names(name)),
        Op::Dot(_) | Op::Fused(_) | Op::Reduce(_) => Some(name(op)),
        _ => None,
    };
    graph.nodes.iter().filter_map(|node| kernel(&node.op)).collect()
}

/// Weights of two layers, their gradients and steps: outputs are the new weights. What `between` adds stands between the gradients
/// and the steps.
fn descent(between: impl FnOnce(&mut Graph, [NodeId; 2]) -> Vec<NodeId>) -> Graph {
    let mut g = Graph::new();
    let (x, v, w) = (input(&mut g, &[8, 6]), input(&mut g, &[5, 6]), input(&mut g, &[4, 5]));
    let rate = input(&mut g, &[]);
    let h = linear(&mut g, x, v);
    let h = g.unary(UnaryOp::Relu, h);
    let y = linear(&mut g, h, w);
    let seed = g.constant(1.0, DType::F32);
    let seed = g.spread(seed, Shape::new(&[8, 4]));
    let grads = differentiate(&mut g, &[(y, seed)], &[v, w]);
    let grads = [0, 1].map(|i| grads[i].expect("the result depends on it"));
    let others = between(&mut g, grads);
    let news = [(v, grads[0]), (w, grads[1])].map(|(old, grad)| {
        let rate = g.spread(rate, g.ty(old).shape.clone());
        let step = g.mul(grad, rate);
        g.sub(old, step)
    });
    g.outputs = news.into_iter().chain(others).collect();
    let graph = epilogue(&order(&fuse(&simplify(&g))), &Following);
    graph.verify().unwrap();
    graph
}

/// The gradient of the second weight and its step are one kernel, but after the first layer's gradient has read the weight.
#[test]
fn products_get_the_regions_that_follow() {
    let graph = descent(|_, _| vec![]);
    insta::assert_snapshot!("epilogues", graph);
    assert_eq!(epilogue(&graph, &Following), graph, "all is done");
}

/// A gradient that is wanted, or that others read, must be in memory.
#[test]
fn a_product_with_other_readers_has_no_epilogue() {
    let all = kernels(&descent(|_, _| vec![]));
    let steps = |kernels: &[String]| kernels.iter().filter(|name| *name == "dot + fused").count();
    let wanted = descent(|_, grads| vec![grads[0]]);
    assert_eq!(steps(&kernels(&wanted)), steps(&all) - 1);
    let read = descent(|g, grads| vec![g.reduce(Reduce::new(ReduceOp::Max, &[0, 1]), grads[0])]);
    assert_eq!(steps(&kernels(&read)), steps(&all) - 1);
}

/// The weight is read again between its gradient and its step, which could not be made in place before.
#[test]
fn a_step_stays_behind_the_readers_of_what_it_overwrites() {
    let mut g = Graph::new();
    let (x, dy, w, v) =
        (input(&mut g, &[8, 8]), input(&mut g, &[8, 8]), input(&mut g, &[8, 8]), input(&mut g, &[8, 8]));
    let grad = linear(&mut g, dy, x);
    let reader = linear(&mut g, x, w);
    let new = g.add(w, grad);
    // This one is where its region would be: only views stand between them.
    let last = linear(&mut g, v, dy);
    let turned = g.permute(w, &[1, 0]);
    let sum = g.add(last, turned);
    g.outputs = vec![reader, new, sum];
    let graph = epilogue(&order(&fuse(&g)), &Following);
    graph.verify().unwrap();
    assert_eq!(kernels(&graph), ["dot", "dot", "fused", "dot + fused"]);
    let donation = Donation::from_slice(&[false, false, true, false]);
    let program = compile(&g, &donation, &Following, &mut |_, _| {});
    assert!(program.outputs.iter().all(|output| output.donated.is_none()), "somebody reads the weight later");
}

#[test]
fn illegal_epilogues_are_refused_by_name() {
    let graph = descent(|_, _| vec![]);
    let at = graph.nodes.iter().position(|node| matches!(node.op, Op::Epilogue(_))).expect("an epilogue");
    let error = |change: &dyn Fn(&mut Epilogue)| {
        let mut graph = graph.clone();
        let Op::Epilogue(epilogue) = &mut graph.nodes[at].op else { unreachable!("found above") };
        change(epilogue);
        graph.verify().unwrap_err().0
    };
    assert!(error(&|op| op.at = 7).contains("epilogue: 3 operands"), "{}", error(&|op| op.at = 7));
    let other = error(&|op| op.product.dtype = DType::F64);
    assert!(other.contains("epilogue: a product f32[8, 5] for elements of [8, 5]"), "{other}");
}

//! Attention: which operands fit, how much work it is, which results become one kernel.

use meshwork_graph::ops::{Attention, AttentionMask, AttentionResult, Input, Part};
use meshwork_graph::passes::join;
use meshwork_graph::{DType, Graph, NodeId, Op, Operation, Type};

fn refused(op: &Attention, types: &[(DType, &[usize])]) -> String {
    let types: Vec<Type> = types.iter().map(|(dtype, shape)| Type::new(*dtype, *shape)).collect();
    op.infer(&types.iter().collect::<Vec<_>>()).unwrap_err().0
}

#[test]
fn operands_that_do_not_fit_are_refused_by_name() {
    use DType::{BF16, F32, I64};
    let op = Attention::new(1.0, AttentionMask::NONE);
    let (q, k): (&[usize], &[usize]) = (&[2, 5, 4, 8], &[2, 7, 2, 8]);
    assert_eq!(refused(&op, &[(F32, q)]), "attention: 1 operands instead of 3");
    assert_eq!(refused(&op, &[(F32, q), (F32, k), (F32, &[2, 7])]), "attention: value f32[2, 7] needs 4 dims");
    assert_eq!(
        refused(&op, &[(F32, q), (F32, &[2, 7, 2, 6]), (F32, k)]),
        "attention: query f32[2, 5, 4, 8] and key f32[2, 7, 2, 6] do not fit: 8 and 6"
    );
    assert_eq!(
        refused(&op, &[(F32, q), (BF16, k), (F32, k)]),
        "attention: key bf16[2, 7, 2, 8] with query f32[2, 5, 4, 8]"
    );
    assert_eq!(
        refused(&op, &[(I64, q), (I64, k), (I64, k)]),
        "attention: query i64[2, 5, 4, 8] with query i64[2, 5, 4, 8]"
    );
    assert_eq!(
        refused(&op, &[(F32, q), (F32, &[2, 7, 3, 8]), (F32, &[2, 7, 3, 8])]),
        "attention: 4 query heads are no multiple of 3 key heads"
    );
    let padded = Attention::new(1.0, AttentionMask { padded: true, ..AttentionMask::NONE });
    assert_eq!(
        refused(&padded, &[(F32, q), (F32, k), (F32, k), (F32, &[2])]),
        "attention: lengths f32[2] with query f32[2, 5, 4, 8]"
    );
    let value = op.with(AttentionResult::Value);
    assert_eq!(
        refused(&value, &[(BF16, q), (BF16, k), (BF16, &[2, 5, 4]), (BF16, q)]),
        "attention_value: normalizer bf16[2, 5, 4] with query bf16[2, 5, 4, 8]"
    );
}

#[test]
fn only_pairs_that_are_seen_count_as_work() {
    let types = [[1, 4, 2, 8], [1, 6, 1, 8], [1, 6, 1, 10]].map(|shape| Type::new(DType::F32, shape));
    let types: Vec<&Type> = types.iter().collect();
    let flops = |mask| Attention::new(1.0, mask).flops(&types, types[0]);
    assert_eq!(flops(AttentionMask::NONE), 2 * 2 * 24 * 18);
    // The first query sees three keys, the last one all six.
    assert_eq!(flops(AttentionMask::causal(4, 6)), 2 * 2 * 18 * 18);
}

/// A graph with inputs of these shapes.
fn inputs<const N: usize>(shapes: [&[usize]; N]) -> (Graph, [NodeId; N]) {
    let mut graph = Graph::new();
    let nodes = shapes.map(|shape| graph.add_node(Input { ty: Type::new(DType::F32, shape) }, &[]));
    (graph, nodes)
}

fn names(graph: &Graph) -> Vec<String> {
    let computed = graph.nodes.iter().filter(|node| !matches!(node.op, Op::Input(_)));
    computed.map(|node| format!("{}{}", node.op.operation().name(), node.op.attributes())).collect()
}

const Q: &[usize] = &[2, 5, 4, 8];
const K: &[usize] = &[2, 7, 2, 8];

#[test]
fn results_of_one_pass_become_one_node() {
    let (mut graph, [q, k, v, gradient, delta]) = inputs([Q, K, K, Q, &Q[..3]]);
    let op = Attention::new(0.5, AttentionMask::causal(5, 7));
    let output = graph.add_node(op.clone(), &[q, k, v]);
    let normalizer = graph.add_node(op.with(AttentionResult::Normalizer), &[q, k]);
    let all = [q, k, v, normalizer, gradient, delta];
    let by_key = graph.add_node(op.with(AttentionResult::Key), &all);
    let by_query = graph.add_node(op.with(AttentionResult::Query), &all);
    let by_value = graph.add_node(op.with(AttentionResult::Value), &[q, k, normalizer, gradient]);
    graph.outputs = vec![output, by_query, by_key, by_value];
    let joined = join(&graph);
    joined.verify().unwrap();
    let ends = " scale=0.5 causal from 2, 0]";
    assert_eq!(
        names(&joined),
        [
            format!("attention[[Output, Normalizer]{ends}"),
            "part[1]".into(),
            format!("attention_gradients[[Query, Key, Value]{ends}"),
            "part[1]".into(),
            "part[2]".into()
        ]
    );
    let shapes = joined.outputs.iter().map(|&o| joined.ty(o).shape.to_vec());
    assert!(shapes.eq([Q, Q, K, K]));
    let parts = joined.nodes.iter().filter(|node| matches!(node.op, Op::Part(Part { .. }))).count();
    assert_eq!(parts, 3);
}

#[test]
fn results_of_other_operands_or_parameters_stay_apart() {
    let (mut graph, [q, k, v, w]) = inputs([Q, K, K, K]);
    let op = Attention::new(0.5, AttentionMask::NONE);
    let masked = Attention::new(0.5, AttentionMask::causal(5, 7));
    let nodes = [
        graph.add_node(op.clone(), &[q, k, v]),
        graph.add_node(op.clone(), &[q, k, w]),
        graph.add_node(masked.with(AttentionResult::Normalizer), &[q, k]),
        graph.add_node(op.with(AttentionResult::Normalizer), &[q, v]),
    ];
    graph.outputs = nodes.to_vec();
    assert_eq!(join(&graph), graph);
}

#[test]
fn what_needs_an_operand_that_comes_later_stays_apart() {
    let (mut graph, [q, k, x]) = inputs([Q, K, K]);
    let op = Attention::new(0.5, AttentionMask::NONE);
    let normalizer = graph.add_node(op.with(AttentionResult::Normalizer), &[q, k]);
    let v = graph.add(x, x);
    let output = graph.add_node(op, &[q, k, v]);
    graph.outputs = vec![normalizer, output];
    assert_eq!(join(&graph), graph);
}

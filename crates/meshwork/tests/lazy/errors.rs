//! Failures of the run reach whoever reads, and nobody else.

use crate::turn;
use meshwork::Tensor;
use meshwork::graph::Op;
use meshwork::graph::program::Step;
use meshwork::tensor::{Reduction, nll_loss};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn failure<T>(read: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(read)).err().expect("reading fails");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn an_index_out_of_range_surfaces_at_the_reader() {
    let _turn = turn();
    let table = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]);
    for wrong in [2i64, -1, i64::MAX] {
        let rows = table.embedding(&Tensor::from_slice(&[0, wrong], &[2]));
        let total = rows.sum(..);
        let text = failure(|| total.item());
        assert!(text.contains(&wrong.to_string()) && text.contains('2'), "{text}");
        // Everything that needs it fails with the same cause.
        let text = failure(|| (&total + 1.0).item());
        assert!(text.contains(&wrong.to_string()), "{text}");
    }
    let good = table.embedding(&Tensor::from_slice(&[1i64, 0], &[2]));
    assert_eq!(good.to_vec::<f32>(), [3.0, 4.0, 1.0, 2.0]);
    assert_eq!(table.sum(..).item(), 10.0);
}

#[test]
fn every_kind_of_index_is_checked() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32; 6], &[2, 3]);
    let index = Tensor::from_slice(&[0i64, 3], &[2, 1]);
    assert!(failure(|| x.gather(1, &index).to_bytes()).contains('3'));
    assert!(failure(|| x.scatter_add(1, &index, &x.narrow(1, 0, 1)).to_bytes()).contains('3'));
    assert!(failure(|| x.index_select(1, &index.flatten(0)).to_bytes()).contains('3'));
    assert_eq!(x.sum(..).item(), 6.0);
}

#[test]
fn the_wrong_type_of_reading() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32, 2.0], &[2]);
    assert!(failure(|| x.to_vec::<f64>()).contains("a tensor of f32 cannot be read as f64"));
    assert!(failure(|| x.item()).contains("item of a tensor of shape [2]"));
}

#[test]
fn a_failure_spoils_what_depends_on_it_and_nothing_else() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3]);
    let fine = &x + &x;
    let broken = x.index_select(0, &Tensor::from_slice(&[7i64], &[1]));
    let worse = &broken * 2.0;
    assert_eq!(fine.to_vec::<f32>(), [2.0, 4.0, 6.0]);
    let later = worse + 1.0;
    let text = failure(|| later.to_vec::<f32>());
    assert!(text.contains("index 7 is out of range"), "{text}");
    assert_eq!(fine.sum(..).item(), 12.0);
}

#[test]
fn results_of_one_kernel_fail_one_by_one() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3]);
    let broken = x.index_select(0, &Tensor::from_slice(&[7i64, 0, 0], &[3]));
    let fine = x.exp();
    let spoilt = &fine * &broken;
    assert!(failure(|| spoilt.to_bytes()).contains("index 7 is out of range"));
    assert_eq!(fine.to_vec::<f32>(), x.exp().to_vec::<f32>());
    assert!(failure(|| spoilt.to_bytes()).contains("index 7 is out of range"));
}

/// Relu is multiplied by what failed and is pooled, all in one chain.
#[test]
fn results_of_one_chain_fail_one_by_one() {
    let _turn = turn();
    let x = Tensor::from_slice(&(0..1 << 17).map(|i| (i % 7) as f32 - 3.0).collect::<Vec<_>>(), &[16, 8, 32, 32]);
    let mut index = vec![0i64; 16];
    index[3] = 99;
    let broken = x.index_select(0, &Tensor::from_slice(&index, &[16]));
    let relu = (&x * 2.0).relu();
    let pooled = relu.avg_pool2d(2);
    let spoilt = &relu * &broken;
    drop(relu);
    assert!(failure(|| spoilt.to_bytes()).contains("index 99 is out of range"));
    let chain = |s: &Step| matches!(&s.op, Op::Chain(chain) if chain.outputs.len() == 2);
    assert!(meshwork::tensor::last_program().expect("it ran").steps.iter().any(chain));
    assert_eq!(pooled.to_vec::<f32>(), (&x * 2.0).relu().avg_pool2d(2).to_vec::<f32>());
}

#[test]
fn a_class_that_does_not_exist_is_refused() {
    let _turn = turn();
    let logits = Tensor::from_slice(&[0.0f32; 6], &[2, 3]);
    let loss = logits.cross_entropy(&Tensor::from_slice(&[1i64, 7], &[2]));
    assert!(failure(|| loss.item()).contains("index 7 is out of range for dimension 1 of size 3"));
}

#[test]
fn a_wrong_class_spoils_the_loss_and_not_the_scores() {
    let _turn = turn();
    let logits = Tensor::from_slice(&[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0], &[2, 3]);
    let scores = logits.log_softmax(-1);
    let loss = nll_loss(&scores, &Tensor::from_slice(&[1i64, 7], &[2]), None, -100, Reduction::Mean);
    assert!(failure(|| loss.item()).contains("index 7 is out of range"));
    assert_eq!(scores.to_vec::<f32>(), logits.log_softmax(-1).to_vec::<f32>());
    let gather =
        meshwork::tensor::last_program().expect("it ran").steps.iter().any(|s| s.op.operation().name() == "gather");
    assert!(!gather, "picking the class is part of the region");
}

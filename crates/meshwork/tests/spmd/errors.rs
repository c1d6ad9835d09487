//! What wrong programs are told.

use crate::integers;
use meshwork::Tensor;
use meshwork::spmd::{CommError, Group, ReduceOp, World, spawn, spawn_in};
use std::time::Duration;

/// The failure of a world of two ranks in which somebody panics.
fn panic(body: impl Fn(Group) + Sync) -> String {
    let error = spawn(2, body).expect_err("somebody panics");
    assert!(matches!(error, CommError::Panicked { .. }));
    error.to_string()
}

#[test]
fn calls_that_do_not_fit_are_named_with_shape_and_line() {
    let results = spawn(2, |group| {
        let x = integers(&[[2, 3], [3, 2]][group.rank()], 0);
        group.all_reduce(&x, ReduceOp::Sum).map(drop)
    });
    let line = line!() - 2;
    let call =
        |rank: usize, shape: &str| format!("rank {rank} calls all_reduce(sum, f32{shape}) at {}:{line}:15", file!());
    let expected =
        format!("the calls of the ranks do not fit, the shapes differ: {}; {}", call(0, "[2, 3]"), call(1, "[3, 2]"));
    for result in results.expect("nobody panics") {
        assert_eq!(result.expect_err("shapes differ").to_string(), expected);
    }
    let results = spawn(2, |group| group.all_gather(&integers(&[2, 1 + group.rank()], 0), 0).map(drop));
    let error = results.expect("nobody panics").remove(1).expect_err("shapes differ").to_string();
    assert!(error.contains("all_gather(f32[_, 1])") && error.contains("all_gather(f32[_, 2])"), "{error}");
}

/// The collective of the backward pass is named by its line in the forward pass.
#[test]
fn gradients_that_a_rank_does_not_take_are_noticed() {
    let results = spawn(2, |group| {
        let w = group.replicated(&integers(&[3], 0))?.variable();
        let shared = w.fan_out();
        let loss = shared.vary().sum(..).partial().all_reduce()?;
        if group.rank() == 0 { loss.backward().map(drop) } else { group.barrier() }
    });
    let line = line!() - 4;
    let error = results.expect("nobody panics").remove(0).expect_err("rank 1 does something else").to_string();
    assert!(error.contains(&format!("rank 0 calls all_reduce(sum, f32[3]) at {}:{line}:24", file!())), "{error}");
    assert!(error.contains("rank 1 calls barrier()"), "{error}");
}

#[test]
fn a_rank_that_is_late_is_named() {
    let world = World::new(2).deadline(Duration::from_millis(50));
    let (end, ended) = std::sync::mpsc::channel();
    let ends = std::sync::Mutex::new((end, ended));
    let results = spawn_in(world, |group| {
        if group.rank() == 0 {
            let result = group.all_reduce(&integers(&[2], 0), ReduceOp::Sum).map(drop);
            ends.lock().unwrap().0.send(()).unwrap();
            return result;
        }
        while ends.lock().unwrap().1.try_recv().is_err() {
            std::thread::yield_now();
        }
        group.barrier()
    });
    let error = results.expect("nobody panics").remove(0).expect_err("rank 1 is late").to_string();
    assert!(error.starts_with("nothing for 50ms: rank 0 calls all_reduce(sum, f32[2]) at "), "{error}");
    assert!(error.ends_with("missing: rank 1 is running and has called nothing yet"), "{error}");
}

#[test]
fn a_panic_of_one_rank_is_everybodys_failure() {
    let text = panic(|group| {
        assert!(group.rank() == 0, "this rank has no luck");
        group.barrier().expect("the other one is there");
    });
    assert_eq!(text, "rank 1 panicked: this rank has no luck");
}

#[test]
fn values_that_are_not_what_they_are_said_to_be_are_refused() {
    let text = panic(|group| drop(group.replicated(&integers(&[2], group.rank()))));
    assert!(text.ends_with("replicated: the tensors of rank 0 and rank 1 differ"), "{text}");
    let text = panic(|group| {
        let w = group.replicated(&integers(&[2], 0)).unwrap().variable();
        drop(w.backward());
    });
    assert!(text.ends_with("backward: the gradient of Tensor(f32[2]) needs a scalar loss"), "{text}");
    let text = panic(|group| {
        let w = group.replicated(&integers(&[2], 0)).unwrap().variable();
        let square = w.square();
        square.sum(..).backward().unwrap().of(&square);
    });
    let what = "the gradient by Replicated(Tensor(f32[2])) needs a variable (make it one with variable()) or the \
                result of a collective";
    assert!(text.ends_with(what), "{text}");
    let text = panic(|group| {
        let other = group.new_group(&[1, 0]).unwrap().unwrap();
        let x = integers(&[2], 0);
        drop(&group.varying(&x) + &other.varying(&x));
    });
    assert!(text.ends_with("values of different groups, [0, 1] and [1, 0]"), "{text}");
    let text = panic(|group| drop(group.varying(&integers(&[2, 2], 0)).all_to_all(1, -1)));
    assert!(text.ends_with("all_to_all: two different dims, not 1 and -1"), "{text}");
    let text = panic(|group| drop(group.varying(&integers(&[2, 1 + group.rank()], 0)).all_to_all(0, 1)));
    assert!(text.contains("is no even part of 3"), "{text}");
}

#[test]
fn tensors_that_cannot_be_moved_so_are_refused() {
    let flags = || Tensor::from_slice(&[true, false], &[2]);
    let text = panic(|group| drop(group.all_reduce(&flags(), ReduceOp::Max)));
    assert!(text.ends_with("all_reduce: bool is not reduced; make it u8 with to_dtype"), "{text}");
    let text = panic(|group| drop(group.scatter(None, 0, 0)));
    assert!(text.ends_with("scatter: the root gives a tensor with dim 0"), "{text}");
    let deep = || integers(&[1; 15], 0);
    let text = panic(|group| drop(group.scatter(Some(&deep()), 0, 0)));
    assert!(text.contains("scatter: a tensor of 1 to 14 dims, not Tensor("), "{text}");
    let text = panic(|group| {
        let (a, b) = (group.varying(&integers(&[2], 0)), group.varying(&Tensor::from_slice(&[1.0f64], &[1])));
        drop(meshwork::spmd::all_reduce_together(&[&a.partial(), &b.partial()]));
    });
    assert!(text.ends_with("all_reduce_together: values of one group and one dtype"), "{text}");
}

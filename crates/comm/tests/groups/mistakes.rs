//! What becomes of programs that are wrong: every rank gets an error that names the ranks, their calls and the lines.

use meshwork_comm::local::Group;
use meshwork_comm::{Buffers, CommError, Communicator, Operation, Pending, ReduceOp, Request, World, spawn};
use std::time::Duration;

/// The one error that all ranks get.
fn failure(ranks: usize, body: impl Fn(Group) -> Result<(), CommError> + Sync) -> CommError {
    let errors = spawn(ranks, body).expect("nobody panics");
    let errors: Vec<CommError> = errors.into_iter().map(|result| result.expect_err("the world fails")).collect();
    assert!(errors.iter().all(|error| *error == errors[0]));
    errors[0].clone()
}

/// The message, with `LINE` for each line of this file.
fn message(error: &CommError) -> String {
    let text = error.to_string();
    let mut parts = text.split(concat!(file!(), ":"));
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |message, part| {
        let number = |text: &str| text.trim_start_matches(|c: char| c.is_ascii_digit()).to_string();
        let after_line = number(part);
        let after_column = number(after_line.strip_prefix(':').expect("a line and a column"));
        message + "LINE" + &after_column
    })
}

#[test]
fn different_operations_are_named_with_their_lines() {
    let error = failure(2, |group| match group.rank() {
        0 => group.all_reduce(&mut [1.0f32; 3], ReduceOp::Sum),
        _ => group.barrier(),
    });
    assert_eq!(
        message(&error),
        "the calls of the ranks do not fit, the operations differ: rank 0 calls all_reduce(sum, 3 f32) at LINE; \
         rank 1 calls barrier() at LINE"
    );
    let CommError::Mismatch { calls, .. } = error else { panic!("a mismatch") };
    assert_eq!(calls[1].call.site.line(), calls[0].call.site.line() + 1);
}

#[test]
fn different_lengths_types_reductions_and_roots_are_named() {
    let lengths = failure(3, |group| group.all_reduce(&mut vec![0i64; 2 + group.rank() / 2], ReduceOp::Max));
    assert_eq!(
        message(&lengths),
        "the calls of the ranks do not fit, the lengths differ: rank 0 calls all_reduce(max, 2 i64) at LINE; \
         rank 1 calls all_reduce(max, 2 i64) at LINE; rank 2 calls all_reduce(max, 3 i64) at LINE"
    );
    let types = failure(2, |group| match group.rank() {
        0 => group.broadcast(&mut [0u8; 4], 0),
        _ => group.broadcast(&mut [0i32], 0),
    });
    assert_eq!(
        message(&types),
        "the calls of the ranks do not fit, the element types differ: rank 0 calls broadcast(4 u8, root 0) at LINE; \
         rank 1 calls broadcast(1 i32, root 0) at LINE"
    );
    let reductions = failure(2, |group| {
        group.reduce_scatter(&[0.0f64; 2], &mut [0.0], [ReduceOp::Sum, ReduceOp::Mean][group.rank()])
    });
    assert_eq!(
        message(&reductions),
        "the calls of the ranks do not fit, the reductions differ: rank 0 calls reduce_scatter(sum, 2 f64 to 1) at \
         LINE; rank 1 calls reduce_scatter(mean, 2 f64 to 1) at LINE"
    );
    let shapes = failure(2, |group| {
        let mut values = [0.0f32; 6];
        let request = Request::new(Operation::AllReduce(ReduceOp::Sum), Buffers::InPlace(&mut values[..]));
        let shape = [vec![2, 3], vec![3, 2]][group.rank()].clone();
        group.run(Request { shape: Some(shape), ..request })
    });
    assert_eq!(
        message(&shapes),
        "the calls of the ranks do not fit, the shapes differ: rank 0 calls all_reduce(sum, f32[2, 3]) at LINE; \
         rank 1 calls all_reduce(sum, f32[3, 2]) at LINE"
    );
    let roots = failure(2, |group| group.gather(&[1u8], &mut [0; 2], group.rank()));
    assert_eq!(
        message(&roots),
        "the calls of the ranks do not fit, the roots differ: rank 0 calls gather(1 u8 to 2, root 0) at LINE; \
         rank 1 calls gather(1 u8 to 2, root 1) at LINE"
    );
}

#[test]
fn parts_that_make_up_no_whole_are_named() {
    let whole = "the calls of the ranks do not fit, the parts do not make up the whole: ";
    let error = failure(2, |group| group.all_gather(&vec![0u8; group.rank()], &mut [0; 2]));
    assert_eq!(
        message(&error),
        format!("{whole}rank 0 calls all_gather(0 u8 to 2) at LINE; rank 1 calls all_gather(1 u8 to 2) at LINE")
    );
    let error = failure(2, |group| group.reduce_scatter(&[0u8; 5], &mut [0; 2], ReduceOp::Sum));
    assert!(message(&error).starts_with(whole));
    let error = failure(2, |group| group.gather(&[0u8; 5], &mut vec![0; 9 + group.rank()], 0));
    assert!(message(&error).starts_with(whole));
    let error = failure(2, |group| group.scatter(&[0u8; 5], &mut [0; 3], 1));
    assert!(message(&error).starts_with(whole));
    let error = failure(2, |group| {
        let rank = group.rank();
        group.all_to_all_uneven(&[0u8; 2], &[1, 1], &mut vec![0; 1 + rank], &[rank, 1])
    });
    let what = "the calls of the ranks do not fit, what is sent is not what is received: ";
    assert!(message(&error).starts_with(what));
    let error = failure(2, |group| match group.rank() {
        0 => group.send(&[1.0f32; 2], 1),
        _ => group.recv(&mut [0.0f32; 3], 0),
    });
    assert_eq!(
        message(&error),
        "the calls of the ranks do not fit, the lengths differ: rank 0 calls send(2 f32, to rank 1) at LINE; \
         rank 1 calls recv(3 f32, from rank 0) at LINE"
    );
    let error = failure(2, |group| group.new_group(&[group.rank()]).map(drop));
    assert!(
        message(&error).starts_with("the calls of the ranks do not fit, the groups differ: rank 0 calls new_group()")
    );
}

#[test]
fn a_call_that_makes_no_sense_fails_everyone() {
    let of_rank_1 = |body: &(dyn Fn(&Group) -> Result<(), CommError> + Sync)| {
        let error = failure(2, |group| if group.rank() == 1 { body(&group) } else { group.barrier() });
        message(&error)
    };
    assert_eq!(
        of_rank_1(&|group| group.broadcast(&mut [0u8], 2)),
        "rank 1 calls broadcast(1 u8, root 2) at LINE: the group has ranks 0 to 1"
    );
    assert_eq!(
        of_rank_1(&|group| group.send(&[0u8], 1)),
        "rank 1 calls send(1 u8, to rank 1) at LINE: this is rank 1 of the ranks 0 to 1, and a transfer is between two"
    );
    assert_eq!(
        of_rank_1(&|group| group.all_reduce(&mut [1i32], ReduceOp::Mean)),
        "rank 1 calls all_reduce(mean, 1 i32) at LINE: integers have no mean: take the sum"
    );
    assert_eq!(
        of_rank_1(&|group| group.all_to_all(&[1i32; 3], &mut [0; 3])),
        "rank 1 calls all_to_all(3 i32 to 3) at LINE: the counts [1, 1] and [1, 1] do not make up the buffers of 2 ranks"
    );
    assert_eq!(
        of_rank_1(&|group| group.new_group(&[0, 0]).map(drop)),
        "rank 1 calls new_group() at LINE: [0, 0] names a rank twice, or one above 1"
    );
    assert_eq!(
        of_rank_1(&|group| group.along_axes(&[2, 2]).map(drop)),
        "rank 1 calls new_group() at LINE: a mesh of [2, 2] has not as many places as the group has ranks, 2"
    );
}

#[test]
fn a_rank_that_panics_fails_the_others_with_its_cause() {
    let seen = std::sync::Mutex::new(Vec::new());
    let error = spawn(3, |group| {
        if group.rank() == 1 {
            std::panic::resume_unwind(Box::new("out of luck"));
        }
        let error = group.barrier().expect_err("rank 1 never comes");
        seen.lock().unwrap().push(error);
    });
    let expected = CommError::Panicked { rank: 1, cause: "out of luck".into() };
    assert_eq!(expected.to_string(), "rank 1 panicked: out of luck");
    assert_eq!(error, Err(expected.clone()));
    assert_eq!(seen.into_inner().unwrap(), [expected.clone(), expected]);
}

#[test]
fn a_rank_that_ends_early_fails_those_who_wait_for_it() {
    let results = spawn(2, |group| {
        group.barrier()?;
        if group.rank() == 0 { Ok(()) } else { group.all_reduce(&mut [1.0f32], ReduceOp::Sum) }
    });
    let results = results.expect("nobody panics");
    assert_eq!(results[0], Ok(()));
    assert_eq!(
        message(results[1].as_ref().expect_err("rank 0 has ended")),
        "rank 0 has ended, and its last call was barrier() at LINE; it never comes to where the others wait: \
         rank 1 calls all_reduce(sum, 1 f32) at LINE"
    );
    // Also when the other one comes first.
    let results = spawn(2, |group| {
        if group.rank() == 0 {
            std::thread::sleep(Duration::from_millis(50));
            return Ok(());
        }
        group.recv(&mut [0u8], 0)
    });
    assert_eq!(
        message(results.expect("nobody panics")[1].as_ref().expect_err("rank 0 has ended")),
        "rank 0 has ended without a call; it never comes to where the others wait: \
         rank 1 calls recv(1 u8, from rank 0) at LINE"
    );
}

#[test]
fn groups_that_are_used_in_different_orders_do_not_hang() {
    let error = failure(2, |group| {
        let other = group.new_group(&[1, 0])?.expect("all are in it");
        let (first, second) = if group.rank() == 0 { (&group, &other) } else { (&other, &group) };
        first.all_reduce(&mut [1.0f32], ReduceOp::Sum)?;
        second.barrier()
    });
    assert_eq!(
        message(&error),
        "all ranks wait for each other: rank 0 waits in all_reduce(sum, 1 f32) at LINE; \
         rank 1 waits in all_reduce(sum, 1 f32) at LINE"
    );
}

#[test]
fn ranks_that_both_send_first_do_not_hang() {
    let error = failure(2, |group| {
        let other = 1 - group.rank();
        group.send(&[1u8], other)?;
        group.recv(&mut [0u8], other)
    });
    assert!(matches!(error, CommError::Deadlock { .. }));
}

#[test]
fn a_rank_that_does_not_come_in_time_is_named() {
    let world = World::new(3).deadline(Duration::from_millis(100));
    let results = world.spawn(|group| {
        if group.rank() < 2 {
            return group.barrier();
        }
        // It sees the failure only in its own call.
        while group.new_group(&[0]).is_ok() {}
        group.barrier()
    });
    // The third rank calls something else, which is noticed at once.
    assert!(results.expect("nobody panics").iter().all(|result| matches!(result, Err(CommError::Mismatch { .. }))));

    let (late, come) = std::sync::mpsc::channel();
    let (late, come) = (std::sync::Mutex::new(late), std::sync::Mutex::new(come));
    let world = World::new(2).deadline(Duration::from_millis(100));
    let results = world.spawn(|group| {
        if group.rank() == 1 {
            come.lock().unwrap().recv().unwrap();
            return group.barrier();
        }
        let result = group.barrier();
        late.lock().unwrap().send(()).unwrap();
        result
    });
    let results = results.expect("nobody panics");
    assert_eq!(results[0], results[1]);
    assert_eq!(
        message(results[0].as_ref().expect_err("rank 1 is late")),
        "nothing for 100ms: rank 0 calls barrier() at LINE; missing: rank 1 is running and has called nothing yet"
    );
}

#[test]
fn calls_in_the_background_fail_with_the_world() {
    let error = failure(2, |group| {
        let pending = group.all_reduce_async(vec![1.0f32; 4 + group.rank()], ReduceOp::Sum);
        pending?.wait().map(drop)
    });
    assert!(matches!(error, CommError::Mismatch { what: "the lengths differ", .. }));
    let results = spawn(2, |group| match group.rank() {
        0 => group.all_reduce_async(vec![1u8], ReduceOp::Sum)?.wait().map(drop),
        _ => Ok(()),
    });
    assert!(matches!(results.expect("nobody panics")[0], Err(CommError::Ended { .. })));
}

#[test]
fn every_later_call_fails_as_the_first_did() {
    let results = spawn(2, |group| {
        let first = group.all_reduce(&mut vec![1.0f32; 1 + group.rank()], ReduceOp::Sum);
        let later = [group.barrier(), group.send(&[1u8], 1 - group.rank()), group.new_group(&[0]).map(drop)];
        later.iter().for_each(|later| assert_eq!(*later, first));
        group.barrier()
    });
    assert!(results.expect("nobody panics").iter().all(Result::is_err));
}

#[test]
#[should_panic(expected = "a world has at least one rank")]
fn a_world_without_ranks_is_refused() {
    World::new(0);
}

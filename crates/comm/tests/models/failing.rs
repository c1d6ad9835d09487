//! Programs that are wrong: every rank ends, with the error that the protocol promises.

use crate::explore::{explore, world};
use meshwork_comm::local::Group;
use meshwork_comm::{CommError, Communicator, Pending, ReduceOp};
use std::time::Duration;

/// All ranks that fail fail alike; gives that error.
fn failure(results: &[Result<(), CommError>]) -> CommError {
    let mut errors = results.iter().filter_map(|result| result.as_ref().err());
    let first = errors.next().expect("somebody fails").clone();
    assert!(errors.all(|error| *error == first));
    first
}

#[test]
fn calls_that_do_not_fit_fail_everyone() {
    explore(|seed| {
        let results = world(3, seed).spawn(|group| {
            group.all_reduce(&mut [1.0f32], ReduceOp::Sum)?;
            let pending = group.all_reduce_async(vec![0u8; 2], ReduceOp::Max)?;
            match group.rank() {
                2 => group.broadcast(&mut [1.0f32], 0)?,
                _ => group.barrier()?,
            }
            pending.wait().map(drop)
        });
        let results = results.expect("nobody panics");
        assert!(results.iter().all(Result::is_err));
        assert!(matches!(failure(&results), CommError::Mismatch { what: "the operations differ", .. }));
    });
}

#[test]
fn a_panic_fails_whoever_waits() {
    explore(|seed| {
        let result = world(3, seed).spawn(|group| {
            let pending = group.all_reduce_async(vec![1u8], ReduceOp::Sum).expect("nobody has panicked");
            if group.rank() == 1 {
                std::panic::resume_unwind(Box::new("a panic"));
            }
            let outcome = group.barrier();
            // All have come to the first call.
            assert_eq!(pending.wait(), Ok(vec![3]));
            assert_eq!(outcome, Err(CommError::Panicked { rank: 1, cause: "a panic".into() }));
        });
        // Whoever calls for the first time after the panic panics too; the first one counts.
        assert_eq!(result, Err(CommError::Panicked { rank: 1, cause: "a panic".into() }));
    });
}

#[test]
fn an_end_fails_whoever_waits_for_it() {
    explore(|seed| {
        let results = world(3, seed).spawn(|group| {
            let pair = group.new_group(&[0, 2])?;
            match (group.rank(), pair) {
                (0, _) => Ok(()),
                (_, Some(pair)) => pair.barrier(),
                // This one ends, and nobody minds.
                (_, None) => Ok(()),
            }
        });
        let results = results.expect("nobody panics");
        assert!(results[0].is_ok() && results[1].is_ok());
        assert!(matches!(&results[2], Err(CommError::Ended { doing, .. }) if doing.rank == 0));
    });
}

#[test]
fn ranks_in_a_circle_are_told() {
    explore(|seed| {
        let results = world(3, seed).spawn(|group| {
            let mut value = [group.rank() as i64];
            group.recv(&mut value, (group.rank() + 1) % 3)?;
            group.send(&value, (group.rank() + 2) % 3)
        });
        let results = results.expect("nobody panics");
        assert!(results.iter().all(Result::is_err));
        assert!(matches!(failure(&results), CommError::Deadlock { ranks } if ranks.len() == 3));
    });
}

/// Two ranks wait for each other, and the third ends without them.
#[test]
fn a_circle_is_found_when_the_others_have_ended() {
    explore(|seed| {
        let results = world(3, seed).spawn(|group| {
            let groups = [group.new_group(&[0, 1])?, group.new_group(&[1, 0])?];
            let in_order = |groups: [Group; 2], first: usize| {
                groups[first].barrier()?;
                groups[1 - first].barrier()
            };
            match groups {
                [Some(a), Some(b)] => in_order([a, b], group.rank()),
                _ => Ok(()),
            }
        });
        let results = results.expect("nobody panics");
        assert!(results[0].is_err() && results[1].is_err() && results[2].is_ok());
        assert!(matches!(failure(&results), CommError::Deadlock { .. }));
    });
}

/// With deadlines that have passed at once, every call either finds all others there or fails the world: buffers are
/// taken back while others arrive.
#[test]
fn deadlines_pass_at_any_moment() {
    explore(|seed| {
        let results = world(3, seed).deadline(Duration::ZERO).spawn(|group| {
            let mut sums = Vec::new();
            for step in 1..4 {
                let mut values = [step * (group.rank() as i64 + 1)];
                let outcome = group.all_reduce(&mut values, ReduceOp::Sum);
                match &outcome {
                    Ok(()) => assert_eq!(values, [6 * step]),
                    Err(_) => assert_eq!(values, [step * (group.rank() as i64 + 1)]),
                }
                sums.push(outcome);
            }
            sums
        });
        let results = results.expect("nobody panics").concat();
        if results.iter().any(Result::is_err) {
            let error = failure(&results);
            // Without a clock, all may wait before anybody looks at it.
            let told =
                matches!(error, CommError::Deadline { .. } | CommError::Deadlock { .. } | CommError::Ended { .. });
            assert!(told, "{error}");
        }
    });
}

//! Programs that are right: every rank ends with the right values.

use crate::explore::{explore, world};
use meshwork_comm::{CommError, Communicator, Pending, ReduceOp};

#[test]
fn buffers_are_whole_when_a_rank_leaves() {
    explore(|seed| {
        let results = world(3, seed).spawn(|group| {
            let rank = group.rank() as i64;
            let mut values = [rank, 10];
            group.all_reduce(&mut values, ReduceOp::Sum)?;
            let sum = values;
            // Whoever still worked on the buffer would see, or overwrite, this.
            values = [-1, -1];
            let mut gathered = [0; 6];
            group.all_gather(&[rank, sum[0]], &mut gathered)?;
            assert_eq!(values, [-1, -1]);
            Ok::<_, CommError>((sum, gathered))
        });
        let expected = Ok(([3, 30], [0, 3, 1, 3, 2, 3]));
        assert!(results.expect("nobody panics").iter().all(|result| *result == expected));
    });
}

#[test]
fn calls_in_the_background_end_whoever_works_on_them() {
    explore(|seed| {
        let results = world(2, seed).spawn(|group| {
            let rank = group.rank() as i32;
            let first = group.all_reduce_async(vec![rank + 1; 3], ReduceOp::Sum)?;
            let second = group.broadcast_async(vec![rank], 1)?;
            let mut third = [rank];
            group.all_reduce(&mut third, ReduceOp::Max)?;
            // One waits in the order of the calls, one in the other, and one call is left to itself.
            let (first, second) = match rank {
                0 => (first.wait()?, second.wait()?),
                _ => {
                    drop(second);
                    (first.wait()?, vec![1])
                }
            };
            Ok::<_, CommError>((first, second, third))
        });
        let expected = Ok((vec![3; 3], vec![1], [1]));
        assert!(results.expect("nobody panics").iter().all(|result| *result == expected));
    });
}

#[test]
fn a_rank_may_end_before_its_calls_in_the_background() {
    explore(|seed| {
        let results = world(2, seed).spawn(|group| match group.rank() {
            0 => group.send_async(vec![7u8; 4], 1).map(|sent| {
                drop(sent);
                7
            }),
            _ => {
                let mut received = [0u8; 4];
                group.recv(&mut received, 0)?;
                Ok(received[3])
            }
        });
        assert_eq!(results, Ok(vec![Ok(7), Ok(7)]));
    });
}

#[test]
fn groups_work_at_the_same_time() {
    explore(|seed| {
        let results = world(4, seed).spawn(|group| {
            let axes = group.along_axes(&[2, 2])?;
            let mut values = [1i64 << (8 * group.rank())];
            let pending = axes[0].all_reduce_async(values.to_vec(), ReduceOp::Sum)?;
            axes[1].all_reduce(&mut values, ReduceOp::Sum)?;
            let column = pending.wait()?[0];
            axes[0].all_reduce(&mut values, ReduceOp::Sum)?;
            Ok::<_, CommError>((column, values[0]))
        });
        for (rank, result) in results.expect("nobody panics").into_iter().enumerate() {
            let column = if rank % 2 == 0 { 0x1_0001 } else { 0x100_0100 };
            assert_eq!(result, Ok((column, 0x101_0101)));
        }
    });
}

#[test]
fn ranks_exchange_in_a_ring() {
    explore(|seed| {
        let results = world(3, seed).spawn(|group| {
            let (next, before) = ((group.rank() + 1) % 3, (group.rank() + 2) % 3);
            let mut value = [group.rank() as i64];
            for _ in 0..2 {
                let sent = group.send_async(value.to_vec(), next)?;
                group.recv(&mut value, before)?;
                sent.wait()?;
            }
            Ok::<_, CommError>(value[0])
        });
        assert_eq!(results, Ok(vec![Ok(1), Ok(2), Ok(0)]));
    });
}

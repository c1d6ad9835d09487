//! What each collective gives, for every element type, against a definition on one thread.

use half::{bf16, f16};
use meshwork_comm::local::Group;
use meshwork_comm::{CommError, Communicator, Element, Pending, ReduceOp, World, spawn};

/// Types that numbers can be made of.
trait Number: Element {
    fn of(x: u64) -> Self;
}

macro_rules! numbers {
    ($($type:ty: $value:expr;)*) => { $(impl Number for $type { fn of(x: u64) -> Self { $value(x) } })* };
}

numbers! {
    f64: |x| x as f64 / 7.0;
    f32: |x| x as f32 / 7.0;
    f16: |x| f16::from_f32(x as f32 / 7.0);
    bf16: |x| bf16::from_f32(x as f32 / 7.0);
    i64: |x| x as i64 - 50;
    i32: |x| x as i32 - 50;
    u8: |x| x as u8;
}

/// The buffer of a rank.
fn buffer<T: Number>(rank: usize, len: usize) -> Vec<T> {
    (0..len).map(|i| T::of(((rank * 31 + i * 17) % 97) as u64)).collect()
}

/// What each rank has after a body, without failures.
fn on<R: Send>(ranks: usize, body: impl Fn(Group) -> Result<R, CommError> + Sync) -> Vec<R> {
    let results = spawn(ranks, body).expect("nobody panics");
    results.into_iter().map(|result| result.expect("the calls fit")).collect()
}

fn moves_of<T: Number>(ranks: usize) {
    let len = |rank: usize| (rank * 5) % 7;
    let parts: Vec<Vec<T>> = (0..ranks).map(|rank| buffer(rank, len(rank))).collect();
    let whole = parts.concat();
    let root = ranks - 1;

    let gathered = on(ranks, |group| {
        let mut output = vec![T::default(); whole.len()];
        group.all_gather(&parts[group.rank()], &mut output)?;
        Ok(output)
    });
    assert!(gathered.iter().all(|output| *output == whole));

    let gathered = on(ranks, |group| {
        let mut output = vec![T::default(); if group.rank() == root { whole.len() } else { 0 }];
        group.gather(&parts[group.rank()], &mut output, root)?;
        Ok(output)
    });
    assert!(gathered.iter().enumerate().all(|(rank, output)| *output == if rank == root { &whole[..] } else { &[] }));

    let scattered = on(ranks, |group| {
        let input: &[T] = if group.rank() == root { &whole } else { &[] };
        let mut output = vec![T::default(); len(group.rank())];
        group.scatter(input, &mut output, root)?;
        Ok(output)
    });
    assert_eq!(scattered, parts);

    let sent = on(ranks, |group| {
        let mut values = buffer::<T>(group.rank(), 300);
        group.broadcast(&mut values, root)?;
        Ok(values)
    });
    assert!(sent.iter().all(|values| *values == buffer::<T>(root, 300)));

    let exchanged = on(ranks, |group| {
        let mut output = vec![T::default(); 3 * ranks];
        group.all_to_all(&buffer::<T>(group.rank(), 3 * ranks), &mut output)?;
        Ok(output)
    });
    for (rank, output) in exchanged.iter().enumerate() {
        let parts = (0..ranks).map(|from| buffer::<T>(from, 3 * ranks)[3 * rank..3 * rank + 3].to_vec());
        assert_eq!(*output, parts.collect::<Vec<_>>().concat());
    }
}

#[test]
fn every_type_is_moved() {
    for ranks in 1..6 {
        moves_of::<f64>(ranks);
        moves_of::<f32>(ranks);
        moves_of::<f16>(ranks);
        moves_of::<bf16>(ranks);
        moves_of::<i64>(ranks);
        moves_of::<i32>(ranks);
        moves_of::<u8>(ranks);
    }
}

/// All reductions agree with an all-reduce of whole buffers on one thread, whatever the algorithm.
fn reductions_of<T: Number>(ranks: usize, op: ReduceOp, len: usize) {
    let all = on(ranks, |group| {
        let mut values = buffer::<T>(group.rank(), len);
        group.all_reduce(&mut values, op)?;
        Ok(values)
    });
    assert!(all.iter().all(|values| *values == all[0]));

    // One element at a time: no share, no block.
    let one_by_one = on(ranks, |group| {
        let values = buffer::<T>(group.rank(), len);
        let some = [0, len / 2, len - 1].map(|i| {
            let mut value = [values[i]];
            group.all_reduce(&mut value, op)?;
            Ok(value[0])
        });
        some.into_iter().collect::<Result<Vec<T>, CommError>>()
    });
    assert_eq!(one_by_one[0], [0, len / 2, len - 1].map(|i| all[0][i]));

    let root = ranks / 2;
    let reduced = on(ranks, |group| {
        let mut values = buffer::<T>(group.rank(), len);
        group.reduce(&mut values, op, root)?;
        Ok(values)
    });
    for (rank, values) in reduced.iter().enumerate() {
        assert_eq!(*values, if rank == root { all[0].clone() } else { buffer(rank, len) });
    }

    // Uneven parts: the first rank gets nothing.
    let cut = |rank: usize| len * rank * rank / (ranks * ranks);
    let scattered = on(ranks, |group| {
        let (from, to) = (cut(group.rank()), cut(group.rank() + 1));
        let mut output = vec![T::default(); to - from];
        group.reduce_scatter(&buffer::<T>(group.rank(), len), &mut output, op)?;
        Ok(output)
    });
    assert_eq!(scattered.concat(), all[0]);
}

#[test]
fn every_reduction_gives_the_same_bits() {
    for ranks in 1..7 {
        for op in ReduceOp::ALL {
            for len in [1, 65, 3000] {
                reductions_of::<f64>(ranks, op, len);
                reductions_of::<f32>(ranks, op, len);
                reductions_of::<f16>(ranks, op, len);
                reductions_of::<bf16>(ranks, op, len);
            }
        }
        for op in ReduceOp::ALL.into_iter().filter(|op| *op != ReduceOp::Mean) {
            reductions_of::<i64>(ranks, op, 100);
            reductions_of::<i32>(ranks, op, 100);
            reductions_of::<u8>(ranks, op, 100);
        }
    }
}

#[test]
fn sums_are_added_in_pairs_of_ranks() {
    // In f32, (1 + 2⁻²⁴) rounds to 1, but (2⁻²⁴ + 2⁻²⁴) does not vanish beside 1.
    let tiny = 2f32.powi(-24);
    let terms = [1.0, 0.0, tiny, tiny, 1.0];
    let sums = on(5, |group| {
        let mut values = [terms[group.rank()]];
        group.all_reduce(&mut values, ReduceOp::Sum)?;
        Ok(values[0])
    });
    assert!(sums.iter().all(|sum| *sum == ((1.0 + 0.0) + (tiny + tiny)) + 1.0));
    let in_order = on(5, |group| {
        let mut values = [[tiny, 1.0, tiny, 0.0, 0.0][group.rank()]];
        group.all_reduce(&mut values, ReduceOp::Sum)?;
        Ok(values[0])
    });
    assert!(in_order.iter().all(|sum| *sum == 1.0));
}

#[test]
fn parts_of_any_lengths_are_exchanged() {
    let count = |from: usize, to: usize| (from + 2 * to) % 3;
    let exchanged = on(4, |group| {
        let rank = group.rank();
        let send: Vec<usize> = (0..4).map(|to| count(rank, to)).collect();
        let receive: Vec<usize> = (0..4).map(|from| count(from, rank)).collect();
        let input: Vec<i32> = (0..4).flat_map(|to| vec![(10 * rank + to) as i32; send[to]]).collect();
        let mut output = vec![0; receive.iter().sum()];
        group.all_to_all_uneven(&input, &send, &mut output, &receive)?;
        Ok(output)
    });
    for (to, output) in exchanged.iter().enumerate() {
        let expected = (0..4).flat_map(|from| vec![(10 * from + to) as i32; count(from, to)]);
        assert_eq!(*output, expected.collect::<Vec<_>>());
    }
}

#[test]
fn transfers_arrive_in_their_order() {
    let received = on(3, |group| {
        let (next, before) = ((group.rank() + 1) % 3, (group.rank() + 2) % 3);
        let first = group.send_async(vec![group.rank() as i64], next)?;
        let second = group.send_async(vec![10 + group.rank() as i64], next)?;
        let mut values = [[0i64], [0]];
        values.iter_mut().try_for_each(|value| group.recv(value, before))?;
        assert_eq!(first.wait()?, [group.rank() as i64]);
        second.wait()?;
        Ok((values[0][0], values[1][0]))
    });
    assert_eq!(received, [(2, 12), (0, 10), (1, 11)]);
}

#[test]
fn calls_run_in_the_background() {
    let results = on(3, |group| {
        let rank = group.rank() as i64;
        let sum = group.all_reduce_async(vec![rank; 1000], ReduceOp::Sum)?;
        let parts = group.all_gather_async(vec![rank], vec![0; 3])?;
        let own = group.reduce_scatter_async(vec![rank, 10 * rank, 100 * rank], vec![0], ReduceOp::Sum)?;
        let exchanged = group.all_to_all_async(vec![rank; 3], vec![0; 3])?;
        let root = group.broadcast_async(vec![rank], 2)?;
        let reduced = group.reduce_async(vec![rank], ReduceOp::Max, 0)?;
        let gathered = group.gather_async(vec![rank], vec![0; if rank == 1 { 3 } else { 0 }], 1)?;
        let scattered = group.scatter_async(if rank == 0 { vec![7, 8, 9] } else { vec![] }, vec![0], 0)?;
        // They are waited for in another order.
        let scattered = scattered.wait()?;
        let mut blocking = [rank];
        group.all_reduce(&mut blocking, ReduceOp::Product)?;
        assert_eq!(sum.wait()?, vec![3; 1000]);
        let rest = [own, exchanged, root, reduced, gathered, parts];
        let rest: Vec<Vec<i64>> = rest.into_iter().map(Pending::wait).collect::<Result<_, _>>()?;
        Ok((scattered, blocking, rest))
    });
    for (rank, (scattered, blocking, rest)) in results.into_iter().enumerate() {
        assert_eq!(scattered, [7 + rank as i64]);
        assert_eq!(blocking, [0]);
        let own = vec![3 * 10i64.pow(rank as u32)];
        let reduced = vec![if rank == 0 { 2 } else { rank as i64 }];
        let gathered = if rank == 1 { vec![0, 1, 2] } else { vec![] };
        assert_eq!(rest, [own, vec![0, 1, 2], vec![2], reduced, gathered, vec![0, 1, 2]]);
    }
}

#[test]
fn a_call_that_nobody_waits_for_is_done_nevertheless() {
    let sums = on(2, |group| {
        drop(group.all_reduce_async(vec![1.0f32; 10_000], ReduceOp::Sum)?);
        let mut values = [group.rank() as f32];
        group.all_reduce(&mut values, ReduceOp::Sum)?;
        if group.rank() == 0 {
            drop(group.send_async(vec![5u8], 1)?);
            Ok(values[0])
        } else {
            let mut received = [0u8];
            group.recv(&mut received, 0)?;
            Ok(values[0] + f32::from(received[0]))
        }
    });
    assert_eq!(sums, [1.0, 6.0]);
}

/// The caller goes on while the others are late; nobody but the worker of its rank does its part.
#[test]
fn the_caller_goes_on_meanwhile() {
    let results = on(2, |group| {
        let pending = group.all_reduce_async(vec![1i32; 100], ReduceOp::Sum)?;
        let mut step = [0u8];
        if group.rank() == 0 {
            assert!(!pending.is_over(), "the other rank has not called yet");
            group.send(&step, 1)?;
        } else {
            group.recv(&mut step, 0)?;
        }
        while !pending.is_over() {
            std::thread::yield_now();
        }
        pending.wait()
    });
    assert_eq!(results, [vec![2; 100], vec![2; 100]]);
}

#[test]
fn groups_of_groups_have_their_own_ranks() {
    let sums = on(6, |group| {
        // Ranks of the world 5, 3, 1 in this order; of those 1 and 5.
        let odd = group.new_group(&[5, 3, 1])?;
        let Some(odd) = odd else { return Ok(None) };
        assert_eq!(odd.ranks(), [5, 3, 1]);
        let ends = odd.new_group(&[2, 0])?;
        let mut values = [odd.rank() as i64, group.rank() as i64];
        odd.broadcast(&mut values, 0)?;
        let Some(ends) = ends else { return Ok(Some((values, None))) };
        let mut sum = [group.rank() as i64];
        ends.all_reduce(&mut sum, ReduceOp::Sum)?;
        Ok(Some((values, Some((ends.rank(), sum[0])))))
    });
    let root = [0, 5];
    let expected = [None, Some((root, Some((0, 6)))), None, Some((root, None)), None, Some((root, Some((1, 6))))];
    assert_eq!(sums, expected);
}

#[test]
fn groups_along_the_axes_of_a_mesh_add_up_along_them() {
    let sums = on(8, |group| {
        let axes = group.along_axes(&[2, 1, 4])?;
        let sums = axes.iter().map(|axis| {
            let mut value = [group.rank() as i64];
            axis.all_reduce(&mut value, ReduceOp::Sum)?;
            Ok((axis.rank(), value[0]))
        });
        sums.collect::<Result<Vec<_>, CommError>>()
    });
    for (rank, sums) in sums.into_iter().enumerate() {
        let row = if rank < 4 { 6 } else { 22 };
        assert_eq!(sums, [(rank / 4, 2 * (rank as i64 % 4) + 4), (0, rank as i64), (rank % 4, row)]);
    }
}

#[test]
fn a_world_of_one_rank_keeps_its_values() {
    let values = on(1, |group| {
        let mut values = [3.5f32, -1.0];
        group.all_reduce(&mut values, ReduceOp::Mean)?;
        group.barrier()?;
        let mut output = [0.0; 2];
        group.all_gather(&values, &mut output)?;
        Ok(output)
    });
    assert_eq!(values, [[3.5, -1.0]]);
}

#[test]
fn delays_change_nothing() {
    let run = |jitter: Option<u64>| {
        let world = World::new(4);
        let world = jitter.into_iter().fold(world, World::jitter);
        let results = world.spawn(|group| {
            let mut values = buffer::<f32>(group.rank(), 2000);
            let axes = group.along_axes(&[2, 2])?;
            for _ in 0..20 {
                let pending = group.all_reduce_async(values.clone(), ReduceOp::Mean)?;
                let mut gathered = vec![0.0; 4];
                axes[0].all_gather(&values[..1], &mut gathered[..2])?;
                axes[1].all_gather(&values[1..2], &mut gathered[2..])?;
                values = pending.wait()?;
                values[..4].copy_from_slice(&gathered);
            }
            Ok::<_, CommError>(values)
        });
        results.expect("nobody panics").into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let expected = run(None);
    (0..5).for_each(|seed| assert_eq!(run(Some(seed)), expected));
}

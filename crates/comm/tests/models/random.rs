//! Random programs: the same calls on all ranks, blocking and in the background, on the world and on groups, and in some
//! of them one rank that does something else.

use crate::explore::{explore, world};
use meshwork_comm::local::{Group, LocalPending};
use meshwork_comm::{CommError, Communicator, Pending, ReduceOp};

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 32) as usize % n
    }
}

/// What one rank does instead of its call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Panic,
    End,
    OtherCall,
}

/// A call that runs, and the sum that comes of it.
type Running = (LocalPending<i64>, Vec<i64>);

/// One rank of a program; the numbers are the same on all ranks.
fn run(
    group: &Group,
    mut numbers: Numbers,
    calls: usize,
    fault: Option<(usize, usize, Fault)>,
) -> Result<(), CommError> {
    let size = group.world_size();
    let mut groups = group.along_axes(&[2, size / 2])?;
    groups.push(group.clone());
    let mut running: Vec<Running> = Vec::new();
    for call in 0..calls {
        let chosen = &groups[numbers.below(3)];
        let len = 1 + numbers.below(3);
        let background = numbers.below(2) == 0;
        let early = numbers.below(3) == 0;
        match fault {
            Some((rank, at, fault)) if (rank, at) == (group.rank(), call) => match fault {
                Fault::Panic => std::panic::resume_unwind(Box::new("a fault")),
                Fault::End => return Ok(()),
                Fault::OtherCall => group.broadcast(&mut [0u8; 9], 1)?,
            },
            _ => {}
        }
        let value = |rank: usize| (rank + 1) as i64 * (call + 1) as i64;
        let values = vec![value(group.rank()); len];
        let sum = vec![chosen.ranks().iter().map(|&rank| value(rank)).sum(); len];
        if background {
            running.push((chosen.all_reduce_async(values, ReduceOp::Sum)?, sum));
        } else {
            let mut values = values;
            chosen.all_reduce(&mut values, ReduceOp::Sum)?;
            assert_eq!(values, sum);
        }
        if early && !running.is_empty() {
            let (pending, sum) = running.remove(numbers.below(running.len()));
            assert_eq!(pending.wait()?, sum);
        }
    }
    running.into_iter().try_for_each(|(pending, sum)| {
        assert_eq!(pending.wait()?, sum);
        Ok(())
    })
}

#[test]
fn programs_that_are_right_give_their_sums() {
    explore(|seed| {
        let results = world(4, seed).spawn(|group| run(&group, Numbers(seed), 6, None));
        assert_eq!(results, Ok(vec![Ok(()); 4]));
    });
}

#[test]
fn programs_with_a_fault_end() {
    explore(|seed| {
        let mut numbers = Numbers(!seed);
        let fault = [Fault::Panic, Fault::End, Fault::OtherCall][numbers.below(3)];
        let fault = (numbers.below(4), numbers.below(6), fault);
        match world(4, seed).spawn(|group| run(&group, Numbers(seed), 6, Some(fault))) {
            Err(error) => assert_eq!(error, CommError::Panicked { rank: fault.0, cause: "a fault".into() }),
            Ok(results) => {
                assert_ne!(fault.2, Fault::Panic);
                let mut errors = results.iter().filter_map(|result| result.as_ref().err());
                let first = errors.next();
                assert!(errors.all(|error| Some(error) == first));
                assert!(first.is_some(), "{fault:?}: the last call of each group needs everyone");
            }
        }
    });
}

/// Large worlds on plain threads.
#[cfg(not(shuttle))]
#[test]
fn more_ranks_than_cores() {
    explore(|seed| {
        if seed < 10 {
            let results = world(16, seed).spawn(|group| run(&group, Numbers(seed), 100, None));
            assert_eq!(results, Ok(vec![Ok(()); 16]));
        }
    });
}

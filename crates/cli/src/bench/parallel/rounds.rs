//! The parts of an exercise in turn: what drifts meets all of them alike.

use super::load::{Counters, Load};
use crate::bench::timing::median;
use meshwork::{Tensor, synchronize};
use std::time::{Duration, Instant};

/// What the rounds of an exercise take together, after one that warms up.
pub const BUDGET: Duration = Duration::from_secs(3);
const MIN_ROUNDS: usize = 5;
const MAX_ROUNDS: usize = 100;
/// A round that takes this long is the only one.
const LONG: Duration = Duration::from_secs(20);

/// What a part took.
pub struct Measured {
    /// The median.
    pub seconds: f64,
    /// Over all rounds.
    pub load: Load,
}

/// A part: does something, waits for it where that belongs to what is measured, and gives what is to be dropped
/// afterwards.
pub type Part<'a> = &'a mut dyn FnMut() -> Vec<Tensor>;

/// Measures the parts for as long as `budget` says, each from when all devices are idle.
pub fn in_turn<const N: usize>(budget: Duration, mut parts: [Part; N]) -> [Measured; N] {
    let mut times = [(); N].map(|()| Vec::new());
    let mut loads = [(); N].map(|()| Load::default());
    let mut round = |times: &mut [Vec<Duration>; N], loads: &mut [Load; N]| {
        for ((part, times), load) in parts.iter_mut().zip(times).zip(loads) {
            synchronize();
            let (before, start) = (Counters::now(), Instant::now());
            let made = part();
            let took = start.elapsed();
            load.add(&before, took);
            times.push(took);
            drop(made);
            synchronize();
        }
    };
    let begin = Instant::now();
    round(&mut times, &mut loads);
    if begin.elapsed() < LONG {
        times.iter_mut().for_each(Vec::clear);
        loads = [(); N].map(|()| Load::default());
        let begin = Instant::now();
        while times[0].len() < MIN_ROUNDS || (begin.elapsed() < budget && times[0].len() < MAX_ROUNDS) {
            round(&mut times, &mut loads);
        }
    }
    let mut loads = loads.into_iter();
    times.map(|times| Measured { seconds: median(times).as_secs_f64(), load: loads.next().expect("one for each part") })
}

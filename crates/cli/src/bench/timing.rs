//! Timing of work that runs on the device's queue.

use meshwork::{Tensor, synchronize};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// What is measured for one row, after a warm-up.
const BUDGET: Duration = Duration::from_millis(600);
/// Work that is shorter is handed over several times before it is waited for, as in a training.
const GROUP: Duration = Duration::from_millis(4);
const MAX_GROUP: usize = 64;
/// Calls that say how long one takes.
const WARM: usize = 3;
const MIN_GROUPS: usize = 5;

/// Median seconds of one call of `work`, whose tensors are computed and dropped.
pub fn seconds(mut work: impl FnMut() -> Tensor) -> f64 {
    let mut once = |calls: usize| {
        let start = Instant::now();
        for _ in 0..calls {
            work().eval();
        }
        synchronize();
        start.elapsed() / calls as u32
    };
    once(1);
    let first = (0..WARM).map(|_| once(1)).min().unwrap_or_default().max(Duration::from_nanos(1));
    let calls = (GROUP.as_nanos() / first.as_nanos()).clamp(1, MAX_GROUP as u128) as usize;
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < MIN_GROUPS || begin.elapsed() < BUDGET {
        times.push(once(calls));
    }
    median(times).as_secs_f64()
}

/// The median of several values.
pub fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Processor time of this thread.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

//! How fast a training is at the moment.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time that a rate is about, as long as steps are shorter.
const WINDOW: Duration = Duration::from_secs(3);
/// Between two marks that are kept at least this much time passes.
const APART: Duration = Duration::from_millis(100);

/// Where the training was at a moment.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    steps: u64,
    samples: u64,
}

/// Steps and samples a second over the last seconds.
#[derive(Default)]
pub struct Rate {
    /// The oldest is just outside of the window, the last one is the last step.
    marks: VecDeque<Mark>,
    last: Option<Mark>,
}

impl Rate {
    /// A step of so many samples was done at this moment.
    pub fn step(&mut self, at: Instant, samples: usize) {
        let before = self.last.map_or((0, 0), |mark| (mark.steps, mark.samples));
        let mark = Mark { at, steps: before.0 + 1, samples: before.1 + samples as u64 };
        self.last = Some(mark);
        if self.marks.back().is_none_or(|newest| at - newest.at >= APART) {
            self.marks.push_back(mark);
        }
        while self.marks.get(1).is_some_and(|second| at - second.at >= WINDOW) {
            self.marks.pop_front();
        }
    }

    /// Steps and samples a second; nothing before the second step.
    pub fn per_second(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.marks.front()?, self.last?);
        let seconds = (last.at - first.at).as_secs_f64();
        (seconds > 0.0)
            .then(|| ((last.steps - first.steps) as f64 / seconds, (last.samples - first.samples) as f64 / seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let start = Instant::now();
        let mut rate = Rate::default();
        let mut step = |millis: u64| {
            rate.step(start + Duration::from_millis(millis), 4);
            rate.per_second()
        };
        assert_eq!(step(0), None);
        assert_eq!(step(50), Some((20.0, 80.0)));
        (2..=200).for_each(|i| _ = step(i * 50));
        // The steps are slower from here on; the fast ones leave the window.
        (1..=6).for_each(|i| _ = step(10_000 + i * 500));
        let (steps, samples) = step(13_500).unwrap();
        assert!((steps - 2.0).abs() < 0.01 && (samples - 8.0).abs() < 0.04, "{steps} {samples}");
        // One step takes longer than the window.
        assert_eq!(step(33_500), Some((0.05, 0.2)));
    }
}

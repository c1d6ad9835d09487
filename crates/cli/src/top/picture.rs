//! What there is to show of a training.

use meshwork::monitor::{QueueStatus, Status};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most losses that are kept.
const LOSSES: usize = 512;

/// The last status, and what came before it as far as it is shown.
pub struct Picture {
    pub status: Status,
    /// Load of each core, 0 to 1; empty for another machine.
    pub cores: Vec<f64>,
    /// For each device and queue the part of the last interval that it was busy.
    pub busy: Vec<Vec<f64>>,
    /// One loss per status, oldest first.
    pub losses: VecDeque<f32>,
    /// When the last status came.
    news: Instant,
    /// Since then.
    pub silence: Duration,
}

impl Picture {
    /// A picture of the first status: queues have been busy since the start.
    pub fn new(status: Status, now: Instant) -> Picture {
        let busy = shares(None, &status);
        let losses = status.loss.into_iter().collect();
        Picture { status, cores: Vec::new(), busy, losses, news: now, silence: Duration::ZERO }
    }

    /// What has been read at this moment, which may be what was there before.
    pub fn update(&mut self, status: Status, cores: Vec<f64>, now: Instant) {
        self.cores = cores;
        if status.elapsed_ns == self.status.elapsed_ns {
            self.silence = now - self.news;
            return;
        }
        (self.news, self.silence) = (now, Duration::ZERO);
        self.busy = shares(Some(&self.status), &status);
        if status.step > self.status.step {
            self.losses.extend(status.loss);
            while self.losses.len() > LOSSES {
                self.losses.pop_front();
            }
        }
        self.status = status;
    }

    /// The part of the run that is done, if it has an end.
    pub fn done(&self) -> Option<f64> {
        self.status.steps.filter(|steps| *steps > 0).map(|steps| (self.status.step as f64 / steps as f64).min(1.0))
    }

    /// The time that is left at the present rate, if the run has an end.
    pub fn left(&self) -> Option<Duration> {
        let steps = self.status.steps?.saturating_sub(self.status.step);
        Duration::try_from_secs_f64(steps as f64 / self.status.steps_per_second?).ok()
    }
}

fn shares(before: Option<&Status>, now: &Status) -> Vec<Vec<f64>> {
    let time = now.elapsed_ns.saturating_sub(before.map_or(0, |status| status.elapsed_ns));
    let devices = now.devices.iter().enumerate().map(|(d, device)| {
        let share = |(q, queue): (usize, &QueueStatus)| {
            let earlier = before.and_then(|status| status.devices.get(d)?.queues.get(q)).map_or(0, |q| q.busy_ns);
            (queue.busy_ns.saturating_sub(earlier) as f64 / time.max(1) as f64).min(1.0)
        };
        device.queues.iter().enumerate().map(share).collect()
    });
    devices.collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use meshwork::monitor::{DeviceStatus, MemoryStatus, VERSION};

    /// A device with a queue of kernels and one of copies.
    pub fn device(name: &str, busy_ns: u64) -> DeviceStatus {
        let queue = |name: String, running: Option<&str>, depth, busy_ns| QueueStatus {
            name,
            running: running.map(str::to_string),
            depth,
            busy_ns,
            tasks: 7,
            kernels: 70,
        };
        DeviceStatus {
            name: name.into(),
            threads: 2,
            memory: MemoryStatus { used: 13 << 20, peak: 15 << 20, planned: 14 << 20 },
            queues: vec![
                queue(name.into(), Some("dot -> f32[32, 10]"), 2, busy_ns),
                queue(format!("copy to {name}"), None, 0, 0),
            ],
        }
    }

    /// After the second quarter of a second.
    pub fn status() -> Status {
        Status {
            version: VERSION,
            pid: 1234,
            host: "here".into(),
            command: "meshwork train lenet".into(),
            model: "lenet".into(),
            data: "digits".into(),
            folder: None,
            time_ms: 1,
            elapsed_ns: 500_000_000,
            epoch: 3,
            epochs: Some(100),
            step: 1125,
            steps: Some(4500),
            steps_per_second: Some(112.5),
            samples_per_second: Some(3600.0),
            loss: Some(0.25),
            test_accuracy: Some(0.964),
            devices: vec![device("cpu:0", 450_000_000)],
        }
    }

    #[test]
    fn busy_shares_are_those_of_the_last_interval() {
        let start = Instant::now();
        let mut picture = Picture::new(status(), start);
        assert_eq!(picture.busy, [[0.9, 0.0]], "the average so far");
        let next = |elapsed_ns, step, busy| Status {
            elapsed_ns,
            step,
            loss: Some(0.125),
            devices: vec![device("cpu:0", busy)],
            ..status()
        };
        let second = next(1_000_000_000, 1150, 700_000_000);
        picture.update(second.clone(), vec![0.5], start + Duration::from_secs(1));
        assert_eq!((&picture.busy[0][..], &picture.cores[..]), (&[0.5, 0.0][..], &[0.5][..]));
        assert_eq!(picture.losses, [0.25, 0.125]);
        // The same status again is no news.
        picture.update(second, vec![0.75], start + Duration::from_secs(3));
        assert_eq!((picture.busy[0][0], picture.cores[0], picture.losses.len()), (0.5, 0.75, 2));
        assert_eq!(picture.silence, Duration::from_secs(2));
        // Nor is a loss of a step that has been seen.
        picture.update(next(1_250_000_000, 1150, 700_000_000), Vec::new(), start + Duration::from_secs(4));
        assert_eq!((picture.busy[0][0], picture.losses.len(), picture.silence), (0.0, 2, Duration::ZERO));
        assert_eq!(picture.done(), Some(1150.0 / 4500.0));
        assert_eq!(picture.left().map(|left| left.as_secs()), Some(29));
    }

    #[test]
    fn losses_are_not_kept_forever() {
        let now = Instant::now();
        let mut picture = Picture::new(Status { step: 0, loss: None, elapsed_ns: 0, ..status() }, now);
        for step in 1..2000 {
            picture.update(Status { step, elapsed_ns: step, ..status() }, Vec::new(), now);
        }
        assert_eq!(picture.losses.len(), LOSSES);
    }

    #[test]
    fn runs_without_an_end_have_no_time_left() {
        let picture = Picture::new(Status { steps: None, ..status() }, Instant::now());
        assert_eq!((picture.done(), picture.left()), (None, None));
        let picture = Picture::new(Status { steps_per_second: Some(0.0), ..status() }, Instant::now());
        assert_eq!(picture.left(), None);
    }
}

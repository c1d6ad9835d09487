//! What a training does now.

use super::rate::Rate;
use super::system::host;
use super::{About, DeviceStatus, Status, VERSION};
use crate::Device;
use crate::train::Event;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Knows how a training stands. Cheap to clone; clones are the same monitor.
#[derive(Clone)]
pub struct Monitor {
    inner: Arc<Inner>,
}

struct Inner {
    about: About,
    devices: Vec<Device>,
    command: String,
    host: String,
    start: Instant,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    step: u64,
    epoch: u64,
    loss: Option<f32>,
    test_accuracy: Option<f64>,
    rate: Rate,
}

impl Monitor {
    /// The monitor of a training on these devices that is about to begin.
    pub fn new(about: About, devices: Vec<Device>) -> Monitor {
        let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let progress = Mutex::new(Progress { step: about.done, ..Progress::default() });
        let (command, host, start) = (words.join(" "), host(), Instant::now());
        Monitor { inner: Arc::new(Inner { about, devices, command, host, start, progress }) }
    }

    /// The training tells something.
    pub fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Step(step) => {
                let mut progress = self.progress();
                (progress.step, progress.epoch) = (step.step, step.epoch);
                progress.loss = Some(step.loss).filter(|loss| loss.is_finite());
                progress.rate.step(Instant::now(), step.samples);
            }
            Event::Epoch(epoch) => self.progress().test_accuracy = Some(epoch.test.accuracy),
            Event::Saved { .. } => {}
        }
    }

    /// What the training is.
    pub fn about(&self) -> &About {
        &self.inner.about
    }

    /// How the training stands.
    pub fn status(&self) -> Status {
        let Inner { about, devices, command, host, start, .. } = &*self.inner;
        let devices = devices.iter().map(|device| DeviceStatus::from(device.load())).collect();
        let elapsed_ns = start.elapsed().as_nanos() as u64;
        let progress = self.progress();
        let rate = progress.rate.per_second();
        Status {
            version: VERSION,
            pid: std::process::id(),
            host: host.clone(),
            command: command.clone(),
            model: about.model.clone(),
            data: about.data.clone(),
            folder: about.folder.clone(),
            time_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64),
            elapsed_ns,
            epoch: progress.epoch,
            epochs: about.epochs,
            step: progress.step,
            steps: about.steps,
            steps_per_second: rate.map(|(steps, _)| steps),
            samples_per_second: rate.map(|(_, images)| images),
            loss: progress.loss,
            test_accuracy: progress.test_accuracy,
            devices,
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.inner.progress.lock().unwrap_or_else(|e| e.into_inner())
    }
}

//! What a training measures in every step and finds after every epoch, written to files for programs and people.

mod csv;
mod jsonl;
mod record;
mod target;
mod tensorboard;

pub use jsonl::{FILE, Line, read};
pub use record::{DeviceMemory, Run, RunLine, StepLine, ValidationLine, rounded};
pub use target::{Target, target};

use crate::failure::Failure;
use csv::Csv;
use jsonl::Jsonl;
use meshwork::train::{Event, Outcome};
use record::Scale;
use std::path::PathBuf;
use tensorboard::TensorBoard;

/// A file, or a folder of files, that takes metrics.
trait Sink {
    /// The run begins, or goes on.
    fn run(&mut self, run: &RunLine) -> Result<(), Failure>;
    /// A step is done.
    fn step(&mut self, step: &StepLine) -> Result<(), Failure>;
    /// The test set has been gone through.
    fn validation(&mut self, validation: &ValidationLine) -> Result<(), Failure>;
}

/// Where the metrics of a run go.
#[derive(Debug)]
pub struct Targets {
    /// What the user asked for.
    pub given: Vec<Target>,
    /// The folder that the run is saved to.
    pub folder: Option<PathBuf>,
    /// The folder of the run that is resumed, and its steps done.
    pub resumed: Option<(PathBuf, u64)>,
}

impl Targets {
    /// Whether nobody wants to know.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty() && self.folder.is_none()
    }
}

/// The open files of a run.
pub struct Metrics {
    sinks: Vec<Box<dyn Sink>>,
    scale: Scale,
    /// Whether steps have been done since the test set was gone through.
    is_newer: bool,
}

impl Metrics {
    /// Opens what there is to be written; files of a resumed run are cut to the steps that it has done. A sample is so many
    /// tokens, where it is any.
    ///
    /// # Errors
    /// Paths that cannot be written, and files of something else.
    pub fn open(targets: &Targets, tokens: Option<usize>, run: &RunLine) -> Result<Metrics, Failure> {
        let done = targets.resumed.as_ref().map(|(_, steps)| *steps);
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        let own = targets.folder.as_ref().map(|folder| folder.join(FILE));
        if let Some(path) = &own {
            let source = targets.resumed.as_ref().map(|(folder, steps)| (folder.join(FILE), *steps));
            sinks.push(Box::new(Jsonl::of_run(path, source)?));
        }
        for (i, target) in targets.given.iter().enumerate() {
            let is_known = targets.given[..i].contains(target) || own.as_ref().is_some_and(|own| target.is(own));
            if is_known {
                continue;
            }
            sinks.push(match target {
                Target::Jsonl(path) => Box::new(Jsonl::open(path, done)?),
                Target::Csv(path) => Box::new(Csv::open(path, done)?),
                Target::TensorBoard(folder) => Box::new(TensorBoard::open(folder, done.unwrap_or(0))?),
            });
        }
        let mut metrics = Metrics { sinks, scale: Scale { tokens, peak: run.run.peak_gflops * 1e9 }, is_newer: false };
        metrics.each(|sink| sink.run(run))?;
        Ok(metrics)
    }

    /// Writes what an event tells.
    ///
    /// # Errors
    /// A full disk, say.
    pub fn observe(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        match event {
            Event::Step(step) => {
                self.is_newer = true;
                let line = self.scale.step(step);
                self.each(|sink| sink.step(&line))
            }
            Event::Epoch(epoch) => {
                self.is_newer = false;
                let line = ValidationLine::of_epoch(epoch);
                self.each(|sink| sink.validation(&line))
            }
            _ => Ok(()),
        }
    }

    /// Writes what a run comes to that does not end with an epoch.
    ///
    /// # Errors
    /// A full disk, say.
    pub fn finish(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        let Some(test) = outcome.test.filter(|_| self.is_newer) else { return Ok(()) };
        let line = ValidationLine::at(outcome.step, &test, outcome.averaged.as_ref());
        self.each(|sink| sink.validation(&line))
    }

    fn each(&mut self, write: impl Fn(&mut dyn Sink) -> Result<(), Failure>) -> Result<(), Failure> {
        self.sinks.iter_mut().try_for_each(|sink| write(&mut **sink))
    }
}

//! Metrics as lines of JSON.

use super::Sink;
use super::record::{RunLine, StepLine, ValidationLine};
use crate::failure::Failure;
use crate::lines::{LineFile, Purpose, kept_bytes};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file that the folder of a run has.
pub const FILE: &str = "metrics.jsonl";

const GIVEN: Purpose = Purpose { flag: "--metrics", what: "the metrics of a run", advice: "name another file" };
const OWN: Purpose = Purpose { flag: "--save", what: "the metrics of a run", advice: "move the file away" };

/// An open file.
pub struct Jsonl(LineFile);

/// Any line.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Line {
    Run(Box<RunLine>),
    Validation(ValidationLine),
    Step(StepLine),
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        serde_json::from_str(text).ok()
    }

    fn step(&self) -> u64 {
        match self {
            Line::Run(line) => line.step,
            Line::Validation(line) => line.step,
            Line::Step(line) => line.step,
        }
    }
}

/// The lines of a file. One that is being written does not count yet.
///
/// # Errors
/// The number of a line that is of something else.
pub fn read(text: &str) -> Result<Vec<Line>, usize> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().enumerate().map(|(i, line)| Line::parse(line).ok_or(i + 1)).collect()
}

fn kept(text: &str, steps: u64) -> Result<usize, usize> {
    kept_bytes(text, |line| Some(Line::parse(line)?.step() <= steps))
}

impl Jsonl {
    /// A file that somebody asked for; that of a resumed run is cut to the steps done.
    pub fn open(path: &Path, done: Option<u64>) -> Result<Jsonl, Failure> {
        match done {
            Some(steps) if path.exists() => LineFile::resume(GIVEN, path, |text| kept(text, steps)).map(Jsonl),
            _ => LineFile::create(GIVEN, path).map(Jsonl),
        }
    }

    /// The file of a run's folder. That of a resumed run begins with the metrics of the steps done, from a file that may be
    /// another one.
    pub fn of_run(path: &Path, source: Option<(PathBuf, u64)>) -> Result<Jsonl, Failure> {
        let folder = path.parent().expect("the file is in a folder");
        std::fs::create_dir_all(folder).map_err(|e| OWN.cannot("write", folder, &e))?;
        let Some((source, steps)) = source.filter(|(source, _)| source.exists()) else {
            return LineFile::create(OWN, path).map(Jsonl);
        };
        if path.exists() && source.canonicalize().ok() == path.canonicalize().ok() {
            return LineFile::resume(OWN, path, |text| kept(text, steps)).map(Jsonl);
        }
        let text = OWN.read(&source)?;
        let kept = kept(&text, steps).map_err(|line| OWN.other(&source, line))?;
        let mut file = LineFile::create(OWN, path)?;
        file.write(&text[..kept])?;
        Ok(Jsonl(file))
    }

    fn line(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_string(line).expect("records are JSON");
        text.push('\n');
        self.0.write(&text)
    }
}

impl Sink for Jsonl {
    fn run(&mut self, run: &RunLine) -> Result<(), Failure> {
        self.line(run)
    }

    fn step(&mut self, step: &StepLine) -> Result<(), Failure> {
        self.line(step)
    }

    fn validation(&mut self, validation: &ValidationLine) -> Result<(), Failure> {
        self.line(validation)
    }
}

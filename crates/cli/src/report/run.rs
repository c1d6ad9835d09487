//! What the metrics of a run say.

use crate::failure::Failure;
use crate::metrics::{self, Line, RunLine, StepLine, ValidationLine};
use crate::progress::thousands;
use std::path::Path;

/// All that was recorded of a run.
pub struct Recorded {
    /// Its beginning, and where it was resumed.
    pub runs: Vec<RunLine>,
    /// At least one.
    pub steps: Vec<StepLine>,
    pub validations: Vec<ValidationLine>,
}

impl Recorded {
    /// Reads the metrics of a file.
    ///
    /// # Errors
    /// A file that is not there, is of something else, or has no steps.
    pub fn read(file: &Path) -> Result<Recorded, Failure> {
        let name = file.display();
        let text = std::fs::read_to_string(file).map_err(|e| {
            Failure::Mistake(format!(
                "cannot read {name}: {e}; meshwork train … --save DIR keeps metrics in DIR, --metrics FILE.jsonl in a file"
            ))
        })?;
        let lines = metrics::read(&text)
            .map_err(|line| Failure::Mistake(format!("line {line} of {name} is not of the metrics of a run")))?;
        let mut recorded = Recorded { runs: Vec::new(), steps: Vec::new(), validations: Vec::new() };
        for line in lines {
            match line {
                Line::Run(line) => recorded.runs.push(*line),
                Line::Step(line) => recorded.steps.push(line),
                Line::Validation(line) => recorded.validations.push(line),
            }
        }
        match recorded.steps.is_empty() {
            true => Err(Failure::Mistake(format!("{name} has no steps yet"))),
            false => Ok(recorded),
        }
    }

    /// The last step.
    pub fn last(&self) -> &StepLine {
        self.steps.last().expect("there is a step")
    }

    /// `lenet: 1,234 steps, 10 epochs`
    pub fn in_words(&self) -> String {
        let model = self.runs.last().map(|line| format!("{}: ", line.run.model)).unwrap_or_default();
        let epochs = self.validations.iter().filter_map(|line| line.epoch).max().unwrap_or(0);
        let of = |number: u64, what: &str| {
            format!("{} {what}{}", thousands(number as f64), if number == 1 { "" } else { "s" })
        };
        format!("{model}{}, {} done", of(self.last().step, "step"), of(epochs, "epoch"))
    }

    /// The median over the steps, of which the first one of each session compiles and is left out if there are others.
    pub fn median(&self, of: impl Fn(&StepLine) -> Option<f64>) -> Option<f64> {
        let is_first = |step: u64| self.runs.iter().any(|line| line.step + 1 == step);
        let later = self.steps.iter().filter(|line| !is_first(line.step)).filter_map(&of).collect::<Vec<_>>();
        let mut values = if later.is_empty() { self.steps.iter().filter_map(&of).collect() } else { later };
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }
}

//! Metrics as a table: a row for every step, and one whenever the test set has been gone through.

use super::Sink;
use super::record::{RunLine, StepLine, ValidationLine};
use crate::failure::Failure;
use crate::lines::{LineFile, Purpose, kept_bytes};
use std::path::Path;

const PURPOSE: Purpose =
    Purpose { flag: "--metrics", what: "a table of the metrics of a run", advice: "name another file" };

const COLUMNS: &str = "step,epoch,loss,lr,gradient_norm,samples,seconds,samples_per_second,tokens_per_second,tflops,mfu,\
                       peak_memory,train_loss,validation_loss,validation_accuracy,ema_validation_loss,\
                       ema_validation_accuracy";

/// An open table.
pub struct Csv(LineFile);

impl Csv {
    /// A table that somebody asked for; that of a resumed run is cut to the steps done.
    pub fn open(path: &Path, done: Option<u64>) -> Result<Csv, Failure> {
        if let Some(steps) = done.filter(|_| path.exists()) {
            return LineFile::resume(PURPOSE, path, |text| kept(text, steps)).map(Csv);
        }
        let mut file = LineFile::create(PURPOSE, path)?;
        file.write(&format!("{COLUMNS}\n"))?;
        Ok(Csv(file))
    }
}

/// Bytes of a table up to the rows of later steps.
fn kept(text: &str, steps: u64) -> Result<usize, usize> {
    let head = text.split_inclusive('\n').next().filter(|head| head.trim_end() == COLUMNS).ok_or(1usize)?;
    let step = |row: &str| row.split(',').next()?.parse::<u64>().ok();
    let is_row = |row: &str| row.matches(',').count() == COLUMNS.matches(',').count();
    let stays = |row: &str| step(row).filter(|_| is_row(row)).map(|step| step <= steps);
    kept_bytes(&text[head.len()..], stays).map(|kept| head.len() + kept).map_err(|line| line + 1)
}

/// What is not known is an empty cell.
fn cell<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

impl Sink for Csv {
    /// A table has no place for it.
    fn run(&mut self, _: &RunLine) -> Result<(), Failure> {
        Ok(())
    }

    fn step(&mut self, line: &StepLine) -> Result<(), Failure> {
        let &StepLine { step, epoch, lr, samples, seconds, samples_per_second, tflops, mfu, peak_memory, .. } = line;
        let (loss, norm, tokens) = (cell(line.loss), cell(line.gradient_norm), cell(line.tokens_per_second));
        self.0.write(&format!(
            "{step},{epoch},{loss},{lr},{norm},{samples},{seconds},{samples_per_second},{tokens},{tflops},{mfu},\
             {peak_memory},,,,,\n"
        ))
    }

    fn validation(&mut self, line: &ValidationLine) -> Result<(), Failure> {
        let &ValidationLine { step, validation_accuracy: accuracy, .. } = line;
        let (epoch, train, loss) = (cell(line.epoch), cell(line.train_loss), cell(line.validation_loss));
        let (ema_loss, ema_accuracy) = (cell(line.ema_validation_loss), cell(line.ema_validation_accuracy));
        self.0.write(&format!("{step},{epoch},,,,,,,,,,,{train},{loss},{accuracy},{ema_loss},{ema_accuracy}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_later_steps_are_cut_off() {
        let row = |step: u64| format!("{step}{}\n", ",".repeat(16));
        let text = [format!("{COLUMNS}\n"), row(1), row(1), row(2), "3,".to_string()].concat();
        assert_eq!(kept(&text, 0), Ok(COLUMNS.len() + 1));
        assert_eq!(kept(&text, 1), Ok(COLUMNS.len() + 1 + 2 * row(1).len()));
        assert_eq!(kept(&text, 9), Ok(text.len() - 2));
        assert_eq!(kept(&(text + "\n"), 9), Err(5));
        assert_eq!(kept("a,b\n1,2\n", 9), Err(1));
        assert_eq!(kept("", 9), Err(1));
    }
}

//! The log: one line of JSON for every step and every epoch.

use crate::failure::Failure;
use crate::lines::{LineFile, Purpose, kept_bytes};
use meshwork::train::{EpochDone, StepDone, StepScale};
use serde_json::Value;
use std::path::Path;

const PURPOSE: Purpose = Purpose { flag: "--log", what: "a log", advice: "name another file" };

/// An open log.
pub struct Log(LineFile);

impl Log {
    /// A new log, in place of what is there.
    pub fn create(path: &Path) -> Result<Log, Failure> {
        LineFile::create(PURPOSE, path).map(Log)
    }

    /// Goes on with a log after the given number of steps and epochs; what it says of later ones is cut off.
    pub fn resume(path: &Path, steps: u64, epochs: u64) -> Result<Log, Failure> {
        if !path.exists() {
            return Log::create(path);
        }
        LineFile::resume(PURPOSE, path, |text| kept_bytes(text, |line| stays(line, steps, epochs))).map(Log)
    }

    /// `{"step":1,"loss":2.3025851,"lr":0.001}`; in f16 also `"loss_scale":65536,"skipped":false`
    pub fn step(&mut self, step: &StepDone) -> Result<(), Failure> {
        let scaled = step.loss_scale.map_or_else(String::new, |StepScale { scale, is_skipped }| {
            format!(",\"loss_scale\":{scale},\"skipped\":{is_skipped}")
        });
        self.0.write(&format!(
            "{{\"step\":{},\"loss\":{},\"lr\":{}{scaled}}}\n",
            step.step,
            finite(step.loss, step.loss.into()),
            step.lr
        ))
    }

    /// `{"epoch":1,"train_loss":0.5,"test_loss":0.4,"test_accuracy":0.9}`
    pub fn epoch(&mut self, epoch: &EpochDone) -> Result<(), Failure> {
        let loss = finite(epoch.train_loss, epoch.train_loss);
        let EpochDone { epoch, test, averaged, .. } = epoch;
        let averaged = averaged.map_or(String::new(), |test| {
            let (loss, accuracy) = (finite(test.loss, test.loss), finite(test.accuracy, test.accuracy));
            format!(",\"ema_test_loss\":{loss},\"ema_test_accuracy\":{accuracy}")
        });
        let test_loss = finite(test.loss, test.loss);
        self.0.write(&format!(
            "{{\"epoch\":{epoch},\"train_loss\":{loss},\"test_loss\":{test_loss},\"test_accuracy\":{}{averaged}}}\n",
            finite(test.accuracy, test.accuracy)
        ))
    }
}

/// The shortest text that reads back to the same number; JSON has no word for others than finite ones but null.
fn finite(shortest: impl ToString, value: f64) -> String {
    if value.is_finite() { shortest.to_string() } else { "null".to_string() }
}

/// Whether a line is of one of the first steps and epochs; `None` for one that is none of a log.
fn stays(line: &str, steps: u64, epochs: u64) -> Option<bool> {
    let line: Value = serde_json::from_str(line).ok()?;
    let number = |key: &str| line.get(key)?.as_u64();
    number("step").map(|step| step <= steps).or_else(|| number("epoch").map(|epoch| epoch <= epochs))
}

#[cfg(test)]
mod tests {
    use super::{finite, stays};
    use crate::lines;

    fn kept_bytes(text: &str, steps: u64, epochs: u64) -> Result<usize, usize> {
        lines::kept_bytes(text, |line| stays(line, steps, epochs))
    }

    #[test]
    fn later_lines_are_cut_off() {
        let text = "{\"step\":1,\"loss\":2}\n{\"epoch\":1}\n{\"step\":2}\n{\"epoch\":2}\n{\"ste";
        let first = text.find("{\"epoch\":1").unwrap();
        let second = text.find("{\"step\":2").unwrap();
        assert_eq!(kept_bytes(text, 0, 0), Ok(0));
        assert_eq!(kept_bytes(text, 1, 0), Ok(first));
        assert_eq!(kept_bytes(text, 1, 1), Ok(second));
        assert_eq!(kept_bytes(text, 9, 9), Ok(text.len() - 5));
        assert_eq!(kept_bytes("{\"step\":1}\nhello\n", 9, 9), Err(2));
    }

    #[test]
    fn losses_read_back_to_the_same_bits() {
        for loss in [2.345_678_9_f32, 0.1, 1e-30, f32::MIN_POSITIVE, 1.0] {
            assert_eq!(finite(loss, loss.into()).parse::<f32>().unwrap().to_bits(), loss.to_bits());
        }
        assert_eq!(finite(f32::NAN, f64::NAN), "null");
    }
}

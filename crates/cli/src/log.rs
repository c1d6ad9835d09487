//! The log: one line of JSON for every step and every epoch.

use crate::failure::Failure;
use meshwork::train::{EpochDone, StepDone};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// An open log.
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// A new log, in place of what is there.
    pub fn create(path: &Path) -> Result<Log, Failure> {
        let file = File::create(path).map_err(|e| cannot("write", path, &e))?;
        Ok(Log { path: path.to_owned(), file })
    }

    /// Goes on with a log after the given number of steps and epochs; what it says of later ones is cut off.
    pub fn resume(path: &Path, steps: u64, epochs: u64) -> Result<Log, Failure> {
        if !path.exists() {
            return Log::create(path);
        }
        let text = std::fs::read_to_string(path).map_err(|e| cannot("read", path, &e))?;
        let kept = kept_bytes(&text, steps, epochs).map_err(|line| {
            Failure::Mistake(format!("--log: line {line} of {} is not of a log; name another file", path.display()))
        })?;
        let open = || {
            let mut file = OpenOptions::new().write(true).open(path)?;
            file.set_len(kept as u64)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().map_err(|e| cannot("write", path, &e))?;
        Ok(Log { path: path.to_owned(), file })
    }

    /// `{"step":1,"loss":2.3025851,"lr":0.001}`
    pub fn step(&mut self, step: &StepDone) -> Result<(), Failure> {
        self.line(&format!(
            "{{\"step\":{},\"loss\":{},\"lr\":{}}}\n",
            step.step,
            finite(step.loss, step.loss.into()),
            step.lr
        ))
    }

    /// `{"epoch":1,"train_loss":0.5,"test_loss":0.4,"test_accuracy":0.9}`
    pub fn epoch(&mut self, epoch: &EpochDone) -> Result<(), Failure> {
        let loss = finite(epoch.train_loss, epoch.train_loss);
        let EpochDone { epoch, test, .. } = epoch;
        let test_loss = finite(test.loss, test.loss);
        self.line(&format!(
            "{{\"epoch\":{epoch},\"train_loss\":{loss},\"test_loss\":{test_loss},\"test_accuracy\":{}}}\n",
            finite(test.accuracy, test.accuracy)
        ))
    }

    fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.file.write_all(line.as_bytes()).map_err(|e| cannot("write", &self.path, &e))
    }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::System(format!("--log: cannot {what} {}: {error}", path.display()))
}

/// The shortest text that reads back to the same number; JSON has no word for others than finite ones but null.
fn finite(shortest: impl ToString, value: f64) -> String {
    if value.is_finite() { shortest.to_string() } else { "null".to_string() }
}

/// Bytes up to the first line beyond `steps` and `epochs`, or the number of a line that is none of a log. A last
/// line that was cut off in the middle goes, too.
fn kept_bytes(text: &str, steps: u64, epochs: u64) -> Result<usize, usize> {
    let mut kept = 0;
    for (i, line) in text.split_inclusive('\n').enumerate() {
        let number = |key: &str| serde_json::from_str::<Value>(line).ok()?.get(key)?.as_u64();
        let stays = match (number("step"), number("epoch")) {
            _ if !line.ends_with('\n') => false,
            (Some(step), _) => step <= steps,
            (None, Some(epoch)) => epoch <= epochs,
            (None, None) => return Err(i + 1),
        };
        if !stays {
            break;
        }
        kept += line.len();
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::{finite, kept_bytes};

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

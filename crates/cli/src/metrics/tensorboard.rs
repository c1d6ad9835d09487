//! Metrics as TensorBoard reads them: event files, which are TFRecords of `tensorflow.Event` in protocol buffers
//! (tensorflow/core/util/event.proto, framework/summary.proto, lib/io/record_writer.cc).

use super::Sink;
use super::record::{RunLine, StepLine, ValidationLine};
use crate::failure::Failure;
use crate::lines::Purpose;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const PURPOSE: Purpose = Purpose { flag: "--metrics", what: "events of a run", advice: "name another folder" };
const PREFIX: &str = "events.out.tfevents.";
const VERSION: &str = "brain.Event:2";
const GIB: f64 = (1u64 << 30) as f64;

/// An open event file.
pub struct TensorBoard {
    path: PathBuf,
    file: File,
}

impl TensorBoard {
    /// A new file in a folder, after those that are there. What they say of steps beyond the ones done, TensorBoard forgets.
    pub fn open(folder: &Path, done: u64) -> Result<TensorBoard, Failure> {
        let cannot = |e| PURPOSE.cannot("write", folder, &e);
        std::fs::create_dir_all(folder).map_err(cannot)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        // Files are read in the order of their names.
        let begun = newest(folder).map_err(cannot)?.map_or(now, |newest| now.max(newest + 1));
        let path = folder.join(format!("{PREFIX}{begun:010}.meshwork.{}", std::process::id()));
        let file = File::create(&path).map_err(|e| PURPOSE.cannot("write", &path, &e))?;
        let mut events = TensorBoard { path, file };
        events.event(0, |event| event.bytes(3, VERSION.as_bytes()))?;
        // SessionLog with status START: everything from this step on is void.
        events.event(done + 1, |event| event.message(7, |log| log.varint(1, 1)))?;
        Ok(events)
    }

    /// An event with these values.
    fn scalars(&mut self, step: u64, values: &[(&str, Option<f64>)]) -> Result<(), Failure> {
        self.event(step, |event| {
            event.message(5, |summary| {
                for (tag, value) in values.iter().filter_map(|(tag, value)| Some((tag, (*value)?))) {
                    summary.message(1, |scalar| {
                        scalar.bytes(1, tag.as_bytes());
                        scalar.float(2, value as f32);
                    });
                }
            });
        })
    }

    fn event(&mut self, step: u64, what: impl FnOnce(&mut Message)) -> Result<(), Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let mut event = Message::default();
        event.double(1, now);
        event.varint(2, step);
        what(&mut event);
        self.file.write_all(&record(&event.0)).map_err(|e| PURPOSE.cannot("write", &self.path, &e))
    }
}

impl Sink for TensorBoard {
    /// Event files have a session instead, which begins with the file.
    fn run(&mut self, _: &RunLine) -> Result<(), Failure> {
        Ok(())
    }

    fn step(&mut self, line: &StepLine) -> Result<(), Failure> {
        let values = [
            ("loss/train", line.loss.map(f64::from)),
            ("learning_rate", Some(line.lr)),
            ("gradient_norm", line.gradient_norm),
            ("throughput/samples_per_second", Some(line.samples_per_second)),
            ("throughput/tokens_per_second", line.tokens_per_second),
            ("throughput/tflops", Some(line.tflops)),
            ("throughput/mfu", Some(line.mfu)),
            ("memory/peak_gib", Some(line.peak_memory as f64 / GIB)),
        ];
        self.scalars(line.step, &values)
    }

    fn validation(&mut self, line: &ValidationLine) -> Result<(), Failure> {
        let values = [
            ("loss/epoch", line.train_loss),
            ("loss/validation", line.validation_loss),
            ("accuracy/validation", Some(line.validation_accuracy)),
            ("loss/validation_ema", line.ema_validation_loss),
            ("accuracy/validation_ema", line.ema_validation_accuracy),
        ];
        self.scalars(line.step, &values)
    }
}

/// When the newest event file of a folder was begun.
fn newest(folder: &Path) -> std::io::Result<Option<u64>> {
    let mut newest = None;
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let begun = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok());
        newest = newest.max(begun);
    }
    Ok(newest)
}

/// A TFRecord: length, its checksum, the contents, their checksum; little endian.
fn record(contents: &[u8]) -> Vec<u8> {
    let length = (contents.len() as u64).to_le_bytes();
    let parts = [&length[..], &masked(&length), contents, &masked(contents)];
    parts.concat()
}

/// CRC-32C, masked, as a checksum over checksums is a bad one.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// A message of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Number of the field, and how its value is written: 0 varint, 1 eight bytes, 2 bytes after their number, 5 four bytes.
    fn key(&mut self, field: u64, wire: u64) {
        self.number(field << 3 | wire);
    }

    fn varint(&mut self, field: u64, value: u64) {
        self.key(field, 0);
        self.number(value);
    }

    fn double(&mut self, field: u64, value: f64) {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
    }

    fn float(&mut self, field: u64, value: f32) {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.key(field, 2);
        self.number(value.len() as u64);
        self.0.extend(value);
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_framed_by_masked_checksums() {
        // CRC-32C of "123456789" is the check value of the algorithm's catalogue; of 32 zeros that of RFC 3720, B.4.
        assert_eq!(masked(b"123456789"), 0xe306_9283u32.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes());
        assert_eq!(masked(&[0; 32]), 0x8a91_36aau32.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes());
        let record = record(b"abc");
        assert_eq!(record.len(), 8 + 4 + 3 + 4);
        assert_eq!((&record[..8], &record[12..15]), (&[3, 0, 0, 0, 0, 0, 0, 0][..], &b"abc"[..]));
    }

    #[test]
    fn numbers_have_seven_bits_a_byte() {
        let mut message = Message::default();
        message.varint(2, 300);
        message.message(7, |inner| inner.varint(1, 1));
        assert_eq!(message.0, [0x10, 0xac, 0x02, 0x3a, 0x02, 0x08, 0x01]);
    }

    #[test]
    fn a_new_file_comes_after_those_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(format!("{PREFIX}9000000000.host.1.0")), "").unwrap();
        let name = |events: &TensorBoard| events.path.file_name().unwrap().to_str().unwrap().to_string();
        let first = name(&TensorBoard::open(folder.path(), 0).unwrap());
        let second = name(&TensorBoard::open(folder.path(), 3).unwrap());
        assert!(first.starts_with("events.out.tfevents.9000000001.meshwork."), "{first}");
        assert!(second.starts_with("events.out.tfevents.9000000002.meshwork."), "{second}");
    }
}

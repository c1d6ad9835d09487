//! What is published of a training.

use meshwork_runtime::{DeviceLoad, QueueLoad};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Version of what is published. Readers refuse others.
pub const VERSION: u32 = 1;

/// How a training stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`VERSION`].
    pub version: u32,
    /// The process.
    pub pid: u32,
    /// The machine.
    pub host: String,
    /// The command line.
    pub command: String,
    /// The model's name.
    pub model: String,
    /// The data's name.
    pub data: String,
    /// The folder that the run is saved to.
    pub folder: Option<PathBuf>,
    /// Milliseconds from 1970 to this status.
    pub time_ms: u64,
    /// Nanoseconds from the start of the training to this status.
    pub elapsed_ns: u64,
    /// The epoch at hand, from 1; 0 before the first step.
    pub epoch: u64,
    /// Epochs of the whole run.
    pub epochs: Option<u64>,
    /// Steps done, those before a run was resumed included.
    pub step: u64,
    /// Steps of the whole run.
    pub steps: Option<u64>,
    /// Steps a second, over the last seconds.
    pub steps_per_second: Option<f64>,
    /// Samples a second, over the last seconds.
    pub samples_per_second: Option<f64>,
    /// Loss of the last step, if it is a number.
    pub loss: Option<f32>,
    /// Part of the test set that was classified correctly after the last epoch, 0 to 1.
    pub test_accuracy: Option<f64>,
    /// The devices.
    pub devices: Vec<DeviceStatus>,
}

/// How a device stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// Threads of its kernels.
    pub threads: usize,
    /// Its memory.
    pub memory: MemoryStatus,
    /// Its queues.
    pub queues: Vec<QueueStatus>,
}

/// Memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// In use.
    pub used: usize,
    /// The most that was in use at a time.
    pub peak: usize,
    /// What the largest program so far plans for its peak.
    pub planned: usize,
}

/// How a queue stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Its name.
    pub name: String,
    /// The operation that is running.
    pub running: Option<String>,
    /// Tasks that wait.
    pub depth: usize,
    /// Nanoseconds that it was busy since its start.
    pub busy_ns: u64,
    /// Tasks done.
    pub tasks: u64,
    /// Kernels done.
    pub kernels: u64,
}

impl From<DeviceLoad> for DeviceStatus {
    fn from(load: DeviceLoad) -> Self {
        let memory = MemoryStatus { used: load.memory.allocated, peak: load.memory.peak, planned: load.planned };
        let queues = load.queues.into_iter().map(QueueStatus::from).collect();
        DeviceStatus { name: load.name, threads: load.threads, memory, queues }
    }
}

impl From<QueueLoad> for QueueStatus {
    fn from(load: QueueLoad) -> Self {
        let busy_ns = load.busy.as_nanos() as u64;
        let QueueLoad { name, depth, tasks, kernels, running, .. } = load;
        QueueStatus { name, running, depth, busy_ns, tasks, kernels }
    }
}

impl Status {
    /// Reads what was published.
    ///
    /// # Errors
    /// [`StatusError::OtherVersion`] and [`StatusError::Malformed`].
    pub fn parse(text: &str, path: &std::path::Path) -> Result<Status, StatusError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let malformed = |e: serde_json::Error| StatusError::Malformed { path: path.to_owned(), problem: e.to_string() };
        let Versioned { version } = serde_json::from_str(text).map_err(malformed)?;
        if version != VERSION {
            return Err(StatusError::OtherVersion { path: path.to_owned(), version });
        }
        serde_json::from_str(text).map_err(malformed)
    }
}

/// Why there is no status to read.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// There is no file.
    #[error("nothing is published in {}", .0.display())]
    Nothing(PathBuf),
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// Another version of Meshwork wrote the file.
    #[error(
        "{} is a status of version {version}, and this program reads version {VERSION}; watch with the program that trains",
        path.display()
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The file is none of a training.
    #[error("{} is no status of a training: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::path::Path;

    pub fn example() -> Status {
        let queue = QueueStatus {
            name: "cpu:0".into(),
            running: Some("dot -> f32[32, 10]".into()),
            depth: 2,
            busy_ns: 5,
            tasks: 7,
            kernels: 70,
        };
        Status {
            version: VERSION,
            pid: std::process::id(),
            host: "here".into(),
            command: "meshwork train mlp".into(),
            model: "mlp".into(),
            data: "digits".into(),
            folder: Some("runs/mlp".into()),
            time_ms: 1,
            elapsed_ns: 2,
            epoch: 1,
            epochs: Some(3),
            step: 9,
            steps: None,
            steps_per_second: Some(0.5),
            samples_per_second: None,
            loss: Some(0.1),
            test_accuracy: None,
            devices: vec![DeviceStatus {
                name: "cpu:0".into(),
                threads: 2,
                memory: MemoryStatus { used: 1, peak: 3, planned: 2 },
                queues: vec![queue],
            }],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = serde_json::to_string(&example()).unwrap();
        assert_eq!(Status::parse(&text, Path::new("f")).unwrap(), example());
        // A loss that is no number is nothing that JSON has a word for.
        let text = serde_json::to_string(&Status { loss: Some(f32::NAN), ..example() }).unwrap();
        assert_eq!(Status::parse(&text, Path::new("f")).unwrap().loss, None);
    }

    #[test]
    fn what_is_no_status_is_refused() {
        let error = |text: &str| Status::parse(text, Path::new("f")).unwrap_err().to_string();
        let other = "f is a status of version 7, and this program reads version 1; watch with the program that trains";
        assert_eq!(error("{\"version\": 7, \"news\": []}"), other);
        for text in ["", "{", "hello", "[]", "{\"version\": -1}", "{\"version\": 1}"] {
            assert!(error(text).starts_with("f is no status of a training: "), "{}", error(text));
        }
    }
}

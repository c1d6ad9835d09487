//! How the program fails: one clear line and an exit code.

use meshwork::checkpoint::CheckpointError;
use meshwork::data::DataError;
use meshwork::hugging_face::HuggingFaceError;
use meshwork::train::TrainError;
use std::panic::{UnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;

/// Why the program ends without success.
#[derive(Debug)]
pub enum Failure {
    /// The user's mistake: a flag, a key, a value, a file. Exit code 2.
    Mistake(String),
    /// The system refused: a full disk, a file that cannot be written. Exit code 1.
    System(String),
    /// The program's own mistake. Exit code 101.
    Bug(String),
}

impl Failure {
    /// A mistake, from anything that can be said.
    pub fn mistake(text: impl ToString) -> Failure {
        Failure::Mistake(text.to_string())
    }

    /// A mistake in what a flag was given.
    pub fn about(self, flag: &str) -> Failure {
        match self {
            Failure::Mistake(text) => Failure::Mistake(format!("{flag}: {text}")),
            other => other,
        }
    }

    /// Says it on standard error.
    pub fn print(&self) {
        match self {
            Failure::Mistake(text) | Failure::System(text) => eprintln!("error: {text}"),
            Failure::Bug(text) => eprintln!("error: this should not happen, please report it: {text}"),
        }
    }

    /// 2, 1 or 101.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Mistake(_) => 2,
            Failure::System(_) => 1,
            Failure::Bug(_) => 101,
        })
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        if error.is_io() { Failure::System(error.to_string()) } else { Failure::Mistake(error.to_string()) }
    }
}

impl From<HuggingFaceError> for Failure {
    fn from(error: HuggingFaceError) -> Self {
        if error.is_io() { Failure::System(error.to_string()) } else { Failure::Mistake(error.to_string()) }
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Failure::Mistake(error.to_string())
    }
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Checkpoint(error) => error.into(),
            other => Failure::Mistake(other.to_string()),
        }
    }
}

static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Panics print nothing by themselves; [`catch`] says what the last one was.
pub fn one_line_panics() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        let place = info.location().map(|l| format!(" ({}:{})", l.file(), l.line())).unwrap_or_default();
        let line = format!("{}{place}", text.replace('\n', "; "));
        *LAST_PANIC.lock().unwrap_or_else(|e| e.into_inner()) = Some(line);
    }));
}

/// Runs something; a panic becomes [`Failure::Bug`].
pub fn catch<R>(body: impl FnOnce() -> Result<R, Failure> + UnwindSafe) -> Result<R, Failure> {
    catch_unwind(body).unwrap_or_else(|_| {
        let text = LAST_PANIC.lock().unwrap_or_else(|e| e.into_inner()).take();
        Err(Failure::Bug(text.unwrap_or_else(|| "a panic without a message".to_string())))
    })
}

#[cfg(test)]
mod tests {
    use super::{Failure, catch, one_line_panics};

    #[test]
    fn panics_become_one_line() {
        one_line_panics();
        let Err(Failure::Bug(text)) = catch(|| -> Result<(), Failure> { panic!("first\nsecond {}", 3) }) else {
            panic!("a panic is a bug");
        };
        assert!(text.starts_with("first; second 3 (") && text.contains("failure.rs:"), "{text}");
    }
}

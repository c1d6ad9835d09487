//! Running the program in a folder of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A temporary folder in which the program runs.
pub struct Place {
    folder: TempDir,
}

/// What a run printed, and how it ended.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.path(name), contents).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    /// The program with these words as arguments.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwork"));
        command.args(arguments.split_whitespace()).current_dir(self.folder.path());
        command
    }

    pub fn run(&self, arguments: &str) -> Ran {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Runs and expects success.
    pub fn ok(&self, arguments: &str) -> Ran {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(0), "{arguments}: {}{}", ran.stdout, ran.stderr);
        ran
    }

    /// Runs and expects one line of complaint and exit code 2; gives the line.
    pub fn mistake(&self, arguments: &str) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(2), "{arguments}: {}{}", ran.stdout, ran.stderr);
        let line = ran.stderr.strip_suffix('\n').and_then(|text| text.strip_prefix("error: "));
        let line = line.unwrap_or_else(|| panic!("{arguments}: {:?}", ran.stderr));
        assert!(!line.contains('\n') && !line.contains("panicked"), "{arguments}: {line:?}");
        line.to_string()
    }
}

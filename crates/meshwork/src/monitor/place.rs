//! Where statuses are published, and whether who published them still lives.
//!
//! A file is written under another name, locked, and renamed, so that a reader finds it whole, and finds it locked for
//! as long as its process lives: the system takes the lock away however the process ends.

use super::system::{make_private, temporary_folder};
use super::{Status, StatusError};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// At the end of the name of a file that is being written.
const UNFINISHED: &str = ".new";

/// Where no lock can be asked for, a process whose last sign is older than this is taken for dead; leftovers of this
/// age are removed.
const SILENCE: Duration = Duration::from_secs(60);

/// A file for the status of a training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    path: PathBuf,
}

impl Place {
    /// A given file.
    pub fn at(path: impl Into<PathBuf>) -> Place {
        Place { path: path.into() }
    }

    /// The file in the folder of a run.
    pub fn in_run(folder: &Path) -> Place {
        Place::at(folder.join("status.json"))
    }

    /// The file of a process of the user's, if it has published one.
    pub fn of_process(pid: u32) -> Option<Place> {
        let places = user_folders().into_iter().map(|folder| Place::at(folder.join(file_name(pid))));
        places.into_iter().find(|place| fs::symlink_metadata(&place.path).is_ok())
    }

    /// The file of this process, in a folder that only its user can enter.
    pub(super) fn own() -> io::Result<Place> {
        let mut refused = None;
        for folder in user_folders() {
            match make_private(&folder) {
                Ok(()) => return Ok(Place::at(folder.join(file_name(std::process::id())))),
                Err(e) => refused = Some(io::Error::new(e.kind(), format!("{}: {e}", folder.display()))),
            }
        }
        Err(refused.unwrap_or_else(|| io::Error::other("there is no folder for it")))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is published here, and whether its process lives.
    ///
    /// # Errors
    /// [`StatusError`].
    pub fn read(&self) -> Result<(Status, bool), StatusError> {
        let mut before: Option<Status> = None;
        loop {
            let (text, lock) = self.read_locked().map_err(|cause| match cause.kind() {
                io::ErrorKind::NotFound => StatusError::Nothing(self.path.clone()),
                _ => StatusError::Io { path: self.path.clone(), cause },
            })?;
            let status = Status::parse(&text, &self.path)?;
            match lock {
                Lock::Held => return Ok((status, true)),
                Lock::Unknown => {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    let silence = now.saturating_sub(Duration::from_millis(status.time_ms));
                    return Ok((status, silence < SILENCE));
                }
                // Nobody holds this file any more: its process is dead, or has published a newer one just now.
                Lock::Free if before.as_ref() == Some(&status) => return Ok((status, false)),
                Lock::Free => before = Some(status),
            }
        }
    }

    fn read_locked(&self) -> io::Result<(String, Lock)> {
        let mut file = File::open(&self.path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let lock = match file.try_lock_shared() {
            Ok(()) => Lock::Free,
            Err(TryLockError::WouldBlock) => Lock::Held,
            Err(TryLockError::Error(_)) => Lock::Unknown,
        };
        Ok((text, lock))
    }

    /// Publishes. The status counts as that of a living process for as long as the file that is returned is open.
    pub(super) fn write(&self, status: &Status) -> io::Result<File> {
        let text = serde_json::to_string(status).map_err(io::Error::other)?;
        let unfinished = self.unfinished();
        let mut file = File::create(&unfinished)?;
        // Where the file system has no locks, readers go by the time.
        let _ = file.try_lock();
        file.write_all(text.as_bytes())?;
        fs::rename(&unfinished, &self.path)?;
        Ok(file)
    }

    /// Removes what is published here.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(self.unfinished());
    }

    fn unfinished(&self) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}{UNFINISHED}", std::process::id()));
        self.path.with_file_name(name)
    }
}

/// What the lock of a file says of its process.
enum Lock {
    Held,
    Free,
    Unknown,
}

/// The trainings of the user's that run, by process. What dead ones have left behind is removed.
pub fn running() -> Vec<Status> {
    let mut found: Vec<Status> = user_folders().iter().flat_map(|folder| running_in(folder)).collect();
    found.sort_by_key(|status| status.pid);
    found
}

fn running_in(folder: &Path) -> Vec<Status> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let places = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let place = Place::at(entry.path());
        if name.ends_with(UNFINISHED) {
            let age = entry.metadata().ok()?.modified().ok()?.elapsed().unwrap_or_default();
            if age > SILENCE {
                let _ = fs::remove_file(entry.path());
            }
            return None;
        }
        pid_of(&name).map(|_| place)
    });
    let alive = |place: Place| match place.read() {
        Ok((status, true)) => Some(status),
        Ok((_, false)) => {
            place.remove();
            None
        }
        Err(_) => None,
    };
    places.filter_map(alive).collect()
}

fn file_name(pid: u32) -> String {
    format!("{pid}.json")
}

fn pid_of(name: &str) -> Option<u32> {
    name.strip_suffix(".json")?.parse().ok()
}

/// Where processes of the user's publish; the first one that can be had.
fn user_folders() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    runtime.map(|folder| folder.join("meshwork")).into_iter().chain([temporary_folder()]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::status::tests::example;
    use super::*;

    #[test]
    fn a_status_lives_as_long_as_its_file_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::in_run(folder.path());
        assert!(matches!(place.read(), Err(StatusError::Nothing(_))));
        let first = place.write(&example()).unwrap();
        assert_eq!(place.read().unwrap(), (example(), true));
        let next = Status { step: 10, ..example() };
        let second = place.write(&next).unwrap();
        drop(first);
        assert_eq!(place.read().unwrap(), (next.clone(), true));
        drop(second);
        assert_eq!(place.read().unwrap(), (next, false));
        place.remove();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn readers_never_see_half_a_status_or_a_dead_writer() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::in_run(folder.path());
        let mut open = place.write(&example()).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| (0..2000).all(|_| place.read().unwrap().1));
            let mut step = 0;
            while !reader.is_finished() {
                step += 1;
                open = place.write(&Status { step, ..example() }).unwrap();
            }
            assert!(reader.join().unwrap());
        });
        drop(open);
    }

    #[test]
    fn the_dead_are_cleaned_away() {
        let folder = tempfile::tempdir().unwrap();
        let place = |pid: u32| Place::at(folder.path().join(file_name(pid)));
        let living = place(1).write(&Status { pid: 1, ..example() }).unwrap();
        drop(place(2).write(&Status { pid: 2, ..example() }).unwrap());
        fs::write(folder.path().join("3.json"), "{\"version\": 9}").unwrap();
        fs::write(folder.path().join("notes.json"), "mine").unwrap();
        let old = File::create(folder.path().join("4.json.4.new")).unwrap();
        old.set_modified(SystemTime::now() - 2 * SILENCE).unwrap();
        fs::write(folder.path().join("5.json.5.new"), "").unwrap();

        let pids: Vec<u32> = running_in(folder.path()).iter().map(|status| status.pid).collect();
        assert_eq!(pids, [1]);
        let mut left: Vec<String> =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["1.json", "3.json", "5.json.5.new", "notes.json"]);
        drop(living);
    }
}

//! A thread that publishes how a training stands.

use super::{Monitor, Place, running};
use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two statuses.
pub const PERIOD: Duration = Duration::from_millis(250);

/// Whether a training of this process has the process's own file.
static OWN_IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Publishes until it is dropped. That it cannot write stops no training. Of several trainings in one process the
/// first one is found by the process, and each by its folder.
pub struct Publisher {
    has_own: bool,
    /// Disconnecting it ends the thread.
    work: Option<(Sender<()>, JoinHandle<Vec<String>>)>,
}

/// A place with the file that was published last.
struct Published {
    place: Place,
    open: Option<File>,
    warned: bool,
}

impl Published {
    fn write(&mut self, monitor: &Monitor) -> Option<String> {
        match self.place.write(&monitor.status()) {
            Ok(file) => self.open = Some(file),
            Err(e) if !self.warned => {
                self.warned = true;
                return Some(warning(&format!("{}: {e}", self.place.path().display())));
            }
            Err(_) => {}
        }
        None
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if self.open.is_some() {
            self.place.remove();
        }
    }
}

impl Publisher {
    /// Publishes at once, and from now on; also says what is in the way of it.
    pub fn start(monitor: &Monitor) -> (Publisher, Vec<String>) {
        // What dead trainings have left behind goes.
        running();
        let mut warnings = Vec::new();
        let has_own = !OWN_IS_TAKEN.swap(true, Ordering::Relaxed);
        let own = has_own.then(|| Place::own().map_err(|e| warnings.push(warning(&e.to_string()))).ok()).flatten();
        let in_run = monitor.about().folder.as_ref().map(|folder| {
            // It is made with those above it, and if that fails writing will say so.
            let _ = fs::create_dir_all(folder);
            Place::in_run(folder)
        });
        let places = own.into_iter().chain(in_run);
        let mut published: Vec<Published> =
            places.map(|place| Published { place, open: None, warned: false }).collect();
        warnings.extend(published.iter_mut().filter_map(|p| p.write(monitor)));

        let monitor = monitor.clone();
        let (stop, stopped) = channel();
        let publish = move || {
            let mut warnings = Vec::new();
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                warnings.extend(published.iter_mut().filter_map(|p| p.write(&monitor)));
            }
            warnings
        };
        let thread = std::thread::Builder::new().name("meshwork-status".into()).spawn(publish);
        match thread {
            Ok(thread) => (Publisher { has_own, work: Some((stop, thread)) }, warnings),
            Err(e) => {
                warnings.push(warning(&e.to_string()));
                (Publisher { has_own, work: None }, warnings)
            }
        }
    }

    /// Ends, takes away what was published, and says what was in the way of publishing since the start.
    pub fn finish(mut self) -> Vec<String> {
        self.end()
    }

    fn end(&mut self) -> Vec<String> {
        let Some((stop, thread)) = self.work.take() else { return Vec::new() };
        drop(stop);
        thread.join().unwrap_or_default()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.end();
        if self.has_own {
            OWN_IS_TAKEN.store(false, Ordering::Relaxed);
        }
    }
}

fn warning(problem: &str) -> String {
    format!("the training cannot be watched from outside (meshwork top): {problem}")
}

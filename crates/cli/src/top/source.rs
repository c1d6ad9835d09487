//! Which training is watched, and what is heard of it.

use super::{name, words};
use crate::failure::Failure;
use crate::progress::say;
use meshwork::monitor::{Place, Status, StatusError, running};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::path::Path;

/// What is heard of a training.
#[derive(Debug, PartialEq)]
pub enum Seen {
    /// It runs.
    Running(Box<Status>),
    /// It has taken its status away, as trainings do at their end.
    Ended,
    /// Its process is gone, and the status is not.
    Died,
}

/// The place of the training that is named: by its process, by its folder, or by being the only one.
pub fn find(target: Option<&str>) -> Result<Place, Failure> {
    let Some(target) = target else { return only() };
    let path = Path::new(target);
    match target.parse::<u32>() {
        Ok(pid) if !path.exists() => of_process(pid),
        _ if path.is_dir() => {
            let place = Place::in_run(path);
            let nothing = format!(
                "no training publishes itself in {target}: it has ended, or saves elsewhere; meshwork top without \
                 arguments finds those that run"
            );
            if place.path().try_exists().unwrap_or(true) { Ok(place) } else { Err(Failure::Mistake(nothing)) }
        }
        _ if path.exists() => {
            Err(Failure::Mistake(format!("{target} is a file; name a process or the folder of a run")))
        }
        _ => Err(Failure::Mistake(format!("{target:?} is neither a process nor a folder of a run"))),
    }
}

fn of_process(pid: u32) -> Result<Place, Failure> {
    if let Some(place) = Place::of_process(pid) {
        return Ok(place);
    }
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let exists = raw.is_some_and(|pid| matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM)));
    Err(Failure::Mistake(if exists {
        format!("process {pid} is no training of yours; one of another user is found by the folder of its run")
    } else {
        format!("there is no process {pid}; meshwork top without arguments finds the trainings that run")
    }))
}

fn only() -> Result<Place, Failure> {
    let found = running();
    match found.as_slice() {
        [] => Err(Failure::mistake(
            "no training of yours is running on this machine; name the folder of a run to watch another one",
        )),
        [one] => of_process(one.pid),
        several => {
            several.iter().for_each(|status| say(&choice(status)));
            Err(Failure::Mistake(format!(
                "{} trainings are running; name one, such as: meshwork top {}",
                several.len(),
                several[0].pid
            )))
        }
    }
}

/// A training among others.
fn choice(status: &Status) -> String {
    let folder = status.folder.as_ref().map(|folder| format!(", saved to {}", folder.display())).unwrap_or_default();
    let step = words::of(status.step, status.steps);
    format!("{:>8}  {} on {}, step {step}{folder}", status.pid, status.model, status.data)
}

/// What is heard first. There must be something, of a training that lives.
pub fn first(place: &Place) -> Result<Status, Failure> {
    match place.read() {
        Ok((status, true)) => Ok(status),
        Ok((status, false)) => Err(died(&status)),
        Err(e) => Err(failure(e)),
    }
}

/// What is heard now, after `last`.
pub fn look(place: &Place, last: &mut Status) -> Result<Seen, Failure> {
    match place.read() {
        // Another run has taken the folder over.
        Ok((status, _)) if status.pid != last.pid => Ok(Seen::Ended),
        Ok((status, true)) => {
            last.clone_from(&status);
            Ok(Seen::Running(Box::new(status)))
        }
        Ok((_, false)) => Ok(Seen::Died),
        Err(StatusError::Nothing(_)) => Ok(Seen::Ended),
        Err(e) => Err(failure(e)),
    }
}

/// A training that ended without taking its status away.
pub fn died(status: &Status) -> Failure {
    let step = words::thousands(status.step as f64);
    let go_on = match &status.folder {
        Some(folder) => format!("go on from its last checkpoint with: meshwork train --resume {}", folder.display()),
        None => "it was not saved (--save DIR saves)".to_string(),
    };
    Failure::System(format!("{} died after step {step}; {go_on}", name(status)))
}

fn failure(error: StatusError) -> Failure {
    match error {
        StatusError::Io { .. } => Failure::System(error.to_string()),
        _ => Failure::mistake(error),
    }
}

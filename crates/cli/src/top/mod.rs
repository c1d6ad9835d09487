//! `meshwork top`: watching a training, one of another process or (`train --top`) one's own.

mod beside;
mod cores;
mod draw;
mod line;
mod picture;
mod source;
mod terminal;
mod watch;
mod words;

pub use beside::View;
pub use terminal::{is_drawing, restore};
pub use words::time;

use crate::args::TopArgs;
use crate::failure::Failure;
use crate::progress::say;
use meshwork::monitor::Status;
use signal_hook::consts::{SIGINT, SIGTERM};
use source::Seen;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

/// Watches the training that the arguments name until it ends or the user has seen enough.
pub fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    let place = source::find(args.target.as_deref())?;
    let mut last = source::first(&place)?;
    let mut look = || source::look(&place, &mut last);
    let cannot = |e| Failure::System(format!("cannot draw on this terminal ({e}); --plain prints lines"));
    let end = if args.plain || !terminal::is_there() {
        watch::print(&mut look, Duration::from_secs_f64(args.interval))?
    } else {
        watch::draw(&mut look, &[SIGINT, SIGTERM], "q quits", &mut || ControlFlow::Break(())).map_err(cannot)??
    };
    match end {
        Some(Seen::Ended) => {
            say(&format!("{} has ended after step {}", name(&last), words::thousands(last.step as f64)))
        }
        Some(Seen::Died) => return Err(source::died(&last)),
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// `lenet on digits (process 1234)`
fn name(status: &Status) -> String {
    format!("{} on {} (process {})", status.model, status.data, status.pid)
}

//! Watching until the end: drawing on a terminal, or printing lines.

use super::cores::Cores;
use super::line::line;
use super::picture::Picture;
use super::source::Seen;
use super::terminal::{Input, Screen, input};
use crate::failure::Failure;
use meshwork::monitor::{PERIOD, Status};
use std::io::{self, Write, stdout};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How long it takes at most to notice that the training has ended.
const ATTENTION: Duration = Duration::from_millis(50);

/// How it ended; nothing when the user has seen enough.
pub type End = Option<Seen>;

/// Draws on the terminal, with a note of what the keys do. `quit` is called when the user wants to quit, and says whether that ends the view; otherwise
/// the view says that the training is being finished. The outer errors are those of the terminal.
pub fn draw(
    look: &mut dyn FnMut() -> Result<Seen, Failure>,
    signals: &'static [i32],
    keys: &str,
    quit: &mut dyn FnMut() -> ControlFlow<()>,
) -> io::Result<Result<End, Failure>> {
    let mut screen = Screen::open(signals)?;
    let mut watched = Watched::new();
    let mut note = keys;
    loop {
        let picture = match watched.see(look()) {
            Ok(picture) => picture,
            Err(end) => return Ok(end),
        };
        screen.draw(picture, note)?;
        let next = Instant::now() + PERIOD;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            match input(left.min(ATTENTION))? {
                Some(Input::Quit) => match quit() {
                    ControlFlow::Break(()) => return Ok(Ok(None)),
                    ControlFlow::Continue(()) => {
                        note = "finishing the step (again: ends at once)";
                        break;
                    }
                },
                Some(Input::Resize) => break,
                None if left.is_zero() => break,
                None => {
                    if let Ok(end @ (Seen::Ended | Seen::Died)) = look() {
                        return Ok(Ok(Some(end)));
                    }
                }
            }
        }
    }
}

/// Prints a line of text at every interval. That nobody reads them any more is an end, too.
pub fn print(look: &mut dyn FnMut() -> Result<Seen, Failure>, interval: Duration) -> Result<End, Failure> {
    let mut watched = Watched::new();
    loop {
        match watched.see(look()) {
            Ok(picture) if writeln!(stdout(), "{}", line(picture)).is_err() => return Ok(None),
            Ok(_) => {}
            Err(end) => return end,
        }
        let next = Instant::now() + interval;
        while Instant::now() < next {
            std::thread::sleep(next.saturating_duration_since(Instant::now()).min(ATTENTION));
            if let end @ (Seen::Ended | Seen::Died) = look()? {
                return Ok(Some(end));
            }
        }
    }
}

/// A training and the machine under it.
struct Watched {
    cores: Cores,
    picture: Option<Picture>,
}

impl Watched {
    fn new() -> Watched {
        Watched { cores: Cores::new(), picture: None }
    }

    /// The picture after a look; how it ended, when there is nothing more to see.
    fn see(&mut self, seen: Result<Seen, Failure>) -> Result<&Picture, Result<End, Failure>> {
        let status: Status = match seen {
            Ok(Seen::Running(status)) => *status,
            Ok(end) => return Err(Ok(Some(end))),
            Err(e) => return Err(Err(e)),
        };
        let (cores, now) = (self.cores.load(&status.host), Instant::now());
        let picture = self.picture.get_or_insert_with(|| Picture::new(status.clone(), now));
        picture.update(status, cores, now);
        Ok(picture)
    }
}

//! The terminal while something is drawn on it, and its state before, which comes back whatever happens.

use super::draw::draw;
use super::picture::Picture;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use signal_hook::iterator::Signals;
use std::io::{self, IsTerminal, Stdout, stdin, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Whether a screen is open. Who draws or restores holds the lock.
static OPEN: Mutex<bool> = Mutex::new(false);

fn open() -> MutexGuard<'static, bool> {
    OPEN.lock().unwrap_or_else(|e| e.into_inner())
}

/// Whether there is a terminal to draw on and to read keys from.
pub fn is_there() -> bool {
    stdout().is_terminal() && stdin().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether something is being drawn, so that nothing may be printed.
pub fn is_drawing() -> bool {
    *open()
}

/// Gives the terminal back, if something is drawn on it.
pub fn restore() {
    let mut open = open();
    if std::mem::take(&mut *open) {
        // Whatever of it fails, there is no other way back.
        let _ = disable_raw_mode();
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    }
}

/// A terminal that is drawn on until this is dropped.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal. These signals, which end the process, give it back first.
    pub fn open(signals: &'static [i32]) -> io::Result<Screen> {
        restore_on(signals)?;
        let mut open = open();
        enable_raw_mode()?;
        *open = true;
        drop(open);
        let screen = || {
            execute!(stdout(), EnterAlternateScreen)?;
            Ok(Screen { terminal: Terminal::new(CrosstermBackend::new(stdout()))? })
        };
        screen().inspect_err(|_| restore())
    }

    /// Draws a picture, unless the terminal has been given back.
    pub fn draw(&mut self, picture: &Picture, note: &str) -> io::Result<()> {
        let open = open();
        if *open {
            self.terminal.draw(|frame| draw(frame, picture, note))?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// What a user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// `q` or Ctrl-C.
    Quit,
    /// The terminal has another size.
    Resize,
}

/// Waits so long for the user to do something.
pub fn input(time: Duration) -> io::Result<Option<Input>> {
    if !event::poll(time)? {
        return Ok(None);
    }
    Ok(meaning(&event::read()?))
}

fn meaning(event: &Event) -> Option<Input> {
    match event {
        Event::Resize(..) => Some(Input::Resize),
        Event::Key(KeyEvent { kind: KeyEventKind::Press, code, modifiers, .. }) => match code {
            KeyCode::Char('q' | 'Q') => Some(Input::Quit),
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Input::Quit),
            _ => None,
        },
        _ => None,
    }
}

/// From the first call on, these signals give the terminal back before they end the process.
fn restore_on(signals: &'static [i32]) -> io::Result<()> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let mut signals = Signals::new(signals)?;
    let end = move || {
        for signal in signals.forever() {
            restore();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().name("meshwork-signals".into()).spawn(end).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_and_ctrl_c_quit() {
        let key = |code, modifiers| meaning(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Input::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Input::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(meaning(&Event::Resize(80, 24)), Some(Input::Resize));
    }

    #[test]
    fn what_was_never_taken_is_not_given_back() {
        assert!(!is_drawing());
        restore();
        assert!(!is_drawing());
    }
}

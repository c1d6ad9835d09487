//! `train --top`: a view of the training beside it, in a thread of its own.

use super::source::Seen;
use super::{terminal, watch};
use crate::failure::Failure;
use crate::interrupt;
use meshwork::monitor::Monitor;
use signal_hook::consts::SIGTERM;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two lines where there is no terminal to draw on.
const INTERVAL: Duration = Duration::from_secs(1);

/// A view; dropping it closes it.
pub struct View {
    drawn: bool,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<String>>>,
}

impl View {
    /// Opens a view of this training. To quit it is Ctrl-C for the training, which `stop` ends.
    pub fn open(monitor: &Monitor, stop: &Arc<AtomicBool>) -> Result<View, Failure> {
        let (drawn, over) = (terminal::is_there(), Arc::new(AtomicBool::new(false)));
        let (monitor, stop, closed) = (monitor.clone(), stop.clone(), over.clone());
        let view = move || {
            let mut look = || match closed.load(Ordering::Relaxed) {
                true => Ok(Seen::Ended),
                false => Ok(Seen::Running(Box::new(monitor.status()))),
            };
            let mut quit = || {
                interrupt::interrupt(&stop);
                ControlFlow::Continue(())
            };
            if !drawn {
                return watch::print(&mut look, INTERVAL).err().map(|_| String::new());
            }
            let cannot = |e| format!("cannot draw on this terminal any more: {e}");
            watch::draw(&mut look, &[SIGTERM], "q stops the training", &mut quit).err().map(cannot)
        };
        let thread = std::thread::Builder::new().name("meshwork-top".into()).spawn(view);
        let thread = thread.map_err(|e| Failure::System(format!("--top: there is no thread for it: {e}")))?;
        Ok(View { drawn, over, thread: Some(thread) })
    }

    /// Whether it takes the whole terminal, so that nothing may be printed.
    pub fn is_drawn(&self) -> bool {
        self.drawn
    }

    /// Ends the view, and gives the terminal back. Says what was wrong with it.
    pub fn close(&mut self) -> Option<String> {
        self.over.store(true, Ordering::Relaxed);
        let panicked = |_| Some("the view failed".to_string());
        self.thread.take()?.join().unwrap_or_else(panicked)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.close();
    }
}

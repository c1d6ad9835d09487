//! Holding tasks back.

use crate::event::Event;
use std::fmt;
use std::sync::Arc;

/// What tasks can be submitted after until whoever holds it lets go: its end is complete when it is dropped. The holder must
/// not wait for such a task.
pub struct Gate {
    event: Arc<Event>,
}

impl Gate {
    /// A gate that is closed.
    pub fn new() -> Gate {
        Gate { event: Arc::new(Event::new(0)) }
    }

    /// Ends when the gate opens.
    pub fn event(&self) -> &Arc<Event> {
        &self.event
    }
}

impl Default for Gate {
    fn default() -> Self {
        Gate::new()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.event.end(&Ok(()));
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

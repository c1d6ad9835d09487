//! Calls in the background, and the thread that works on them.

use crate::communicator::{Buffers, Given, Pending};
use crate::posted::Posted;
use crate::rendezvous::Rendezvous;
use crate::seat::Seat;
use crate::sync::thread;
use crate::{CommError, Element};
use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// A call in the background. Dropping it without a wait leaves the call to itself: it is done nevertheless, if all
/// ranks come to it.
#[must_use = "the result comes with wait()"]
pub struct LocalPending<T> {
    rendezvous: Arc<Rendezvous<Posted>>,
    seat: Option<Seat>,
    buffers: Arc<Owned<T>>,
    /// It stays on the thread of its rank.
    stays: PhantomData<*const ()>,
}

/// Buffers that the call and its handle have in common. The call reaches their elements by pointers; the vectors are
/// taken when it has ended.
struct Owned<T>(Mutex<Option<Given<T>>>);

impl<T: Element> LocalPending<T> {
    pub(super) fn new(
        rendezvous: Arc<Rendezvous<Posted>>,
        buffers: Given<T>,
        enter: impl FnOnce(Arc<dyn Any + Send + Sync>) -> Result<Seat, CommError>,
    ) -> Result<LocalPending<T>, CommError> {
        let buffers = Arc::new(Owned(Mutex::new(Some(buffers))));
        let seat = enter(buffers.clone())?;
        Ok(LocalPending { rendezvous, seat: Some(seat), buffers, stays: PhantomData })
    }
}

impl<T: Element> Pending<T> for LocalPending<T> {
    fn wait(mut self) -> Result<Vec<T>, CommError> {
        self.rendezvous.wait(self.seat.take().expect("a call is waited for once"))?;
        let buffers = self.buffers.0.lock().unwrap_or_else(|e| e.into_inner()).take();
        match buffers.expect("the call has ended, and nobody else takes its buffers") {
            Buffers::InPlace(buffer) | Buffers::Apart { output: buffer, .. } => Ok(buffer),
        }
    }

    fn is_over(&self) -> bool {
        self.seat.is_none_or(|seat| self.rendezvous.is_over(seat))
    }
}

impl<T> Drop for LocalPending<T> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            self.rendezvous.abandon(seat);
        }
    }
}

/// The thread that works on a rank's calls in the background, once there is one.
pub struct Worker {
    rendezvous: Arc<Rendezvous<Posted>>,
    rank: usize,
    thread: RefCell<Option<thread::JoinHandle<()>>>,
}

impl Worker {
    pub fn new(rendezvous: Arc<Rendezvous<Posted>>, rank: usize) -> Worker {
        Worker { rendezvous, rank, thread: RefCell::new(None) }
    }

    pub fn start(&self) {
        self.thread.borrow_mut().get_or_insert_with(|| {
            let (rendezvous, rank) = (self.rendezvous.clone(), self.rank);
            thread::spawn(move || rendezvous.serve(rank))
        });
    }

    /// Waits until it has nothing to do any more, after the end of the rank.
    pub fn join(&self) {
        let thread = self.thread.borrow_mut().take();
        thread.into_iter().for_each(|thread| thread.join().expect("serving does not panic"));
    }
}

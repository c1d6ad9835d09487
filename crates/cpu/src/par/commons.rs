//! Groups of threads that help each other: one that has nothing to do works on the jobs of the others.

use super::{Called, FOR_GUESTS, Par, Patience, SharedState, helping};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Instant;

/// Groups that help each other.
///
/// Only who computes changes, not what: a task of a job gives the same bits on whichever thread it runs.
#[derive(Default)]
pub struct Commons {
    members: RwLock<Vec<Arc<Entry>>>,
    /// Members that sleep and want to be called when there is a job.
    asleep: AtomicUsize,
}

struct Entry {
    shared: Arc<SharedState>,
    is_asleep: AtomicBool,
    call: Box<dyn Fn() + Send + Sync>,
}

/// Guests have no share of their own.
const NO_SHARE: usize = usize::MAX;

/// The membership of a group; it ends when this is dropped.
pub struct Member {
    commons: Arc<Commons>,
    entry: Arc<Entry>,
}

impl Par {
    /// Shares the jobs of this group with the members of the commons, for each of which up to `guests` threads find work
    /// and room. Returns the membership, with which the group helps others; `call` wakes it when it sleeps.
    pub fn share(&mut self, commons: &Arc<Commons>, guests: usize, call: impl Fn() + Send + Sync + 'static) -> Member {
        self.lanes = self.threads + guests;
        self.commons = Some(commons.clone());
        let entry = Entry { shared: self.shared.clone(), is_asleep: AtomicBool::new(false), call: Box::new(call) };
        let member = Member { commons: commons.clone(), entry: Arc::new(entry) };
        commons.members.write().unwrap_or_else(|e| e.into_inner()).push(member.entry.clone());
        member
    }
}

impl Commons {
    /// Wakes members that sleep. Members say that they sleep before they look for an open gate, and a gate is opened
    /// before this is called: one of the two sees the other.
    pub(super) fn call(&self) {
        if self.asleep.load(Ordering::SeqCst) > 0 {
            // Not under the lock: who is called may hold locks while it looks for a gate.
            let members = self.members.read().unwrap_or_else(|e| e.into_inner()).clone();
            members.iter().filter(|member| member.is_asleep.load(Ordering::SeqCst)).for_each(|member| (member.call)());
        }
    }
}

impl Member {
    /// Works on jobs of other members with all threads of its own group `par`, until `called` or there has been none for
    /// a moment; tells since when. What `begin` gives is held during each job.
    pub fn help<T>(&self, par: &Par, called: &Called, begin: impl Fn() -> T) -> Instant {
        let mut patience = Patience::new();
        while !called() {
            if let Some(other) = self.find() {
                if par.threads == 1 {
                    helping(called, || other.join(FOR_GUESTS, NO_SHARE, &|| called(), &begin));
                } else {
                    let (_busy, _turn) = (begin(), par.turn());
                    par.open(
                        par.threads,
                        &|_| _ = helping(called, || other.join(FOR_GUESTS, NO_SHARE, &|| called(), || ())),
                        None,
                    );
                }
                patience = Patience::new();
            } else if !patience.look_again() {
                break;
            }
        }
        patience.since
    }

    /// Says that the group is about to sleep, and wants to be called when there is a job. Whether there is one already.
    pub fn lie_down(&self) -> bool {
        self.entry.is_asleep.store(true, Ordering::SeqCst);
        self.commons.asleep.fetch_add(1, Ordering::SeqCst);
        self.find().is_some()
    }

    /// Says that the group is awake again.
    pub fn get_up(&self) {
        self.commons.asleep.fetch_sub(1, Ordering::SeqCst);
        self.entry.is_asleep.store(false, Ordering::SeqCst);
    }

    /// Another member that has a job.
    fn find(&self) -> Option<Arc<SharedState>> {
        let members = self.commons.members.read().unwrap_or_else(|e| e.into_inner());
        let open = |entry: &&Arc<Entry>| entry.shared.is_open(FOR_GUESTS) && !Arc::ptr_eq(entry, &self.entry);
        members.iter().find(open).map(|entry| entry.shared.clone())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.commons.members.write().unwrap_or_else(|e| e.into_inner());
        members.retain(|entry| !Arc::ptr_eq(entry, &self.entry));
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Member")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    /// A group of so many threads that helps others, asleep when there is nothing, until `end`.
    fn helper(
        commons: &Arc<Commons>,
        threads: usize,
        end: Arc<AtomicBool>,
    ) -> (mpsc::Sender<()>, thread::JoinHandle<usize>) {
        let (called, calls) = mpsc::channel();
        let (commons, call) = (commons.clone(), called.clone());
        let body = move || {
            let mut par = Par::new(threads);
            let member = par.share(&commons, 1, move || _ = call.send(()));
            let jobs = AtomicUsize::new(0);
            while !end.load(Ordering::SeqCst) {
                member.help(&par, &|| end.load(Ordering::SeqCst), || jobs.fetch_add(1, Ordering::SeqCst));
                if !member.lie_down() {
                    let _ = calls.recv();
                }
                member.get_up();
            }
            jobs.into_inner()
        };
        (called, thread::spawn(body))
    }

    /// Each task waits until all have begun, each on a thread of its own.
    fn all_at_once(par: &Par, count: usize) -> bool {
        let (begun, deadline) = (AtomicUsize::new(0), Instant::now() + Duration::from_secs(20));
        let missed = AtomicBool::new(false);
        par.run(count, &|_| {
            begun.fetch_add(1, Ordering::SeqCst);
            while begun.load(Ordering::SeqCst) < count && !missed.load(Ordering::SeqCst) {
                missed.fetch_or(Instant::now() > deadline, Ordering::SeqCst);
                thread::yield_now();
            }
        });
        !missed.into_inner()
    }

    #[test]
    fn who_has_nothing_to_do_helps() {
        let commons = Arc::new(Commons::default());
        let end = Arc::new(AtomicBool::new(false));
        let mut par = Par::new(1);
        let member = par.share(&commons, 2, || {});
        assert_eq!((par.threads(), par.lanes()), (1, 3));
        let (called, thread) = helper(&commons, 2, end.clone());
        for round in 0..30 {
            // Sometimes the helper looks for work just now, sometimes it sleeps.
            thread::sleep(Duration::from_micros(40 * round));
            assert!(all_at_once(&par, 3), "two threads came to help, in round {round}");
        }
        end.store(true, Ordering::SeqCst);
        // It may be awake, and have ended already.
        let _ = called.send(());
        assert!(thread.join().unwrap() >= 30);
        drop(member);
        assert!(commons.members.read().unwrap().is_empty());
    }

    #[test]
    fn many_jobs_are_done_once_with_and_without_help() {
        let commons = Arc::new(Commons::default());
        let end = Arc::new(AtomicBool::new(false));
        let helpers: Vec<_> = (0..2).map(|_| helper(&commons, 1, end.clone())).collect();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let commons = commons.clone();
                thread::spawn(move || {
                    let mut par = Par::new(2);
                    let _member = par.share(&commons, 2, || {});
                    for count in (0..3000).map(|i| i % 11) {
                        let hits: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                        par.run(count, &|i| _ = hits[i].fetch_add(1, Ordering::Relaxed));
                        assert!(hits.into_iter().all(|hits| hits.into_inner() == 1));
                    }
                })
            })
            .collect();
        others.into_iter().for_each(|thread| thread.join().unwrap());
        end.store(true, Ordering::SeqCst);
        for (called, thread) in helpers {
            // It may be awake, and have ended already.
            let _ = called.send(());
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_panic_of_who_helps_reaches_the_caller() {
        let commons = Arc::new(Commons::default());
        let end = Arc::new(AtomicBool::new(false));
        let mut par = Par::new(1);
        let _member = par.share(&commons, 1, || {});
        let (called, thread) = helper(&commons, 1, end.clone());
        let caller = thread::current().id();
        let begun = AtomicUsize::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            par.run(2, &|_| {
                begun.fetch_add(1, Ordering::SeqCst);
                let deadline = Instant::now() + Duration::from_secs(20);
                while begun.load(Ordering::SeqCst) < 2 && Instant::now() < deadline {
                    thread::yield_now();
                }
                assert!(thread::current().id() == caller, "no guest can do this");
            });
        }));
        let panic = outcome.expect_err("the guest's panic");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"no guest can do this"));
        assert!(all_at_once(&par, 2), "both go on");
        end.store(true, Ordering::SeqCst);
        // It may be awake, and have ended already.
        let _ = called.send(());
        thread.join().unwrap();
    }

    #[test]
    fn who_is_called_away_leaves_the_rest_to_others() {
        let commons = Arc::new(Commons::default());
        let mut par = Par::new(1);
        let _member = par.share(&commons, 1, || {});
        let called = Arc::new(AtomicBool::new(false));
        let (commons, stop) = (commons.clone(), called.clone());
        let guest = thread::spawn(move || {
            let mut par = Par::new(1);
            let member = par.share(&commons, 1, || {});
            while !stop.load(Ordering::SeqCst) {
                member.help(&par, &|| stop.load(Ordering::SeqCst), || ());
            }
        });
        let owner = thread::current().id();
        let done: Vec<AtomicUsize> = (0..2000).map(|_| AtomicUsize::new(0)).collect();
        let came = AtomicBool::new(false);
        let deadline = Instant::now() + Duration::from_secs(20);
        // The owner does nothing until the guest has come, which is called away at its first piece and could do all.
        crate::par::with_slots(&par, 2, done.len(), |_, piece: usize| {
            done[piece].fetch_add(1, Ordering::SeqCst);
            if thread::current().id() == owner {
                while !came.load(Ordering::SeqCst) && Instant::now() < deadline {
                    thread::yield_now();
                }
            } else {
                assert!(!came.swap(true, Ordering::SeqCst), "one piece is all that the guest does");
                called.store(true, Ordering::SeqCst);
            }
        });
        assert!(came.into_inner(), "the guest came");
        assert!(done.into_iter().all(|times| times.into_inner() == 1));
        guest.join().unwrap();
    }
}

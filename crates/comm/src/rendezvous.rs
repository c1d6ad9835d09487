//! The protocol by which ranks meet: `PROTOCOL.md` says why nobody waits for ever, and why nobody leaves a meeting while
//! its buffers are in use.

use crate::Call;
use crate::bell::Bell;
use crate::error::{CommError, Doing, RankCall, State as Activity};
use crate::seat::{Key, Seat};
use crate::sync::{Mutex, lock};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What ranks bring to a meeting.
pub trait Contribution: Send + Sync + 'static {
    /// The call that brings it.
    fn call(&self) -> Call;

    /// Says what does not fit, if something does not. All members' contributions, in their order.
    fn check(all: &[Self]) -> Result<(), &'static str>
    where
        Self: Sized;

    /// Does the part of the work that is that of a member. It waits for nothing.
    fn work(all: &[Self], member: usize)
    where
        Self: Sized;
}

/// Where all ranks of a world meet.
pub struct Rendezvous<C> {
    state: Mutex<State<C>>,
    /// For each rank, that of its own thread and that of its worker.
    bells: Vec<[Bell; 2]>,
    deadline: Duration,
    /// How often who waits looks whether the bell has rung before it sleeps.
    spins: usize,
}

struct State<C> {
    meetings: FxHashMap<Key, Meeting<C>>,
    ranks: Vec<Rank>,
    /// Ranks that cannot go on by themselves: they have ended, or wait in a meeting where somebody is missing.
    stuck: usize,
    /// Meetings that have begun.
    begun: u64,
    failure: Option<CommError>,
}

struct Rank {
    doing: Thread,
    last: Option<Call>,
    /// Calls in the background, in their order, whose work is not begun.
    background: VecDeque<Seat>,
}

/// What the thread of a rank does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    Running,
    /// In a meeting where somebody is missing.
    Stuck(Key),
    Ended,
}

struct Meeting<C> {
    /// The rank of each member.
    ranks: Arc<[usize]>,
    /// What has been brought, until all have come.
    brought: Vec<Option<C>>,
    stage: Stage<C>,
    /// Members that have gone, or said that nobody will ask.
    left: usize,
    /// A part of the work panicked.
    broken: bool,
}

enum Stage<C> {
    /// Somebody is missing.
    Gathering,
    /// All are there. Each member's part of the work is to be begun, or not; so many are not done.
    Working { number: u64, all: Arc<[C]>, unbegun: Vec<bool>, undone: usize },
    /// The work is done, well or not.
    Done { number: u64 },
}

impl<C: Contribution> Meeting<C> {
    fn new(ranks: &Arc<[usize]>) -> Meeting<C> {
        let brought = ranks.iter().map(|_| None).collect();
        Meeting { ranks: ranks.clone(), brought, stage: Stage::Gathering, left: 0, broken: false }
    }

    /// Everything that was brought, if the member's part of the work is to be begun. Who gets it must do it.
    fn claim(&mut self, member: usize) -> Option<Arc<[C]>> {
        let Stage::Working { all, unbegun, .. } = &mut self.stage else { return None };
        std::mem::take(&mut unbegun[member]).then(|| all.clone())
    }

    /// The ranks that are missing.
    fn missing(&self) -> impl Iterator<Item = usize> {
        let gathering = matches!(self.stage, Stage::Gathering);
        let missing = self.ranks.iter().zip(&self.brought).filter(move |(_, brought)| gathering && brought.is_none());
        missing.map(|(&rank, _)| rank)
    }

    /// The calls that are there.
    fn calls(&self) -> Vec<RankCall> {
        let there = self.ranks.iter().zip(&self.brought).filter_map(|(&rank, brought)| Some((rank, brought.as_ref()?)));
        there.map(|(rank, brought)| RankCall { rank, call: brought.call() }).collect()
    }
}

impl<C: Contribution> State<C> {
    fn doing(&self, rank: usize) -> Doing {
        let state = match self.ranks[rank].doing {
            Thread::Running => Activity::Running,
            Thread::Stuck(_) => Activity::Waiting,
            Thread::Ended => Activity::Ended,
        };
        Doing { rank, state, last: self.ranks[rank].last.clone() }
    }

    /// One member less will ask for the meeting.
    fn leave(&mut self, key: &Key) {
        let Some(meeting) = self.meetings.get_mut(key) else { return };
        meeting.left += 1;
        self.forget_if_over(key);
    }

    fn forget_if_over(&mut self, key: &Key) {
        let over =
            |meeting: &Meeting<C>| meeting.left == meeting.ranks.len() && matches!(meeting.stage, Stage::Done { .. });
        if self.meetings.get(key).is_some_and(over) {
            self.meetings.remove(key);
        }
    }
}

impl<C: Contribution> Rendezvous<C> {
    /// For so many ranks. Who waits in vain for longer than the deadline fails.
    /// `spins` says how often who waits looks whether the bell has rung before it falls asleep.
    pub fn new(ranks: usize, deadline: Duration, spins: usize) -> Rendezvous<C> {
        let rank = |_| Rank { doing: Thread::Running, last: None, background: VecDeque::new() };
        let state = State {
            meetings: FxHashMap::default(),
            ranks: (0..ranks).map(rank).collect(),
            stuck: 0,
            begun: 0,
            failure: None,
        };
        Rendezvous {
            state: Mutex::new(state),
            bells: (0..ranks).map(|_| [Bell::default(), Bell::default()]).collect(),
            deadline,
            spins,
        }
    }

    /// Takes a seat and brings something. `background` says that the rank's worker may do its part of the work.
    ///
    /// # Errors
    /// When the world has failed, or does so by this call. Nothing of what was brought is used then.
    pub fn arrive(&self, seat: Seat, ranks: &Arc<[usize]>, brought: C, background: bool) -> Result<(), CommError> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.ranks[seat.rank].last = Some(brought.call());
        let meeting = state.meetings.entry(seat.key).or_insert_with(|| Meeting::new(ranks));
        meeting.brought[seat.member] = Some(brought);
        let missing = meeting.missing().count();
        let ended = meeting.missing().find(|&rank| state.ranks[rank].doing == Thread::Ended);
        if background {
            state.ranks[seat.rank].background.push_back(seat);
        }
        if missing == 0 {
            return self.begin(state, seat.key);
        }
        match ended {
            Some(rank) => {
                let waiting = state.meetings[&seat.key].calls();
                Err(self.fail(state, CommError::Ended { doing: state.doing(rank), waiting }))
            }
            None => Ok(()),
        }
    }

    /// Everybody has come: whoever waits goes to work.
    fn begin(&self, state: &mut State<C>, key: Key) -> Result<(), CommError> {
        let meeting = state.meetings.get_mut(&key).expect("a meeting that somebody has come to");
        let calls = meeting.calls();
        let all: Arc<[C]> = meeting.brought.drain(..).map(|brought| brought.expect("nobody is missing")).collect();
        if let Err(what) = C::check(&all) {
            state.meetings.remove(&key);
            return Err(self.fail(state, CommError::Mismatch { what, calls }));
        }
        state.begun += 1;
        let members = all.len();
        meeting.stage = Stage::Working { number: state.begun, all, unbegun: vec![true; members], undone: members };
        for &rank in meeting.ranks.iter() {
            let [own, worker] = &self.bells[rank];
            if state.ranks[rank].doing == Thread::Stuck(key) {
                state.ranks[rank].doing = Thread::Running;
                state.stuck -= 1;
                own.ring();
            } else {
                worker.ring();
            }
        }
        Ok(())
    }

    /// Waits until the work of a meeting is done, and does one's own part. Gives the number of the meeting, the same for
    /// all members and no other meeting's.
    ///
    /// # Errors
    /// The failure of the world, if not everybody had come before it.
    pub fn wait(&self, seat: Seat) -> Result<u64, CommError> {
        let until = Instant::now().checked_add(self.deadline);
        let mut state = lock(&self.state);
        let mut spun = false;
        loop {
            let Some(meeting) = state.meetings.get_mut(&seat.key) else {
                return Err(state
                    .failure
                    .clone()
                    .expect("a meeting goes away before all have left when it has failed"));
            };
            let wait_until = match meeting.stage {
                Stage::Done { number } => {
                    let broken = meeting.broken;
                    state.leave(&seat.key);
                    return match &state.failure {
                        Some(failure) if broken => Err(failure.clone()),
                        _ => Ok(number),
                    };
                }
                Stage::Working { .. } => {
                    if let Some(all) = meeting.claim(seat.member) {
                        state.ranks[seat.rank].background.retain(|other| other.key != seat.key);
                        drop(state);
                        self.work(seat, all);
                        state = lock(&self.state);
                        spun = false;
                        continue;
                    }
                    None
                }
                Stage::Gathering => {
                    if let Some(failure) = state.failure.clone() {
                        let meeting = state.meetings.get_mut(&seat.key).expect("found above");
                        meeting.brought[seat.member] = None;
                        return Err(failure);
                    }
                    if state.ranks[seat.rank].doing == Thread::Running {
                        state.ranks[seat.rank].doing = Thread::Stuck(seat.key);
                        state.stuck += 1;
                        self.fail_if_all_are_stuck(&mut state);
                        continue;
                    }
                    if until.is_some_and(|until| until <= Instant::now()) {
                        self.miss(&mut state, seat.key);
                        continue;
                    }
                    until
                }
            };
            let own = &self.bells[seat.rank][0];
            state = match spun {
                true => own.sleep(state, wait_until),
                false => own.spin(&self.state, state, self.spins),
            };
            spun = true;
        }
    }

    /// Does a member's part of the work, without the lock.
    fn work(&self, seat: Seat, all: Arc<[C]>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| C::work(&all, seat.member)));
        // Whoever finds the work done finds nobody who still looks at what was brought.
        drop(all);
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if let Err(panic) = outcome {
            let cause = message(&*panic).into();
            self.fail(state, CommError::Panicked { rank: seat.rank, cause });
            state.meetings.get_mut(&seat.key).into_iter().for_each(|meeting| meeting.broken = true);
        }
        let meeting = state.meetings.get_mut(&seat.key).expect("a meeting lasts until its work is done");
        let Stage::Working { number, undone, .. } = &mut meeting.stage else {
            unreachable!("the work is done before its last part is")
        };
        *undone -= 1;
        if *undone == 0 {
            meeting.stage = Stage::Done { number: *number };
            meeting.ranks.iter().for_each(|&rank| self.bells[rank][0].ring());
            state.forget_if_over(&seat.key);
        }
    }

    /// Says that the member will not ask whether the work is done. It is done nevertheless.
    pub fn abandon(&self, seat: Seat) {
        lock(&self.state).leave(&seat.key);
    }

    /// Whether the work of a meeting is done, or the world has failed before all had come.
    pub fn is_over(&self, seat: Seat) -> bool {
        let state = lock(&self.state);
        match state.meetings.get(&seat.key).map(|meeting| &meeting.stage) {
            Some(Stage::Gathering) => state.failure.is_some(),
            Some(Stage::Working { .. }) => false,
            Some(Stage::Done { .. }) | None => true,
        }
    }

    /// Does a rank's parts of the work of calls in the background, until the rank has ended and nothing is left.
    pub fn serve(&self, rank: usize) {
        let mut state = lock(&self.state);
        loop {
            if let Some((seat, all)) = Self::next(&mut state, rank) {
                drop(state);
                self.work(seat, all);
                state = lock(&self.state);
                continue;
            }
            let Rank { doing, background, .. } = &state.ranks[rank];
            if state.failure.is_some() || (*doing == Thread::Ended && background.is_empty()) {
                return;
            }
            state = self.bells[rank][1].sleep(state, None);
        }
    }

    /// The first call in the background whose work can begin.
    fn next(state: &mut State<C>, rank: usize) -> Option<(Seat, Arc<[C]>)> {
        let State { meetings, ranks, .. } = state;
        let background = &mut ranks[rank].background;
        let found = background.iter().enumerate().find_map(|(i, seat)| {
            let all = meetings.get_mut(&seat.key)?.claim(seat.member)?;
            Some((i, *seat, all))
        });
        let (i, seat, all) = found?;
        background.remove(i);
        Some((seat, all))
    }

    /// Says that the body of a rank has ended: with a panic, or without.
    pub fn end(&self, rank: usize, panic: Option<&str>) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.ranks[rank].doing == Thread::Running {
            state.stuck += 1;
        }
        state.ranks[rank].doing = Thread::Ended;
        if let Some(cause) = panic {
            self.fail(state, CommError::Panicked { rank, cause: cause.into() });
        }
        if let Some(meeting) = state.meetings.values().find(|meeting| meeting.missing().any(|missing| missing == rank))
        {
            let waiting = meeting.calls();
            self.fail(state, CommError::Ended { doing: state.doing(rank), waiting });
        }
        self.fail_if_all_are_stuck(state);
        self.bells[rank][1].ring();
    }

    /// Everybody waits in meetings where somebody is missing: nobody ever comes.
    fn fail_if_all_are_stuck(&self, state: &mut State<C>) {
        let waits = |rank: &Rank| matches!(rank.doing, Thread::Stuck(_));
        if state.stuck == state.ranks.len() && state.ranks.iter().any(waits) {
            let ranks = (0..state.ranks.len()).map(|rank| state.doing(rank)).collect();
            self.fail(state, CommError::Deadlock { ranks });
        }
    }

    /// Somebody did not come to a meeting in time.
    fn miss(&self, state: &mut State<C>, key: Key) {
        let meeting = &state.meetings[&key];
        let missing = meeting.missing().map(|rank| state.doing(rank)).collect();
        let waiting = meeting.calls();
        self.fail(state, CommError::Deadline { after: self.deadline, waiting, missing });
    }

    /// Fails the world, if it has not failed yet. Gives the first failure.
    fn fail(&self, state: &mut State<C>, failure: CommError) -> CommError {
        let first = state.failure.get_or_insert(failure).clone();
        self.bells.iter().flatten().for_each(Bell::ring);
        first
    }

    /// Refuses a call that makes no sense. The world fails, since the others would wait for it.
    pub fn refuse(&self, call: RankCall, reason: String) -> CommError {
        self.fail(&mut lock(&self.state), CommError::Misuse { call, reason })
    }

    /// The first failure.
    pub fn failure(&self) -> Option<CommError> {
        lock(&self.state).failure.clone()
    }
}

/// What a panic says.
pub fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

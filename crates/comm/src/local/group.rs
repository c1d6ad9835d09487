//! A group of ranks, as one of them sees it.

use super::LocalPending;
use super::pending::Worker;
use crate::communicator::{Buffers, Communicator, Given, Lent, Request};
use crate::jitter::Jitter;
use crate::posted::{Counts, Posted};
use crate::rendezvous::Rendezvous;
use crate::seat::{Channel, GroupId, Key, Seat};
use crate::{Call, CommError, Element, Operation, RankCall};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

/// A group of ranks in this process, as one of them sees it. It stays on the thread of its rank; clones are the same
/// group.
#[derive(Clone)]
pub struct Group {
    inner: Rc<Inner>,
}

struct Inner {
    id: GroupId,
    /// The rank in the world of each member.
    ranks: Arc<[usize]>,
    /// The position of this rank among them.
    member: usize,
    /// How many meetings this rank has come to.
    met: RefCell<FxHashMap<Channel, u64>>,
    thread: Rc<RankThread>,
}

/// What all groups of a rank share.
struct RankThread {
    rendezvous: Arc<Rendezvous<Posted>>,
    worker: Rc<Worker>,
    jitter: RefCell<Option<Jitter>>,
}

/// What a call gives to the rendezvous, and where it then waits.
struct Entry {
    call: Call,
    input: *const u8,
    output: *mut u8,
    counts: Counts,
    owned: Option<Arc<dyn Any + Send + Sync>>,
}

impl Group {
    pub(super) fn of_world(
        rendezvous: Arc<Rendezvous<Posted>>,
        ranks: Arc<[usize]>,
        rank: usize,
        jitter: Option<Jitter>,
    ) -> Group {
        let worker = Rc::new(Worker::new(rendezvous.clone(), rank));
        let thread = Rc::new(RankThread { rendezvous, worker, jitter: RefCell::new(jitter) });
        let id = GroupId { meeting: 0, index: 0 };
        Group { inner: Rc::new(Inner { id, ranks, member: rank, met: RefCell::default(), thread }) }
    }

    pub(super) fn worker(&self) -> Rc<Worker> {
        self.inner.thread.worker.clone()
    }

    /// The ranks in the world of the members, in their order.
    pub fn ranks(&self) -> &[usize] {
        &self.inner.ranks
    }

    fn world_rank(&self) -> usize {
        self.inner.ranks[self.inner.member]
    }

    /// The place where the next call of this kind meets those of the others.
    fn seat(&self, operation: Operation) -> (Seat, Arc<[usize]>) {
        let Inner { id, ranks, member, met, .. } = &*self.inner;
        let pair =
            |from: usize, to: usize, member| (Channel::Pair { from, to }, member, Arc::from([ranks[from], ranks[to]]));
        let (channel, place, ranks) = match operation {
            Operation::Send { to } => pair(*member, to, 0),
            Operation::Recv { from } => pair(from, *member, 1),
            _ => (Channel::All, *member, ranks.clone()),
        };
        let mut met = met.borrow_mut();
        let next = met.entry(channel).or_default();
        let key = Key { group: *id, channel, number: *next };
        *next += 1;
        (Seat { key, member: place, rank: self.world_rank() }, ranks)
    }

    /// Takes a seat.
    ///
    /// # Safety
    /// The buffers are as long as the call says, of its dtype, and stay while the seat is waited for, or as long as
    /// `owned`.
    unsafe fn enter(&self, entry: Entry) -> Result<Seat, CommError> {
        let Entry { call, input, output, counts, owned } = entry;
        let thread = &self.inner.thread;
        let mut jitter = thread.jitter.borrow_mut();
        jitter.iter_mut().for_each(Jitter::delay);
        let background = owned.is_some();
        let operation = call.operation;
        let posted = Posted { call, input, output, counts, jitter: jitter.as_mut().map(Jitter::fork), _owned: owned };
        if let Some(reason) = posted.misuse(self.world_size(), self.inner.member) {
            return Err(thread.rendezvous.refuse(RankCall { rank: self.world_rank(), call: posted.call }, reason));
        }
        let (seat, ranks) = self.seat(operation);
        thread.rendezvous.arrive(seat, &ranks, posted, background)?;
        Ok(seat)
    }

    /// Meets the others without elements. Gives the number of the meeting.
    fn meet(&self, operation: Operation, counts: Counts, site: &'static Location<'static>) -> Result<u64, CommError> {
        let call = Call { operation, dtype: None, input: 0, output: 0, shape: None, site };
        let (input, output) = (std::ptr::null(), std::ptr::null_mut());
        // SAFETY: there are no elements.
        let seat = unsafe { self.enter(Entry { call, input, output, counts, owned: None }) }?;
        self.inner.thread.rendezvous.wait(seat)
    }

    /// Makes a group of some of the ranks, in this order. Every rank of this group must call it, with the same list;
    /// those that are not in it get none.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, one never comes, or the list names a rank twice or one that
    /// does not exist.
    #[track_caller]
    pub fn new_group(&self, members: &[usize]) -> Result<Option<Group>, CommError> {
        let mut made = self.new_groups(&[members.to_vec()], Location::caller())?;
        Ok(made.remove(0))
    }

    /// Lays the ranks out as a mesh with axes of these sizes, the last one running fastest, and makes, for each axis, the
    /// group of the ranks that differ from this one along that axis only. Every rank of this group must call it, with
    /// the same sizes.
    ///
    /// ```
    /// use meshwork_comm::{Communicator, spawn};
    ///
    /// let groups = spawn(6, |group| {
    ///     let axes = group.along_axes(&[2, 3])?;
    ///     Ok::<_, meshwork_comm::CommError>([axes[0].ranks().to_vec(), axes[1].ranks().to_vec()])
    /// })?;
    /// assert_eq!(groups[4], Ok([vec![1, 4], vec![3, 4, 5]]));
    /// # Ok::<(), meshwork_comm::CommError>(())
    /// ```
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, one never comes, or there are not as many ranks as places in
    /// the mesh.
    #[track_caller]
    pub fn along_axes(&self, sizes: &[usize]) -> Result<Vec<Group>, CommError> {
        let site = Location::caller();
        if sizes.iter().product::<usize>() != self.world_size() {
            let reason =
                format!("a mesh of {sizes:?} has not as many places as the group has ranks, {}", self.world_size());
            return Err(self.refuse_groups(reason, site));
        }
        let mut lists = Vec::new();
        let mut stride = self.world_size();
        for &size in sizes {
            stride /= size;
            let first = (0..self.world_size()).filter(|rank| (rank / stride).is_multiple_of(size));
            lists.extend(first.map(|first| (0..size).map(|i| first + i * stride).collect()));
        }
        let made = self.new_groups(&lists, site)?;
        Ok(made.into_iter().flatten().collect())
    }

    /// Makes groups; for each of them the group, if this rank is in it.
    fn new_groups(
        &self,
        lists: &[Vec<usize>],
        site: &'static Location<'static>,
    ) -> Result<Vec<Option<Group>>, CommError> {
        for list in lists {
            let mut sorted = list.clone();
            sorted.sort_unstable();
            let twice = sorted.windows(2).any(|pair| pair[0] == pair[1]);
            if twice || list.iter().any(|&rank| rank >= self.world_size()) {
                let reason = format!("{list:?} names a rank twice, or one above {}", self.world_size() - 1);
                return Err(self.refuse_groups(reason, site));
            }
        }
        let counts = Counts { send: lists.iter().map(Vec::len).collect(), receive: lists.concat() };
        let meeting = self.meet(Operation::NewGroups, counts, site)?;
        let group = |(index, list): (usize, &Vec<usize>)| {
            let member = list.iter().position(|&rank| rank == self.inner.member)?;
            let ranks = list.iter().map(|&rank| self.inner.ranks[rank]).collect();
            let (id, thread) = (GroupId { meeting, index }, self.inner.thread.clone());
            Some(Group { inner: Rc::new(Inner { id, ranks, member, met: RefCell::default(), thread }) })
        };
        Ok(lists.iter().enumerate().map(group).collect())
    }

    fn refuse_groups(&self, reason: String, site: &'static Location<'static>) -> CommError {
        let call = Call { operation: Operation::NewGroups, dtype: None, input: 0, output: 0, shape: None, site };
        self.inner.thread.rendezvous.refuse(RankCall { rank: self.world_rank(), call }, reason)
    }

    /// A request as its call and its counts.
    fn describe<T: Element, B>(&self, request: &Request<B>, input: usize, output: usize) -> (Call, Counts) {
        let &Request { operation, site, ref counts, ref shape, .. } = request;
        let shape = shape.as_ref().map(|shape| Arc::from(&shape[..]));
        let call = Call { operation, dtype: Some(T::DTYPE), input, output, shape, site };
        let equal = |len: usize| vec![len / self.world_size(); self.world_size()];
        let counts = match counts {
            Some((send, receive)) => Counts { send: send.clone(), receive: receive.clone() },
            None if operation == Operation::AllToAll => Counts { send: equal(input), receive: equal(output) },
            None => Counts::default(),
        };
        (call, counts)
    }
}

impl Communicator for Group {
    type Pending<T: Element> = LocalPending<T>;

    fn rank(&self) -> usize {
        self.inner.member
    }

    fn world_size(&self) -> usize {
        self.inner.ranks.len()
    }

    fn run<T: Element>(&self, mut request: Request<Lent<'_, T>>) -> Result<(), CommError> {
        let (input, output) = match &mut request.buffers {
            Buffers::InPlace(buffer) => {
                let pointer = buffer.as_mut_ptr();
                ((pointer.cast_const(), buffer.len()), (pointer, buffer.len()))
            }
            Buffers::Apart { input, output } => ((input.as_ptr(), input.len()), (output.as_mut_ptr(), output.len())),
        };
        let (call, counts) = self.describe::<T, _>(&request, input.1, output.1);
        let entry = Entry { call, input: input.0.cast(), output: output.0.cast(), counts, owned: None };
        // SAFETY: the buffers are borrowed until this returns, and the seat is waited for before.
        let seat = unsafe { self.enter(entry) }?;
        self.inner.thread.rendezvous.wait(seat).map(drop)
    }

    fn start<T: Element>(&self, mut request: Request<Given<T>>) -> Result<LocalPending<T>, CommError> {
        let (input, output) = match &mut request.buffers {
            Buffers::InPlace(buffer) => {
                let pointer = buffer.as_mut_ptr();
                ((pointer.cast_const(), buffer.len()), (pointer, buffer.len()))
            }
            Buffers::Apart { input, output } => ((input.as_ptr(), input.len()), (output.as_mut_ptr(), output.len())),
        };
        let (call, counts) = self.describe::<T, _>(&request, input.1, output.1);
        self.inner.thread.worker.start();
        LocalPending::new(self.inner.thread.rendezvous.clone(), request.buffers, |owned| {
            let owned = Some(owned);
            // SAFETY: elements of a vector stay where they are when it moves, and these vectors stay as long as `owned`.
            unsafe { self.enter(Entry { call, input: input.0.cast(), output: output.0.cast(), counts, owned }) }
        })
    }

    #[track_caller]
    fn barrier(&self) -> Result<(), CommError> {
        self.meet(Operation::Barrier, Counts::default(), Location::caller()).map(drop)
    }
}

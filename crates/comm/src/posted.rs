//! A call with its buffers, and what each rank does once all calls are there.

use crate::call::{Call, Operation};
use crate::element::{DType, Element};
use crate::jitter::Jitter;
use crate::reduce::reduce;
use crate::rendezvous::Contribution;
use crate::share::share;
use half::{bf16, f16};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// A call and where its buffers are.
pub struct Posted {
    pub call: Call,
    pub input: *const u8,
    pub output: *mut u8,
    /// For all-to-all, how many elements go to each rank and come from each; for new groups, what they are.
    pub counts: Counts,
    pub jitter: Option<Jitter>,
    /// The buffers of a call in the background, to keep them.
    pub _owned: Option<Arc<dyn Any + Send + Sync>>,
}

/// Numbers of elements to and from each rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many go to each.
    pub send: Vec<usize>,
    /// How many come from each.
    pub receive: Vec<usize>,
}

// SAFETY: the pointers are used by `work` alone, whose caller orders it; the rest may be looked at by anyone.
unsafe impl Send for Posted {}
// SAFETY: as above.
unsafe impl Sync for Posted {}

impl Posted {
    /// What makes no sense whatever the others call; `member` of a group of `size` calls it.
    pub fn misuse(&self, size: usize, member: usize) -> Option<String> {
        let Call { operation, dtype, input, output, .. } = self.call;
        let outside = |rank: usize| rank >= size;
        let no_float = dtype.is_some_and(|dtype| !dtype.is_float());
        match operation {
            _ if operation.root().is_some_and(outside) => Some(format!("the group has ranks 0 to {}", size - 1)),
            Operation::Send { to: peer } | Operation::Recv { from: peer } if outside(peer) || peer == member => {
                Some(format!("this is rank {member} of the ranks 0 to {}, and a transfer is between two", size - 1))
            }
            _ if operation.reduce_op() == Some(crate::ReduceOp::Mean) && no_float => {
                Some("integers have no mean: take the sum".into())
            }
            Operation::AllToAll => {
                let Counts { send, receive } = &self.counts;
                let whole = |counts: &[usize], len: usize| counts.len() == size && counts.iter().sum::<usize>() == len;
                let fits = whole(send, input) && whole(receive, output);
                (!fits)
                    .then(|| format!("the counts {send:?} and {receive:?} do not make up the buffers of {size} ranks"))
            }
            _ => None,
        }
    }

    /// The elements before the part of a member, if the parts have these lengths.
    fn before(all: &[Posted], member: usize, length: impl Fn(&Call) -> usize) -> usize {
        all[..member].iter().map(|posted| length(&posted.call)).sum()
    }

    fn input<T>(&self, at: usize) -> *const T {
        self.input.cast::<T>().wrapping_add(at)
    }

    fn output<T>(&self, at: usize) -> *mut T {
        self.output.cast::<T>().wrapping_add(at)
    }

    /// Reduces a range of the inputs, to the same range of the outputs.
    ///
    /// # Safety
    /// The elements are `T`, all inputs are as long as the first, the outputs have the range, and it is this thread's.
    unsafe fn reduce<T: Element>(all: &[Posted], range: Range<usize>, outputs: &[*mut T]) {
        let op = all[0].call.operation.reduce_op().expect("a reduction");
        let inputs: Vec<*const T> = all.iter().map(|posted| posted.input(range.start)).collect();
        // SAFETY: the caller's promise.
        unsafe { reduce(op, &inputs, outputs, range.len()) };
    }

    /// A member's part of the work.
    ///
    /// # Safety
    /// The elements are `T`, and the calls passed [`Posted::check`]. Every member's part is done at most once, while all
    /// buffers are there and used by nothing else.
    unsafe fn work_on<T: Element>(all: &[Posted], member: usize) {
        let own = &all[member];
        let (input, output) = (own.call.input, own.call.output);
        let copy = |from: *const T, to: *mut T, len: usize| {
            // SAFETY: the calls fit, so the range lies in both buffers, which are those of different calls; nobody else
            // writes to this part of the output.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        };
        match own.call.operation {
            Operation::AllReduce(_) => {
                let range = share(input, all.len(), member);
                let outputs: Vec<*mut T> = all.iter().map(|posted| posted.output(range.start)).collect();
                // SAFETY: the lengths are equal, and the shares of the members do not overlap.
                unsafe { Posted::reduce(all, range, &outputs) };
            }
            Operation::Reduce { root, .. } => {
                let range = share(input, all.len(), member);
                let output: *mut T = all[root].output(range.start);
                // SAFETY: as above.
                unsafe { Posted::reduce(all, range, &[output]) };
            }
            Operation::ReduceScatter(_) => {
                let start = Posted::before(all, member, |call| call.output);
                // SAFETY: the outputs make up the inputs, and this one is the member's own.
                unsafe { Posted::reduce(all, start..start + output, &[own.output::<T>(0)]) };
            }
            Operation::AllGather => {
                let mut at = 0;
                for other in all {
                    copy(other.input(0), own.output(at), other.call.input);
                    at += other.call.input;
                }
            }
            Operation::AllToAll => {
                let mut at = 0;
                for (other, &len) in all.iter().zip(&own.counts.receive) {
                    let start = other.counts.send[..member].iter().sum();
                    copy(other.input(start), own.output(at), len);
                    at += len;
                }
            }
            Operation::Broadcast { root } if root != member => copy(all[root].input(0), own.output(0), output),
            Operation::Gather { root } => {
                let start = Posted::before(all, member, |call| call.input);
                copy(own.input(0), all[root].output(start), input);
            }
            Operation::Scatter { root } => {
                let start = Posted::before(all, member, |call| call.output);
                copy(all[root].input(start), own.output(0), output);
            }
            Operation::Recv { .. } => copy(all[0].input(0), own.output(0), output),
            Operation::Broadcast { .. } | Operation::Send { .. } | Operation::Barrier | Operation::NewGroups => {}
        }
    }
}

impl Contribution for Posted {
    fn call(&self) -> Call {
        self.call.clone()
    }

    fn check(all: &[Posted]) -> Result<(), &'static str> {
        let first = &all[0].call;
        let agree = |same: &dyn Fn(&Call) -> bool, what: &'static str| {
            if all.iter().all(|posted| same(&posted.call)) { Ok(()) } else { Err(what) }
        };
        let transfer = matches!(first.operation, Operation::Send { .. });
        agree(&|call| transfer || call.operation.name() == first.operation.name(), "the operations differ")?;
        agree(&|call| call.operation.reduce_op() == first.operation.reduce_op(), "the reductions differ")?;
        agree(&|call| call.operation.root() == first.operation.root(), "the roots differ")?;
        agree(&|call| call.dtype == first.dtype, "the element types differ")?;
        agree(&|call| call.shape == first.shape, "the shapes differ")?;
        let inputs = Posted::before(all, all.len(), |call| call.input);
        let outputs = Posted::before(all, all.len(), |call| call.output);
        let (differ, parts) = ("the lengths differ", "the parts do not make up the whole");
        match first.operation {
            Operation::AllReduce(_) | Operation::Reduce { .. } | Operation::Broadcast { .. } => {
                agree(&|call| call.input == first.input, differ)
            }
            Operation::ReduceScatter(_) => {
                agree(&|call| call.input == first.input, differ)?;
                agree(&|call| call.input == outputs, parts)
            }
            Operation::AllGather => agree(&|call| call.output == inputs, parts),
            Operation::Gather { root } => agree(&|_| all[root].call.output == inputs, parts),
            Operation::Scatter { root } => agree(&|_| all[root].call.input == outputs, parts),
            Operation::Send { .. } | Operation::Recv { .. } => {
                agree(&|_| all[0].call.input == all[1].call.output, differ)
            }
            Operation::AllToAll => {
                let fits = |from: usize, to: usize| all[from].counts.send[to] == all[to].counts.receive[from];
                let all_fit = (0..all.len()).all(|from| (0..all.len()).all(|to| fits(from, to)));
                if all_fit { Ok(()) } else { Err("what is sent is not what is received") }
            }
            Operation::NewGroups => {
                let same = all.iter().all(|posted| posted.counts == all[0].counts);
                if same { Ok(()) } else { Err("the groups differ") }
            }
            Operation::Barrier => Ok(()),
        }
    }

    fn work(all: &[Posted], member: usize) {
        let mut jitter = all[member].jitter.clone();
        jitter.iter_mut().for_each(Jitter::delay);
        // SAFETY: the rendezvous has checked the calls, gives each member's part to one thread, and lets nobody go
        // before all parts are done; the dtype is that of the buffers.
        unsafe {
            match all[member].call.dtype {
                Some(DType::F64) => Posted::work_on::<f64>(all, member),
                Some(DType::F32) => Posted::work_on::<f32>(all, member),
                Some(DType::F16) => Posted::work_on::<f16>(all, member),
                Some(DType::BF16) => Posted::work_on::<bf16>(all, member),
                Some(DType::I64) => Posted::work_on::<i64>(all, member),
                Some(DType::I32) => Posted::work_on::<i32>(all, member),
                Some(DType::U8) => Posted::work_on::<u8>(all, member),
                None => {}
            }
        }
        jitter.iter_mut().for_each(Jitter::delay);
    }
}

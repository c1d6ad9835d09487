//! What a group of ranks can do, whatever carries their data.

use crate::{CommError, Element, Operation, ReduceOp};
use std::panic::Location;

/// The buffers of a call: borrowed (`&[T]` and `&mut [T]`), or owned (`Vec<T>`) while it runs in the background.
#[derive(Debug)]
pub enum Buffers<I, O> {
    /// One buffer that is given and then holds the result.
    InPlace(O),
    /// One that is given and one for the result.
    Apart {
        /// What is given.
        input: I,
        /// Where the result goes.
        output: O,
    },
}

/// Buffers that the caller lends.
pub type Lent<'a, T> = Buffers<&'a [T], &'a mut [T]>;

/// Buffers that the call has until it ends.
pub type Given<T> = Buffers<Vec<T>, Vec<T>>;

/// A call as a communicator gets it.
#[derive(Debug)]
pub struct Request<B> {
    /// Which collective.
    pub operation: Operation,
    /// Its buffers.
    pub buffers: B,
    /// For all-to-all, elements that go to each rank, and that come from each; equal parts if missing.
    pub counts: Option<(Vec<usize>, Vec<usize>)>,
    /// The shape of the tensor whose elements these are, if it is one: see [`Call::shape`](crate::Call::shape).
    pub shape: Option<Vec<usize>>,
    /// The caller.
    pub site: &'static Location<'static>,
}

impl<B> Request<B> {
    /// A call of the caller.
    #[track_caller]
    pub fn new(operation: Operation, buffers: B) -> Request<B> {
        Request { operation, buffers, counts: None, shape: None, site: Location::caller() }
    }
}

/// A call that runs in the background.
pub trait Pending<T> {
    /// Waits for the end of the call, and gives the buffer with the result; of a send, the buffer that was sent.
    ///
    /// # Errors
    /// As the call itself.
    fn wait(self) -> Result<Vec<T>, CommError>;

    /// Whether [`Pending::wait`] would return at once.
    fn is_over(&self) -> bool;
}

macro_rules! collectives {
    ($(
        $(#[$doc:meta])*
        $name:ident / $background:ident ($($argument:ident: $type:ty),*)
            [$($lent:ident: $lent_type:ty),*] [$($given:ident: $given_type:ty),*] = $operation:expr, $buffers:expr;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
            #[track_caller]
            fn $name<T: Element>(&self, $($lent: $lent_type,)* $($argument: $type),*) -> Result<(), CommError> {
                self.run(Request::new($operation, $buffers))
            }

            #[doc = concat!("[`Communicator::", stringify!($name), "`] in the background.")]
            ///
            /// # Errors
            /// When the group has failed already, or the call makes no sense by itself.
            #[track_caller]
            fn $background<T: Element>(
                &self,
                $($given: $given_type,)*
                $($argument: $type),*
            ) -> Result<Self::Pending<T>, CommError> {
                self.start(Request::new($operation, $buffers))
            }
        )*
    };
}

/// A group of ranks, as one of them sees it. All of them must make the same calls in the same order, each of them with
/// buffers that fit the others'.
///
/// Roots and peers are ranks of the group. Parts of a whole lie in it in the order of the ranks and may have different
/// lengths: those of the parts say how it is cut.
pub trait Communicator {
    /// A call that runs in the background.
    type Pending<T: Element>: Pending<T>;

    /// The position of this rank in the group, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks in the group.
    fn world_size(&self) -> usize;

    /// Takes part in a collective, and returns when this rank may use its buffers again.
    ///
    /// # Errors
    /// See [`CommError`].
    fn run<T: Element>(&self, request: Request<Lent<'_, T>>) -> Result<(), CommError>;

    /// Takes part in a collective in the background.
    ///
    /// # Errors
    /// See [`CommError`].
    fn start<T: Element>(&self, request: Request<Given<T>>) -> Result<Self::Pending<T>, CommError>;

    /// Waits until all ranks are there.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    fn barrier(&self) -> Result<(), CommError>;

    collectives! {
        /// Puts the reduction of everyone's buffer into everyone's buffer. All have one length.
        all_reduce / all_reduce_async(op: ReduceOp)
            [buffer: &mut [T]] [buffer: Vec<T>] = Operation::AllReduce(op), Buffers::InPlace(buffer);

        /// Reduces everyone's input, and gives each rank its part of the result.
        reduce_scatter / reduce_scatter_async(op: ReduceOp)
            [input: &[T], output: &mut [T]] [input: Vec<T>, output: Vec<T>]
            = Operation::ReduceScatter(op), Buffers::Apart { input, output };

        /// Gives everyone the inputs of all, one after the other.
        all_gather / all_gather_async()
            [input: &[T], output: &mut [T]] [input: Vec<T>, output: Vec<T>]
            = Operation::AllGather, Buffers::Apart { input, output };

        /// Cuts every input into equal parts, one for each rank, and gives each rank its parts of all.
        all_to_all / all_to_all_async()
            [input: &[T], output: &mut [T]] [input: Vec<T>, output: Vec<T>]
            = Operation::AllToAll, Buffers::Apart { input, output };

        /// Puts the root's buffer into everyone's.
        broadcast / broadcast_async(root: usize)
            [buffer: &mut [T]] [buffer: Vec<T>] = Operation::Broadcast { root }, Buffers::InPlace(buffer);

        /// Puts the reduction of everyone's buffer into the root's; the others stay as they are.
        reduce / reduce_async(op: ReduceOp, root: usize)
            [buffer: &mut [T]] [buffer: Vec<T>] = Operation::Reduce { op, root }, Buffers::InPlace(buffer);

        /// Gives the root the inputs of all, one after the other. The outputs of the others are not touched.
        gather / gather_async(root: usize)
            [input: &[T], output: &mut [T]] [input: Vec<T>, output: Vec<T>]
            = Operation::Gather { root }, Buffers::Apart { input, output };

        /// Gives each rank its part of the root's input. The inputs of the others do not matter.
        scatter / scatter_async(root: usize)
            [input: &[T], output: &mut [T]] [input: Vec<T>, output: Vec<T>]
            = Operation::Scatter { root }, Buffers::Apart { input, output };
    }

    /// Cuts the input into parts of `send` elements, one part for each rank, and gets parts of `receive` elements from
    /// them.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    fn all_to_all_uneven<T: Element>(
        &self,
        input: &[T],
        send: &[usize],
        output: &mut [T],
        receive: &[usize],
    ) -> Result<(), CommError> {
        let request = Request::new(Operation::AllToAll, Buffers::Apart { input, output });
        self.run(Request { counts: Some((send.to_vec(), receive.to_vec())), ..request })
    }

    /// Sends a buffer to another rank, which must receive it; returns when it has. Transfers from one rank to another
    /// arrive in their order.
    ///
    /// # Errors
    /// When the calls of the two ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    fn send<T: Element>(&self, input: &[T], to: usize) -> Result<(), CommError> {
        self.run(Request::new(Operation::Send { to }, Buffers::Apart { input, output: &mut [] }))
    }

    /// [`Communicator::send`] in the background.
    ///
    /// # Errors
    /// When the group has failed already, or the call makes no sense by itself.
    #[track_caller]
    fn send_async<T: Element>(&self, buffer: Vec<T>, to: usize) -> Result<Self::Pending<T>, CommError> {
        self.start(Request::new(Operation::Send { to }, Buffers::InPlace(buffer)))
    }

    /// Receives what another rank sends.
    ///
    /// # Errors
    /// When the calls of the two ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    fn recv<T: Element>(&self, output: &mut [T], from: usize) -> Result<(), CommError> {
        self.run(Request::new(Operation::Recv { from }, Buffers::Apart { input: &[], output }))
    }

    /// [`Communicator::recv`] in the background.
    ///
    /// # Errors
    /// When the group has failed already, or the call makes no sense by itself.
    #[track_caller]
    fn recv_async<T: Element>(&self, buffer: Vec<T>, from: usize) -> Result<Self::Pending<T>, CommError> {
        self.start(Request::new(Operation::Recv { from }, Buffers::Apart { input: Vec::new(), output: buffer }))
    }
}

//! What a rank calls, as far as the calls of all ranks must fit each other.

use crate::{DType, ReduceOp};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A collective, with what all ranks must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Everyone gets the reduction of everyone's buffer.
    AllReduce(ReduceOp),
    /// Everyone gets its part of the reduction.
    ReduceScatter(ReduceOp),
    /// Everyone gets everyone's buffer, in the order of the ranks.
    AllGather,
    /// Everyone gets one part of everyone's buffer.
    AllToAll,
    /// Everyone gets the root's buffer.
    Broadcast {
        /// The rank that has the values.
        root: usize,
    },
    /// The root gets the reduction.
    Reduce {
        /// How values become one.
        op: ReduceOp,
        /// The rank that gets the result.
        root: usize,
    },
    /// The root gets everyone's buffer.
    Gather {
        /// The rank that gets them.
        root: usize,
    },
    /// Everyone gets its part of the root's buffer.
    Scatter {
        /// The rank that has the values.
        root: usize,
    },
    /// One half of a transfer between two ranks.
    Send {
        /// The rank that receives.
        to: usize,
    },
    /// The other half.
    Recv {
        /// The rank that sends.
        from: usize,
    },
    /// Nobody goes on before everybody is there.
    Barrier,
    /// Groups of some of the ranks are made.
    NewGroups,
}

impl Operation {
    /// Its name, that of the method.
    pub fn name(self) -> &'static str {
        match self {
            Operation::AllReduce(_) => "all_reduce",
            Operation::ReduceScatter(_) => "reduce_scatter",
            Operation::AllGather => "all_gather",
            Operation::AllToAll => "all_to_all",
            Operation::Broadcast { .. } => "broadcast",
            Operation::Reduce { .. } => "reduce",
            Operation::Gather { .. } => "gather",
            Operation::Scatter { .. } => "scatter",
            Operation::Send { .. } => "send",
            Operation::Recv { .. } => "recv",
            Operation::Barrier => "barrier",
            Operation::NewGroups => "new_group",
        }
    }

    /// How values are reduced, if they are.
    pub fn reduce_op(self) -> Option<ReduceOp> {
        match self {
            Operation::AllReduce(op) | Operation::ReduceScatter(op) | Operation::Reduce { op, .. } => Some(op),
            _ => None,
        }
    }

    /// The rank that has or gets more than the others, if there is one.
    pub fn root(self) -> Option<usize> {
        match self {
            Operation::Broadcast { root }
            | Operation::Reduce { root, .. }
            | Operation::Gather { root }
            | Operation::Scatter { root } => Some(root),
            _ => None,
        }
    }
}

/// The size of a dimension in which the tensors of the ranks may differ.
pub const ANY: usize = usize::MAX;

/// A call of a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which one.
    pub operation: Operation,
    /// The type of the elements; none where none are moved.
    pub dtype: Option<DType>,
    /// Elements that the rank gives.
    pub input: usize,
    /// Elements that it gets. Operations in place give and get the same buffer.
    pub output: usize,
    /// The shape of a tensor, if the elements are those of one. Shapes must agree too, apart from [`ANY`].
    pub shape: Option<Arc<[usize]>>,
    /// Where it is called.
    pub site: &'static Location<'static>,
}

impl fmt::Display for Call {
    /// As `all_reduce(sum, 12 f32) at src/main.rs:7:11`, or with a shape `all_reduce(sum, f32[3, 4]) at …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.operation.name())?;
        let mut separator = "";
        let mut argument = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let result = write!(f, "{separator}{text}");
            separator = ", ";
            result
        };
        if let Some(op) = self.operation.reduce_op() {
            argument(f, format_args!("{op}"))?;
        }
        let dtype = self.dtype.map(|dtype| dtype.to_string()).unwrap_or_default();
        if let Some(shape) = &self.shape {
            let size = |&size: &usize| if size == ANY { "_".to_string() } else { size.to_string() };
            argument(f, format_args!("{dtype}[{}]", shape.iter().map(size).collect::<Vec<_>>().join(", ")))?;
        }
        match self.operation {
            _ if self.shape.is_some() => {}
            Operation::Barrier | Operation::NewGroups => {}
            Operation::AllReduce(_)
            | Operation::Broadcast { .. }
            | Operation::Reduce { .. }
            | Operation::Send { .. } => {
                argument(f, format_args!("{} {dtype}", self.input))?;
            }
            Operation::Recv { .. } => argument(f, format_args!("{} {dtype}", self.output))?,
            _ => argument(f, format_args!("{} {dtype} to {}", self.input, self.output))?,
        }
        match self.operation {
            Operation::Send { to } => argument(f, format_args!("to rank {to}"))?,
            Operation::Recv { from } => argument(f, format_args!("from rank {from}"))?,
            operation => {
                if let Some(root) = operation.root() {
                    argument(f, format_args!("root {root}"))?;
                }
            }
        }
        write!(f, ") at {}", self.site)
    }
}

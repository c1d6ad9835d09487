//! The tasks of one evaluation: programs of devices and copies between them.

use crate::mesh::Placements;
use crate::passes::Exchange;
use crate::program::Program;
use crate::shape::Type;
use std::sync::Arc;

/// A value of a plan: the leaves come first, numbered as the inputs of the graph, then the results of tasks.
pub type ValueId = usize;

/// Something that a queue does as a whole.
#[derive(Clone, Debug)]
pub enum Task {
    /// A device runs a program.
    Run {
        /// The device.
        device: u32,
        /// What it runs.
        program: Arc<Program>,
        /// What is bound to the program's inputs.
        inputs: Vec<ValueId>,
        /// Its results.
        outputs: Vec<ValueId>,
    },
    /// A value, or elements of it that follow each other, is copied to another device.
    Copy {
        /// The value.
        value: ValueId,
        /// The first element of it that is copied.
        offset: usize,
        /// Where it is copied to.
        to: u32,
        /// The copy.
        result: ValueId,
        /// Its type, which says how many elements are copied.
        ty: Type,
        /// A result of the program that must have ended before the copy begins: there may be no room for it earlier.
        after: Option<ValueId>,
    },
}

/// A compiled graph that is spread over devices. Each task needs leaves and results of earlier tasks only.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The tasks in the order of hand-over: what others wait longest for comes first.
    pub tasks: Vec<Task>,
    /// Number of values.
    pub values: usize,
    /// The values that are wanted, in the order of the graph's outputs; for an output on a mesh, what each of
    /// [`Mesh::stored`](crate::mesh::Mesh::stored) has of it.
    pub outputs: Vec<ValueId>,
    /// How each output lies that is on a mesh; empty where there is no mesh.
    pub spread: Vec<Option<Placements>>,
    /// What moves between the ranks of meshes.
    pub exchanges: Vec<Exchange>,
}

impl Plan {
    /// Bytes that are copied between devices. More than those of the exchanges where parameters are gathered again for
    /// later uses.
    pub fn moved(&self) -> usize {
        let bytes = |task: &Task| match task {
            Task::Copy { ty, .. } => ty.bytes(),
            Task::Run { .. } => 0,
        };
        self.tasks.iter().map(bytes).sum()
    }

    /// The programs in the order of hand-over.
    pub fn programs(&self) -> impl Iterator<Item = &Arc<Program>> {
        self.tasks.iter().filter_map(|task| match task {
            Task::Run { program, .. } => Some(program),
            Task::Copy { .. } => None,
        })
    }
}

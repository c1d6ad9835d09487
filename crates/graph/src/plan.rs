//! The tasks of one evaluation: programs of devices and copies between them.

use crate::mesh::Placements;
use crate::passes::Exchange;
use crate::program::Program;
use crate::shape::Type;
use std::collections::{BTreeMap, HashMap};
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

    /// The most bytes that each device has in use at a time, if the tasks run in the order of hand-over: leaves throughout,
    /// results until their last use, and what a program needs while it runs. For one program exactly
    /// [`Memory::peak`](crate::program::Memory::peak).
    pub fn peaks(&self) -> BTreeMap<u32, usize> {
        let mut last: HashMap<ValueId, usize> = HashMap::new();
        for (at, task) in self.tasks.iter().enumerate() {
            match task {
                Task::Run { inputs, .. } => last.extend(inputs.iter().map(|&id| (id, at))),
                Task::Copy { value, .. } => _ = last.insert(*value, at),
            }
        }
        last.extend(self.outputs.iter().map(|&id| (id, usize::MAX)));
        let made = self.tasks.iter().flat_map(|task| match task {
            Task::Run { outputs, .. } => outputs.as_slice(),
            Task::Copy { result, .. } => std::slice::from_ref(result),
        });
        let leaves = made.min().copied().unwrap_or(self.values);

        let mut there: BTreeMap<u32, HashMap<ValueId, usize>> = BTreeMap::new();
        for task in &self.tasks {
            if let Task::Run { device, program, inputs, .. } = task {
                let bytes = inputs.iter().copied().zip(program.inputs.iter().map(Type::bytes));
                there.entry(*device).or_default().extend(bytes.filter(|(id, _)| *id < leaves));
            }
        }
        let mut peaks = BTreeMap::new();
        for (at, task) in self.tasks.iter().enumerate() {
            let (device, needed) = match task {
                Task::Run { device, program, inputs, outputs } => {
                    let there = there.entry(*device).or_default();
                    for (&id, place) in outputs.iter().zip(&program.outputs) {
                        let taken = place.donated.map(|input| inputs[input]);
                        there.extend(taken.map(|input| (input, 0)));
                        there.insert(id, place.ty.bytes());
                    }
                    (*device, program.memory.arena)
                }
                Task::Copy { to, result, ty, .. } => {
                    there.entry(*to).or_default().insert(*result, ty.bytes());
                    (*to, 0)
                }
            };
            let used = there[&device].values().sum::<usize>() + needed;
            let peak = peaks.entry(device).or_insert(0);
            *peak = used.max(*peak);
            there
                .values_mut()
                .for_each(|there| there.retain(|id, _| *id < leaves || last.get(id).is_some_and(|&last| last > at)));
        }
        peaks
    }

    /// The programs in the order of hand-over.
    pub fn programs(&self) -> impl Iterator<Item = &Arc<Program>> {
        self.tasks.iter().filter_map(|task| match task {
            Task::Run { program, .. } => Some(program),
            Task::Copy { .. } => None,
        })
    }
}

//! Tensors that are parts of a batch: what is computed from them sums over samples in the blocks of the whole batch.

use super::Tensor;
use meshwork_graph::{Op, Type};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::{LazyLock, Mutex, MutexGuard};

/// A range of the samples of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    /// Samples of the whole batch.
    pub batch: usize,
    /// Those of the part.
    pub samples: Range<usize>,
}

/// The number of a part, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartId(pub u32);

/// All parts that there ever were. A training has a handful.
#[derive(Default)]
struct Parts {
    list: Vec<Part>,
    known: FxHashMap<Part, u32>,
}

fn parts() -> MutexGuard<'static, Parts> {
    static PARTS: LazyLock<Mutex<Parts>> = LazyLock::new(Mutex::default);
    PARTS.lock().unwrap_or_else(|e| e.into_inner())
}

impl PartId {
    pub fn of(part: Part) -> PartId {
        let mut parts = parts();
        let Parts { list, known } = &mut *parts;
        let number = *known.entry(part).or_insert_with_key(|part| {
            list.push(part.clone());
            list.len() as u32
        });
        PartId(number)
    }

    pub fn get(self) -> Part {
        parts().list[self.0 as usize - 1].clone()
    }

    /// Gives an operation that sums over the samples of the part the blocks of the whole batch.
    pub fn apply(self, op: &mut Op, inputs: &[&Type]) {
        let Part { batch, samples } = self.get();
        // Sums over something else than the samples stay as they are.
        if op.blocks(inputs).is_none_or(|blocks| blocks.outer == samples.len()) {
            op.part_of_batch(batch);
        }
    }
}

/// The part that all operands belong to which belong to one; none if they belong to different ones.
pub(crate) fn common_part(parts: impl Iterator<Item = Option<PartId>>) -> Option<PartId> {
    let mut parts = parts.flatten();
    let first = parts.next()?;
    parts.all(|part| part == first).then_some(first)
}

impl Tensor {
    /// The range of a batch that this is computed from, and the size of the whole batch, for tensors that come from
    /// [`crate::parallel::scatter`] and what is computed from them.
    pub fn part_of_batch(&self) -> Option<(Range<usize>, usize)> {
        self.node().part().map(PartId::get).map(|part| (part.samples, part.batch))
    }

    /// The same value as a part of a batch, or as none.
    pub(crate) fn with_part(&self, part: Option<Part>) -> Tensor {
        let same = self.reshape(&self.shape().iter().map(|&n| n as isize).collect::<Vec<_>>());
        same.node().set_part(part.map(PartId::of));
        same
    }
}

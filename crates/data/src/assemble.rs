//! Reading one batch: the part of a loader that is the same in the caller and in a worker.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::batch::Pool;
use crate::dataset::read_row;
use crate::order::EpochOrder;
use crate::schedule::Step;
use crate::{Batch, DataError, Dataset, Field, Position, Result, Rows};

/// One batch to be read.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub position: Position,
    pub step: Step,
    pub order: EpochOrder,
}

/// What all batches of a loader have in common.
pub(crate) struct Assembler {
    dataset: Arc<dyn Dataset>,
    fields: Arc<[Field]>,
    rows: Rows,
    pool: Arc<Pool>,
}

impl Assembler {
    pub fn new(dataset: Arc<dyn Dataset>, rows: Rows, pool: Arc<Pool>) -> Self {
        Self { fields: dataset.fields().into(), dataset, rows, pool }
    }

    /// Reads the samples of a batch; `None` where `stopped` said so in between.
    ///
    /// A panic in the dataset becomes an error that names the sample.
    pub fn read(&self, job: Job, stopped: impl Fn() -> bool) -> Result<Option<Batch>> {
        let (epoch, current) = (job.step.epoch, Cell::new(None));
        catch_unwind(AssertUnwindSafe(|| self.read_rows(job, &stopped, &current))).unwrap_or_else(|payload| {
            Err(DataError::Panic { index: current.get(), epoch, message: panic_message(payload) })
        })
    }

    fn read_rows(&self, job: Job, stopped: &impl Fn() -> bool, current: &Cell<Option<usize>>) -> Result<Option<Batch>> {
        let Job { position, step, order } = job;
        let (epoch, len, start) = (step.epoch, step.samples.len(), step.samples.start);
        let rows = self.rows.of(len);
        if rows.start > rows.end || rows.end > len {
            return Err(DataError::options(format!(
                "rows {rows:?} of a batch of {len} were asked for; rows must lie in 0..{len}"
            )));
        }
        let first_row = rows.start;
        let indices = rows.map(|row| order.index(start + row)).collect();
        let (fields, pool) = (Arc::clone(&self.fields), Arc::clone(&self.pool));
        let mut batch = Batch::new(fields, position, step, first_row, indices, pool);
        let (fields, columns, indices) = batch.parts();
        for (row, &index) in indices.iter().enumerate() {
            if stopped() {
                return Ok(None);
            }
            current.set(Some(index));
            read_row(&self.dataset, fields, columns, row, index, epoch)?;
        }
        Ok(Some(batch))
    }
}

fn panic_message(payload: Box<dyn Any + Send>) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    if let Some(text) = payload.downcast_ref::<String>() {
        return text.clone();
    }
    // A foreign payload may panic when it is dropped, which would take the worker down.
    std::mem::forget(payload);
    "a panic without a message".to_owned()
}

//! The loader: an endless, exact, resumable sequence of batches.

use std::fmt;
use std::sync::Arc;

use crate::assemble::{Assembler, Job};
use crate::batch::Pool;
use crate::order::EpochOrder;
use crate::schedule::Schedule;
use crate::workers::Workers;
use crate::{Batch, DataError, Dataset, Order, Position, Result, Rows};

/// How a [`Loader`] makes batches. The names are those of PyTorch's `DataLoader`.
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    /// Samples in a (global) batch; at least 1. Default 1.
    pub batch_size: usize,
    /// The order of the samples in an epoch. Default [`Order::Sequential`].
    pub order: Order,
    /// Whether to leave out the last batch of an epoch where it has fewer samples than the others. Default no.
    pub drop_last: bool,
    /// Background threads; 0 reads in the calling thread. Changes the speed and nothing else. Default 1.
    pub num_workers: usize,
    /// Batches that each background thread may be ahead of the reader; at least 1. Default 2.
    pub prefetch_factor: usize,
    /// The sequence ends before the epoch of this number; `None` never ends. Default `None`.
    pub epochs: Option<u64>,
    /// The rows of every global batch to read here. Default all.
    pub rows: Rows,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            batch_size: 1,
            order: Order::Sequential,
            drop_last: false,
            num_workers: 1,
            prefetch_factor: 2,
            epochs: None,
            rows: Rows::All,
        }
    }
}

/// Batches of a dataset, epoch after epoch.
///
/// The sequence depends on the dataset, the order, the batch size and the position alone. As an iterator a
/// loader goes on into the next epoch; [`epoch`](Self::epoch) stops at the end of the current one.
///
/// After an `Err` the iterator ends, and [`position`](Self::position) is that of the batch that failed. Dropping
/// a loader ends and joins its threads, which takes as long as reading the sample at hand.
pub struct Loader {
    dataset: Arc<dyn Dataset>,
    schedule: Schedule,
    engine: Engine,
    position: Position,
    failed: bool,
}

enum Engine {
    /// Boxed: it carries an assembler, the other a pointer.
    Caller(Box<(Assembler, Jobs)>),
    Background(Workers),
}

impl Loader {
    /// A loader that starts at the first sample of epoch 0.
    ///
    /// # Errors
    /// [`DataError::Options`] where the dataset is empty or an option makes no sense, [`DataError::Threads`]
    /// where a thread cannot be started.
    pub fn new(dataset: impl Dataset + 'static, options: LoaderOptions) -> Result<Self> {
        Self::from_position(dataset, options, Position::default())
    }

    /// A loader that starts at a saved position and gives exactly the batches that follow it.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`DataError::Position`] where the dataset has no such position.
    pub fn from_position(dataset: impl Dataset + 'static, options: LoaderOptions, position: Position) -> Result<Self> {
        let dataset: Arc<dyn Dataset> = Arc::new(dataset);
        let len = dataset.len();
        let LoaderOptions { batch_size, order, drop_last, num_workers, prefetch_factor, epochs, rows } = options;
        let schedule = Schedule::new(len, batch_size, drop_last, epochs)?;
        if prefetch_factor == 0 {
            return Err(DataError::options("a prefetch_factor of 0; use at least 1"));
        }
        if let Rows::Share { rank, world_size } = rows
            && rank >= world_size
        {
            return Err(DataError::options(format!(
                "rank {rank} of {world_size}; ranks count from 0 and lie below world_size"
            )));
        }
        let position = schedule.normalize(position)?;
        let jobs = Jobs { schedule, order, len, position, current: None };
        let capacity = num_workers.saturating_mul(prefetch_factor);
        let pool = Pool::new(capacity.saturating_add(1));
        let assembler = Assembler::new(Arc::clone(&dataset), rows, pool);
        let engine = if num_workers == 0 {
            Engine::Caller(Box::new((assembler, jobs)))
        } else {
            Engine::Background(Workers::start(assembler, jobs, num_workers, capacity)?)
        };
        Ok(Self { dataset, schedule, engine, position, failed: false })
    }

    /// The position of the next batch, whatever has been read ahead: save it to resume from there.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The number of batches of a whole epoch.
    pub fn batches_per_epoch(&self) -> usize {
        self.schedule.batches_per_epoch()
    }

    /// The dataset that the batches come from.
    pub fn dataset(&self) -> &dyn Dataset {
        &*self.dataset
    }

    /// The rest of the current epoch.
    pub fn epoch(&mut self) -> EpochBatches<'_> {
        EpochBatches { loader: self, ended: false }
    }
}

impl Iterator for Loader {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        if self.failed {
            return None;
        }
        let batch = match &mut self.engine {
            Engine::Caller(parts) => {
                let (assembler, jobs) = &mut **parts;
                assembler.read(jobs.next()?, || false).transpose()?
            }
            Engine::Background(workers) => workers.next()?,
        };
        match &batch {
            Ok(batch) => self.position = batch.next_position(),
            Err(_) => self.failed = true,
        }
        Some(batch)
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("schedule", &self.schedule)
            .field("position", &self.position)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// The rest of an epoch of a loader; see [`Loader::epoch`].
#[derive(Debug)]
pub struct EpochBatches<'a> {
    loader: &'a mut Loader,
    ended: bool,
}

impl Iterator for EpochBatches<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        if self.ended {
            return None;
        }
        let batch = self.loader.next();
        self.ended = !matches!(&batch, Some(Ok(batch)) if !batch.is_last());
        batch
    }
}

/// The batches to be read, one after the other.
pub(crate) struct Jobs {
    schedule: Schedule,
    order: Order,
    len: usize,
    position: Position,
    /// The order of the epoch at hand.
    current: Option<(u64, EpochOrder)>,
}

impl Iterator for Jobs {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        let position = self.position;
        let step = self.schedule.step(position)?;
        let order = match &self.current {
            Some((epoch, order)) if *epoch == step.epoch => order.clone(),
            _ => {
                let order = EpochOrder::new(self.order, self.len, step.epoch);
                self.current.insert((step.epoch, order)).1.clone()
            }
        };
        self.position = step.next;
        Some(Job { position, step, order })
    }
}

//! A number of samples together, and the memory that batches leave to each other.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::schedule::Step;
use crate::{Column, Field, FieldType, Position};

/// Samples put together by a [`Loader`](crate::Loader): each field is one array whose first dimension counts
/// the samples.
///
/// Fields are asked for by name. A name that does not exist, or the wrong element type, is a mistake in the
/// calling code and panics with the fields there are.
pub struct Batch {
    fields: Arc<[Field]>,
    columns: Vec<Column>,
    indices: Vec<usize>,
    step: Step,
    position: Position,
    first_row: usize,
    pool: Arc<Pool>,
}

impl Batch {
    pub(crate) fn new(
        fields: Arc<[Field]>,
        position: Position,
        step: Step,
        first_row: usize,
        indices: Vec<usize>,
        pool: Arc<Pool>,
    ) -> Self {
        let mut columns = pool.take();
        columns.resize_with(fields.len(), || Column::U8(Vec::new()));
        for (field, column) in fields.iter().zip(&mut columns) {
            if column.dtype() != field.dtype {
                *column = Column::empty(field.dtype);
            }
        }
        crate::dataset::reset(&fields, &mut columns, indices.len());
        Self { fields, columns, indices, step, position, first_row, pool }
    }

    pub(crate) fn parts(&mut self) -> (&[Field], &mut [Column], &[usize]) {
        (&self.fields, &mut self.columns, &self.indices)
    }

    /// The number of samples read here: the first dimension of every field.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether no samples are read here, as may happen to one of many processes in a short batch.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// The number of samples of the batch over all processes.
    pub fn global_len(&self) -> usize {
        self.step.samples.len()
    }

    /// The row of the global batch that the first sample read here is.
    pub fn first_row(&self) -> usize {
        self.first_row
    }

    /// The dataset's indices of the samples, row by row.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// The epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.step.epoch
    }

    /// The number of the batch in its epoch, from 0.
    pub fn index(&self) -> usize {
        self.step.index
    }

    /// Whether this is the last batch of its epoch.
    pub fn is_last(&self) -> bool {
        self.step.last
    }

    /// The position of the batch: a loader started there gives this batch first.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The position after the batch: a loader started there goes on as if it had not been interrupted.
    pub fn next_position(&self) -> Position {
        self.step.next
    }

    /// The fields of the samples.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The shape of a field in this batch: `[len, …shape of one sample]`.
    #[track_caller]
    pub fn shape(&self, name: &str) -> Vec<usize> {
        let sample = &self.fields[self.find(name)].shape;
        [&[self.len()], sample.as_slice()].concat()
    }

    /// The values of a field, where there is one of this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let index = self.fields.iter().position(|field| field.name == name)?;
        Some(&self.columns[index])
    }

    /// The values of an `f32` field, sample after sample in row-major order.
    #[track_caller]
    pub fn f32(&self, name: &str) -> &[f32] {
        let index = self.find(name);
        match &self.columns[index] {
            Column::F32(values) => values,
            _ => self.wrong_type(index, FieldType::F32),
        }
    }

    /// The values of an `i64` field, sample after sample in row-major order.
    #[track_caller]
    pub fn i64(&self, name: &str) -> &[i64] {
        let index = self.find(name);
        match &self.columns[index] {
            Column::I64(values) => values,
            _ => self.wrong_type(index, FieldType::I64),
        }
    }

    /// The values of a `u8` field, sample after sample in row-major order.
    #[track_caller]
    pub fn u8(&self, name: &str) -> &[u8] {
        let index = self.find(name);
        match &self.columns[index] {
            Column::U8(values) => values,
            _ => self.wrong_type(index, FieldType::U8),
        }
    }

    /// The values of all fields as owned memory, in the order of [`fields`](Self::fields). The memory is then
    /// the caller's and not reused for later batches.
    pub fn into_columns(mut self) -> Vec<Column> {
        std::mem::take(&mut self.columns)
    }

    #[track_caller]
    fn find(&self, name: &str) -> usize {
        let found = self.fields.iter().position(|field| field.name == name);
        found.unwrap_or_else(|| {
            let names: Vec<_> = self.fields.iter().map(|field| &field.name).collect();
            panic!("no field {name:?} in a batch with the fields {names:?}")
        })
    }

    #[track_caller]
    fn wrong_type(&self, index: usize, asked: FieldType) -> ! {
        let Field { name, dtype, .. } = &self.fields[index];
        panic!("field {name:?} is {dtype:?}, but was asked for as {asked:?}")
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.columns));
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("epoch", &self.epoch())
            .field("index", &self.index())
            .field("len", &self.len())
            .field("is_last", &self.is_last())
            .field("next_position", &self.next_position())
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

/// Memory of dropped batches, for batches to come.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Mutex<Vec<Vec<Column>>>,
    limit: usize,
}

impl Pool {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(Vec::new()), limit })
    }

    fn take(&self) -> Vec<Column> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.pop().unwrap_or_default()
    }

    fn give_back(&self, columns: Vec<Column>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.limit && !columns.is_empty() {
            free.push(columns);
        }
    }
}

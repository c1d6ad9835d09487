//! The trait of everything that samples can be read from.

use std::sync::Arc;

use crate::{Column, DataError, Field, FieldType, Result};

/// A numbered collection of samples that all have the same fields.
///
/// Reading must depend on the index (and, for random augmentation, on [`Sample::epoch`]) alone: then a
/// loader gives the same batches with any number of threads.
pub trait Dataset: Send + Sync {
    /// The number of samples. It must not change while a loader uses the dataset.
    fn len(&self) -> usize;

    /// The fields of every sample. They must not change while a loader uses the dataset.
    fn fields(&self) -> &[Field];

    /// Writes sample `index` into `sample`, whose values are zeros before the call.
    ///
    /// # Errors
    /// [`DataError::OutOfRange`] where `index` is not below [`len`](Self::len), and whatever reading meets;
    /// [`DataError::other`] wraps errors of other libraries.
    fn read(&self, index: usize, sample: &mut Sample<'_>) -> Result<()>;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For classification: labels lie in `0..num_classes`.
    fn num_classes(&self) -> Option<usize> {
        None
    }

    /// For classification: the names of the classes in the order of their labels, where they are known.
    fn class_names(&self) -> Option<&[String]> {
        None
    }
}

macro_rules! forward_dataset {
    ($pointer:ty) => {
        impl<D: Dataset + ?Sized> Dataset for $pointer {
            fn len(&self) -> usize {
                (**self).len()
            }
            fn fields(&self) -> &[Field] {
                (**self).fields()
            }
            fn read(&self, index: usize, sample: &mut Sample<'_>) -> Result<()> {
                (**self).read(index, sample)
            }
            fn is_empty(&self) -> bool {
                (**self).is_empty()
            }
            fn num_classes(&self) -> Option<usize> {
                (**self).num_classes()
            }
            fn class_names(&self) -> Option<&[String]> {
                (**self).class_names()
            }
        }
    };
}

forward_dataset!(Arc<D>);
forward_dataset!(Box<D>);
forward_dataset!(&D);

/// The place in a batch that one sample is written to.
///
/// Fields are numbered as in [`Dataset::fields`]. Asking for a field that does not exist, or by the wrong
/// element type, is a mistake in the dataset's code and panics.
#[derive(Debug)]
pub struct Sample<'a> {
    fields: &'a [Field],
    columns: &'a mut [Column],
    row: usize,
    epoch: u64,
}

impl Sample<'_> {
    /// The epoch that the sample is read for: the key of random augmentation, together with the index.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The values of an `f32` field, in row-major order.
    #[track_caller]
    pub fn f32(&mut self, field: usize) -> &mut [f32] {
        let len = self.num_elements(field);
        match &mut self.columns[field] {
            Column::F32(values) => &mut values[self.row * len..][..len],
            other => wrong_type(&self.fields[field], other.dtype(), FieldType::F32),
        }
    }

    /// The values of an `i64` field, in row-major order.
    #[track_caller]
    pub fn i64(&mut self, field: usize) -> &mut [i64] {
        let len = self.num_elements(field);
        match &mut self.columns[field] {
            Column::I64(values) => &mut values[self.row * len..][..len],
            other => wrong_type(&self.fields[field], other.dtype(), FieldType::I64),
        }
    }

    /// The values of a `u8` field, in row-major order.
    #[track_caller]
    pub fn u8(&mut self, field: usize) -> &mut [u8] {
        let len = self.num_elements(field);
        match &mut self.columns[field] {
            Column::U8(values) => &mut values[self.row * len..][..len],
            other => wrong_type(&self.fields[field], other.dtype(), FieldType::U8),
        }
    }

    #[track_caller]
    fn num_elements(&self, field: usize) -> usize {
        match self.fields.get(field) {
            Some(field) => field.num_elements(),
            None => panic!("field {field} was asked for, but a sample has {} fields", self.fields.len()),
        }
    }
}

#[track_caller]
fn wrong_type(field: &Field, is: FieldType, asked: FieldType) -> ! {
    panic!("field {:?} is {is:?}, but was asked for as {asked:?}", field.name)
}

/// Reads the samples `indices` into columns, one column a field, as a loader would in epoch `epoch`.
///
/// # Errors
/// [`DataError::Sample`] with the index and the cause where a sample cannot be read.
pub fn read_samples(dataset: &dyn Dataset, indices: &[usize], epoch: u64) -> Result<Vec<Column>, DataError> {
    let fields = dataset.fields();
    let mut columns: Vec<Column> = fields.iter().map(|f| Column::empty(f.dtype)).collect();
    reset(fields, &mut columns, indices.len());
    for (row, &index) in indices.iter().enumerate() {
        read_row(dataset, fields, &mut columns, row, index, epoch)?;
    }
    Ok(columns)
}

/// Gives every column `rows` rows of zeros.
pub(crate) fn reset(fields: &[Field], columns: &mut [Column], rows: usize) {
    for (field, column) in fields.iter().zip(columns) {
        column.reset(rows * field.num_elements());
    }
}

/// Reads sample `index` into row `row`.
pub(crate) fn read_row(
    dataset: &dyn Dataset,
    fields: &[Field],
    columns: &mut [Column],
    row: usize,
    index: usize,
    epoch: u64,
) -> Result<()> {
    let mut sample = Sample { fields, columns, row, epoch };
    dataset.read(index, &mut sample).map_err(|source| DataError::Sample { index, epoch, source: Box::new(source) })
}

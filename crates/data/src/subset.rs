//! A part of another dataset.

use std::ops::Range;
use std::sync::Arc;

use crate::order::split_permutation;
use crate::{DataError, Dataset, Field, Result, Sample};

/// Some samples of another dataset, in a chosen order.
#[derive(Clone, Debug)]
pub struct Subset<D> {
    dataset: D,
    selection: Selection,
}

#[derive(Clone, Debug)]
enum Selection {
    Range(Range<usize>),
    Indices(Arc<[usize]>),
}

impl<D: Dataset> Subset<D> {
    /// The samples `range.start` up to, not including, `range.end`.
    ///
    /// # Errors
    /// [`DataError::OutOfRange`] where the range ends behind the last sample.
    pub fn range(dataset: D, range: Range<usize>) -> Result<Self> {
        let len = dataset.len();
        if range.end > len && !range.is_empty() {
            return Err(DataError::OutOfRange { index: range.end - 1, len });
        }
        Ok(Self { dataset, selection: Selection::Range(range) })
    }

    /// The samples `indices`, in that order; an index may occur more than once.
    ///
    /// # Errors
    /// [`DataError::OutOfRange`] for the first index that is not below the length of the dataset.
    pub fn indices(dataset: D, indices: impl Into<Arc<[usize]>>) -> Result<Self> {
        let (len, indices) = (dataset.len(), indices.into());
        if let Some(&index) = indices.iter().find(|&&index| index >= len) {
            return Err(DataError::OutOfRange { index, len });
        }
        Ok(Self { dataset, selection: Selection::Indices(indices) })
    }

    /// Splits a dataset at random into disjoint parts of the given lengths; `seed` alone decides which
    /// sample goes where. Samples beyond the sum of the lengths are left out.
    ///
    /// # Errors
    /// [`DataError::OutOfRange`] where the lengths add up to more samples than there are.
    pub fn random_split(dataset: D, lengths: &[usize], seed: u64) -> Result<Vec<Self>>
    where
        D: Clone,
    {
        let len = dataset.len();
        let total = lengths.iter().fold(0, |sum: usize, l| sum.saturating_add(*l));
        if total > len {
            return Err(DataError::OutOfRange { index: total - 1, len });
        }
        let shuffled = split_permutation(len, seed);
        let mut rest = shuffled.as_slice();
        let parts = lengths.iter().map(|&length| {
            let (part, behind) = rest.split_at(length);
            rest = behind;
            Self::indices(dataset.clone(), part)
        });
        parts.collect()
    }

    /// The dataset that this is a part of.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }
}

/// The training and the test part of a dataset that comes without a split: the last fifth in its order,
/// rounded down, is held back as test set.
///
/// # Errors
/// [`DataError::TooSmall`] where the test set would be empty; `origin` says in the error whose samples these
/// are.
pub fn hold_back_last_fifth<D: Dataset>(dataset: D, origin: &str) -> Result<[Subset<Arc<D>>; 2]> {
    let len = dataset.len();
    let num_test = len / 5;
    if num_test == 0 {
        return Err(DataError::TooSmall { origin: origin.to_owned(), len });
    }
    let (dataset, num_train) = (Arc::new(dataset), len - num_test);
    Ok([Subset::range(Arc::clone(&dataset), 0..num_train)?, Subset::range(dataset, num_train..len)?])
}

impl<D: Dataset> Dataset for Subset<D> {
    fn len(&self) -> usize {
        match &self.selection {
            Selection::Range(range) => range.len(),
            Selection::Indices(indices) => indices.len(),
        }
    }

    fn fields(&self) -> &[Field] {
        self.dataset.fields()
    }

    fn read(&self, index: usize, sample: &mut Sample<'_>) -> Result<()> {
        let len = self.len();
        if index >= len {
            return Err(DataError::OutOfRange { index, len });
        }
        let inner = match &self.selection {
            Selection::Range(range) => range.start + index,
            Selection::Indices(indices) => indices[index],
        };
        self.dataset.read(inner, sample)
    }

    fn num_classes(&self) -> Option<usize> {
        self.dataset.num_classes()
    }

    fn class_names(&self) -> Option<&[String]> {
        self.dataset.class_names()
    }
}

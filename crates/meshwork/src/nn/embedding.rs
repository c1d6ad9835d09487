//! Embedding tables.

use super::layer::layers;
use super::{Init, Module, Parameter, init};
use crate::tensor::{Tensor, where_};

/// A table of vectors: indices `[…]` to `[…, size]`. Entries begin as N(0, 1).
#[derive(Debug, Module)]
pub struct Embedding {
    /// `[entries, size]`
    pub weight: Parameter,
    padding_idx: Option<usize>,
}

impl Embedding {
    /// A table of `entries` vectors.
    pub fn new(entries: usize, size: usize) -> Embedding {
        Embedding { weight: Parameter::new(&[entries, size], init::normal(1.0)), padding_idx: None }
    }

    /// With entries that begin like this. Call it before [`padding_idx`](Self::padding_idx).
    #[track_caller]
    pub fn weights(self, init: Init) -> Embedding {
        Embedding { weight: Parameter::new(self.weight.shape(), init), ..self }
    }

    /// An entry that stands for nothing: it begins as zeros and gets no gradient.
    ///
    /// # Panics
    /// When there is no such entry.
    #[track_caller]
    pub fn padding_idx(self, index: usize) -> Embedding {
        let shape = self.weight.shape();
        assert!(index < shape[0], "padding_idx {index} of a table of {} entries", shape[0]);
        let weight = Parameter::new(shape, init::normal(1.0).with_zero_row(index));
        Embedding { weight, padding_idx: Some(index) }
    }

    /// Integer indices `[…]` to `[…, size]`. An index out of range fails when the value is read.
    #[track_caller]
    pub fn forward(&self, indices: &Tensor) -> Tensor {
        let rows = self.weight.value().embedding(indices);
        let Some(padding) = self.padding_idx else { return rows };
        let is_padding = indices.eq(padding as i64).unsqueeze(-1);
        where_(&is_padding, &rows.detach(), &rows)
    }
}

layers!(Embedding);

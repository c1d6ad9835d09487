//! Tokens as samples of equal length.

use std::ops::Range;
use std::sync::Arc;

use super::Tokens;
use crate::{DataError, Dataset, Field, FieldType, Result, Sample};

/// A run of tokens, packed into sequences of one length `T`.
///
/// Sample `i` has the fields `tokens`, i64 `[T]`, the tokens `i·T` to `i·T + T`, and `label`, i64 `[T]`, the token that
/// follows each of them. Documents are not told apart: where one ends within a sequence, the next one begins. Tokens at the
/// end that fill no sequence are left out.
#[derive(Clone, Debug)]
pub struct Sequences {
    tokens: Arc<Tokens>,
    range: Range<usize>,
    length: usize,
    vocabulary: usize,
    fields: [Field; 2],
}

impl Sequences {
    /// Sequences of `length` tokens each, of the tokens `range`; all lie below `vocabulary`.
    ///
    /// Panics where the range ends behind the last token, or the length is 0.
    #[track_caller]
    pub fn new(tokens: Arc<Tokens>, range: Range<usize>, length: usize, vocabulary: usize) -> Self {
        assert!(range.start <= range.end && range.end <= tokens.len(), "{range:?} of {} tokens", tokens.len());
        assert!(length > 0, "sequences of length 0");
        let fields = ["tokens", "label"].map(|name| Field::new(name, FieldType::I64, [length]));
        Self { tokens, range, length, vocabulary, fields }
    }

    /// The tokens of a sequence: `T`.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The tokens at the end that are in no sequence, neither as a token nor as a label.
    pub fn num_left_out(&self) -> usize {
        match self.len() {
            0 => self.range.len(),
            len => self.range.len() - (len * self.length + 1),
        }
    }
}

impl Dataset for Sequences {
    fn len(&self) -> usize {
        self.range.len().saturating_sub(1) / self.length
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, sample: &mut Sample<'_>) -> Result<()> {
        let len = self.len();
        if index >= len {
            return Err(DataError::OutOfRange { index, len });
        }
        let start = self.range.start + index * self.length;
        self.tokens.read(start, sample.i64(0));
        self.tokens.read(start + 1, sample.i64(1));
        Ok(())
    }

    /// The vocabulary: labels lie below it.
    fn num_classes(&self) -> Option<usize> {
        Some(self.vocabulary)
    }
}

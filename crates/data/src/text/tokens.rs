//! The tokens of a corpus, one after the other: in memory, or in a file that is mapped into it.

use std::ops::Range;

use super::cache::Mapped;

/// The tokens of a whole corpus. Clones of an `Arc` of it share them.
#[derive(Debug)]
pub struct Tokens(Store);

#[derive(Debug)]
enum Store {
    U16(Vec<u16>),
    U32(Vec<u32>),
    Mapped(Mapped),
}

/// How many bytes a token takes: 2 where all tokens of a vocabulary fit, else 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Two,
    Four,
}

impl Width {
    pub fn of(vocabulary: usize) -> Self {
        if vocabulary <= 1 << 16 { Self::Two } else { Self::Four }
    }

    pub fn bytes(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

impl Tokens {
    /// No tokens of a vocabulary, in memory, for [`extend`](Self::extend).
    pub(super) fn in_memory(vocabulary: usize) -> Self {
        Self(match Width::of(vocabulary) {
            Width::Two => Store::U16(Vec::new()),
            Width::Four => Store::U32(Vec::new()),
        })
    }

    pub(super) fn mapped(mapped: Mapped) -> Self {
        Self(Store::Mapped(mapped))
    }

    /// Appends tokens of the vocabulary to those in memory.
    pub(super) fn extend(&mut self, tokens: &[u32]) {
        match &mut self.0 {
            Store::U16(all) => all.extend(tokens.iter().map(|&token| token as u16)),
            Store::U32(all) => all.extend_from_slice(tokens),
            Store::Mapped(_) => unreachable!("mapped tokens are complete"),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Store::U16(all) => all.len(),
            Store::U32(all) => all.len(),
            Store::Mapped(mapped) => mapped.bytes().len() / mapped.width().bytes(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they lie in a file that is mapped into memory.
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Store::Mapped(_))
    }

    /// Writes the tokens from `start` on into `values`; panics where there are not as many.
    #[track_caller]
    pub fn read(&self, start: usize, values: &mut [i64]) {
        let range = start..start + values.len();
        match &self.0 {
            Store::U16(all) => fill(values, all[range].iter().map(|&token| i64::from(token))),
            Store::U32(all) => fill(values, all[range].iter().map(|&token| i64::from(token))),
            Store::Mapped(mapped) => {
                let width = mapped.width();
                let Range { start, end } = range;
                let bytes = &mapped.bytes()[start * width.bytes()..end * width.bytes()];
                match width {
                    Width::Two => fill(values, bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b).into())),
                    Width::Four => fill(values, bytes.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b).into())),
                }
            }
        }
    }
}

fn fill(values: &mut [i64], tokens: impl Iterator<Item = i64>) {
    for (value, token) in values.iter_mut().zip(tokens) {
        *value = token;
    }
}

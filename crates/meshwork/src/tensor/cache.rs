//! What is worked out once for each structure of recorded nodes.

use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Values by structure. A structure is a sequence of words that says everything that distinguishes it; sequences are
/// compared in full.
pub(crate) struct Cache<V> {
    known: FxHashMap<Box<[u64]>, Arc<V>>,
    /// Words of all known structures.
    size: usize,
    words: Vec<u64>,
}

/// Values kept; when there are more, all are forgotten. A training needs a handful.
const MAX_VALUES: usize = 256;

/// Words of structures that are kept, as a measure of what their values need: some 200 bytes a word.
const MAX_SIZE: usize = 1 << 21;

impl<V> Default for Cache<V> {
    fn default() -> Self {
        Cache { known: FxHashMap::default(), size: 0, words: Vec::new() }
    }
}

impl<V> Cache<V> {
    /// The value of the structure that `describe` spells, made if it is new.
    pub fn find(&mut self, describe: impl FnOnce(&mut Vec<u64>), make: impl FnOnce() -> V) -> Arc<V> {
        self.words.clear();
        describe(&mut self.words);
        if let Some(known) = self.known.get(&self.words[..]) {
            return known.clone();
        }
        let made = Arc::new(make());
        if self.known.len() >= MAX_VALUES || self.size + self.words.len() > MAX_SIZE {
            self.known.clear();
            self.size = 0;
        }
        self.known.insert(self.words.as_slice().into(), made.clone());
        self.size += self.words.len();
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_made_once_until_there_are_too_many() {
        let mut cache = Cache::default();
        let mut made = Vec::new();
        let mut find = |word: u64, count: usize| {
            cache.find(
                |words| words.resize(count, word),
                || {
                    made.push(word);
                    word
                },
            )
        };
        assert_eq!((*find(1, 3), *find(2, 3), *find(1, 3)), (1, 2, 1));
        // Two large ones do not fit beside each other.
        assert_eq!((*find(3, MAX_SIZE - 6), *find(1, 3), *find(4, 1), *find(1, 3)), (3, 1, 4, 1));
        (10..10 + MAX_VALUES as u64).for_each(|word| drop(find(word, 1)));
        find(4, 1);
        assert_eq!(made[..5], [1, 2, 3, 4, 1]);
        assert_eq!(made.len(), 5 + MAX_VALUES + 1);
    }
}

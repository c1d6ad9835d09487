//! What is worked out once for each structure of recorded nodes.

use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Values by structure. A structure is a sequence of words that says everything that distinguishes it; sequences are
/// compared in full.
pub(crate) struct Cache<V> {
    recent: Known<V>,
    /// What was recent before; what is found here is recent again.
    older: Known<V>,
    /// Words of the recent structures.
    size: usize,
    words: Vec<u64>,
}

type Known<V> = FxHashMap<Box<[u64]>, Arc<V>>;

/// Recent values; when there are more, those that were not recent already are forgotten. A training needs a handful, and
/// keeps them whatever else is worked out once beside it.
const MAX_VALUES: usize = 256;

/// Words of recent structures, as a measure of what their values need: some 200 bytes a word.
const MAX_SIZE: usize = 1 << 20;

impl<V> Default for Cache<V> {
    fn default() -> Self {
        Cache { recent: Known::default(), older: Known::default(), size: 0, words: Vec::new() }
    }
}

impl<V> Cache<V> {
    /// The value of the structure that `describe` spells, made if it is new.
    pub fn find(&mut self, describe: impl FnOnce(&mut Vec<u64>), make: impl FnOnce() -> V) -> Arc<V> {
        self.words.clear();
        describe(&mut self.words);
        if let Some(known) = self.recent.get(&self.words[..]) {
            return known.clone();
        }
        let (words, value) = match self.older.remove_entry(&self.words[..]) {
            Some(known) => known,
            None => (self.words.as_slice().into(), Arc::new(make())),
        };
        if self.recent.len() >= MAX_VALUES || self.size + words.len() > MAX_SIZE {
            self.older = std::mem::take(&mut self.recent);
            self.size = 0;
        }
        self.size += words.len();
        self.recent.insert(words, value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, MAX_SIZE, MAX_VALUES};

    #[test]
    fn what_is_used_again_and_again_is_worked_out_once() {
        let mut cache = Cache::default();
        let mut made = Vec::new();
        for once in 0..5 * MAX_VALUES as u64 {
            cache.find(|words| words.push(once + 1), || made.push(once + 1));
            if once % 100 == 0 {
                cache.find(|words| words.push(0), || made.push(0));
            }
        }
        assert_eq!(made.iter().filter(|&&number| number == 0).count(), 1);
        assert_eq!(made.len(), 5 * MAX_VALUES + 1);
        assert!(cache.recent.len() + cache.older.len() <= 2 * MAX_VALUES);
    }

    #[test]
    fn large_structures_are_forgotten_by_their_size() {
        let mut cache = Cache::default();
        let mut made = Vec::new();
        for once in 0..6 {
            cache.find(|words| words.resize(MAX_SIZE - 5, once), || made.push(once));
            cache.find(|words| words.push(9), || made.push(9));
            assert!(cache.recent.len() + cache.older.len() <= 4);
        }
        assert_eq!(made, [0, 9, 1, 2, 3, 4, 5]);
    }
}

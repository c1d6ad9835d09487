//! What is worked out once for each structure of recorded nodes.

use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Values by structure. A structure is a sequence of words that says everything that distinguishes it; sequences are
/// compared in full.
pub(crate) struct Cache<V> {
    known: FxHashMap<Box<[u64]>, Arc<V>>,
    words: Vec<u64>,
}

/// Values kept; when there are more, all are forgotten. A training needs a handful.
const MAX_VALUES: usize = 256;

impl<V> Default for Cache<V> {
    fn default() -> Self {
        Cache { known: FxHashMap::default(), words: Vec::new() }
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
        if self.known.len() >= MAX_VALUES {
            self.known.clear();
        }
        self.known.insert(self.words.as_slice().into(), made.clone());
        made
    }
}

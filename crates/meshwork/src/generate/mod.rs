//! Text from a trained language model, token by token.
//!
//! ```
//! use meshwork::generate::{Generator, Sampling};
//! use meshwork::nn::{Module, Transformer, TransformerConfig};
//!
//! let model = Transformer::new(TransformerConfig::gpt2(65, 32, 2, 32, 2));
//! model.init(0);
//! let sampling = Sampling { temperature: 0.8, top_k: Some(20), ..Sampling::default() };
//! let tokens: Vec<u32> = Generator::new(&model, &[1, 2, 3], sampling).take(10).collect();
//! assert_eq!(tokens.len(), 10);
//! ```

mod sampling;

pub use sampling::Sampling;

use crate::nn::{KvCache, Module, Transformer};
use crate::tensor::no_grad;
use crate::{DType, Tensor};

/// The tokens that follow a text, without an end: each is chosen from what the model expects after all before it.
///
/// The model reads each token once and keeps its keys and values. When its context is full, it goes on from the last half of
/// that. The model is in evaluation while it writes, and in training when the generator is dropped.
pub struct Generator<'a> {
    model: &'a Transformer,
    sampling: Sampling,
    /// What the model has read, and what it shall read next.
    tokens: Vec<u32>,
    /// How many of the last tokens the model has not read yet.
    unread: usize,
    cache: KvCache,
    chosen: u64,
}

impl<'a> Generator<'a> {
    /// What follows a text of at least one token.
    ///
    /// # Panics
    /// When there is no token to begin with, or one is not in the vocabulary.
    #[track_caller]
    pub fn new(model: &'a Transformer, prompt: &[u32], sampling: Sampling) -> Generator<'a> {
        let vocabulary = model.config().vocabulary;
        assert!(!prompt.is_empty(), "a text that shall go on needs at least one token");
        if let Some(token) = prompt.iter().find(|&&token| token as usize >= vocabulary) {
            panic!("the token {token} is not in the vocabulary of {vocabulary} tokens");
        }
        model.eval();
        // What is before the context has no effect.
        let tokens = prompt[prompt.len().saturating_sub(model.config().context)..].to_vec();
        let cache = KvCache::new(model.config(), 1);
        Generator { model, sampling, unread: tokens.len(), tokens, cache, chosen: 0 }
    }

    /// The logits of the next token.
    fn read(&mut self) -> Vec<f32> {
        if self.cache.room() < self.unread {
            let context = self.model.config().context;
            self.tokens.drain(..self.tokens.len() - context.div_ceil(2));
            self.unread = self.tokens.len();
            self.cache = KvCache::new(self.model.config(), 1);
        }
        let new: Vec<i64> = self.tokens[self.tokens.len() - self.unread..].iter().map(|&token| token.into()).collect();
        let new = Tensor::from_slice(&new, &[1, new.len()]);
        self.unread = 0;
        no_grad(|| {
            let logits = self.model.forward_cached(&new, &mut self.cache);
            logits.select(1, -1).flatten(0).to_dtype(DType::F32).to_vec()
        })
    }
}

impl Iterator for Generator<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let logits = self.read();
        let token = self.sampling.choose(&logits, self.chosen);
        self.chosen += 1;
        self.tokens.push(token);
        self.unread = 1;
        Some(token)
    }
}

impl Drop for Generator<'_> {
    fn drop(&mut self) {
        self.model.train();
    }
}

//! Transformers: what a token may see, caches of keys and values, text that is written, and that they learn.

use meshwork::generate::{Generator, Sampling};
use meshwork::nn::*;
use meshwork::prelude::*;
use meshwork::tensor::manual_seed;
use meshwork::train;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

const VOCABULARY: usize = 19;
const CONTEXT: usize = 12;

/// Programs are counted for the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Models that differ in everything that a cache must get right.
fn models() -> [(&'static str, Transformer); 3] {
    let gpt = TransformerConfig::gpt2(VOCABULARY, CONTEXT, 2, 24, 4);
    let llama = TransformerConfig::llama(VOCABULARY, CONTEXT, 2, 24, 6);
    let shared = TransformerConfig { kv_heads: 2, tied: true, activation: ActivationKind::Gelu, ..llama };
    [("gpt", gpt), ("llama", llama), ("shared heads", shared)].map(|(name, config)| {
        let model = Transformer::new(TransformerConfig { init_std: 0.2, ..config });
        model.init(5);
        (name, model)
    })
}

fn tokens(batch: usize, length: usize) -> Tensor {
    let tokens: Vec<i64> = (0..batch * length).map(|i| (i * i * 7 + 3 * i + 1) as i64 % VOCABULARY as i64).collect();
    Tensor::from_slice(&tokens, &[batch, length])
}

fn close(a: &Tensor, b: &Tensor, what: &str) {
    assert_eq!(a.shape(), b.shape(), "{what}");
    for (x, y) in a.to_f64().iter().zip(b.to_f64()) {
        assert!((x - y).abs() <= 1e-5 * (1.0 + y.abs()), "{what}: {x} and {y}");
    }
}

#[test]
fn a_token_sees_itself_and_those_before_it() {
    let _only = alone();
    for (name, model) in models() {
        let all = tokens(2, CONTEXT);
        let logits = model.forward(&all);
        for seen in [1, 5, CONTEXT - 1] {
            // Other tokens after these.
            let other = all.narrow(1, seen, CONTEXT - seen) * -1i64 + (VOCABULARY as i64 - 1);
            let changed = model.forward(&meshwork::tensor::concat(&[&all.narrow(1, 0, seen), &other], 1));
            let before = |logits: &Tensor| logits.narrow(1, 0, seen).to_vec::<f32>();
            assert_eq!(before(&changed), before(&logits), "{name}, {seen} tokens");
            let after = |logits: &Tensor| logits.narrow(1, seen, 1).to_vec::<f32>();
            assert_ne!(after(&changed), after(&logits), "{name}, {seen} tokens");
        }
    }
}

#[test]
fn the_order_of_tokens_matters() {
    let _only = alone();
    for (name, model) in models() {
        let [a, b] = [[3i64, 8, 5], [8, 3, 5]].map(|t| model.forward(&Tensor::from_slice(&t, &[1, 3])));
        assert_ne!(a.select(1, 2).to_vec::<f32>(), b.select(1, 2).to_vec::<f32>(), "{name}");
    }
}

#[test]
fn a_cache_gives_the_logits_of_the_whole_sequence() {
    let _only = alone();
    for (name, model) in models() {
        let all = tokens(3, CONTEXT);
        let expected = model.forward(&all);
        for lengths in [&[CONTEXT][..], &[1; CONTEXT], &[5, 1, 1, 3, 2], &[1, 11]] {
            let mut cache = KvCache::new(model.config(), 3);
            assert!(cache.is_empty());
            let mut start = 0;
            for &length in lengths {
                let logits = model.forward_cached(&all.narrow(1, start, length), &mut cache);
                close(&logits, &expected.narrow(1, start, length), &format!("{name}, {length} after {start}"));
                start += length;
            }
            assert_eq!((cache.len(), cache.room()), (CONTEXT, 0));
        }
    }
}

#[test]
fn what_is_written_are_the_likeliest_tokens_one_after_the_other() {
    let _only = alone();
    for (name, model) in models() {
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        let prompt = [3u32, 1, 4];
        let written: Vec<u32> = Generator::new(&model, &prompt, greedy).take(20).collect();
        // The same without a cache: the context, and once it is full its last half, read anew for every token.
        let mut read: Vec<i64> = prompt.iter().map(|&token| token.into()).collect();
        for (i, &token) in written.iter().enumerate() {
            if read.len() > CONTEXT {
                read.drain(..read.len() - CONTEXT / 2);
            }
            let logits = model.forward(&Tensor::from_slice(&read, &[1, read.len()])).select(1, -1);
            assert_eq!(logits.argmax(-1).to_vec::<i64>(), [i64::from(token)], "{name}, token {i}");
            read.push(token.into());
        }
    }
}

#[test]
fn every_step_of_a_text_is_the_same_program() {
    let _only = alone();
    let [(_, model), ..] = models();
    let mut text = Generator::new(&model, &[1], Sampling::default());
    text.by_ref().take(3).for_each(drop);
    let compiled = meshwork::tensor::compile_count();
    text.take(CONTEXT - 4).for_each(drop);
    assert_eq!(meshwork::tensor::compile_count(), compiled);
}

#[test]
fn a_prompt_may_be_longer_than_the_context() {
    let _only = alone();
    let [(_, model), ..] = models();
    let long: Vec<u32> = (0..40).map(|i| i % VOCABULARY as u32).collect();
    let write = |prompt: &[u32]| Generator::new(&model, prompt, Sampling::default()).take(5).collect::<Vec<u32>>();
    assert_eq!(write(&long), write(&long[40 - CONTEXT..]));
}

#[test]
fn transformers_learn_a_sequence_by_heart() {
    let _only = alone();
    for (name, model) in models() {
        manual_seed(1);
        let all = tokens(4, CONTEXT + 1);
        let (x, y) = (all.narrow(1, 0, CONTEXT), all.narrow(1, 1, CONTEXT));
        let mut optimizer = optim::AdamW::new(&model, optim::AdamWOptions { lr: 0.01, ..Default::default() });
        for _ in 0..60 {
            let loss = train::loss(&model.forward(&x), &y);
            optimizer.step(model.gradients(&loss));
        }
        let logits = model.forward(&x);
        let loss = train::loss(&logits, &y).item();
        assert!(loss < 0.1, "{name}: the loss is {loss}");
        assert_eq!(train::hits(&logits, &y).item() as usize, 4 * CONTEXT, "{name}");
    }
}

#[test]
fn parameters_are_those_of_the_papers() {
    let _only = alone();
    let count = |config: TransformerConfig| Transformer::new(config).num_parameters();
    // GPT-2 small has 124 million parameters, and Llama 2 of 7 billion 6.74; here with fewer layers.
    let (v, t, d) = (1000, 64, 96);
    let block = 12 * d * d + 13 * d;
    assert_eq!(count(TransformerConfig::gpt2(v, t, 3, d, 4)), (v + t) * d + 3 * block + 2 * d);
    let llama = TransformerConfig::llama(v, t, 3, d, 4);
    let block = 4 * d * d + 3 * d * llama.hidden + 2 * d;
    assert_eq!(count(llama), 2 * v * d + 3 * block + d);
    assert_eq!(count(TransformerConfig { kv_heads: 2, ..llama }), 2 * v * d + 3 * (block - d * d) + d);
}

#[test]
fn mistakes_are_named() {
    let _only = alone();
    let said = |body: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(body)).expect_err("it was accepted");
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default()
    };
    let [(_, model), ..] = models();
    assert_eq!(said(&|| drop(model.forward(&tokens(1, 13)))), "13 tokens are more than the context of 12");
    let flat = tokens(1, 3).flatten(0);
    assert_eq!(said(&|| drop(model.forward(&flat))), "a transformer takes tokens [B, T], not i64[3]");
    let full = || {
        let mut cache = KvCache::new(model.config(), 1);
        model.forward_cached(&tokens(1, 10), &mut cache);
        model.forward_cached(&tokens(1, 3), &mut cache);
    };
    assert_eq!(said(&full), "3 tokens after 10 are more than the context of 12");
    let write = |prompt: &[u32]| said(&|| drop(Generator::new(&model, prompt, Sampling::default())));
    assert_eq!(write(&[]), "a text that shall go on needs at least one token");
    assert_eq!(write(&[1, 19]), "the token 19 is not in the vocabulary of 19 tokens");
    let config = TransformerConfig { kv_heads: 3, ..*model.config() };
    assert!(said(&|| drop(Transformer::new(config))).starts_with("no transformer has 4 heads of queries"));
    let (logits, classes) = (meshwork::tensor::rand(&[2, 3, 4]), tokens(2, 4));
    assert_eq!(
        said(&|| drop(train::loss(&logits, &classes))),
        "classes i64[2, 4] do not fit logits f32[2, 3, 4], whose last dim are the classes"
    );
}

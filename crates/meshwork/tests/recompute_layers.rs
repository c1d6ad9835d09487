//! Segments of a `Sequential` and convolutions of LeNet that are computed again: the same bits, less memory.

use meshwork::nn::{BatchNorm1d, Dropout, Gelu, Layer, Linear, Relu, Sequential, Transformer, TransformerConfig};
use meshwork::optim::{AdamW, AdamWOptions, Optimizer};
use meshwork::tensor::{last_program, manual_seed, randn};
use meshwork::train::LeNet;
use meshwork::{Tensor, sequential};

/// Everything that four steps leave behind, and the arena of the last one.
fn train(model: &dyn Layer, x: &Tensor) -> (Vec<Vec<u8>>, usize) {
    manual_seed(1);
    model.init(2);
    let mut optimizer = AdamW::new(model, AdamWOptions { lr: 0.01, ..Default::default() });
    let classes: Vec<i64> = (0..x.size(0) as i64).map(|i| i % 5).collect();
    let classes = Tensor::from_slice(&classes, &[x.size(0)]);
    let mut found = Vec::new();
    for _ in 0..4 {
        let loss = model.forward(x).cross_entropy(&classes);
        optimizer.step(model.gradients(&loss));
        found.push(loss.to_bytes());
    }
    let arena = last_program().expect("a step").memory.arena;
    found.extend(model.state().iter().chain(&optimizer.state().tensors).map(|(_, value)| value.to_bytes()));
    (found, arena)
}

/// Twelve hidden layers with running statistics and masks.
fn deep() -> Sequential {
    let mut model = Sequential::new();
    for layer in 0..12 {
        model.push(Box::new(Linear::new(if layer == 0 { 6 } else { 64 }, 64)));
        model.push(Box::new(BatchNorm1d::new(64)));
        model.push(Box::new(Gelu));
        model.push(Box::new(Dropout::new(0.2)));
    }
    model.push(Box::new(Linear::new(64, 5)));
    model
}

#[test]
fn segments_of_layers_have_the_same_bits_and_take_less_memory() {
    let x = randn(&[512, 6]);
    let (expected, kept) = train(&deep(), &x);
    // 49 layers.
    assert_eq!(deep().recomputable(), 7);
    for (segments, parts) in [(None, 1), (None, 4), (None, 6), (None, 7), (Some(12), 11), (Some(1), 1), (Some(100), 49)]
    {
        let model = segments.map_or_else(deep, |segments| deep().segments(segments));
        assert!(parts <= model.recomputable());
        model.set_recompute(parts);
        let (found, arena) = train(&model, &x);
        assert!(found == expected, "{parts} of {segments:?} segments");
        if matches!((segments, parts), (None, 6) | (Some(12), 11)) {
            assert!(arena < kept * 7 / 10, "{parts} of {segments:?} segments: {arena} of {kept} bytes");
        }
    }
}

#[test]
fn layers_with_parts_of_their_own_are_computed_again_by_those() {
    let transformer = || Transformer::new(TransformerConfig::gpt2(31, 8, 3, 16, 2));
    let inner = [std::sync::Arc::new(transformer()), std::sync::Arc::new(transformer())];
    let model = sequential![inner[0].clone(), Relu, inner[1].clone()];
    assert_eq!(model.recomputable(), 6);
    let each = |parts: usize| {
        model.set_recompute(parts);
        [inner[0].recompute(), inner[1].recompute()]
    };
    assert_eq!([each(0), each(2), each(4), each(usize::MAX)], [[0, 0], [2, 0], [3, 1], [3, 3]]);
}

#[test]
fn convolutions_of_lenet_are_computed_again_with_the_same_bits() {
    let images = randn(&[256, 1, 28, 28]);
    let of = |parts: usize| {
        let model = LeNet::new();
        assert_eq!(model.recomputable(), 2);
        model.set_recompute(parts);
        train(&model, &images)
    };
    let (expected, kept) = of(0);
    let (found, arena) = of(1);
    assert!(found == expected);
    assert!(arena < kept * 9 / 10, "{arena} of {kept} bytes");
    assert!(of(2).0 == expected);
}

#[test]
fn layers_are_cut_into_segments_at_all() {
    let panic = std::panic::catch_unwind(|| Sequential::new().segments(0)).err().expect("a mistake");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"layers are cut into at least one segment"));
    assert_eq!(Sequential::new().recomputable(), 0);
}

//! What a step keeps for its gradients, and computes again from that: the same bits, less memory.

use meshwork::nn::{ActivationKind, Module, Transformer, TransformerConfig};
use meshwork::optim::{AdamW, AdamWOptions, Optimizer};
use meshwork::tensor::{Precision, autocast, last_program, manual_seed, randn};
use meshwork::train::{LeNet, loss};
use meshwork::{Tensor, synchronize};

/// When the loss of a step is read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Read {
    /// After the step, which is one program.
    After,
    /// Before the gradients are taken: they come from another program, which reads all that it needs of the first one.
    Before,
}

/// Losses, weights and the optimizer's state after three steps.
fn trained(model: &dyn Module, read: Read, mut loss: impl FnMut() -> Tensor) -> Vec<Vec<u8>> {
    let mut optimizer = AdamW::new(model, AdamWOptions { lr: 0.01, ..Default::default() });
    let mut bits = Vec::new();
    for step in 0..3 {
        manual_seed(step);
        let loss = loss();
        if read == Read::Before {
            loss.item();
        }
        optimizer.step(model.gradients(&loss));
        bits.push(loss.to_bytes());
    }
    bits.extend(model.state().iter().chain(&optimizer.state().tensors).map(|(_, value)| value.to_bytes()));
    bits
}

const LENGTH: usize = 32;

fn tokens() -> Tensor {
    let tokens: Vec<i64> = (0..8 * LENGTH as i64).map(|i| i * 7 % 31).collect();
    Tensor::from_slice(&tokens, &[8, LENGTH])
}

#[test]
fn a_training_has_the_same_bits_when_its_gradients_compute_nothing_again() {
    let gpt = TransformerConfig { dropout: 0.2, ..TransformerConfig::gpt2(31, LENGTH, 2, 48, 4) };
    let erf = TransformerConfig { activation: ActivationKind::Gelu, ..gpt };
    let llama = TransformerConfig::llama(31, LENGTH, 2, 48, 4);
    for (name, config) in [("gpt", gpt), ("gpt with erf", erf), ("llama", llama)] {
        for precision in [Precision::F32, Precision::BF16] {
            let train = |read: Read| {
                let model = Transformer::new(config);
                model.init(1);
                let tokens = tokens();
                trained(&model, read, || autocast(precision, || loss(&model.forward(&tokens), &tokens)))
            };
            assert!(train(Read::After) == train(Read::Before), "{name}, {precision:?}");
        }
    }
    let train = |read: Read| {
        let model = LeNet::new();
        model.init(1);
        manual_seed(3);
        let images = randn(&[32, 1, 28, 28]);
        let labels = Tensor::from_slice(&(0..32).map(|i| i % 10).collect::<Vec<i64>>(), &[32]);
        trained(&model, read, || model.forward(&images).cross_entropy(&labels))
    };
    assert!(train(Read::After) == train(Read::Before), "LeNet");
}

/// Bytes of the arena of a step that one more block takes, for each token and feature of the model.
fn of_a_block(config: impl Fn(usize) -> TransformerConfig) -> usize {
    let arena = |layers: usize| {
        let config = config(layers);
        let model = Transformer::new(config);
        model.init(1);
        let mut optimizer = AdamW::new(&model, AdamWOptions::default());
        let tokens = tokens();
        // The first step makes the weights as well.
        for _ in 0..2 {
            optimizer.step(model.gradients(&loss(&model.forward(&tokens), &tokens)));
            synchronize();
        }
        last_program().expect("a step").memory.arena
    };
    arena(6) - arena(5)
}

#[test]
fn a_block_keeps_what_its_gradients_cannot_compute() {
    const WIDTH: usize = 96;
    let values = |wide: usize| wide * 8 * LENGTH * 4;
    // Columns of the norms and of attention, and the gradients that wait for the optimizer.
    let rest = values(WIDTH) / 2;
    let gpt = of_a_block(|layers| TransformerConfig::gpt2(31, LENGTH, layers, WIDTH, 4));
    // For each norm its operand, less its mean or not, and its result; queries, keys, values and attention's result; of the
    // feed-forward layer the first product, the GELU, and its hyperbolic tangent, each four times as wide.
    let kept = values(2 * 2 * WIDTH + 4 * WIDTH + 3 * 4 * WIDTH);
    assert!(gpt >= kept && gpt <= kept + rest, "{gpt} bytes instead of {kept} and a little");
    let llama = of_a_block(|layers| TransformerConfig::llama(31, LENGTH, layers, WIDTH, 4));
    // The gate's operand and its sigmoid, the other factor, and their product.
    let hidden = TransformerConfig::llama(31, LENGTH, 1, WIDTH, 4).hidden;
    let kept = values(2 * 2 * WIDTH + 4 * WIDTH + 4 * hidden);
    assert!(llama >= kept && llama <= kept + rest, "{llama} bytes instead of {kept} and a little");
}

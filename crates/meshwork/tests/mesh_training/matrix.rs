//! The built-in models and a small one with everything: all ways to spread them.

use crate::models::{convolutions, gpt, gpt_of_many_words, lenet, llama, llama_of_many_words, mlp, small};
use crate::recompute::recomputed;
use crate::run::{Layout, Recipe, some};
use meshwork::mesh::{Plan, Zero};
use meshwork::tensor::Precision;

/// Ranks along the axes `data` and `tensor`.
const MESHES: [(usize, usize); 12] =
    [(1, 1), (2, 1), (1, 2), (3, 1), (1, 3), (4, 1), (1, 4), (2, 2), (8, 1), (1, 8), (2, 4), (4, 2)];

/// Ranks along the axes `data`, `sequence` and `tensor`, for text.
const TEXT_MESHES: [(usize, usize, usize); 6] = [(1, 2, 1), (1, 3, 1), (2, 2, 1), (1, 2, 2), (2, 2, 2), (1, 4, 2)];

/// All layouts over 1, 2, 3, 4 and 8 devices.
fn layouts() -> Vec<Layout> {
    on_meshes(MESHES.map(|(data, tensor)| (data, 1, tensor)))
}

/// Layouts that cut sequences of tokens.
fn text_layouts() -> Vec<Layout> {
    on_meshes(TEXT_MESHES)
}

fn on_meshes(meshes: impl IntoIterator<Item = (usize, usize, usize)>) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for (data, sequence, tensor) in meshes {
        for zero in [Zero::Nothing, Zero::OptimizerState, Zero::Gradients, Zero::Parameters] {
            for accumulate in [1, 2, 4] {
                let plan = Plan { data: Some(data), sequence, tensor, zero, accumulate, ..Plan::default() };
                layouts.extend([1, 2].map(|threads| Layout { plan: plan.clone(), threads }));
            }
        }
    }
    layouts
}

/// Every 19th layout: each mesh, stage, number of microbatches and of threads is among them.
fn part() -> Vec<Layout> {
    layouts().into_iter().step_by(19).collect()
}

/// Every 23rd layout that cuts sequences: each mesh is among them.
fn text_part() -> Vec<Layout> {
    text_layouts().into_iter().step_by(23).collect()
}

#[test]
fn lenet_is_the_same_on_every_mesh() {
    Recipe::new(lenet, 8).check(&part());
}

#[test]
fn mlp_is_the_same_on_every_mesh() {
    Recipe::new(mlp, 20).check(&part());
}

#[test]
fn norms_dropout_embeddings_and_tied_weights_are_the_same_on_every_mesh() {
    Recipe::new(small, 20).check(&part());
}

#[test]
fn strided_and_grouped_convolutions_with_norms_and_pools_are_the_same_on_every_mesh() {
    Recipe::new(convolutions, 20).check(&part());
}

#[test]
fn a_small_gpt_is_the_same_on_every_mesh() {
    Recipe::new(gpt, 6).check(&part());
    Recipe::new(gpt, 6).check(&text_part());
}

#[test]
fn a_small_llama_is_the_same_on_every_mesh() {
    Recipe::new(llama, 6).check(&part());
    Recipe::new(llama, 6).check(&text_part());
}

#[test]
fn blocks_that_are_computed_again_are_the_same_on_every_mesh() {
    // Each against one device that keeps everything.
    let recipe = |subject| Recipe { again: Some(recomputed), ..Recipe::new(subject, 3) };
    recipe(gpt).with_precision(Precision::BF16).check(&some());
    recipe(llama).check(&text_part());
}

#[test]
fn a_small_gpt_in_bf16_is_the_same_on_every_mesh() {
    Recipe::new(gpt, 5).with_precision(Precision::BF16).check(&part());
}

#[test]
fn a_small_gpt_in_f16_is_the_same_on_every_mesh() {
    Recipe::new(gpt, 12).with_precision(Precision::F16).check(&some());
}

#[test]
fn a_small_llama_in_bf16_is_the_same_on_every_mesh() {
    Recipe::new(llama, 5).with_precision(Precision::BF16).check(&some());
}

#[test]
fn a_small_llama_in_f16_is_the_same_on_every_mesh() {
    Recipe::new(llama, 12).with_precision(Precision::F16).check(&some());
}

/// Layouts that cut along `tensor`, with all stages, microbatches and cut sequences.
fn cut() -> Vec<Layout> {
    let plans = [
        "tensor=2",
        "tensor=3,accumulate=2",
        "tensor=8",
        "data=2,tensor=2,zero=1",
        "data=2,tensor=4,zero=2",
        "data=2,tensor=3,zero=3,accumulate=3",
        "sequence=2,tensor=2",
    ];
    plans.map(Layout::of).into()
}

#[test]
fn tied_embeddings_of_a_vocabulary_that_is_cut_are_the_same_on_every_mesh() {
    Recipe::new(gpt_of_many_words, 4).check(&cut());
    Recipe { sizes: &[3, 1], ..Recipe::new(gpt_of_many_words, 3) }.with_precision(Precision::BF16).check(&cut());
}

#[test]
fn an_embedding_and_a_head_that_are_cut_by_the_vocabulary_are_the_same_on_every_mesh() {
    Recipe { sizes: &[22, 5], ..Recipe::new(llama_of_many_words, 3) }.check(&cut());
    Recipe { sizes: &[3, 1], ..Recipe::new(llama_of_many_words, 12) }.with_precision(Precision::F16).check(&cut());
}

#[test]
fn lenet_in_bf16_is_the_same_on_every_mesh() {
    Recipe::new(lenet, 8).with_precision(Precision::BF16).check(&some());
}

#[test]
fn lenet_in_f16_is_the_same_on_every_mesh() {
    Recipe::new(lenet, 14).with_precision(Precision::F16).check(&some());
}

#[test]
fn norms_dropout_and_pools_in_bf16_are_the_same_on_every_mesh() {
    Recipe::new(small, 8).with_precision(Precision::BF16).check(&some());
    Recipe::new(convolutions, 8).with_precision(Precision::BF16).check(&some());
}

#[test]
fn a_part_of_the_layouts_has_something_of_everything() {
    let part = part();
    let has = |is: &dyn Fn(&Layout) -> bool| part.iter().any(is);
    assert!(MESHES.iter().all(|&(data, tensor)| has(&|l| (l.plan.data, l.plan.tensor) == (Some(data), tensor))));
    assert!((0..4).all(|stage| has(&|l| l.plan.zero as usize == stage)));
    assert!([1, 2, 4].iter().all(|&n| has(&|l| l.plan.accumulate == n)));
    assert!([1, 2].iter().all(|&n| has(&|l| l.threads == n)));
    let meshes = |l: &Layout| (l.plan.data.unwrap_or(1), l.plan.sequence, l.plan.tensor);
    assert!(TEXT_MESHES.iter().all(|mesh| text_part().iter().any(|l| meshes(l) == *mesh)));
}

/// The whole matrix, about a minute a model:
/// `cargo test --release -p meshwork --test mesh_training -- --ignored --test-threads 1 whole_matrix`
mod whole_matrix {
    use super::*;

    #[test]
    #[ignore = "takes minutes"]
    fn the_small_gpt_is_the_same_on_every_mesh() {
        Recipe::new(gpt, 20).check(&layouts());
        Recipe::new(gpt, 20).check(&text_layouts());
    }

    #[test]
    #[ignore = "takes minutes"]
    fn the_small_llama_is_the_same_on_every_mesh() {
        Recipe::new(llama, 20).check(&layouts());
        Recipe::new(llama, 20).check(&text_layouts());
    }

    #[test]
    #[ignore = "takes minutes"]
    fn narrow_transformers_are_the_same_on_every_mesh() {
        for precision in [Precision::BF16, Precision::F16] {
            Recipe::new(gpt, 12).with_precision(precision).check(&layouts());
            Recipe::new(llama, 12).with_precision(precision).check(&layouts());
        }
    }

    #[test]
    #[ignore = "takes minutes"]
    fn blocks_that_are_computed_again_are_the_same_on_every_mesh() {
        for (subject, precision) in
            [(gpt as fn() -> _, Precision::F32), (llama, Precision::F32), (gpt, Precision::BF16)]
        {
            let recipe = Recipe { again: Some(recomputed), ..Recipe::new(subject, 4) }.with_precision(precision);
            recipe.check(&layouts());
            recipe.check(&text_layouts());
        }
    }

    #[test]
    #[ignore = "takes minutes"]
    fn tied_embeddings_of_a_vocabulary_that_is_cut_are_the_same_on_every_mesh() {
        Recipe::new(gpt_of_many_words, 8).check(&layouts());
        Recipe::new(gpt_of_many_words, 8).check(&text_layouts());
    }

    #[test]
    #[ignore = "takes minutes"]
    fn an_embedding_and_a_head_that_are_cut_by_the_vocabulary_are_the_same_on_every_mesh() {
        Recipe::new(llama_of_many_words, 8).check(&layouts());
        Recipe::new(llama_of_many_words, 8).check(&text_layouts());
    }

    #[test]
    #[ignore = "takes minutes"]
    fn vocabularies_that_are_cut_in_bf16_are_the_same_on_every_mesh() {
        for subject in [gpt_of_many_words, llama_of_many_words] {
            Recipe::new(subject, 6).with_precision(Precision::BF16).check(&layouts());
        }
    }

    #[test]
    #[ignore = "takes a minute"]
    fn lenet_is_the_same_on_every_mesh() {
        Recipe::new(lenet, 20).check(&layouts());
    }

    #[test]
    #[ignore = "takes a minute"]
    fn mlp_is_the_same_on_every_mesh() {
        Recipe::new(mlp, 20).check(&layouts());
    }

    #[test]
    #[ignore = "takes a minute"]
    fn the_small_net_is_the_same_on_every_mesh() {
        Recipe::new(small, 20).check(&layouts());
    }

    #[test]
    #[ignore = "takes a minute"]
    fn the_convolutions_are_the_same_on_every_mesh() {
        Recipe::new(convolutions, 20).check(&layouts());
    }
}

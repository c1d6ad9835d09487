//! What moves between devices in mixed precision.

use meshwork::mesh::Plan;
use meshwork::nn::{Module, Transformer, TransformerConfig};
use meshwork::tensor::{Precision, autocast, last_plan};
use meshwork::train::loss;
use meshwork::{DType, Device, Tensor};

/// Bytes of parameters that a step gathers, those of f32 ones, and bytes that move for anything but parameters and gradients.
fn moved(precision: Precision) -> (usize, usize, usize) {
    let model = Transformer::new(TransformerConfig::gpt2(64, 16, 2, 64, 4));
    let plan: Plan = "data=2,zero=3".parse().unwrap();
    let mesh = plan.mesh(&Device::cpus().unwrap()[..2]).unwrap();
    plan.apply(&model, &mesh).unwrap();
    model.init(0);
    let tokens: Vec<i64> = (0..4 * 16).map(|i| i * 7 % 64).collect();
    let tokens = Tensor::from_slice(&tokens, &[4, 16]).batch_on(&mesh);
    let loss = autocast(precision, || loss(&model.forward(&tokens), &tokens));
    let gradients = model.gradients(&loss);
    let norm = gradients.global_norm();
    norm.eval();
    let plan = last_plan().expect("a plan");
    let (mut gathered, mut wide, mut others) = (0, 0, 0);
    for exchange in &plan.exchanges {
        let is_gathered = exchange.moves.iter().any(|(collective, _)| collective.to_string() == "all_gather");
        let is_parameter = matches!(exchange.made_by, "input" | "cast");
        match () {
            () if is_gathered && is_parameter => {
                gathered += exchange.bytes;
                wide += if exchange.ty.dtype == DType::F32 { exchange.bytes } else { 0 };
            }
            () if exchange.moves.iter().any(|(collective, _)| collective.to_string() == "all_to_all") => {
                others += exchange.bytes;
            }
            () => {}
        }
    }
    (gathered, wide, others)
}

#[test]
fn sharded_parameters_are_gathered_in_the_type_in_which_they_are_used() {
    meshwork::set_cpu_devices(2).unwrap();
    let (f32, _, before) = moved(Precision::F32);
    let (bf16, wide, others) = moved(Precision::BF16);
    // The embeddings are looked up, and the norms compute, in f32.
    let embeddings = 4 * (64 + 16) * 64;
    assert!(wide >= embeddings && wide < embeddings + 16 * 64 * 4, "{wide}");
    assert!(bf16 - wide < (f32 - embeddings) * 3 / 4, "{bf16} of {f32} bytes");
    assert!(others <= before, "{others} bytes, {before} in f32");
}

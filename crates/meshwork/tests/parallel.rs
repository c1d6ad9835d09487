//! Data parallelism by hand has the bits of one device.

use meshwork::parallel::{all_reduce, scatter, scatter_weighted, split_batch_weighted};
use meshwork::prelude::*;
use meshwork::tensor::{CrossEntropy, Reduction, randn};
use meshwork::train::LeNet;
use meshwork::{DType, set_cpu_devices};
use std::sync::{Mutex, MutexGuard};

fn devices(count: usize) -> (MutexGuard<'static, ()>, Vec<Device>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    set_cpu_devices(count).expect("devices");
    (turn, Device::cpus().expect("devices"))
}

/// Three steps of SGD on LeNet; the weights on every device that computed.
fn train(devices: &[Device], weights: &[f64], batch: usize) -> Vec<Vec<Vec<u8>>> {
    let models: Vec<LeNet> = devices
        .iter()
        .map(|device| {
            let model = LeNet::new();
            model.init(1);
            model.to(device);
            model
        })
        .collect();
    let sum = CrossEntropy { reduction: Reduction::Sum, ..CrossEntropy::default() };
    for step in 0..3 {
        meshwork::manual_seed(step);
        let x = randn(&[batch, 1, 28, 28]);
        let y = Tensor::from_slice(&(0..batch as i64).map(|i| (i + step as i64) % 10).collect::<Vec<_>>(), &[batch]);
        let shards = split_batch_weighted(&x, &y, devices, weights);
        let gradients: Vec<Vec<Tensor>> = shards
            .iter()
            .map(|shard| {
                let model = &models[shard.device];
                let loss = sum.loss(&model.forward(&shard.x), &shard.y);
                let values: Vec<Tensor> = model.parameters().iter().map(|p| p.value()).collect();
                grad(&loss, &values.iter().collect::<Vec<_>>())
            })
            .collect();
        let count = models[0].parameters().len();
        for i in 0..count {
            let mut parts: Vec<Tensor> = gradients.iter().map(|g| g[i].clone()).collect();
            all_reduce(&mut parts);
            for (d, model) in models.iter().enumerate() {
                let Some(k) = shards.iter().position(|shard| shard.device == d) else { continue };
                let parameter = &model.parameters()[i];
                no_grad(|| parameter.set(parameter.value() - &parts[k] * (0.5 / batch as f64)));
            }
        }
        models.iter().flat_map(|m| m.parameters()).for_each(|p| p.value().eval());
    }
    let computed: Vec<bool> = {
        let x = randn(&[batch]);
        let pieces = scatter_weighted(&x, devices, weights);
        (0..devices.len()).map(|d| pieces.iter().any(|piece| piece.device == d)).collect()
    };
    let bytes = |model: &LeNet| model.state().iter().map(|(_, t)| t.to_bytes()).collect();
    models.iter().zip(computed).filter(|(_, computed)| *computed).map(|(model, _)| bytes(model)).collect()
}

#[test]
fn lenet_on_any_devices_has_the_bits_of_one() {
    let (_turn, devices) = devices(4);
    for batch in [32, 33, 100] {
        let one = train(&devices[..1], &[1.0], batch).remove(0);
        for weights in [vec![1.0, 1.0], vec![1.0; 4], vec![1.0, 2.0, 1.0], vec![0.7, 0.0, 0.3], vec![1.0, 0.1]] {
            for weights_of_device in train(&devices[..weights.len()], &weights, batch) {
                assert!(weights_of_device == one, "batch {batch}, weights {weights:?}");
            }
        }
    }
}

#[test]
fn scattered_tensors_know_their_part() {
    let (_turn, devices) = devices(2);
    let x = randn(&[64, 3]);
    let pieces = scatter(&x, &devices);
    let parts: Vec<_> = pieces.iter().map(|p| p.value.part_of_batch().expect("a part")).collect();
    assert_eq!(parts, [(0..32, 64), (32..64, 64)]);
    assert_eq!(pieces[1].value.device(), devices[1]);
    assert_eq!((&pieces[1].value * 2.0).exp().sum(0).part_of_batch(), Some((32..64, 64)));
    // What comes from two parts is no part.
    let both = &pieces[0].value + &pieces[1].value.to(&devices[0]);
    assert_eq!(both.part_of_batch(), None);
    let mut sums: Vec<Tensor> = pieces.iter().map(|p| p.value.sum(0)).collect();
    all_reduce(&mut sums);
    assert_eq!(sums[0].to_bytes(), x.sum(0).to_bytes());
    assert_eq!(sums[1].device(), devices[1]);
    assert_eq!(sums[1].to_bytes(), x.sum(0).to_bytes());
    assert_eq!(sums[1].part_of_batch(), None);
}

#[test]
fn tensors_without_a_batch_are_added_too() {
    let (_turn, devices) = devices(3);
    let mut tensors: Vec<Tensor> =
        (0..3).map(|i| meshwork::tensor::full(&[2], f64::from(i), DType::F32).to(&devices[i as usize])).collect();
    all_reduce(&mut tensors);
    for (tensor, device) in tensors.iter().zip(&devices) {
        assert_eq!(tensor.device(), *device);
        assert_eq!(tensor.to_vec::<f32>(), [3.0, 3.0]);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (_turn, devices) = devices(2);
    let message = |f: &dyn Fn()| {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("a panic");
        panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap()
    };
    let x = randn(&[8, 2]);
    assert!(message(&|| drop(scatter(&x, &[]))).contains("at least one device"));
    assert!(message(&|| drop(scatter(&x.sum(..), &devices))).contains("no dimension"));
    assert!(message(&|| drop(scatter_weighted(&x, &devices, &[1.0]))).contains("one weight"));
    assert!(message(&|| drop(scatter_weighted(&x, &devices, &[-1.0, 1.0]))).contains("device 0"));
    let pieces = scatter(&x, &devices);
    assert!(
        message(&|| all_reduce(&mut [pieces[1].value.sum(0), pieces[0].value.sum(0)])).contains("follow each other")
    );
    assert!(message(&|| all_reduce(&mut [pieces[0].value.sum(0), x.sum(0)])).contains("others are not"));
    assert!(message(&|| all_reduce(&mut [pieces[0].value.sum(0), x.sum(1)])).contains("tensor 1"));
}

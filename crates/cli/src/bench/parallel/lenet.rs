//! A training step of LeNet on one device, and data parallel on all of them.

use super::Sizes;
use super::report::{Report, Row};
use super::rounds::{BUDGET, in_turn};
use crate::failure::Failure;
use meshwork::parallel::{all_reduce, split_batch};
use meshwork::prelude::*;
use meshwork::tensor::{CrossEntropy, Reduction, rand};
use meshwork::train::LeNet;

/// All devices should take as much less time as they have more cores.
pub fn run(devices: &[Device], sizes: Sizes, report: &mut Report) -> Result<(), Failure> {
    let batch = sizes.size(256);
    let x = rand(&[batch, 1, 28, 28]);
    let classes: Vec<i64> = (0..batch as i64).map(|i| i % 10).collect();
    let y = Tensor::from_slice(&classes, &[batch]);
    let (mut one, mut all) = (Replicas::new(&devices[..1]), Replicas::new(devices));
    let [alone, together] = in_turn(BUDGET, [&mut || one.step(&x, &y), &mut || all.step(&x, &y)]);
    let mut cores: Vec<usize> = devices.iter().flat_map(|device| device.cores()).copied().collect();
    cores.sort_unstable();
    cores.dedup();
    let allowed = alone.seconds * devices[0].cores().len() as f64 / cores.len() as f64;
    let apart = alone.seconds;
    let rows = [
        Row::new(format!("on {}", devices[0]), alone),
        Row::held(format!("data parallel on {} devices", devices.len()), together, allowed, apart),
    ];
    let what = format!("a step of LeNet, batch {batch}; the weights have the same bits");
    report.exercise("lenet", &what, devices, &rows);
    if one.weights() != all.weights() {
        return Err(Failure::mistake(
            "the weights depend on the number of devices: this is a defect, please report it",
        ));
    }
    Ok(())
}

/// The same model on every device.
struct Replicas {
    devices: Vec<Device>,
    models: Vec<LeNet>,
}

impl Replicas {
    fn new(devices: &[Device]) -> Replicas {
        let replica = |device: &Device| {
            let model = LeNet::new();
            model.init(0);
            model.to(device);
            model
        };
        Replicas { devices: devices.to_vec(), models: devices.iter().map(replica).collect() }
    }

    /// A step of stochastic gradient descent, all of it handed over at once.
    fn step(&mut self, x: &Tensor, y: &Tensor) -> Vec<Tensor> {
        let sum = CrossEntropy { reduction: Reduction::Sum, ..CrossEntropy::default() };
        let shards = split_batch(x, y, &self.devices);
        let mut gradients: Vec<Vec<Tensor>> = Vec::new();
        for shard in &shards {
            let model = &self.models[shard.device];
            let values: Vec<Tensor> = model.parameters().iter().map(|p| p.value()).collect();
            let loss = sum.loss(&model.forward(&shard.x), &shard.y);
            gradients.push(grad(&loss, &values.iter().collect::<Vec<_>>()));
        }
        for i in 0..gradients[0].len() {
            let mut parts: Vec<Tensor> = gradients.iter_mut().map(|of_shard| of_shard[i].clone()).collect();
            all_reduce(&mut parts);
            gradients.iter_mut().zip(parts).for_each(|(of_shard, sum)| of_shard[i] = sum);
        }
        for (shard, gradients) in shards.iter().zip(gradients) {
            let first = shards.iter().position(|other| other.device == shard.device);
            if first.is_some_and(|first| !std::ptr::eq(&shards[first], shard)) {
                continue;
            }
            for (parameter, gradient) in self.models[shard.device].parameters().iter().zip(gradients) {
                no_grad(|| parameter.set(parameter.value() - gradient * (0.01 / x.size(0) as f64)));
            }
        }
        drop(shards);
        synchronize();
        Vec::new()
    }

    fn weights(&self) -> Vec<Vec<u8>> {
        self.models[0].state().iter().map(|(_, value)| value.to_bytes()).collect()
    }
}

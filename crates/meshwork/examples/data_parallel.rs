//! LeNet on several devices, from scratch: every device has the parameters, computes the gradients of its part of the
//! batch, and the sums of the gradients update the parameters everywhere. The weights are those of one device, bit for
//! bit.
//!
//! cargo run --release -p meshwork --example data_parallel [DEVICES] [BATCH] [STEPS]

use meshwork::parallel::{all_reduce, split_batch};
use meshwork::prelude::*;
use meshwork::tensor::{ConvOptions, CrossEntropy, Reduction, rand, randn};
use meshwork::{DType, set_cpu_devices};
use std::time::{Duration, Instant};

/// Weights and biases of LeNet.
fn init_params() -> Vec<Tensor> {
    manual_seed(0);
    let scale = 0.1;
    vec![
        randn(&[20, 1, 3, 3]) * scale,
        randn(&[20]) * scale,
        randn(&[50, 20, 5, 5]) * scale,
        randn(&[50]) * scale,
        randn(&[128, 800]) * scale,
        randn(&[128]) * scale,
        randn(&[10, 128]) * scale,
        randn(&[10]) * scale,
    ]
}

/// The model.
fn lenet(x: &Tensor, params: &[Tensor]) -> Tensor {
    let h1 = x.conv2d(&params[0], Some(&params[1]), &ConvOptions::default()).relu().avg_pool2d(2);
    let h2 = h1.conv2d(&params[2], Some(&params[3]), &ConvOptions::default()).relu().avg_pool2d(2);
    let h3 = h2.flatten(1).linear(&params[4], Some(&params[5])).relu();
    h3.linear(&params[6], Some(&params[7]))
}

/// The sum of the losses of all samples.
fn loss(logits: &Tensor, y: &Tensor) -> Tensor {
    CrossEntropy { reduction: Reduction::Sum, ..CrossEntropy::default() }.loss(logits, y)
}

/// The parameters on a device, to be differentiated by.
fn get_params(params: &[Tensor], device: &Device) -> Vec<Tensor> {
    params.iter().map(|p| p.to(device).variable()).collect()
}

/// One step of stochastic gradient descent on one device.
fn sgd(params: &mut [Tensor], gradients: &[Tensor], lr: f64, batch_size: usize) {
    for (p, g) in params.iter_mut().zip(gradients) {
        *p = no_grad(|| (&*p - g * (lr / batch_size as f64)).variable());
    }
}

/// One step on all devices. `device_params` has the parameters of each.
fn train_batch(x: &Tensor, y: &Tensor, device_params: &mut [Vec<Tensor>], devices: &[Device], lr: f64) -> Tensor {
    let shards = split_batch(x, y, devices);
    // Losses and gradients are computed on each device by itself.
    let mut losses = Vec::new();
    let mut gradients: Vec<Vec<Tensor>> = Vec::new();
    for shard in &shards {
        let params = &device_params[shard.device];
        let l = loss(&lenet(&shard.x, params), &shard.y);
        gradients.push(grad(&l, &params.iter().collect::<Vec<_>>()));
        losses.push(l);
    }
    // All gradients of a parameter are added, and the sum goes to all devices.
    for i in 0..device_params[0].len() {
        let mut parts: Vec<Tensor> = gradients.iter().map(|g| g[i].clone()).collect();
        all_reduce(&mut parts);
        gradients.iter_mut().zip(parts).for_each(|(g, sum)| g[i] = sum);
    }
    all_reduce(&mut losses);
    // Each device updates its parameters. A device may have several shards, with the same sums.
    for (d, params) in device_params.iter_mut().enumerate() {
        if let Some(k) = shards.iter().position(|shard| shard.device == d) {
            sgd(params, &gradients[k], lr, x.size(0));
        }
    }
    let mean = losses[0].detach() / x.size(0) as f64;
    drop((shards, losses, gradients));
    mean.eval();
    mean
}

/// Trains on a batch again and again; the last loss, the weights of the first device, and the time that it took.
fn train(devices: &[Device], batch_size: usize, steps: usize) -> (f64, Vec<Vec<u8>>, Duration) {
    manual_seed(1);
    let x = rand(&[batch_size, 1, 28, 28]);
    let y = Tensor::from_slice(&(0..batch_size as i64).map(|i| i % 10).collect::<Vec<_>>(), &[batch_size]);
    let params = init_params();
    let mut device_params: Vec<Vec<Tensor>> = devices.iter().map(|device| get_params(&params, device)).collect();
    train_batch(&x, &y, &mut device_params, devices, 0.05);
    synchronize();
    let started = Instant::now();
    let mut last = Tensor::scalar(0.0, DType::F32);
    for _ in 1..steps {
        last = train_batch(&x, &y, &mut device_params, devices, 0.05);
    }
    synchronize();
    let took = started.elapsed() / (steps.max(2) as u32 - 1);
    (last.item(), device_params[0].iter().map(Tensor::to_bytes).collect(), took)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |i: usize, default: usize| std::env::args().nth(i).map_or(Ok(default), |text| text.parse());
    let (count, batch_size, steps) = (argument(1, 2)?, argument(2, 256)?, argument(3, 20)?);
    set_cpu_devices(count)?;
    let devices = Device::cpus()?;

    let (loss, one, alone) = train(&devices[..1], batch_size, steps);
    println!("{:?}: loss {loss:.4}, {alone:.1?} a step on {} threads", devices[0], devices[0].num_threads());
    let (loss, many, together) = train(&devices, batch_size, steps);
    let threads: Vec<usize> = devices.iter().map(Device::num_threads).collect();
    println!("{devices:?}: loss {loss:.4}, {together:.1?} a step on {threads:?} threads");
    println!(
        "speed-up {:.2}; the weights are {}",
        alone.as_secs_f64() / together.as_secs_f64(),
        match one == many {
            true => "equal, bit for bit",
            false => "different, which is a bug",
        }
    );
    if one == many { Ok(()) } else { Err("the weights depend on the number of devices".into()) }
}

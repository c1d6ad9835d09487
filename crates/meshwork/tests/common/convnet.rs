//! A small network with all kinds of layers, trained by hand-written SGD with momentum.

use super::numbers::Numbers;
use meshwork::tensor::{ConvOptions, ConvTransposeOptions, PoolOptions};
use meshwork::{Tensor, grad, no_grad};

/// Images `[SAMPLES, 3, 9, 7]` in 5 classes; no size is a power of two.
pub const SAMPLES: usize = 13;

pub struct Convnet {
    pub parameters: Vec<Tensor>,
    pub velocities: Vec<Tensor>,
    pub running: (Tensor, Tensor),
    positions: Tensor,
}

pub struct Step {
    pub loss: Tensor,
    pub gradients: Vec<Tensor>,
}

const SHAPES: [&[usize]; 14] = [
    &[6, 3, 3, 3], // convolution
    &[6],
    &[6], // batch norm
    &[6],
    &[6, 2, 3, 2], // grouped convolution
    &[6, 2, 2, 2], // transposed convolution
    &[4],          // group norm
    &[4],
    &[11, 4],  // embedding of positions
    &[10, 24], // linear
    &[10],
    &[10], // layer norm
    &[10],
    &[5, 10], // linear without bias
];

impl Convnet {
    pub fn new() -> Convnet {
        let mut numbers = Numbers::new(7);
        let parameters = SHAPES.iter().map(|shape| numbers.f32s(-0.5, 0.5, shape).variable()).collect();
        let velocities = SHAPES.iter().map(|shape| meshwork::tensor::zeros(shape, meshwork::DType::F32)).collect();
        let zeros = meshwork::tensor::zeros(&[6], meshwork::DType::F32);
        let ones = meshwork::tensor::ones(&[6], meshwork::DType::F32);
        let positions = Tensor::from_slice(&[3i64, 0, 10], &[3]);
        Convnet { parameters, velocities, running: (zeros, ones), positions }
    }

    /// Images and labels of a step.
    pub fn batch(step: u64) -> (Tensor, Tensor) {
        let mut numbers = Numbers::new(100 + step);
        (numbers.f32s(-1.0, 1.0, &[SAMPLES, 3, 9, 7]), numbers.indices(5, &[SAMPLES]))
    }

    /// Logits, and what the running statistics become.
    pub fn forward(&self, images: &Tensor, step: u64) -> (Tensor, (Tensor, Tensor)) {
        let p = &self.parameters;
        let padded = ConvOptions { padding: 1.into(), ..ConvOptions::default() };
        let x = images.conv2d(&p[0], Some(&p[1]), &padded);
        let batch = x.batch_statistics();
        let x = x.batch_norm(&batch.mean, &batch.var, Some(&p[2]), Some(&p[3]), 1e-5).relu();
        let grouped = ConvOptions { groups: 3, padding: [1, 0].into(), ..ConvOptions::default() };
        let x = x.max_pool2d(PoolOptions { padding: 1.into(), stride: Some(2.into()), ..PoolOptions::from(3) });
        let x = x.conv2d(&p[4], None, &grouped).gelu();
        let turned = ConvTransposeOptions { stride: [2, 1].into(), groups: 2, ..ConvTransposeOptions::default() };
        let x = x.conv_transpose2d(&p[5], None, &turned).group_norm(2, Some(&p[6]), Some(&p[7]), 1e-5).silu();
        let places = p[8].embedding(&self.positions).mean(0).reshape(&[1, 4, 1, 1]);
        let x = (x + places).avg_pool2d([2, 2]).adaptive_avg_pool2d([3, 2]).flatten(1);
        let x = x.dropout(0.25, 1000 + step).linear(&p[9], Some(&p[10]));
        let x = x.layer_norm(1, Some(&p[11]), Some(&p[12]), 1e-5).tanh();
        (x.linear(&p[13], None), batch.running(&self.running.0, &self.running.1, 0.1))
    }

    /// Records one step: forward, backward, update. Nothing is read.
    pub fn step(&mut self, images: &Tensor, labels: &Tensor, step: u64, lr: f64) -> Step {
        let (logits, running) = self.forward(images, step);
        let loss = logits.cross_entropy(labels);
        let wrt: Vec<&Tensor> = self.parameters.iter().collect();
        let gradients = grad(&loss, &wrt);
        no_grad(|| {
            for ((p, v), g) in self.parameters.iter_mut().zip(&mut self.velocities).zip(&gradients) {
                *v = &*v * 0.9 + g;
                *p = (&*p - &*v * lr).variable();
            }
        });
        self.running = running;
        Step { loss, gradients }
    }
}

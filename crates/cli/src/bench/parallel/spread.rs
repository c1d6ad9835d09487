//! A training step of a two-layer MLP: the data and the parameters on one device, which sums the gradients and updates;
//! layers, loss and gradients for half of the batch on each of two others.

use super::Sizes;
use super::report::{Report, Row};
use super::rounds::{BUDGET, Measured, in_turn};
use crate::bench::gemm::random;
use crate::failure::Failure;
use meshwork::nn::{Linear, Module, Relu, Sequential};
use meshwork::optim::{Optimizer, Sgd, SgdOptions};
use meshwork::{Device, Tensor, grad, sequential, synchronize, with_default_device};

const INPUTS: usize = 784;
const CLASSES: usize = 10;
const RATE: f64 = 1e-3;

/// The dependencies allow the longest way: to a device, through its layers and back, and the update.
pub fn run(devices: &[Device], sizes: Sizes, report: &mut Report) -> Result<(), Failure> {
    let width = sizes.size(1024);
    let samples = 2 * width;
    let place = |i: usize| &devices[i % devices.len()];
    let (home, workers) = (place(0), [place(1), place(2)]);

    let mut whole = Training::new(home, &[home], width, samples)?;
    let mut spread = Training::new(home, &workers, width, samples)?;
    let stages = Training::new(home, &workers, width, samples)?;
    let [first, second] = [0, 1].map(|part| Stages::new(&stages, part));
    let parameters = stages.parameters();
    let back = [first.back(home), second.back(home)];
    synchronize();
    let update = || {
        let gradients = back[0].iter().zip(&back[1]).map(|(a, b)| (a + b) * -RATE);
        parameters.iter().zip(gradients).map(|(p, g)| p + g).collect()
    };
    let finish = |made: Vec<Tensor>| {
        synchronize();
        made
    };
    let [one, three, to_first, on_first, from_first, to_second, on_second, from_second, updating] = in_turn(
        BUDGET,
        [
            &mut || finish(vec![whole.step()]),
            &mut || finish(vec![spread.step()]),
            &mut || finish(first.there()),
            &mut || finish(first.compute()),
            &mut || finish(first.back(home)),
            &mut || finish(second.there()),
            &mut || finish(second.compute()),
            &mut || finish(second.back(home)),
            &mut || finish(update()),
        ],
    );
    let way = |stages: [&Measured; 3]| stages.iter().map(|m| m.seconds).sum::<f64>();
    let ways = [way([&to_first, &on_first, &from_first]), way([&to_second, &on_second, &from_second])];
    let allowed = super::together((workers[0], ways[0]), (workers[1], ways[1])) + updating.seconds;
    let alone = one.seconds;
    let [a, b] = workers;
    let rows = [
        Row::new(format!("data and parameters to {a}"), to_first),
        Row::new(format!("layers, loss, gradients on {a}"), on_first),
        Row::new(format!("gradients from {a}"), from_first),
        Row::new(format!("data and parameters to {b}"), to_second),
        Row::new(format!("layers, loss, gradients on {b}"), on_second),
        Row::new(format!("gradients from {b}"), from_second),
        Row::new(format!("sum and update on {home}"), updating),
        Row::new(format!("the step on {home} alone"), one),
        Row::held(format!("the step on {home}, {a} and {b}"), three, allowed, alone),
    ];
    let what = format!("a training step of an MLP, {INPUTS}-{width}-{CLASSES}, {samples} samples");
    report.exercise("spread", &what, &devices[..devices.len().min(3)], &rows);
    Ok(())
}

struct Training {
    model: Sequential,
    optimizer: Sgd,
    home: Device,
    workers: Vec<Device>,
    images: Tensor,
    labels: Tensor,
}

/// Loss of two layers with these parameters: weights and bias of each.
fn loss(parameters: &[Tensor], images: &Tensor, labels: &Tensor) -> Tensor {
    let hidden = images.linear(&parameters[0], Some(&parameters[1])).relu();
    hidden.linear(&parameters[2], Some(&parameters[3])).cross_entropy(labels)
}

impl Training {
    fn new(home: &Device, workers: &[&Device], width: usize, samples: usize) -> Result<Training, Failure> {
        with_default_device(home, || {
            let model = sequential![Linear::new(INPUTS, width), Relu, Linear::new(width, CLASSES)];
            model.init(0);
            let classes: Vec<i64> = (0..samples).map(|i| (i * 7 % CLASSES) as i64).collect();
            Ok(Training {
                optimizer: Sgd::new(&model, SgdOptions::new(RATE)),
                model,
                home: home.clone(),
                workers: workers.iter().map(|&worker| worker.clone()).collect(),
                images: random(&[samples, INPUTS])?,
                labels: Tensor::from_slice(&classes, &[samples]),
            })
        })
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.model.parameters().iter().map(|p| p.value()).collect()
    }

    /// The part of the batch that a worker has, and the parameters, there.
    fn part(&self, number: usize) -> [Vec<Tensor>; 2] {
        let worker = &self.workers[number];
        let size = self.images.shape()[0] / self.workers.len();
        let cut = |batch: &Tensor| batch.narrow(0, number * size, size).to(worker);
        let parameters = self.parameters().iter().map(|p| p.to(worker)).collect();
        [vec![cut(&self.images), cut(&self.labels)], parameters]
    }

    fn step(&mut self) -> Tensor {
        let loss_of = |number: usize| {
            let [batch, parameters] = self.part(number);
            loss(&parameters, &batch[0], &batch[1]).to(&self.home)
        };
        let count = self.workers.len();
        let losses = (1..count).fold(loss_of(0), |sum, number| sum + loss_of(number));
        let loss = losses / count as f64;
        let gradients = self.model.gradients(&loss);
        self.optimizer.step(gradients);
        loss
    }
}

/// What the step does on one worker, apart.
struct Stages<'a> {
    training: &'a Training,
    number: usize,
    batch: Vec<Tensor>,
    parameters: Vec<Tensor>,
    gradients: Vec<Tensor>,
}

impl Stages<'_> {
    fn new(training: &Training, number: usize) -> Stages<'_> {
        let [batch, parameters] = training.part(number);
        let parameters = parameters.iter().map(|p| p.detach().variable()).collect();
        let mut stages = Stages { training, number, batch, parameters, gradients: Vec::new() };
        synchronize();
        stages.gradients = stages.compute();
        synchronize();
        stages
    }

    fn there(&self) -> Vec<Tensor> {
        self.training.part(self.number).concat()
    }

    fn compute(&self) -> Vec<Tensor> {
        let parameters: Vec<&Tensor> = self.parameters.iter().collect();
        grad(&loss(&self.parameters, &self.batch[0], &self.batch[1]), &parameters)
    }

    fn back(&self, home: &Device) -> Vec<Tensor> {
        self.gradients.iter().map(|g| g.to(home)).collect()
    }
}

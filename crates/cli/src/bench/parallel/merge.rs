//! A data-parallel training step over a link that needs half of the time of its arithmetic: gradients are merged in
//! buckets while the backward pass goes on, so that most of what the link needs is not waited for.

use super::Sizes;
use super::report::{Report, Row};
use super::rounds::{BUDGET, in_turn};
use crate::failure::Failure;
use meshwork::mesh::{Mesh, Plan};
use meshwork::nn::{Relu, Sequential};
use meshwork::optim::{Sgd, SgdOptions};
use meshwork::prelude::*;
use meshwork::tensor::rand;
use meshwork::{Link, link, set_link};
use std::cell::RefCell;
use std::time::{Duration, Instant};

const BATCH: usize = 256;
/// Share of a step's time that the link needs.
const SHARE: f64 = 0.5;

/// A step beside what the link needs, apart and together.
pub fn run(devices: &[Device], sizes: Sizes, report: &mut Report) -> Result<(), Failure> {
    let (width, layers) = (sizes.size(1024), sizes.count(8));
    let training = RefCell::new(Training::new(&devices[..2], width, layers)?);
    let compute = training.borrow_mut().seconds();
    // Of two ranks, each receives half of the gradients from the other, and half of their sums.
    let bytes = layers * (width * width + width) * size_of::<f32>();
    let usual = link().map_err(Failure::mistake)?;
    let slow_link = Link { bytes_per_second: bytes as f64 / (SHARE * compute), latency: Duration::ZERO };
    let one_layer = slow_link.time(bytes / layers).as_secs_f64();
    let sent: Vec<Tensor> = devices[..2].iter().map(|device| rand(&[bytes / size_of::<f32>()]).to(device)).collect();
    let set = |link| set_link(link).expect("a link with a finite speed");
    let [alone, moved, merged] = in_turn(
        BUDGET,
        [
            &mut || {
                training.borrow_mut().step();
                Vec::new()
            },
            &mut || {
                set(Some(slow_link));
                let received = vec![sent[0].to(&devices[1]), sent[1].to(&devices[0])];
                synchronize();
                set(usual);
                received
            },
            &mut || {
                set(Some(slow_link));
                training.borrow_mut().step();
                set(usual);
                Vec::new()
            },
        ],
    );
    let (work, way) = (alone.seconds, moved.seconds);
    let rows = [
        Row::new("a step", alone),
        Row::new("what it merges, over the slow link", moved),
        // The last layer's gradient comes first; the first layer's is there when the backward pass is over.
        Row::held("a step over the slow link", merged, work.max(way) + one_layer, work + way),
    ];
    let speed = slow_link.bytes_per_second / 1e9;
    let what = format!(
        "a step of {layers} layers {width}x{width}, batch {BATCH}, data=2; {:.1} MB over a link of {speed:.2} GB/s",
        bytes as f64 / 1e6
    );
    report.exercise("merge", &what, &devices[..2], &rows);
    Ok(())
}

/// A perceptron on a mesh of two devices.
struct Training {
    model: Sequential,
    optimizer: Sgd,
    x: Tensor,
    mesh: Mesh,
}

impl Training {
    fn new(devices: &[Device], width: usize, layers: usize) -> Result<Training, Failure> {
        let mut model = Sequential::new();
        for _ in 0..layers {
            model = model.with(Linear::new(width, width)).with(Relu);
        }
        model.init(0);
        let plan: Plan = "data=2".parse().map_err(Failure::mistake)?;
        let mesh = plan.mesh(devices).map_err(Failure::mistake)?;
        plan.apply(&model, &mesh).map_err(Failure::mistake)?;
        let optimizer = Sgd::new(&model, SgdOptions::new(0.01));
        Ok(Training { model, optimizer, x: rand(&[BATCH, width]), mesh })
    }

    fn step(&mut self) {
        let loss = self.model.forward(&self.x.batch_on(&self.mesh)).square().mean(..);
        self.optimizer.step(self.model.gradients(&loss));
        synchronize();
    }

    /// What a step takes, after some that warm up.
    fn seconds(&mut self) -> f64 {
        (0..3).for_each(|_| self.step());
        let start = Instant::now();
        (0..3).for_each(|_| self.step());
        start.elapsed().as_secs_f64() / 3.0
    }
}

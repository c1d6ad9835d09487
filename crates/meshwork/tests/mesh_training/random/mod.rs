//! Random models, trained in random ways, on random meshes.

mod dice;
mod models;

use crate::run::{State, alone, same, state};
use dice::Dice;
use meshwork::mesh::{Mesh, Placement, Plan, Rule, Zero};
use meshwork::optim::*;
use meshwork::prelude::*;
use meshwork::tensor::{grad_with, manual_seed};
use models::Net;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Devices that there are.
const DEVICES: usize = 8;

/// How a model is trained.
#[derive(Clone, Debug)]
struct Way {
    optimizer: usize,
    /// Samples of the batches of each step; the gradients of several are added.
    batches: Vec<Vec<usize>>,
    /// A number that is added to the loss: of the weights, or of features in the middle.
    regular: usize,
    /// Adds the squares of the gradients by the first parameter to the loss.
    penalty: bool,
    clips: bool,
    /// What is read in the middle of a step.
    reads: usize,
    /// Parameters that are not trained, of a hundred.
    frozen: usize,
    /// Evaluates the model before each step.
    evaluates: bool,
}

impl Way {
    fn random(dice: &mut Dice, least: usize) -> Way {
        let size = |dice: &mut Dice| if dice.percent(30) { dice.within(least, 4) } else { dice.within(least, 40) };
        let step = |dice: &mut Dice| {
            let parts = if dice.percent(20) { dice.within(2, 3) } else { 1 };
            (0..parts).map(|_| size(dice)).collect()
        };
        Way {
            optimizer: dice.below(9),
            batches: (0..dice.within(2, 3)).map(|_| step(dice)).collect(),
            regular: dice.below(8),
            penalty: dice.percent(10),
            clips: dice.percent(25),
            reads: dice.below(12),
            frozen: if dice.percent(20) { 40 } else { 0 },
            evaluates: dice.percent(15),
        }
    }

    fn optimizer(&self, model: &Net) -> Box<dyn Optimizer> {
        match self.optimizer {
            0 => Box::new(Sgd::new(model, SgdOptions::new(0.01))),
            1 => Box::new(Sgd::new(model, SgdOptions { momentum: 0.9, nesterov: true, ..SgdOptions::new(0.01) })),
            2 => Box::new(Adam::new(model, AdamOptions { lr: 0.01, ..Default::default() })),
            3 | 4 => Box::new(AdamW::new(model, AdamWOptions { lr: 0.01, ..Default::default() })),
            5 => Box::new(RmsProp::new(model, RmsPropOptions { centered: true, momentum: 0.5, ..Default::default() })),
            6 => Box::new(Adagrad::new(model, AdagradOptions { lr: 0.02, ..Default::default() })),
            7 => Box::new(Lars::new(model, LarsOptions { exclude_vectors: false, ..Default::default() })),
            _ => Box::new(Lamb::new(model, LambOptions { exclude_vectors: false, ..Default::default() })),
        }
    }
}

/// A model that is trained in some way.
struct Case {
    seed: u64,
    way: Way,
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut dice = Dice(seed);
        let net = Net::random(&mut dice);
        let way = Way::random(&mut dice, if net.needs_two { 2 } else { 1 });
        Case { seed, way }
    }

    fn net(&self) -> Net {
        Net::random(&mut Dice(self.seed))
    }

    /// The state after the steps and all numbers that were read meanwhile, on one device or on a mesh.
    fn train(&self, spread: Option<&Layout>) -> State {
        let net = self.net();
        let mut dice = Dice(!self.seed);
        for parameter in net.parameters().iter().skip(1) {
            parameter.set_requires_grad(!dice.percent(self.way.frozen));
        }
        let mesh = spread.map(|layout| layout.spread(&net));
        net.init(self.seed);
        let mut optimizer = self.way.optimizer(&net);
        let mut seen = Vec::new();
        for (step, batches) in self.way.batches.iter().enumerate() {
            manual_seed(self.seed + step as u64);
            let mut gradients = Gradients::default();
            for &samples in batches {
                let batch = net.inputs.batch(samples);
                let labels: Vec<i64> = (0..samples).map(|_| dice.below(net.classes) as i64).collect();
                let labels = Tensor::from_slice(&labels, &[samples]);
                let (x, y) = match (&mesh, spread) {
                    (Some(mesh), Some(layout)) => (layout.place(&net, &batch, mesh), labels.batch_on(mesh)),
                    _ => (batch, labels),
                };
                if self.way.evaluates {
                    net.eval();
                    let loss = no_grad(|| net.run(&x).1.cross_entropy(&y));
                    seen.push((format!("evaluated {step}"), loss.to_bytes()));
                    net.train();
                }
                gradients.accumulate(self.gradients(&net, &x, &y, &mut seen));
            }
            if self.way.clips {
                let norm = gradients.clip_by_global_norm(0.5);
                if self.way.reads == 7 {
                    seen.push((format!("norm {step}"), norm.to_bytes()));
                }
            }
            let kept = (self.way.reads == 8).then(|| gradients.clone());
            optimizer.step(gradients);
            for (i, (_, gradient)) in kept.iter().flat_map(Gradients::iter).enumerate() {
                seen.push((format!("gradient {i} of step {step}"), gradient.to_bytes()));
            }
        }
        let mut all = state(&net);
        all.extend(seen);
        all.extend(optimizer.state().tensors.into_iter().map(|(name, value)| (name, value.to_bytes())));
        all
    }

    /// The gradients of a batch.
    fn gradients(&self, net: &Net, x: &Tensor, y: &Tensor, seen: &mut State) -> Gradients {
        let mut read = |what: &str, value: &Tensor| seen.push((what.to_string(), value.to_bytes()));
        let (features, logits) = net.run(x);
        let parameters = net.parameters();
        let mut loss = logits.cross_entropy(y);
        if self.way.reads == 0 {
            read("loss", &loss);
        }
        match self.way.regular {
            0 => {
                loss = loss + parameters.iter().map(|p| p.value().square().sum(..)).reduce(|a, b| a + b).unwrap() * 1e-3
            }
            1 => loss = loss + features[features.len() / 2].abs().mean(..) * 0.1,
            2 => loss = loss + logits.amax(-1).mean(..) * 0.1 + logits.square().mean(..) * 0.01,
            _ => {}
        }
        match self.way.reads {
            1 => read("features", &features[features.len() / 2]),
            2 => read("a parameter", &parameters[parameters.len() / 2].value()),
            3 => parameters.iter().for_each(|p| read("parameters", &p.value())),
            _ => {}
        }
        if self.way.penalty {
            let first = parameters[0].value();
            let by_first = grad_with(&[&loss], None, &[&first], true);
            loss = loss + by_first[0].square().sum(..) * 0.1;
        }
        if self.way.reads == 4 {
            read("loss", &loss);
        }
        let gradients = net.gradients(&loss);
        match self.way.reads {
            5 => read("loss", &loss),
            6 => gradients.iter().last().into_iter().for_each(|(_, gradient)| read("a gradient", gradient)),
            _ => {}
        }
        gradients
    }

    fn check(&self, layouts: usize) {
        meshwork::set_cpu_devices(1).unwrap();
        meshwork::set_num_threads(1).unwrap();
        let expected = catch_unwind(AssertUnwindSafe(|| self.train(None)));
        let expected = expected.unwrap_or_else(|e| panic!("seed {} on one device: {}", self.seed, text(&*e)));
        meshwork::set_cpu_devices(DEVICES).unwrap();
        let mut dice = Dice(self.seed ^ 0x5eed);
        for _ in 0..layouts {
            let layout = Layout::random(&mut dice, &self.net());
            let of = format!("seed {} with {layout}, {:?}, {:?}", self.seed, self.way, self.net().words);
            meshwork::set_num_threads(layout.threads).unwrap();
            let before = allocated();
            match catch_unwind(AssertUnwindSafe(|| self.train(Some(&layout)))) {
                Ok(got) => same(&got, &expected, &of),
                Err(e) => panic!("{of}: {}", text(&*e)),
            }
            assert_eq!(allocated(), before, "{of}: memory is left in use");
        }
    }
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default()
}

/// Bytes in use on all devices.
fn allocated() -> Vec<usize> {
    meshwork::synchronize();
    Device::cpus().unwrap().iter().map(|device| device.memory().allocated).collect()
}

/// How a model is spread.
struct Layout {
    plan: Plan,
    /// Threads of each device.
    threads: usize,
    /// The first device of the mesh.
    first: usize,
    /// Whether the input is split along `sequence`.
    splits_sequence: bool,
}

impl Layout {
    fn random(dice: &mut Dice, net: &Net) -> Layout {
        loop {
            let sequence = if net.is_sequence && dice.percent(50) { 2 } else { 1 };
            let mut plan = Plan {
                data: Some(dice.within(1, 5)),
                sequence,
                tensor: dice.one_of(&[1, 1, 2, 2, 3]),
                zero: Zero::stage(dice.one_of(&[0, 1, 2, 3, 3, 3])).unwrap(),
                accumulate: dice.one_of(&[1, 1, 1, 2, 3, 4, 5]),
                places: Vec::new(),
            };
            if plan.devices() > DEVICES || plan.devices() * plan.accumulate > 12 {
                continue;
            }
            let cut = dice.one_of(&[0, 40, 80]);
            for (name, parameter) in net.named_parameters() {
                let place = |dice: &mut Dice| {
                    let dim = dice.below(parameter.shape().len());
                    if dice.percent(15) { Placement::sharded(dim) } else { Placement::split(dim) }
                };
                let axes = ["tensor", "sequence", "data"].into_iter().zip([cut, cut / 2, cut / 8]);
                let chosen: Vec<(&str, usize)> = axes.filter(|(_, chance)| dice.percent(*chance)).collect();
                let placements: Vec<(&str, Placement)> =
                    chosen.into_iter().map(|(axis, _)| (axis, place(dice))).collect();
                if !placements.is_empty() {
                    plan.places.push(Rule::new(&name, placements));
                }
            }
            let first = dice.below(DEVICES - plan.devices() + 1);
            return Layout { plan, threads: dice.within(1, 2), first, splits_sequence: dice.percent(70) };
        }
    }

    fn spread(&self, net: &Net) -> Mesh {
        let devices = Device::cpus().unwrap();
        let mesh = self.plan.mesh(&devices[self.first..self.first + self.plan.devices()]).unwrap();
        self.plan.apply(net, &mesh).unwrap();
        mesh
    }

    fn place(&self, net: &Net, batch: &Tensor, mesh: &Mesh) -> Tensor {
        if !net.is_sequence || !self.splits_sequence {
            return batch.batch_on(mesh);
        }
        let along = |(axis, _): &(String, usize)| match axis.as_str() {
            "data" | "accumulate" => Placement::split(0),
            "sequence" => Placement::split(1),
            _ => Placement::Replicated,
        };
        batch.place(mesh, &mesh.axes().iter().map(along).collect::<Vec<_>>())
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} from device {}, {} threads", self.plan, self.first, self.threads)?;
        if self.splits_sequence {
            write!(f, ", split sequences")?;
        }
        for Rule { pattern, placements } in &self.plan.places {
            let placements: Vec<String> = placements.iter().map(|(axis, p)| format!("{axis}:{p}")).collect();
            write!(f, ", {pattern}={}", placements.join(","))?;
        }
        Ok(())
    }
}

#[test]
fn random_models_on_random_meshes() {
    let _only = alone();
    (0..16).for_each(|seed| Case::new(seed).check(2));
}

/// Cases that once had pieces wait for each other: a part of a sharded parameter that another device needs earlier than its
/// own, and copies of a bundle that waited, by way of parameters that are gathered again, for others of the same bundle.
#[test]
fn pieces_do_not_wait_for_each_other() {
    let _only = alone();
    [1_000_012, 2_000_029].into_iter().for_each(|seed| Case::new(seed).check(3));
}

/// As many as `MESH_CASES` says, from the seed `MESH_SEED` on.
#[test]
#[ignore = "as long as one likes"]
fn many_random_models_on_random_meshes() {
    let _only = alone();
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let first = number("MESH_SEED", 1000);
    let is_wrong = |seed: &u64| catch_unwind(|| Case::new(*seed).check(3)).is_err();
    let wrong: Vec<u64> = (first..first + number("MESH_CASES", 200)).filter(is_wrong).collect();
    assert!(wrong.is_empty(), "seeds {wrong:?}");
}

//! Training a model, on one device or as a plan says.

use crate::models::{Subject, batches};
use meshwork::mesh::{Mesh, Plan};
use meshwork::prelude::*;
use meshwork::tensor::{Precision, autocast};
use meshwork::train;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The weights and buffers after some steps.
pub type State = Vec<(String, Vec<u8>)>;

/// What is trained, and how.
#[derive(Clone)]
pub struct Recipe {
    pub subject: fn() -> Subject,
    /// What is done to the subject that is spread, and not to the one on one device.
    pub again: Option<fn(Subject) -> Subject>,
    pub optimizer: fn(&dyn Layer) -> Box<dyn Optimizer>,
    /// What happens to the gradients of a step.
    pub gradients: fn(&mut Gradients),
    /// What happens to the optimizer before a step.
    pub before: fn(u64, &mut dyn Optimizer),
    /// Samples of the batches, again and again.
    pub sizes: &'static [usize],
    pub precision: Precision,
    pub steps: usize,
}

impl Recipe {
    /// Training by AdamW: whole batches, and a last one of another size.
    pub fn new(subject: fn() -> Subject, steps: usize) -> Recipe {
        let optimizer = |model: &dyn Layer| -> Box<dyn Optimizer> {
            Box::new(optim::AdamW::new(model, optim::AdamWOptions { lr: 0.01, ..Default::default() }))
        };
        Recipe {
            subject,
            again: None,
            optimizer,
            gradients: |_| {},
            before: |_, _| {},
            sizes: &[22, 22, 22, 5],
            precision: Precision::F32,
            steps,
        }
    }

    /// The same in another precision.
    pub fn with_precision(self, precision: Precision) -> Recipe {
        Recipe { precision, ..self }
    }

    /// The state after the steps, with a plan on so many devices or on the first one alone.
    pub fn train(&self, plan: Option<(&Plan, usize)>) -> State {
        let mut subject = (self.subject)();
        if let (Some(again), Some(_)) = (self.again, plan) {
            subject = again(subject);
        }
        let model = &*subject.model;
        let batches = batches(&subject, self.sizes);
        let mesh = plan.map(|(plan, devices)| spread(model, plan, devices));
        model.init(3);
        let first = state(model);
        let mut optimizer = (self.optimizer)(model);
        // Too large at first: some steps are skipped.
        let options = optim::LossScaleOptions { initial: (1u64 << 24) as f64, interval: 3, ..Default::default() };
        let mut scale = optim::LossScale::new(options);
        for step in 0..self.steps {
            let (x, y) = placed(&batches[step % batches.len()], &mesh);
            let loss = autocast(self.precision, || train::loss(&model.forward(&x), &y));
            let mut gradients = match self.precision {
                Precision::F16 => {
                    let mut gradients = model.gradients(&scale.scaled(&loss));
                    if !scale.unscale(&mut gradients) {
                        continue;
                    }
                    gradients
                }
                _ => model.gradients(&loss),
            };
            (self.gradients)(&mut gradients);
            (self.before)(step as u64, &mut optimizer);
            optimizer.step(gradients);
        }
        let skipped = scale.state().skipped;
        assert!((self.precision == Precision::F16) == (skipped > 0), "{skipped} steps were skipped");
        assert!(model.state().iter().all(|(_, value)| value.to_f64().iter().all(|x| x.is_finite())), "not finite");
        let last = state(model);
        assert!(last != first, "nothing was learnt");
        last
    }

    /// Trains on one thread of one device, and then as each of these layouts says: the states must be equal.
    pub fn check(&self, layouts: &[Layout]) {
        check(self.subject, layouts, |plan| self.train(plan));
    }
}

/// Trains on one thread of one device, and then as each of these layouts says: the states must be equal.
pub fn check(subject: fn() -> Subject, layouts: &[Layout], train: impl Fn(Option<(&Plan, usize)>) -> State) {
    let _only = alone();
    meshwork::set_cpu_devices(1).unwrap();
    meshwork::set_num_threads(1).unwrap();
    let expected = train(None);
    assert!(!expected.is_empty());
    meshwork::set_cpu_devices(8).unwrap();
    for layout in layouts {
        meshwork::set_num_threads(layout.threads).unwrap();
        let Subject { name, places, .. } = subject();
        let plan = Plan { places, ..layout.plan.clone() };
        same(
            &train(Some((&plan, layout.devices()))),
            &expected,
            &format!("{name} with {plan}, {} threads", layout.threads),
        );
    }
}

/// A batch where the model is.
pub fn placed((x, y): &(Tensor, Tensor), mesh: &Option<Mesh>) -> (Tensor, Tensor) {
    mesh.as_ref().map_or_else(|| (x.clone(), y.clone()), |mesh| (x.batch_on(mesh), y.batch_on(mesh)))
}

/// How a training is spread.
#[derive(Clone, Debug)]
pub struct Layout {
    pub plan: Plan,
    /// Threads of each device.
    pub threads: usize,
}

impl Layout {
    pub fn of(plan: &str) -> Layout {
        Layout { plan: plan.parse().unwrap(), threads: 1 }
    }

    pub fn devices(&self) -> usize {
        self.plan.data.unwrap_or(1) * self.plan.sequence * self.plan.tensor
    }
}

/// A few layouts that differ in everything.
pub fn some() -> Vec<Layout> {
    let plans = [
        "data=2",
        "data=3,zero=3",
        "data=2,tensor=2,zero=1",
        "tensor=3,accumulate=2",
        "data=8,zero=2",
        "data=2,tensor=3,zero=3,accumulate=3",
    ];
    plans.map(Layout::of).into()
}

/// Devices are those of the process: one training at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static DEVICES: Mutex<()> = Mutex::new(());
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Spreads a model over the first devices.
pub fn spread(model: &dyn Layer, plan: &Plan, devices: usize) -> Mesh {
    let mesh = plan.mesh(&Device::cpus().unwrap()[..devices]).unwrap();
    plan.apply(model, &mesh).unwrap();
    mesh
}

pub fn state(model: &dyn Layer) -> State {
    model.state().into_iter().map(|(name, value)| (name, value.to_bytes())).collect()
}

/// Checks that two trainings have come to the same values.
pub fn same(got: &State, expected: &State, of: &str) {
    assert_eq!(got.len(), expected.len());
    for ((name, got), (other, expected)) in got.iter().zip(expected) {
        assert!(name == other && got == expected, "{of}: other bits of {name}");
    }
}

//! State that was saved on one mesh goes on on another.

use crate::models::{Subject, batches, convolutions, lenet, small};
use crate::run::{alone, placed, same, spread, state};
use meshwork::checkpoint::{load_module, load_weights, save_weights};
use meshwork::mesh::{Mesh, Plan};
use meshwork::optim::OptimizerState;
use meshwork::prelude::*;

const STEPS: usize = 3;

/// Where a training is at some time.
type Saved = (Vec<(String, Tensor)>, OptimizerState);

struct Training {
    subject: Subject,
    mesh: Option<Mesh>,
    optimizer: optim::AdamW,
    batches: Vec<(Tensor, Tensor)>,
}

impl Training {
    fn new(subject: fn() -> Subject, plan: Option<&str>) -> Training {
        let subject = subject();
        let mesh = plan.map(|plan| {
            let plan = Plan { places: subject.places.clone(), ..plan.parse().unwrap() };
            spread(&*subject.model, &plan, plan.data.unwrap_or(1) * plan.tensor)
        });
        subject.model.init(8);
        let optimizer = optim::AdamW::new(&*subject.model, optim::AdamWOptions { lr: 0.01, ..Default::default() });
        let batches = batches(&subject, &[20, 9]);
        Training { subject, mesh, optimizer, batches }
    }

    fn run(&mut self, from: usize) {
        let model = &*self.subject.model;
        for step in from..from + STEPS {
            let (x, y) = placed(&self.batches[step % self.batches.len()], &self.mesh);
            self.optimizer.step(model.gradients(&model.forward(&x).cross_entropy(&y)));
        }
    }

    fn saved(&self) -> Saved {
        (self.subject.model.state(), self.optimizer.state())
    }
}

/// One device, and meshes of different axes and placements.
const PLANS: [Option<&str>; 6] = [
    None,
    Some("data=2,zero=1"),
    Some("data=4,zero=3"),
    Some("tensor=3"),
    Some("data=2,tensor=2,zero=3"),
    Some("data=1,accumulate=2"),
];

#[test]
fn a_training_goes_on_on_another_mesh() {
    let _only = alone();
    meshwork::set_cpu_devices(4).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    for subject in [small, lenet] {
        let mut whole = Training::new(subject, None);
        whole.run(0);
        let (half, half_state) = (state(&*whole.subject.model), whole.optimizer.state());
        whole.run(STEPS);
        let expected = state(&*whole.subject.model);
        for from in PLANS {
            let mut first = Training::new(subject, from);
            first.run(0);
            let saved = first.saved();
            save_weights(file.path(), &saved.0).unwrap();
            for (name, tensor) in &saved.1.tensors {
                let (_, other) = half_state.tensors.iter().find(|(other, _)| other == name).unwrap();
                assert!(tensor.to_bytes() == other.to_bytes(), "{name} from {from:?}");
            }
            for (i, to) in PLANS.into_iter().enumerate() {
                let mut second = Training::new(subject, to);
                let of = format!("{} from {from:?} to {to:?}", second.subject.name);
                // From memory and from a file in turn.
                if i % 2 == 0 {
                    second.subject.model.load_state(saved.0.clone()).unwrap();
                } else {
                    load_module(file.path(), &second.subject.model).unwrap();
                }
                second.optimizer.load_state(saved.1.clone()).unwrap();
                same(&state(&*second.subject.model), &half, &of);
                second.run(STEPS);
                same(&state(&*second.subject.model), &expected, &of);
            }
        }
    }
}

#[test]
fn files_of_weights_do_not_depend_on_the_mesh() {
    let _only = alone();
    meshwork::set_cpu_devices(4).unwrap();
    let mut files = Vec::new();
    for plan in PLANS {
        let mut training = Training::new(convolutions, plan);
        training.run(0);
        let file = tempfile::NamedTempFile::new().unwrap();
        save_weights(file.path(), &training.subject.model.state()).unwrap();
        assert_eq!(load_weights(file.path()).unwrap().len(), training.subject.model.state().len());
        files.push(std::fs::read(file.path()).unwrap());
    }
    assert!(files.iter().all(|file| *file == files[0]));
}

/// What was spread comes back to one device, and is trained there.
#[test]
fn a_model_leaves_its_mesh() {
    let _only = alone();
    meshwork::set_cpu_devices(4).unwrap();
    let mut alone = Training::new(small, None);
    alone.run(0);
    alone.run(STEPS);
    for plan in PLANS {
        let mut training = Training::new(small, plan);
        training.run(0);
        let saved = training.optimizer.state();
        training.subject.model.to(&Device::cpu(1).unwrap());
        let options = optim::AdamWOptions { lr: 0.01, ..Default::default() };
        training.optimizer = optim::AdamW::new(&*training.subject.model, options);
        training.optimizer.load_state(saved).unwrap();
        training.mesh = None;
        let there = |t: &Tensor| t.to(&Device::cpu(1).unwrap());
        training.batches = training.batches.iter().map(|(x, y)| (there(x), there(y))).collect();
        training.run(STEPS);
        same(&state(&*training.subject.model), &state(&*alone.subject.model), &format!("{plan:?}"));
    }
}

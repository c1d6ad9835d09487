//! Meshes under stress: delays change no bit, failures of one rank say their cause and hang nothing, and a mesh whose
//! devices have gone away says so.

#[path = "../common/kernels.rs"]
mod kernels;

mod delays;
mod failures;

use meshwork::mesh::{Mesh, Plan};
use meshwork::prelude::*;
use meshwork::tensor::{manual_seed, randn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs a test with so many devices: alone, for they belong to the process, and for at most two minutes.
fn alone(devices: usize, test: impl FnOnce(Vec<Device>) + Send + 'static) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let (end, ended) = channel::<()>();
    let running = std::thread::spawn(move || {
        let _end = end;
        meshwork::set_cpu_devices(devices).expect("a number of devices");
        test(Device::cpus().expect("devices"));
    });
    let result = ended.recv_timeout(Duration::from_secs(120));
    assert!(result != Err(RecvTimeoutError::Timeout), "no end after two minutes");
    running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// What a panic says.
fn panic_of<R>(body: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).err().expect("a panic");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).expect("a text")
}

/// A perceptron that something is done to between its layers.
#[derive(Debug, Module)]
struct Net {
    first: Linear,
    second: Linear,
    #[module(skip)]
    between: fn(&Tensor) -> Tensor,
}

impl Net {
    fn new(between: fn(&Tensor) -> Tensor) -> Net {
        Net { first: Linear::new(18, 70), second: Linear::new(70, 9), between }
    }

    /// `[N, 18]` to `[N, 9]`.
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = (self.between)(&self.first.forward(&(self.between)(x))).relu();
        (self.between)(&self.second.forward(&x))
    }

    fn loss(&self, (x, y): &(Tensor, Tensor)) -> Tensor {
        self.forward(x).cross_entropy(y)
    }

    fn state(&self) -> Vec<Vec<u8>> {
        Module::state(self).iter().map(|(_, value)| value.to_bytes()).collect()
    }
}

/// A batch of 30 samples.
fn batch(seed: u64) -> (Tensor, Tensor) {
    manual_seed(seed);
    (randn(&[30, 18]), Tensor::from_slice(&(0..30).map(|i| i * 5 % 9).collect::<Vec<i64>>(), &[30]))
}

fn on((x, y): &(Tensor, Tensor), mesh: &Mesh) -> (Tensor, Tensor) {
    (x.batch_on(mesh), y.batch_on(mesh))
}

/// Spreads a model over all devices.
fn spread(net: &Net, plan: &str, devices: &[Device]) -> Mesh {
    use meshwork::mesh::{Placement, Rule};
    let cut = |name, dim| Rule::new(name, [("tensor", Placement::split(dim))]);
    let plan = Plan { places: vec![cut("first.*", 0), cut("second.weight", 1)], ..plan.parse().unwrap() };
    let mesh = plan.mesh(devices).unwrap();
    plan.apply(net, &mesh).unwrap();
    mesh
}

/// A training of some steps: on one device, or with a plan on several.
fn train(between: fn(&Tensor) -> Tensor, plan: Option<(&str, &[Device])>, steps: u64) -> Vec<Vec<u8>> {
    let net = Net::new(between);
    let mesh = plan.map(|(plan, devices)| spread(&net, plan, devices));
    net.init(4);
    let mut optimizer = optim::AdamW::new(&net, optim::AdamWOptions { lr: 0.01, ..Default::default() });
    for step in 0..steps {
        let batch = batch(step);
        let batch = mesh.as_ref().map_or_else(|| batch.clone(), |mesh| on(&batch, mesh));
        optimizer.step(net.gradients(&net.loss(&batch)));
    }
    net.state()
}

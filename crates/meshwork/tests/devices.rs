//! Several devices in one process: where values are, what overlaps, and that bits do not depend on it.

#[path = "common/kernels.rs"]
mod kernels;

use kernels::with_tasks;
use meshwork::prelude::*;
use meshwork::tensor::{arange, last_plan, ones, randn, zeros};
use meshwork::{Link, set_cpu_devices, set_cpu_groups, set_link, synchronize_device, with_default_device};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Tests of this file share the process's devices: one at a time, each with four.
fn devices() -> (MutexGuard<'static, ()>, Vec<Device>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    set_cpu_devices(4).expect("four devices");
    (turn, Device::cpus().expect("four devices"))
}

fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).err().expect("a panic");
    panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap()
}

#[test]
fn tensors_go_to_devices_and_back() {
    let (_turn, devices) = devices();
    let x = randn(&[7, 3]);
    assert_eq!(x.device(), devices[0]);
    let there = x.to(&devices[2]);
    assert_eq!(there.device(), devices[2]);
    let doubled = &there * 2.0;
    assert_eq!(doubled.device(), devices[2]);
    let back = doubled.to(&devices[0]);
    assert_eq!(back.to_bytes(), (&x * 2.0).to_bytes());
    assert_eq!(there.to_bytes(), x.to_bytes());
    assert_eq!(x.to(&devices[0]).to(&devices[1]).to(&devices[0]).to_bytes(), x.to_bytes());
}

#[test]
fn tensors_of_different_devices_are_refused_by_name() {
    let (_turn, devices) = devices();
    let (a, b) = (ones(&[2], meshwork::DType::F32), ones(&[2], meshwork::DType::F32).to(&devices[3]));
    let message = panic_of(|| &a + &b);
    assert!(message.contains("cpu:0") && message.contains("cpu:3") && message.contains(".to(&device)"), "{message}");
    // Numbers go everywhere.
    assert_eq!((&b + 1.0).to_vec::<f32>(), [2.0, 2.0]);
}

#[test]
fn new_tensors_are_made_on_the_default_device() {
    let (_turn, devices) = devices();
    let made = with_default_device(&devices[1], || {
        vec![
            zeros(&[3], meshwork::DType::F32),
            arange(3, meshwork::DType::F32),
            randn(&[3]),
            Tensor::from_slice(&[1f32, 2.0, 3.0], &[3]),
        ]
    });
    assert!(made.iter().all(|t| t.device() == devices[1]));
    let sum = made.iter().skip(1).fold(made[0].clone(), |a, b| a + b);
    assert_eq!(sum.numel(), 3);
    sum.to_vec::<f32>();
    assert_eq!(zeros(&[3], meshwork::DType::F32).device(), devices[0]);
}

/// Two devices with a core each. None where there is one core.
fn two_cores() -> Option<(MutexGuard<'static, ()>, Vec<Device>)> {
    let (turn, _) = devices();
    let mut cores = meshwork::cpu_groups().expect("four devices").concat();
    cores.sort_unstable();
    cores.dedup();
    let [first, second, ..] = cores[..] else { return None };
    set_cpu_groups(&[&[first], &[second]]).expect("two devices");
    Some((turn, Device::cpus().expect("two devices")))
}

/// A link between all devices, as long as it lives.
struct Linked;

impl Linked {
    fn new() -> Linked {
        set_link(Some(Link { bytes_per_second: 1e9, latency: Duration::from_micros(1) })).expect("a link");
        Linked
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        set_link(None).expect("no link");
    }
}

/// Runs two tasks on `from`, while work on `to` waits for them, and says on how many threads they ran. Whoever does the first
/// gives another thread some time to come for the second.
fn threads_at_work(from: &Device, to: &Device, patience: Duration) -> usize {
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let seen = threads.clone();
    let x = with_default_device(from, || randn(&[5]));
    let y = with_tasks(&x, 2, move |begun| {
        seen.lock().unwrap().insert(std::thread::current().id());
        let deadline = Instant::now() + patience;
        while begun.load(Ordering::SeqCst) < 2 && Instant::now() < deadline {
            std::thread::yield_now();
        }
    });
    let z = y.to(to) + 1.0;
    assert_eq!(z.to_vec::<f32>(), (&x + 1.0).to_vec::<f32>());
    threads.lock().unwrap().len()
}

#[test]
fn a_device_that_waits_for_another_helps_it() {
    let Some((_turn, devices)) = two_cores() else { return };
    // A device without threads yet has nobody to send.
    for device in &devices {
        with_default_device(device, || randn(&[2]).to_vec::<f32>());
    }
    let folder = tempfile::tempdir().unwrap();
    let timeline = meshwork::trace::start(folder.path().join("help.json")).unwrap();
    let (long, short) = (Duration::from_secs(20), Duration::from_millis(100));
    for _ in 0..3 {
        assert_eq!(threads_at_work(&devices[0], &devices[1], long), 2, "cpu:1 waits for what cpu:0 computes");
        assert_eq!(threads_at_work(&devices[1], &devices[0], long), 2, "the other way round");
        assert_eq!(threads_at_work(&devices[0], &devices[0], short), 1, "cpu:1 has nothing to wait for");
    }
    timeline.stop().unwrap();
    let text = std::fs::read_to_string(folder.path().join("help.json")).unwrap();
    assert!(text.matches(r#""cat":"help""#).count() >= 6, "{text}");
    assert!(devices.iter().all(|device| device.width().guests == 1));

    // Over a link, devices stand for machines.
    let linked = Linked::new();
    assert!(devices.iter().all(|device| device.width().guests == 0));
    assert_eq!(threads_at_work(&devices[0], &devices[1], short), 1, "machines do not help each other");
    drop(linked);

    // Nor do devices that share their cores.
    let shared = [devices[0].cores(), &[devices[0].cores(), devices[1].cores()].concat()].map(<[usize]>::to_vec);
    set_cpu_groups(&[&shared[0], &shared[1]]).unwrap();
    assert!(Device::cpus().unwrap().iter().all(|device| device.width().guests == 0));
}

/// A chain over all devices, with branches that meet again, has the bits of one device.
#[test]
fn a_graph_over_devices_has_the_bits_of_one() {
    let (_turn, devices) = devices();
    let run = |spread: bool| {
        meshwork::manual_seed(5);
        let to = |t: Tensor, i: usize| if spread { t.to(&devices[i]) } else { t };
        let x = randn(&[33, 20]).variable();
        let w = randn(&[20, 20]);
        let a = to(x.clone(), 1).matmul(&to(w.clone(), 1)).tanh();
        let b = to(x.clone(), 2).matmul(&to(w.clone(), 2)).exp();
        let c = to(a.clone(), 3) * to(b.clone(), 3) + to(x.clone(), 3);
        let d = to(c, 0).softmax(1) + to(a, 0).t().matmul(&to(b, 0)).sum(0);
        let loss = d.square().sum(..);
        let gradient = grad(&loss, &[&x]).remove(0);
        assert_eq!(gradient.device(), devices[0]);
        (loss.to_bytes(), d.to_bytes(), gradient.to_bytes())
    };
    let whole = run(false);
    for _ in 0..3 {
        assert_eq!(run(true), whole);
    }
}

#[test]
fn layers_on_different_devices_train_like_one() {
    let (_turn, devices) = devices();
    let train = |places: [usize; 2]| {
        let (first, second) = (Linear::new(12, 30), Linear::new(30, 5));
        let model = sequential![first, Relu, second];
        model.init(3);
        let layers = model.named_parameters();
        for (name, p) in &layers {
            let place = if name.starts_with('0') { places[0] } else { places[1] };
            p.set(p.value().to(&devices[place]));
        }
        let parameter = |i: usize| layers[i].1.value();
        let mut optimizer =
            meshwork::optim::Adam::new(&model, meshwork::optim::AdamOptions { lr: 0.01, ..Default::default() });
        let mut losses = Vec::new();
        for step in 0..5 {
            meshwork::manual_seed(step);
            let x = randn(&[16, 12]).to(&devices[places[0]]);
            let hidden = x.matmul(&parameter(0).t()) + parameter(1);
            let hidden = hidden.relu().to(&devices[places[1]]);
            let y = hidden.matmul(&parameter(2).t()) + parameter(3);
            let loss = y.square().mean(..);
            let gradients = model.gradients(&loss);
            optimizer.step(gradients);
            losses.push(loss.to_bytes());
        }
        (losses, model.state().iter().map(|(_, t)| t.to_bytes()).collect::<Vec<_>>())
    };
    let one = train([0, 0]);
    assert_eq!(train([0, 1]), one);
    assert_eq!(train([3, 2]), one);
    let compiled = meshwork::tensor::compile_count();
    assert_eq!(train([0, 1]), one);
    // Only what the new model's first values need.
    assert!(meshwork::tensor::compile_count() - compiled <= 2);
}

/// What waits for a copy is a piece of its own; what does not starts without it.
#[test]
fn a_plan_has_a_piece_for_each_set_of_copies() {
    let (_turn, devices) = devices();
    let x = randn(&[8, 8]);
    let y = randn(&[8, 8]).to(&devices[1]);
    y.eval();
    let independent = y.exp();
    let dependent = x.to(&devices[1]) + &y;
    independent.eval();
    let plan = last_plan().expect("a plan");
    let programs = plan.programs().count();
    assert_eq!((programs, plan.tasks.len()), (2, 3), "{plan:?}");
    assert_eq!(dependent.numel() + independent.numel(), 128);
}

#[test]
fn one_device_is_waited_for_while_others_go_on() {
    let (_turn, devices) = devices();
    let x = randn(&[4, 4]).to(&devices[1]);
    let y = x.exp();
    let event = meshwork::record_event(&devices[1]);
    synchronize_device(&devices[1]);
    assert!(event.is_complete());
    event.wait();
    let later = meshwork::record_event(&devices[1]);
    later.wait();
    assert!(event.elapsed(&later).is_some());
    devices[2].wait_event(&later);
    assert_eq!((y.to(&devices[2]) + 1.0).numel(), 16);
    meshwork::synchronize();
}

/// Where a value is used does not change the order in which its gradients are added.
#[test]
fn gradients_of_uses_on_other_devices_are_added_in_their_turn() {
    let (_turn, devices) = devices();
    let run = |device: &Device| {
        meshwork::manual_seed(2);
        let x = randn(&[50]).variable();
        let there = x.to(device);
        let first = &there * 1.7;
        let here = x.exp();
        let second = there.tanh() * 3.1;
        let third = (&x * 0.3).sin().to(device);
        let loss = (first * second * here.to(device) + third).sum(..);
        grad(&loss, &[&x]).remove(0).to_bytes()
    };
    assert_eq!(run(&devices[1]), run(&devices[0]));
}

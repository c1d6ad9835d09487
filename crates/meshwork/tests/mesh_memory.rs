//! What a training keeps on each device is what the formulas of ZeRO say (Rajbhandari et al., 2020).

use meshwork::mesh::{Plan, Zero};
use meshwork::prelude::*;
use meshwork::tensor::{manual_seed, randn};
use std::sync::{Mutex, PoisonError};

/// Devices are those of the process.
static ALONE: Mutex<()> = Mutex::new(());

const WIDTH: usize = 512;

fn model(layers: usize) -> Sequential {
    let mut model = Sequential::new();
    for _ in 0..layers {
        model.push(Box::new(Linear::new(WIDTH, WIDTH)));
        model.push(Box::new(Relu));
    }
    model.push(Box::new(Linear::new(WIDTH, 10)));
    model
}

/// Bytes in use.
fn allocated(devices: &[Device]) -> Vec<usize> {
    meshwork::synchronize();
    devices.iter().map(|device| device.memory().allocated).collect()
}

struct Measured {
    parameters: usize,
    /// Bytes between two steps on each device.
    kept: Vec<usize>,
    /// Bytes on top of those before the step while it ran.
    peak: Vec<usize>,
    /// Bytes of gradients that are held after a step.
    gradients: Vec<usize>,
}

fn measure(plan: &Plan, devices: &[Device], layers: usize) -> Measured {
    let before = allocated(devices);
    let over =
        |base: &[usize]| -> Vec<usize> { allocated(devices).iter().zip(base).map(|(now, base)| now - base).collect() };
    let model = model(layers);
    model.init(1);
    let mesh = plan.mesh(devices).unwrap();
    plan.apply(&model, &mesh).unwrap();
    let mut optimizer = optim::Adam::new(&model, optim::AdamOptions::default());
    let mut step = |held: bool| {
        manual_seed(2);
        let (x, y) = (randn(&[64, WIDTH]), Tensor::from_slice(&[3i64; 64], &[64]));
        let loss = model.forward(&x.batch_on(&mesh)).cross_entropy(&y.batch_on(&mesh));
        let gradients = model.gradients(&loss);
        let kept = held.then(|| gradients.clone());
        optimizer.step(gradients);
        drop((x, y, loss));
        meshwork::synchronize();
        kept
    };
    (0..3).for_each(|_| drop(step(false)));
    let kept = over(&before);
    let start = allocated(devices);
    // Which copy comes first is a matter of chance, and so is the peak: the least of some.
    let mut peak = vec![usize::MAX; devices.len()];
    for _ in 0..5 {
        devices.iter().for_each(Device::reset_peak_memory);
        drop(step(false));
        for ((least, device), start) in peak.iter_mut().zip(devices).zip(&start) {
            *least = (*least).min(device.memory().peak - start);
        }
    }
    let held = step(true);
    let gradients = over(&start);
    drop(held);
    Measured { parameters: model.num_parameters(), kept, peak, gradients }
}

/// Bytes that are kept for each parameter: weights and the two moments of Adam, all f32.
fn formula(zero: Zero, ranks: f64) -> f64 {
    match zero {
        Zero::Nothing => 4.0 + 8.0,
        Zero::OptimizerState | Zero::Gradients => 4.0 + 8.0 / ranks,
        Zero::Parameters => (4.0 + 8.0) / ranks,
    }
}

#[test]
fn weights_and_optimizer_state_take_what_the_formulas_say() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for ranks in [1, 2, 3, 4] {
        meshwork::set_cpu_devices(ranks).unwrap();
        let devices = Device::cpus().unwrap();
        for zero in [Zero::Nothing, Zero::OptimizerState, Zero::Gradients, Zero::Parameters] {
            let plan = Plan { data: Some(ranks), zero, ..Plan::default() };
            let measured = measure(&plan, &devices, 4);
            let each = |bytes: &[usize]| -> Vec<f64> {
                bytes.iter().map(|&bytes| (100.0 * bytes as f64 / measured.parameters as f64).round() / 100.0).collect()
            };
            println!(
                "{plan}: bytes a parameter on each device: kept {:?}, {:.2} by the formula; most during a step +{:?}; gradients held by the user {:?}",
                each(&measured.kept),
                formula(zero, ranks as f64),
                each(&measured.peak),
                each(&measured.gradients)
            );
            let expected = formula(zero, ranks as f64) * measured.parameters as f64;
            for &kept in &measured.kept {
                let ratio = kept as f64 / expected;
                assert!((0.95..1.05).contains(&ratio), "{plan}: {kept} bytes, {expected} by the formula");
            }
        }
    }
}

#[test]
fn parameters_are_gathered_when_they_are_needed_and_gradients_merged_when_they_are_there() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    meshwork::set_cpu_devices(2).unwrap();
    let devices = Device::cpus().unwrap();
    for zero in [Zero::Nothing, Zero::OptimizerState, Zero::Parameters] {
        let plan = Plan { data: Some(2), zero, ..Plan::default() };
        let measured = measure(&plan, &devices, 16);
        // Gradients, or gathered parameters, would be 4 bytes a parameter if all of them were there at once, and
        // gradients on their way twice that.
        for &peak in &measured.peak {
            let peak = peak as f64 / measured.parameters as f64;
            assert!(peak < 3.5, "{plan}: {peak:.2} bytes a parameter on top of what is kept");
        }
    }
}

#[test]
fn nothing_is_left_when_a_model_is_gone() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    meshwork::set_cpu_devices(4).unwrap();
    let devices = Device::cpus().unwrap();
    let before = allocated(&devices);
    for zero in [Zero::Nothing, Zero::Parameters] {
        measure(&Plan { data: Some(2), tensor: 2, zero, ..Plan::default() }, &devices, 4);
    }
    assert_eq!(allocated(&devices), before);
}

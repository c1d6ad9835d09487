use crate::common::convnet::Convnet;
use crate::turn;
use meshwork::tensor::last_program;
use meshwork::{Device, Tensor};

/// The plan says what a step takes on top of its inputs; the device measures it.
#[test]
fn a_step_takes_the_memory_that_was_planned() {
    let _turn = turn();
    let device = Device::cpu(0).expect("the first device");
    let mut net = Convnet::new();
    for step in 0..3 {
        let (images, labels) = Convnet::batch(step);
        meshwork::synchronize();
        device.reset_peak_memory();
        let before = device.memory();
        assert_eq!(before.peak, before.allocated);
        let recorded = net.step(&images, &labels, step, 0.1);
        drop(recorded.gradients);
        recorded.loss.item();
        let planned = last_program().expect("a program").memory;
        assert_eq!(device.memory().peak - before.allocated, planned.outputs + planned.arena, "step {step}");
    }
}

#[test]
fn updates_are_done_in_place() {
    let _turn = turn();
    let device = Device::cpu(0).expect("the first device");
    let mut weight = Tensor::from_slice(&[1.0f32; 1000], &[1000]);
    let gradient = Tensor::from_slice(&[0.5f32; 1000], &[1000]);
    meshwork::synchronize();
    let before = device.memory().allocated;
    for _ in 0..4 {
        weight = &weight - &gradient * 0.1;
        weight.eval();
        let program = last_program().expect("a program");
        assert_eq!(program.outputs.len(), 1);
        assert!(program.outputs[0].donated.is_some(), "the update is not in place:\n{program}");
        assert_eq!(program.memory.outputs, 0);
    }
    meshwork::synchronize();
    assert_eq!(device.memory().allocated, before);
    assert!((weight.to_vec::<f32>()[7] - 0.8).abs() < 1e-6);
}

#[test]
fn what_somebody_holds_is_not_overwritten() {
    let _turn = turn();
    let old = Tensor::from_slice(&[1.0f32; 100], &[100]);
    let new = &old * 2.0;
    let sum = (&new + &old).sum(..);
    assert_eq!(sum.item(), 300.0);
    assert_eq!(old.to_vec::<f32>(), [1.0; 100]);
    let newer = new + 1.0;
    assert_eq!(newer.to_vec::<f32>(), [3.0; 100]);
}

#[test]
fn a_whole_training_step_updates_in_place() {
    let _turn = turn();
    let mut net = Convnet::new();
    let mut donated = 0;
    for step in 0..3 {
        let (images, labels) = Convnet::batch(step);
        let recorded = net.step(&images, &labels, step, 0.1);
        drop(recorded.gradients);
        recorded.loss.item();
        let program = last_program().expect("a program");
        donated = program.outputs.iter().filter(|o| o.donated.is_some()).count();
    }
    // Parameters, velocities and running statistics.
    assert_eq!(donated, 2 * net.parameters.len() + 2);
}

/// Whoever hands over faster than the device computes waits, before the results that nobody has yet fill the memory.
#[test]
fn few_runs_wait_for_the_device() {
    let _turn = turn();
    let device = Device::cpu(0).expect("the first device");
    let x = Tensor::from_slice(&vec![0.5f32; 1 << 18], &[1 << 18]);
    meshwork::synchronize();
    device.reset_peak_memory();
    let before = device.memory().allocated;
    for _ in 0..60 {
        x.tanh().eval();
    }
    meshwork::synchronize();
    let results = (device.memory().peak - before) / (4 << 18);
    assert!(results <= 8, "memory for {results} results");
}

//! Failures reach who reads what depends on them, over all devices, and nobody else.

use crate::kernels::{boom, late, with_action, with_action_on_threads};
use crate::{allocated, alone, panic_of};
use meshwork::tensor::{ones, zeros};
use meshwork::{DType, Device, Tensor, set_cpu_devices, synchronize};
use std::sync::{Arc, Mutex};

#[test]
fn a_panic_crosses_devices_with_its_cause() {
    alone(4, |devices| {
        let before = allocated(&devices);
        for round in 0..20 {
            let x = ones(&[8, 8], DType::F32).to(&devices[1]);
            let fine = &x + 1.0;
            // In one piece with what is fine, and on the way to two other devices.
            let broken = boom(&late(&fine, round % 3));
            let there = broken.to(&devices[2]).tanh().to(&devices[3]) + 1.0;
            let back = (there.to(&devices[0]).sum(..) * 2.0).to(&devices[1]);
            let beside = (fine.to(&devices[3]) * 2.0).to(&devices[0]);
            assert_eq!(beside.to_vec::<f32>(), [4.0; 64]);
            for value in [&back, &there, &broken] {
                let text = panic_of(|| value.to_bytes());
                assert!(text.contains("boom, said the user's operation") && text.contains("f32[8, 8]"), "{text}");
            }
            // What is computed from it later fails as well, also in place of a value that is there.
            let later = &there * 0.0 + fine.to(&devices[3]);
            let text = panic_of(|| later.to(&devices[2]).to_bytes());
            assert!(text.contains("boom, said the user's operation"), "{text}");
            assert_eq!((&fine * 3.0).to(&devices[2]).to_vec::<f32>(), [6.0; 64]);
        }
        synchronize();
        assert_eq!(allocated(&devices), before);
    });
}

#[test]
fn an_index_out_of_range_crosses_devices() {
    alone(3, |devices| {
        let table = ones(&[5, 4], DType::F32).to(&devices[1]).variable();
        let rows = |index: [i64; 2]| {
            let index = Tensor::from_slice(&index, &[2]).to(&devices[2]).to(&devices[1]);
            table.index_select(0, &index).to(&devices[2]).exp().to(&devices[0]).sum(..)
        };
        let (bad, good) = (rows([0, 7]), rows([0, 4]));
        let gradient = meshwork::grad(&(&good + &bad), &[&table]).remove(0);
        let text = panic_of(|| bad.item());
        assert!(text.contains("index 7 is out of range for dimension 0 of size 5"), "{text}");
        let text = panic_of(|| gradient.item());
        assert!(text.contains("item of a tensor of shape [5, 4]"), "{text}");
        assert!(panic_of(|| gradient.to_bytes()).contains("index 7 is out of range"));
        assert!((good.item() - 8.0 * 1f64.exp()).abs() < 1e-5);
        assert_eq!(rows([1, 1]).to_bytes(), good.to_bytes());
    });
}

/// A failed value is replaced in place by one that does not depend on it.
#[test]
fn updates_go_on_after_a_failure() {
    alone(2, |devices| {
        let mut weight = zeros(&[16], DType::F32).to(&devices[1]);
        for step in 0..30 {
            let update = ones(&[16], DType::F32).to(&devices[1]);
            let next = &weight + if step % 5 == 4 { boom(&update) } else { update };
            next.eval();
            if step % 5 == 4 {
                assert!(panic_of(|| next.to_bytes()).contains("boom"));
            } else {
                weight = next;
            }
        }
        assert_eq!(weight.to(&devices[0]).to_vec::<f32>(), [24.0; 16]);
    });
}

/// Runs an action in a kernel on another device, where it must fail with this text.
fn fails_in_a_kernel(says: &str, action: impl Fn(&Tensor) + Send + Sync + 'static, on_threads: bool) {
    let says = says.to_string();
    alone(2, move |devices| {
        devices[1].set_num_threads(3).expect("three threads");
        let x = ones(&[4], DType::F32).to(&devices[1]);
        x.to_bytes();
        // Is not there when the kernel runs, for it is behind it in the same queue.
        let slot: Arc<Mutex<Option<Tensor>>> = Arc::default();
        let other = slot.clone();
        let body = move || {
            let pending = other.lock().unwrap_or_else(|e| e.into_inner()).clone();
            action(&pending.expect("a value"));
        };
        let first = late(&x, 20);
        let reading = if on_threads { with_action_on_threads(&first, body) } else { with_action(&first, body) };
        let behind = late(&reading.detach().zeros_like(), 1);
        *slot.lock().expect("no panic") = Some(behind.clone());
        let text = panic_of(|| reading.to(&devices[0]).to_bytes());
        assert!(text.contains(&says), "{text}");
        assert_eq!(behind.to_vec::<f32>(), [0.0; 4]);
        slot.lock().unwrap_or_else(|e| e.into_inner()).take();
        assert_eq!((&x + 1.0).to(&devices[0]).to_vec::<f32>(), [2.0; 4]);
    });
}

const MUST_NOT_WAIT: &str = "a kernel must not wait for values that are not there";

#[test]
fn a_kernel_that_reads_a_pending_value_fails() {
    fails_in_a_kernel(MUST_NOT_WAIT, |pending| drop(pending.to_bytes()), false);
}

#[test]
fn a_kernels_thread_that_reads_a_pending_value_fails() {
    fails_in_a_kernel(MUST_NOT_WAIT, |pending| drop(pending.to_bytes()), true);
}

#[test]
fn a_kernel_that_synchronizes_fails() {
    fails_in_a_kernel(MUST_NOT_WAIT, |_| synchronize(), false);
}

#[test]
fn a_kernel_that_sets_devices_fails() {
    fails_in_a_kernel(MUST_NOT_WAIT, |_| set_cpu_devices(1).expect("a number"), false);
}

/// What is there may be read, and work may be handed over.
#[test]
fn a_kernel_may_hand_work_over() {
    alone(2, |_| {
        let x = ones(&[4], DType::F32);
        assert_eq!(x.to_vec::<f32>(), [1.0; 4]);
        let made: Arc<Mutex<Vec<Tensor>>> = Arc::default();
        let (list, known) = (made.clone(), x.clone());
        let y = with_action(&x, move || {
            let there = Device::cpu(1).expect("a device");
            assert_eq!(known.to_vec::<f32>(), [1.0; 4]);
            for i in 0..20 {
                let value = (&known + f64::from(i)).to(&there) * 2.0;
                value.eval();
                list.lock().expect("no panic").push(value);
            }
        });
        assert_eq!(y.to_vec::<f32>(), [1.0; 4]);
        for (i, value) in made.lock().expect("no panic").drain(..).enumerate() {
            assert_eq!(value.to_vec::<f32>(), [2.0 * (1.0 + i as f32); 4]);
        }
    });
}

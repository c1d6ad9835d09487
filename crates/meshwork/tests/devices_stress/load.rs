//! Much at once.

use crate::numbers::Numbers;
use crate::{allocated, alone};
use meshwork::tensor::{concat, full, ones};
use meshwork::{DType, Device, Tensor, synchronize, with_default_device};

const MANY: usize = 10_000;

/// Every operation on another device than the one before.
#[test]
fn a_long_chain_over_devices() {
    alone(5, |devices| {
        let before = allocated(&devices);
        let mut x = ones(&[4], DType::F64);
        for i in 0..MANY {
            x = x.to(&devices[i % 5]) + 1.0;
        }
        assert_eq!(x.to_vec::<f64>(), [MANY as f64 + 1.0; 4]);
        drop(x);
        synchronize();
        assert_eq!(allocated(&devices), before);
    });
}

/// As many operations that do not depend on each other, from and to all devices.
#[test]
fn a_wide_graph_over_devices() {
    alone(5, |devices| {
        let before = allocated(&devices);
        let mut numbers = Numbers::new(5);
        let leaves: Vec<Tensor> =
            devices.iter().map(|device| with_default_device(device, || full(&[1], 0.5, DType::F64))).collect();
        let values: Vec<Tensor> =
            (0..MANY).map(|i| leaves[numbers.below(5)].to(&devices[numbers.below(5)]) * i as f64).collect();
        let home: Vec<Tensor> = values.iter().map(|value| value.to(&devices[0])).collect();
        let parts: Vec<Tensor> = home.chunks(100).map(|part| concat(&part.iter().collect::<Vec<_>>(), 0)).collect();
        let total = concat(&parts.iter().collect::<Vec<_>>(), 0).sum(..);
        assert_eq!(total.item(), (0..MANY).map(|i| i as f64 * 0.5).sum::<f64>());
        drop((leaves, values, home, parts, total));
        synchronize();
        assert_eq!(allocated(&devices), before);
    });
}

/// Random operations on the values before, anywhere.
#[test]
fn a_large_random_graph_over_devices() {
    let bits = |devices: &[Device]| {
        let mut numbers = Numbers::new(6);
        let mut values = vec![numbers.f32s(-1.0, 1.0, &[5])];
        for _ in 0..2000 {
            let (a, b) = (numbers.below(values.len()), values.len() - 1 - numbers.below(values.len().min(3)));
            let device = &devices[numbers.below(60) % devices.len()];
            values.push((values[a].to(device) - values[b].to(device) * 0.5).tanh());
        }
        values.split_off(1990).iter().map(Tensor::to_bytes).collect::<Vec<_>>()
    };
    alone(4, move |devices| assert_eq!(bits(&devices), bits(&devices[..1])));
}

#[test]
fn many_evaluations_one_after_the_other() {
    alone(3, |devices| {
        let before = allocated(&devices);
        let mut x = ones(&[16], DType::F32);
        let mut readers = Vec::new();
        for i in 0..MANY {
            let there = x.to(&devices[1 + i % 2]);
            x = (there * 0.5).to(&devices[0]) + 0.5;
            x.eval();
            if i % 100 == 0 {
                readers.push(x.clone());
            }
        }
        assert_eq!(x.to_vec::<f32>(), [1.0; 16]);
        readers.iter().for_each(|x| assert_eq!(x.to_vec::<f32>(), [1.0; 16]));
        drop((x, readers));
        synchronize();
        assert_eq!(allocated(&devices), before);
    });
}

#[test]
fn far_more_devices_than_cores() {
    alone(64, |devices| {
        let before = allocated(&devices);
        for round in 0..4 {
            let x = full(&[8, 8], 0.1, DType::F32);
            // All from one and back to one, and a ring.
            let spread: Vec<Tensor> = devices.iter().map(|device| x.to(device).matmul(&x.to(device))).collect();
            let home = |value: &Tensor| value.to(&devices[round]);
            let sum = spread.iter().map(home).reduce(|a, b| a + b).expect("devices");
            let ring = |x: Tensor, device: &Device| (x.to(device) + 1.0) * 0.5;
            let ring = devices.iter().fold(x.clone(), ring);
            assert!((sum.to_f64()[0] - 64.0 * 0.08).abs() < 1e-4);
            assert!((ring.to_f64()[63] - 1.0).abs() < 1e-6);
        }
        synchronize();
        assert_eq!(allocated(&devices), before);
    });
}

//! Tensors on meshes have the bits of tensors on one device.

use meshwork::mesh::{Mesh, Placement};
use meshwork::prelude::*;
use meshwork::tensor::{manual_seed, randn};
use std::sync::LazyLock;

fn devices(count: usize) -> Vec<Device> {
    static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
        meshwork::set_cpu_devices(8).unwrap();
        Device::cpus().unwrap()
    });
    DEVICES[..count].to_vec()
}

#[test]
fn a_linear_layer_and_its_gradients_are_the_same_on_every_mesh() {
    manual_seed(1);
    let all = devices(8);
    let (x, y) = (randn(&[100, 70]), randn(&[100, 9]));
    let (w1, w2) = (randn(&[130, 70]), randn(&[9, 130]));
    let step = |x: &Tensor, y: &Tensor, w1: &Tensor, w2: &Tensor| {
        let (w1, w2) = (w1.variable(), w2.variable());
        let loss = (x.linear(&w1, None).relu().linear(&w2, None) - y).square().mean(..);
        let mut values = grad(&loss, &[&w1, &w2]);
        values.push(loss);
        values
    };
    let expected: Vec<Vec<u8>> = step(&x, &y, &w1, &w2).iter().map(Tensor::to_bytes).collect();
    let whole = Placement::Replicated;
    let split = Placement::split;
    for (data, tensor) in [(1, 1), (2, 1), (3, 1), (8, 1), (1, 2), (1, 3), (2, 2), (2, 4), (3, 2)] {
        let mesh = Mesh::new([("data", data), ("tensor", tensor)], &all[..data * tensor]).unwrap();
        for (first, second) in [(whole, whole), (split(0), split(1)), (split(1), split(0))] {
            let w1 = w1.place(&mesh, &[whole, first]);
            let w2 = w2.place(&mesh, &[whole, second]);
            let got = step(&x.batch_on(&mesh), &y.batch_on(&mesh), &w1, &w2);
            for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                assert_eq!(&got.to_bytes(), expected, "value {i} on {mesh}, weights {first} and {second}");
            }
        }
    }
}

#[test]
fn placing_and_gathering_keep_every_element() {
    manual_seed(2);
    let all = devices(6);
    let mesh = Mesh::new([("a", 2), ("b", 3)], &all).unwrap();
    let choices = [Placement::Replicated, Placement::split(0), Placement::split(1), Placement::split(2)];
    for shape in [[7, 5, 3], [1, 2, 9], [6, 6, 6]] {
        let x = randn(&shape);
        for a in choices {
            for b in choices {
                let spread = x.place(&mesh, &[a, b]);
                assert_eq!(spread.to_bytes(), x.to_bytes(), "{shape:?} as {a} and {b}");
                for c in choices {
                    let moved = spread.redistribute(&[c, a]);
                    assert_eq!(moved.to_bytes(), x.to_bytes(), "{shape:?} from {a}, {b} to {c}, {a}");
                }
            }
        }
    }
}

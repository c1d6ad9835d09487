//! Tensors recorded and read on several threads.

use crate::turn;
use meshwork::Tensor;

/// A value inside of one thread's program is still there for what another thread has recorded on it.
#[test]
fn an_intermediate_value_that_another_thread_needs_is_kept() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3]);
    let shared = x.exp();
    let handle = shared.clone();
    let (recorded, wait) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let y = handle.sum(..);
        drop(handle);
        recorded.send(()).expect("the first thread waits");
        gone.recv().expect("the first thread runs");
        y.item()
    });
    wait.recv().expect("the other thread records");
    let mine = &shared * 2.0;
    drop(shared);
    let mine = mine.to_vec::<f32>();
    go.send(()).expect("the other thread waits");
    let sum = other.join().expect("the other thread reads its value");
    assert!((f64::from(mine.iter().sum::<f32>()) - 2.0 * sum).abs() < 1e-4);
}

#[test]
fn threads_train_alike() {
    let _turn = turn();
    let train = |seed: u64| {
        let mut net = crate::common::convnet::Convnet::new();
        (0..3)
            .map(|step| {
                let (images, labels) = crate::common::convnet::Convnet::batch(seed + step);
                net.step(&images, &labels, step, 0.1).loss.to_bytes()
            })
            .collect::<Vec<_>>()
    };
    let alone: Vec<_> = (0..4).map(|i| train(i % 2)).collect();
    let together: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|i| scope.spawn(move || train(i % 2))).collect();
        threads.into_iter().map(|t| t.join().expect("a training")).collect()
    });
    assert_eq!(alone, together);
}

#[test]
fn the_number_of_threads_may_change_while_others_compute() {
    let _turn = turn();
    let before = meshwork::Device::cpu(0).expect("the first device").num_threads();
    let x = meshwork::tensor::randn(&[300, 300]);
    let expected = x.matmul(&x).to_vec::<f32>();
    std::thread::scope(|s| {
        let changing =
            s.spawn(|| (0..60).for_each(|i| meshwork::set_num_threads(1 + i % 5).expect("a number of threads")));
        for _ in 0..20 {
            assert_eq!(x.matmul(&x).to_vec::<f32>(), expected);
        }
        changing.join().unwrap();
    });
    meshwork::set_num_threads(before).expect("the number before");
}

//! A model, an optimizer and a loader: LeNet on the handwritten digits that come with the library.
//!
//! cargo run --release -p meshwork --example lenet

use meshwork::prelude::*;
use meshwork::{DType, no_grad};
use meshwork_data::{Batch, Loader, LoaderOptions, Order, digits};
use optim::{Sgd, SgdOptions};

#[derive(Module)]
struct LeNet {
    conv1: Conv2d,
    conv2: Conv2d,
    fc1: Linear,
    fc2: Linear,
}

impl LeNet {
    fn new() -> LeNet {
        LeNet {
            conv1: Conv2d::new(1, 20, 3),
            conv2: Conv2d::new(20, 50, 5),
            fc1: Linear::new(800, 128),
            fc2: Linear::new(128, 10),
        }
    }

    fn forward(&self, images: &Tensor) -> Tensor {
        let x = self.conv1.forward(images).relu().avg_pool2d(2);
        let x = self.conv2.forward(&x).relu().avg_pool2d(2);
        self.fc2.forward(&self.fc1.forward(&x.flatten(1)).relu())
    }
}

fn tensors(batch: &Batch) -> (Tensor, Tensor) {
    let images = Tensor::from_slice(batch.f32("image"), &batch.shape("image"));
    (images, Tensor::from_slice(batch.i64("label"), &[batch.len()]))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [train, test] = digits()?;
    let options = LoaderOptions { batch_size: 32, order: Order::Shuffled { seed: 1 }, ..LoaderOptions::default() };
    let mut loader = Loader::new(train, options)?;

    let model = LeNet::new();
    model.init(1);
    let mut optimizer = Sgd::new(&model, SgdOptions { momentum: 0.9, ..SgdOptions::new(0.05) });
    for epoch in 1..=5 {
        let mut total = 0.0;
        let steps = loader.batches_per_epoch();
        for batch in loader.epoch() {
            let (images, labels) = tensors(&batch?);
            let loss = model.forward(&images).cross_entropy(&labels);
            let gradients = model.gradients(&loss);
            optimizer.step(gradients);
            total += loss.item();
        }

        model.eval();
        let mut right = 0.0;
        let once = LoaderOptions { batch_size: 256, epochs: Some(1), ..LoaderOptions::default() };
        for batch in Loader::new(test.clone(), once)? {
            let (images, labels) = tensors(&batch?);
            let hits = no_grad(|| model.forward(&images).argmax(1).eq(&labels));
            right += hits.to_dtype(DType::I64).sum(..).item();
        }
        model.train();
        let accuracy = 100.0 * right / meshwork_data::Dataset::len(&test) as f64;
        println!("epoch {epoch}: mean loss {:.4}, test accuracy {accuracy:.1} %", total / steps as f64);
    }
    Ok(())
}

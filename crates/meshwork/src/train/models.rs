//! Models of images to begin with.

use crate::Tensor;
use crate::nn::{Conv2d, Layer, Linear, Module};
use crate::tensor::checkpoint;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Two convolutions and two fully connected layers for 28×28 grey images of 10 classes; 129,068 parameters
/// (LeCun et al., 1998, in the form that tutorials use).
#[derive(Debug, Module)]
pub struct LeNet {
    /// 1 to 20 channels, 3×3.
    pub conv1: Conv2d,
    /// 20 to 50 channels, 5×5.
    pub conv2: Conv2d,
    /// 800 to 128.
    pub fc1: Linear,
    /// 128 to 10.
    pub fc2: Linear,
    #[module(skip)]
    recomputed: AtomicUsize,
}

impl LeNet {
    /// The layers, to be initialised by [`Module::init`].
    pub fn new() -> LeNet {
        LeNet {
            conv1: Conv2d::new(1, 20, 3),
            conv2: Conv2d::new(20, 50, 5),
            fc1: Linear::new(800, 128),
            fc2: Linear::new(128, 10),
            recomputed: AtomicUsize::new(0),
        }
    }

    /// Images `[N, 1, 28, 28]` to logits `[N, 10]`.
    #[track_caller]
    pub fn forward(&self, images: &Tensor) -> Tensor {
        let mut x = images.clone();
        for (i, conv) in [&self.conv1, &self.conv2].into_iter().enumerate() {
            let through = || conv.forward(&x).relu().avg_pool2d(2);
            x = if i < self.recomputed.load(Ordering::Relaxed) { checkpoint(through) } else { through() };
        }
        self.fc2.forward(&self.fc1.forward(&x.flatten(1)).relu())
    }
}

/// Two fully connected layers for 28×28 grey images of 10 classes.
#[derive(Debug, Module)]
pub struct Mlp {
    /// 784 to 256.
    pub fc1: Linear,
    /// 256 to 10.
    pub fc2: Linear,
}

impl Mlp {
    /// The layers, to be initialised by [`Module::init`].
    pub fn new() -> Mlp {
        Mlp { fc1: Linear::new(784, 256), fc2: Linear::new(256, 10) }
    }

    /// Images `[N, 1, 28, 28]` to logits `[N, 10]`.
    #[track_caller]
    pub fn forward(&self, images: &Tensor) -> Tensor {
        self.fc2.forward(&self.fc1.forward(&images.flatten(1)).relu())
    }
}

macro_rules! models {
    ($($model:ident)*) => {
        $(
            impl Default for $model {
                fn default() -> Self {
                    $model::new()
                }
            }

        )*
    };
}

models!(LeNet Mlp);

impl Layer for LeNet {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        LeNet::forward(self, x)
    }

    /// The two convolutions with what follows them.
    fn recomputable(&self) -> usize {
        2
    }

    fn set_recompute(&self, parts: usize) {
        self.recomputed.store(parts, Ordering::Relaxed);
    }
}

impl Layer for Mlp {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        Mlp::forward(self, x)
    }
}

//! Layers one after another.

use super::layer::layers;
use super::{Layer, Module, Visitor};
use crate::tensor::Tensor;

/// Layers of which each takes the output of the one before. Their names are `0`, `1`, …
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// No layers: the identity.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// With one more layer at the end.
    pub fn with(mut self, layer: impl Layer + 'static) -> Sequential {
        self.layers.push(Box::new(layer));
        self
    }

    /// Adds a layer at the end.
    pub fn push(&mut self, layer: Box<dyn Layer>) {
        self.layers.push(layer);
    }

    /// The layers in order.
    pub fn layers(&self) -> &[Box<dyn Layer>] {
        &self.layers
    }

    /// The output of the last layer.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = x.clone();
        for layer in &self.layers {
            x = layer.forward(&x);
        }
        x
    }
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.layers.visit(visitor);
    }
}

layers!(Sequential);

impl FromIterator<Box<dyn Layer>> for Sequential {
    fn from_iter<I: IntoIterator<Item = Box<dyn Layer>>>(layers: I) -> Self {
        Sequential { layers: layers.into_iter().collect() }
    }
}

/// A [`Sequential`](crate::nn::Sequential) of layers: `sequential![Linear::new(8, 4), Relu, Linear::new(4, 1)]`.
#[macro_export]
macro_rules! sequential {
    ($($layer:expr),* $(,)?) => {
        $crate::nn::Sequential::new()$(.with($layer))*
    };
}

//! Layers one after another.

use super::{Layer, Module, Visitor};
use crate::tensor::{Tensor, checkpoint};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Layers of which each takes the output of the one before. Their names are `0`, `1`, …
///
/// What can be computed again for gradients ([`Layer::set_recompute`]) are the parts of those layers that have such parts, and
/// otherwise *segments* of the layers, as of PyTorch's `checkpoint_sequential`: √n of n layers, unless
/// [`Sequential::segments`] says another number.
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Layer>>,
    segments: Option<usize>,
    /// Segments that are computed again.
    recomputed: AtomicUsize,
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

    /// Cut into so many segments, of as many layers each as evenness allows.
    ///
    /// # Panics
    /// When there are none.
    #[track_caller]
    pub fn segments(self, segments: usize) -> Sequential {
        assert!(segments > 0, "layers are cut into at least one segment");
        Sequential { segments: Some(segments), ..self }
    }

    /// The output of the last layer.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let (count, recomputed) = (self.num_segments(), self.recomputed.load(Ordering::Relaxed));
        let mut x = x.clone();
        for segment in 0..count {
            let [from, to] = [segment, segment + 1].map(|cut| cut * self.layers.len() / count);
            let through = || self.layers[from..to].iter().fold(x.clone(), |x, layer| layer.forward(&x));
            x = if segment < recomputed { checkpoint(through) } else { through() };
        }
        x
    }

    /// Segments have a layer each at least.
    fn num_segments(&self) -> usize {
        let layers = self.layers.len();
        self.segments.unwrap_or((layers as f64).sqrt().round() as usize).min(layers)
    }

    /// Parts of the layers that can be computed again.
    fn parts_of_layers(&self) -> usize {
        self.layers.iter().map(Layer::recomputable).sum()
    }
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.layers.visit(visitor);
    }
}

impl Layer for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        Sequential::forward(self, x)
    }

    fn recomputable(&self) -> usize {
        match self.parts_of_layers() {
            0 => self.num_segments(),
            parts => parts,
        }
    }

    fn set_recompute(&self, parts: usize) {
        if self.parts_of_layers() == 0 {
            return self.recomputed.store(parts, Ordering::Relaxed);
        }
        let mut left = parts;
        for layer in &self.layers {
            let parts = layer.recomputable().min(left);
            layer.set_recompute(parts);
            left -= parts;
        }
    }
}

impl FromIterator<Box<dyn Layer>> for Sequential {
    fn from_iter<I: IntoIterator<Item = Box<dyn Layer>>>(layers: I) -> Self {
        Sequential { layers: layers.into_iter().collect(), ..Sequential::default() }
    }
}

/// A [`Sequential`](crate::nn::Sequential) of layers: `sequential![Linear::new(8, 4), Relu, Linear::new(4, 1)]`.
#[macro_export]
macro_rules! sequential {
    ($($layer:expr),* $(,)?) => {
        $crate::nn::Sequential::new()$(.with($layer))*
    };
}

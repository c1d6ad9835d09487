//! Going through a test set.

use super::TrainError;
use super::trainer::{inputs, labels};
use crate::mesh::Mesh;
use crate::nn::Layer;
use crate::tensor::no_grad;
use crate::{DType, Tensor};
use meshwork_data::{Dataset, Loader, LoaderOptions};
use std::collections::VecDeque;
use std::sync::Arc;

/// Batches handed over to the device before the result of the first one is read.
const AHEAD: usize = 2;

/// Part of a dataset that a model classifies correctly, 0 to 1; `mesh` is the one that the model is on. The model is in
/// training afterwards.
///
/// # Errors
/// Samples that cannot be read.
pub fn evaluate(
    model: &impl Layer,
    data: &Arc<dyn Dataset>,
    batch_size: usize,
    mesh: Option<&Mesh>,
) -> Result<f64, TrainError> {
    let options = LoaderOptions { batch_size, epochs: Some(1), ..LoaderOptions::default() };
    let loader = Loader::new(data.clone(), options)?;
    model.eval();
    let correct = no_grad(|| {
        let mut waiting: VecDeque<Tensor> = VecDeque::new();
        let mut correct = 0.0;
        for batch in loader {
            let batch = batch?;
            let predicted = model.forward(&inputs(&batch, mesh)).argmax(1);
            let hits = predicted.eq(labels(&batch, mesh)).to_dtype(DType::I64).sum(..);
            hits.eval();
            waiting.push_back(hits);
            if waiting.len() > AHEAD {
                correct += waiting.pop_front().map_or(0.0, |hits| hits.item());
            }
        }
        Ok(correct + waiting.iter().map(Tensor::item).sum::<f64>())
    });
    model.train();
    correct.map(|correct| correct / data.len() as f64)
}

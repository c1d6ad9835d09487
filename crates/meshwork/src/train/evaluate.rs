//! Going through a test set.

use super::trainer::{inputs, labels};
use super::{TrainError, hits, loss};
use crate::Tensor;
use crate::mesh::Mesh;
use crate::nn::Layer;
use crate::tensor::no_grad;
use meshwork_data::{Batch, Dataset, Loader, LoaderOptions};
use std::collections::VecDeque;
use std::sync::Arc;

/// Batches handed over to the device before the result of the first one is read.
const AHEAD: usize = 2;

/// How well a model does on data that it is not trained on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The mean loss of the samples, or of their tokens.
    pub loss: f64,
    /// The part that is classified correctly, 0 to 1.
    pub accuracy: f64,
}

/// How well a model does on a dataset; `mesh` is the one that the model is on. The model is in training afterwards.
///
/// # Errors
/// Samples that cannot be read.
pub fn evaluate(
    model: &impl Layer,
    data: &Arc<dyn Dataset>,
    batch_size: usize,
    mesh: Option<&Mesh>,
) -> Result<Evaluation, TrainError> {
    evaluate_batches(model, batches(data, batch_size)?, mesh)
}

/// As [`evaluate`], with the memory that most batches of the test set have in use, for a plan: some batches, and beside them those
/// that are brought meanwhile.
pub(super) fn evaluate_some(
    model: &impl Layer,
    data: &Arc<dyn Dataset>,
    batch_size: usize,
    mesh: Option<&Mesh>,
) -> Result<Evaluation, TrainError> {
    // What is brought lies on one device as a whole, until its own program spreads it over the mesh.
    let whole = |batch: Result<Batch, _>| batch.map(|batch| (inputs(&batch, None), labels(&batch, None)));
    let brought = batches(data, batch_size)?.skip(1).take(AHEAD).map(whole).collect::<Result<Vec<_>, _>>()?;
    let evaluation = evaluate_batches(model, batches(data, batch_size)?.take(AHEAD + 2), mesh);
    drop(brought);
    evaluation
}

fn batches(data: &Arc<dyn Dataset>, batch_size: usize) -> Result<Loader, TrainError> {
    let options = LoaderOptions { batch_size, epochs: Some(1), ..LoaderOptions::default() };
    Ok(Loader::new(data.clone(), options)?)
}

fn evaluate_batches(
    model: &impl Layer,
    batches: impl Iterator<Item = <Loader as Iterator>::Item>,
    mesh: Option<&Mesh>,
) -> Result<Evaluation, TrainError> {
    model.eval();
    let sums = no_grad(|| {
        let mut waiting: VecDeque<Counted> = VecDeque::new();
        let mut sums = Sums::default();
        for batch in batches {
            let batch = batch?;
            let (logits, labels) = (model.forward(&inputs(&batch, mesh)), labels(&batch, mesh));
            let counted = Counted { hits: hits(&logits, &labels), loss: loss(&logits, &labels), count: labels.numel() };
            counted.hits.eval();
            waiting.push_back(counted);
            if waiting.len() > AHEAD {
                waiting.pop_front().into_iter().for_each(|counted| sums.add(&counted));
            }
        }
        waiting.iter().for_each(|counted| sums.add(counted));
        Ok(sums)
    });
    model.train();
    sums.map(|Sums { hits, loss, count }| Evaluation { loss: loss / count, accuracy: hits / count })
}

/// What a batch comes to, once it is computed.
struct Counted {
    hits: Tensor,
    loss: Tensor,
    count: usize,
}

#[derive(Default)]
struct Sums {
    hits: f64,
    loss: f64,
    count: f64,
}

impl Sums {
    fn add(&mut self, batch: &Counted) {
        self.hits += batch.hits.item();
        self.loss += batch.loss.item() * batch.count as f64;
        self.count += batch.count as f64;
    }
}

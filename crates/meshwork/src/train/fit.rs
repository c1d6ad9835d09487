//! How much of a model must be computed again for a step to fit into memory.

use super::{TrainError, Trainer};
use crate::nn::Layer;
use meshwork_graph::human_bytes;
use std::fmt;

/// A choice of what is computed again, and what a step takes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Parts of the model that are computed again: see [`Layer::set_recompute`].
    pub recompute: usize,
    /// Parts that there are.
    pub of: usize,
    /// The most bytes that any device has in use during a step, as planned.
    pub peak: usize,
    /// The same without computing anything again.
    pub peak_without: usize,
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [peak, without] = [self.peak, self.peak_without].map(human_bytes);
        match self.recompute {
            0 => write!(f, "a step takes {peak} of a device: all activations are kept"),
            n => write!(
                f,
                "a step takes {peak} of a device: {n} of {} blocks are computed again for their gradients ({without} if all \
                 activations were kept)",
                self.of
            ),
        }
    }
}

/// The least number of parts that must be computed again for a step to take no more than `limit` bytes of any device. Steps are
/// planned and not run; `make` gives a training at its beginning, the same each time. The devices keep the order of hand-over
/// from then on ([`Device::set_in_order`](crate::Device::set_in_order)), without which plans on meshes are no bound.
///
/// # Errors
/// [`TrainError::Memory`] where not even computing everything again suffices, and data that cannot be read.
pub fn fit_memory<M: Layer>(
    limit: usize,
    mut make: impl FnMut() -> Result<Trainer<M>, TrainError>,
) -> Result<Fit, TrainError> {
    let mut found: Option<Fit> = None;
    let mut recompute = 0;
    loop {
        let trainer = make()?;
        let of = trainer.model().recomputable();
        trainer.model().set_recompute(recompute);
        let planned = trainer.planned_memory()?;
        let peak = planned.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let peak_without = found.map_or(peak, |fit| fit.peak_without);
        let fit = Fit { recompute, of, peak, peak_without };
        if peak <= limit {
            planned.iter().for_each(|(device, _)| device.set_in_order(true));
            return Ok(fit);
        }
        found = found.filter(|best| best.peak <= peak).or(Some(fit));
        if recompute == of {
            let Fit { recompute, peak, .. } = found.expect("something was tried");
            return Err(TrainError::Memory { limit, least: peak, recompute, of });
        }
        recompute += 1;
    }
}

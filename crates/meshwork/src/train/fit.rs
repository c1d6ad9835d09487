//! How much of a model must be computed again for a step to fit into memory.

use super::{TrainError, Trainer};
use crate::Device;
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
    /// Samples of a batch of the test set: as many as the settings say, or as fit.
    pub test_batch_size: usize,
    /// The most bytes that any device has in use while such batches are tested.
    pub test_peak: usize,
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
        }?;
        let (samples, test) = (self.test_batch_size, human_bytes(self.test_peak));
        write!(f, "; testing takes {test} in batches of {samples}")
    }
}

/// The least number of parts that must be computed again for a step to take no more than `limit` bytes of any device, and the
/// samples of the test set that can be taken at a time. Steps are planned and not run; `make` gives a training at its
/// beginning, the same each time. The devices keep the order of hand-over from then on
/// ([`Device::set_in_order`]), without which plans on meshes are no bound.
///
/// # Errors
/// [`TrainError::Memory`] where not even computing everything again suffices, [`TrainError::TestMemory`] where one sample of the test
/// set does not, and data that cannot be read.
pub fn fit_memory<M: Layer>(
    limit: usize,
    mut make: impl FnMut() -> Result<Trainer<M>, TrainError>,
) -> Result<Fit, TrainError> {
    let mut found: Option<(usize, usize)> = None;
    let mut peak_without = None;
    let mut recompute = 0;
    let (of, peak) = loop {
        let trainer = make()?;
        let of = trainer.model().recomputable();
        trainer.model().set_recompute(recompute);
        let planned = trainer.planned_memory()?;
        let peak = highest(&planned);
        peak_without.get_or_insert(peak);
        if peak <= limit {
            planned.iter().for_each(|(device, _)| device.set_in_order(true));
            break (of, peak);
        }
        found = found.filter(|(_, best)| *best <= peak).or(Some((recompute, peak)));
        if recompute == of {
            let (recompute, least) = found.expect("something was tried");
            return Err(TrainError::Memory { limit, least, recompute, of });
        }
        recompute += 1;
    };
    // One training at a time: another one's weights would count.
    let tested = |trainer: Trainer<M>| trainer.settings().test_batch_size().min(trainer.test_samples()).max(1);
    let mut test_batch_size = tested(make()?);
    let test_peak = loop {
        let peak = highest(&make()?.planned_test_memory(test_batch_size)?);
        if peak <= limit {
            break peak;
        }
        if test_batch_size == 1 {
            return Err(TrainError::TestMemory { limit, least: peak });
        }
        test_batch_size = test_batch_size.div_ceil(2);
    };
    Ok(Fit { recompute, of, peak, peak_without: peak_without.unwrap_or(peak), test_batch_size, test_peak })
}

fn highest(planned: &[(Device, usize)]) -> usize {
    planned.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
}

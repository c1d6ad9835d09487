//! How a model lies on a mesh, and what that takes of each device.

use super::{Mesh, Placement};
use crate::nn::{Module, Parameter};
use crate::optim::Optimizer;
use crate::tensor::Lying;
use crate::{DType, Device};
use meshwork_graph::Shape;

/// How a parameter lies on a mesh between steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedParameter {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// The parameter itself, for each axis of the mesh.
    pub value: Vec<Placement>,
    /// What an optimizer keeps for it, and its gradient when it is added.
    pub state: Vec<Placement>,
}

/// What a device of a mesh has of a model in training, in bytes, beside what a step needs while it runs: with Adam in f32
/// 16 for each element of a parameter, 4 of them the parameter, 4 its gradient and 8 the optimizer's state, each divided
/// by the devices that share it (Rajbhandari et al., 2020, section 3, for f32 throughout).
#[derive(Clone, Debug)]
pub struct Footprint {
    /// The device.
    pub device: Device,
    /// Parameters.
    pub parameters: usize,
    /// Their gradients, as they are when the optimizer uses them.
    pub gradients: usize,
    /// What the optimizer keeps.
    pub state: usize,
}

impl Footprint {
    /// All of it.
    pub fn total(&self) -> usize {
        self.parameters + self.gradients + self.state
    }
}

/// How the parameters of a model lie that a plan has spread over a mesh; those on no mesh are left out.
pub fn placed_parameters<M: Module + ?Sized>(model: &M) -> Vec<PlacedParameter> {
    let placed = |(name, parameter): (String, Parameter)| {
        let Lying { value, state, .. } = parameter.lying()?;
        let (value, state) = (value.to_vec(), state.to_vec());
        Some(PlacedParameter { name, dtype: parameter.dtype(), shape: parameter.shape().to_vec(), value, state })
    };
    model.named_parameters().into_iter().filter_map(placed).collect()
}

impl Mesh {
    /// What each device has of a model and its optimizer, in the order of the ranks.
    pub fn footprints<M: Module + ?Sized>(&self, model: &M, optimizer: &dyn Optimizer) -> Vec<Footprint> {
        let mut found: Vec<Footprint> = Vec::new();
        for device in self.devices() {
            if found.iter().all(|known| known.device.id() != device.id()) {
                found.push(Footprint { device: device.clone(), parameters: 0, gradients: 0, state: 0 });
            }
        }
        let states = optimizer.state().tensors;
        let keeps = !states.is_empty();
        for placed in placed_parameters(model) {
            let bytes = |placements: &[Placement]| self.bytes_of(&placed.shape, placed.dtype, placements, &found);
            // A gradient is merged for whoever updates the parameter: the owner of the state, if there is any.
            let (values, gradients) = (bytes(&placed.value), bytes(if keeps { &placed.state } else { &placed.value }));
            for ((footprint, value), gradient) in found.iter_mut().zip(values).zip(gradients) {
                footprint.parameters += value;
                footprint.gradients += gradient;
            }
        }
        for (_, tensor) in states {
            if let Some(placements) = tensor.placements().filter(|_| tensor.mesh().as_ref() == Some(self)) {
                let states = self.bytes_of(tensor.shape(), tensor.dtype(), &placements, &found);
                found.iter_mut().zip(states).for_each(|(footprint, state)| footprint.state += state);
            }
        }
        found
    }

    /// Bytes that each device stores of a value.
    fn bytes_of(&self, shape: &[usize], dtype: DType, placements: &[Placement], devices: &[Footprint]) -> Vec<usize> {
        let shape = Shape::new(shape);
        let stored = self.grid().stored(&shape, placements);
        let on = |footprint: &Footprint| {
            let ranks = stored.iter().filter(|&&rank| self.devices()[rank].id() == footprint.device.id());
            ranks.map(|&rank| self.grid().region(rank, &shape, placements).numel() * dtype.size()).sum()
        };
        devices.iter().map(on).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Plan, Rule, Zero};
    use super::*;
    use crate::optim::{Adam, AdamOptions};
    use crate::train::Mlp;

    #[test]
    fn a_device_that_has_all_ranks_has_everything_once() {
        let device = Device::cpu(0).unwrap();
        let places = vec![Rule::new("fc1.weight", [("tensor", Placement::split(0))])];
        for zero in [Zero::Nothing, Zero::OptimizerState, Zero::Gradients, Zero::Parameters] {
            let plan =
                Plan { data: Some(2), tensor: 3, zero, accumulate: 2, places: places.clone(), ..Plan::default() };
            let mesh = plan.mesh(&vec![device.clone(); 6]).unwrap();
            let model = Mlp::new();
            model.init(0);
            plan.apply(&model, &mesh).unwrap();
            let footprints = mesh.footprints(&model, &Adam::new(&model, AdamOptions::default()));
            let [Footprint { parameters, gradients, state, .. }] = footprints[..] else { panic!("{footprints:?}") };
            assert_eq!((parameters, gradients, state), (4 * 203_530, 4 * 203_530, 8 * 203_530), "{plan}");
        }
    }
}

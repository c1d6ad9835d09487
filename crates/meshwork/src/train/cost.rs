//! What steps take of the devices.

use super::StepCost;
use crate::Device;
use crate::mesh::Mesh;
use crate::tensor::last_plan;
use meshwork_graph::plan::Plan;
use std::sync::{Arc, Weak};

/// Counts the operations of each plan once, however many steps follow it.
pub struct Meter {
    devices: Vec<Device>,
    known: Weak<Plan>,
    flops: u64,
}

impl Meter {
    /// For a training on a mesh, or on the first device.
    pub fn new(mesh: Option<&Mesh>) -> Meter {
        let mut devices: Vec<Device> = Vec::new();
        let all = mesh.map_or_else(|| Device::cpu(0).into_iter().collect(), |mesh| mesh.devices().to_vec());
        for device in all {
            if devices.iter().all(|known| known.id() != device.id()) {
                devices.push(device);
            }
        }
        Meter { devices, known: Weak::new(), flops: 0 }
    }

    /// The cost of the step that has been handed over last.
    pub fn last_step(&mut self) -> StepCost {
        if let Some(plan) = last_plan()
            && !std::ptr::eq(self.known.as_ptr(), Arc::as_ptr(&plan))
        {
            self.flops = plan.programs().map(|program| program.flops()).sum();
            self.known = Arc::downgrade(&plan);
        }
        StepCost { flops: self.flops, peak_memory: self.devices.iter().map(|device| device.memory().peak).sum() }
    }
}

//! The layout of a run: its devices, and how a model is spread over them. Nothing of it changes a result.

use crate::devices::Devices;
use crate::failure::Failure;
use crate::train::warn;
use crate::values::{ModelName, count, name_of, recompute};
use crate::words::counted;
use clap::Args;
use meshwork::graph::canonical::samples_unit;
use meshwork::graph::human_bytes;
use meshwork::mesh::{Footprint, Mesh, Placement, Plan, PlanError, Rule, Zero, placed_parameters};
use meshwork::nn::Layer;
use meshwork::train::BuiltIn;
use meshwork::{Device, set_cpu_devices, set_num_threads};

/// Flags that say on what a model is trained, and how it is spread over that.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Layout")]
pub struct LayoutArgs {
    /// CPU devices: cpu:N, or the cores of each, such as cpu:0-1,2-3 [default: as many as --parallel needs]
    #[arg(long, value_name = "DEVICES")]
    pub devices: Option<Devices>,
    /// How the model is spread, such as data=2,tensor=2,zero=1; known are data, tensor, sequence, zero, accumulate
    /// [default: data over all devices]
    #[arg(long, value_name = "PLAN")]
    pub parallel: Option<Plan>,
    /// Parts of a batch that a device computes one after the other
    #[arg(long, value_name = "N", value_parser = count)]
    pub accumulate: Option<u64>,
    /// Where parameters are cut, such as "*.fc1.weight=tensor:split(0)"; placements are replicated, split(DIM) and
    /// sharded(DIM); may be given several times: the first whose name fits counts
    #[arg(long, value_name = "NAME=AXIS:PLACEMENT")]
    pub place: Vec<Rule>,
    /// Blocks whose activations are not kept but computed again for their gradients: a number, all or none; the result does
    /// not depend on it (gpt, llama; of lenet convolutions) [default: none]
    #[arg(long, value_name = "BLOCKS", value_parser = recompute)]
    pub recompute: Option<usize>,
}

/// A plan and the mesh that it is followed on.
pub struct Layout {
    pub plan: Plan,
    pub mesh: Mesh,
}

impl LayoutArgs {
    /// Has blocks of the model computed again; warns where it has none.
    pub fn set_recompute(&self, model: &dyn Layer, name: ModelName) {
        let Some(blocks) = self.recompute else { return };
        model.set_recompute(blocks);
        if model.recomputable() == 0 {
            warn([format!("--recompute has no effect with the model {}", name_of(name))]);
        }
    }

    /// Makes the devices, with so many threads each. What other devices had goes away.
    pub fn set_devices(&self, threads: Option<u64>) -> Result<(), Failure> {
        let needed = self.parallel.as_ref().map_or(1, Plan::devices);
        match &self.devices {
            Some(devices) => devices.apply()?,
            None if needed > 1 && devices()?.len() == 1 => {
                set_cpu_devices(needed).map_err(|e| Failure::Mistake(format!("--parallel: {e}")))?;
            }
            None => {}
        }
        if let Some(threads) = threads {
            let threads = usize::try_from(threads).unwrap_or(usize::MAX);
            set_num_threads(threads).map_err(|e| Failure::Mistake(format!("--threads: {e}")))?;
        }
        Ok(())
    }

    /// The mesh of the devices that there are, if a plan is given or there are several. `batch` is the number of samples
    /// of a batch.
    pub fn complete(&self, model: &BuiltIn, batch: u64) -> Result<Option<Layout>, Failure> {
        let plan = self.plan(model, batch)?;
        let devices = devices()?;
        let is_asked_for = self.parallel.is_some() || self.accumulate.is_some() || !self.place.is_empty();
        if !is_asked_for && devices.len() == 1 {
            return Ok(None);
        }
        let mesh = plan.mesh(&devices).map_err(|e| Failure::Mistake(format!("--parallel: {e}")))?;
        Ok(Some(Layout { plan, mesh }))
    }

    /// The plan that the flags describe.
    fn plan(&self, model: &BuiltIn, batch: u64) -> Result<Plan, Failure> {
        let mut plan = self.parallel.clone().unwrap_or_default();
        if let Some(given) = self.accumulate {
            let given = usize::try_from(given).unwrap_or(usize::MAX);
            if plan.accumulate > 1 && plan.accumulate != given {
                return Err(Failure::Mistake(format!(
                    "--accumulate {given}: --parallel says accumulate={}; leave one of them out",
                    plan.accumulate
                )));
            }
            plan.accumulate = given;
        }
        if plan.accumulate as u64 > batch {
            return Err(Failure::Mistake(format!(
                "--accumulate: a batch of {batch} samples has no {} parts",
                plan.accumulate
            )));
        }
        plan.places = self.place.iter().cloned().chain(model.tensor_plan()).collect();
        Ok(plan)
    }
}

fn devices() -> Result<Vec<Device>, Failure> {
    Device::cpus().map_err(Failure::mistake)
}

impl Layout {
    /// Spreads a model over the mesh.
    pub fn spread(&self, model: &dyn Layer) -> Result<(), Failure> {
        self.plan.apply(model, &self.mesh).map_err(|e| match e {
            PlanError::NoParameter { .. } | PlanError::Placement { .. } => Failure::Mistake(format!("--place: {e}")),
            other => Failure::Mistake(format!("--parallel: {other}")),
        })
    }

    /// What of the plan has no effect on a model that it has been applied to, and batches of so many samples or sequences of
    /// tokens, in words.
    pub fn without_effect(&self, model: &dyn Layer, batch: u64, reads_tokens: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        let placed = placed_parameters(model);
        for axis in ["tensor", "sequence"] {
            let Some(at) = self.mesh.axis(axis).filter(|_| axis != "sequence" || !reads_tokens) else { continue };
            if placed.iter().all(|parameter| parameter.value[at] == Placement::Replicated) {
                warnings.push(format!(
                    "--parallel {axis}={}: no parameter is cut along {axis}, so its devices all compute the same; \
                     --place \"NAME={axis}:split(0)\" cuts one",
                    self.mesh.axis_size(axis)
                ));
            }
        }
        let data = self.mesh.axis_size("data");
        if self.plan.zero != Zero::Nothing && data == 1 {
            let zero = self.plan.zero as usize;
            warnings.push(format!("--parallel zero={zero} has no effect with data=1: nothing is there to be divided"));
        }
        let batch = usize::try_from(batch).unwrap_or(usize::MAX);
        let (parts, blocks) = (data * self.mesh.axis_size("accumulate"), batch.div_ceil(samples_unit(batch)));
        if parts > blocks {
            warnings.push(format!(
                "a batch of {batch} is summed in {blocks} blocks, and is divided between them only: of {parts} parts, {} \
                 have nothing to do; a larger --batch has more",
                parts - blocks
            ));
        }
        warnings
    }

    /// The mesh, the stage of ZeRO, and what each device has, in a line.
    pub fn in_words(&self, footprints: &[Footprint]) -> String {
        let devices = footprints.len();
        let has = |bytes: fn(&Footprint) -> usize| {
            let (least, most) = (footprints.iter().map(bytes).min(), footprints.iter().map(bytes).max());
            let at_most = if least == most { "" } else { "at most " };
            format!("{at_most}{}", human_bytes(most.unwrap_or(0)))
        };
        format!(
            "{} on {devices} device{}: {} has {} of parameters, {} of gradients, {} of optimizer state",
            self.name(),
            if devices == 1 { "" } else { "s" },
            if devices == 1 { "it" } else { "each" },
            has(|footprint| footprint.parameters),
            has(|footprint| footprint.gradients),
            has(|footprint| footprint.state),
        )
    }

    /// The axes of the mesh and the stage of ZeRO: `data=2, tensor=2, zero=1`.
    pub fn name(&self) -> String {
        let mut words: Vec<String> = self.mesh.axes().iter().map(|(axis, size)| format!("{axis}={size}")).collect();
        words.push(format!("zero={}", self.plan.zero as usize));
        words.join(", ")
    }
}

/// The devices and their threads: `1 thread`, `4 devices of 1 thread each`.
pub fn devices_in_words() -> String {
    let threads: Vec<usize> = Device::cpus().unwrap_or_default().iter().map(Device::num_threads).collect();
    match &threads[..] {
        [only] => counted(*only, "thread"),
        [first, others @ ..] if others.iter().all(|n| n == first) => {
            format!("{} of {} each", counted(threads.len(), "device"), counted(*first, "thread"))
        }
        _ => {
            let all: usize = threads.iter().sum();
            format!("{} with {} in all", counted(threads.len(), "device"), counted(all, "thread"))
        }
    }
}

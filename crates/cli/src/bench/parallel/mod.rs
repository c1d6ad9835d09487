//! `meshwork bench parallel`: the exercises on automatic parallelism of "Dive into Deep Learning" (Zhang, Lipton, Li
//! and Smola, chapter "Computational Performance"), each beside what the dependencies of its work allow.

mod copies;
mod elements;
mod issue;
mod lenet;
mod load;
mod merge;
mod products;
mod report;
mod rounds;
mod scaling;
mod spread;
mod two;

use super::machine::Machine;
use crate::args::ParallelArgs;
use crate::devices::Devices;
use crate::failure::Failure;
use crate::tracing;
use clap::ValueEnum;
use meshwork::Device;
use report::Report;

/// An exercise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Exercise {
    /// Products on one device, on another, and on both at once
    Two,
    /// Products on a device whose results are copied to another one
    Copies,
    /// Handing work over beside finishing it
    Issue,
    /// A training step of a two-layer MLP on three devices
    Spread,
    /// A training step of LeNet on one device and on several
    Lenet,
    /// Gradients that are merged over a slow link, beside the backward pass
    Merge,
    /// Adding elements one by one beside adding vectors
    Loop,
    /// Every class of operation on one thread and on more
    Scaling,
}

/// Sizes of an exercise, where the command line gives them.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    size: Option<usize>,
    count: Option<usize>,
}

impl Sizes {
    fn size(self, default: usize) -> usize {
        self.size.unwrap_or(default)
    }

    fn count(self, default: usize) -> usize {
        self.count.unwrap_or(default)
    }
}

/// Measures the exercises that were asked for, or all.
pub fn run(args: &ParallelArgs) -> Result<(), Failure> {
    let layout = Layout::new(args.devices.as_ref())?;
    let number = |n: Option<u64>| n.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let sizes = Sizes { size: number(args.size), count: number(args.count) };
    let chosen = if args.exercise.is_empty() { Exercise::value_variants() } else { &args.exercise[..] };
    let tracing = args.trace.as_deref().map(tracing::start).transpose()?;
    let mut report = Report::begin(&Machine::here(), args.json);
    for exercise in chosen {
        match exercise {
            Exercise::Two => two::run(&layout.devices(2)?, sizes, &mut report)?,
            Exercise::Copies => copies::run(&layout.devices(2)?, sizes, &mut report)?,
            Exercise::Issue => issue::run(&layout.devices(2)?, sizes, &mut report)?,
            Exercise::Spread => spread::run(&layout.devices(3)?, sizes, &mut report)?,
            Exercise::Lenet => lenet::run(&layout.devices(2)?, sizes, &mut report)?,
            Exercise::Merge => merge::run(&layout.devices(2)?, sizes, &mut report)?,
            Exercise::Loop => elements::run(&layout.devices(2)?, sizes, &mut report)?,
            Exercise::Scaling => scaling::run(sizes, &mut report)?,
        }
    }
    report.end();
    let traced = tracing.and_then(tracing::stop).filter(|_| !args.json);
    traced.into_iter().for_each(|traced| println!("{traced}"));
    Ok(())
}

/// The devices of the exercises: those that were asked for, or as many as an exercise needs.
struct Layout {
    given: Option<Devices>,
}

impl Layout {
    fn new(flag: Option<&Devices>) -> Result<Layout, Failure> {
        if let Some(devices) = flag {
            devices.apply()?;
        }
        let groups = meshwork::cpu_groups().map_err(Failure::mistake)?;
        let given = match flag {
            Some(devices) => Some(devices.clone()),
            // The environment's.
            None => (groups.len() > 1).then(|| Devices::Groups(groups.clone())),
        };
        if given.is_some() && groups.len() < 2 {
            return Err(Failure::mistake("--devices: the exercises need at least 2 devices, such as cpu:2"));
        }
        Ok(Layout { given })
    }

    /// The devices that were asked for, or `wanted` ones.
    fn devices(&self, wanted: usize) -> Result<Vec<Device>, Failure> {
        let devices = self.given.clone().unwrap_or(Devices::Count(wanted));
        let groups = meshwork::cpu_groups().map_err(Failure::mistake)?;
        let set = match &devices {
            Devices::Count(count) => groups.len() == *count,
            Devices::Groups(wanted) => groups == *wanted,
        };
        if !set {
            devices.apply()?;
        }
        Device::cpus().map_err(Failure::mistake)
    }
}

/// What the dependencies allow for work on two devices at once that takes these times alone: the longer one, or all of
/// it where the two have no core of their own.
fn together(first: (&Device, f64), second: (&Device, f64)) -> f64 {
    let apart = first.0.cores().iter().all(|core| !second.0.cores().contains(core));
    if apart { first.1.max(second.1) } else { first.1 + second.1 }
}

//! Watching a training from outside: what it does now, published a few times a second in a small file.
//!
//! A [`Monitor`] is told what a training does and says how it stands. A [`Publisher`] writes that to the files that
//! `meshwork top` reads: one in the run's folder, if it has one, and one per process in a folder of the user's.
//!
//! ```no_run
//! use meshwork::Device;
//! use meshwork::monitor::{About, Monitor, Publisher};
//! # let mut trainer: meshwork::train::Trainer<meshwork::train::Mlp> = todo!();
//!
//! let about = About { model: "mlp".into(), data: "digits".into(), ..About::default() };
//! let monitor = Monitor::new(about, vec![Device::cpu(0)?]);
//! let (publisher, _warnings) = Publisher::start(&monitor);
//! trainer.run(&mut |event| monitor.observe(&event))?;
//! publisher.finish();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod about;
mod place;
mod publish;
mod rate;
mod status;
mod system;
mod watch;

pub use about::About;
pub use place::{Place, running};
pub use publish::{PERIOD, Publisher};
pub use status::{DeviceStatus, MemoryStatus, QueueStatus, Status, StatusError, VERSION};
pub use watch::Monitor;

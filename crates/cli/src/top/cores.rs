//! The load of this machine's cores.

use std::time::Instant;
use sysinfo::{MINIMUM_CPU_UPDATE_INTERVAL, System};

/// Measures the cores, if the system lets it.
pub struct Cores {
    system: Option<System>,
    host: String,
    measured: Instant,
    loads: Vec<f64>,
}

impl Cores {
    /// Begins to measure.
    pub fn new() -> Cores {
        let mut system = System::new().ok();
        system.as_mut().into_iter().for_each(System::refresh_cpu_usage);
        let host = System::host_name().unwrap_or_default();
        Cores { system, host, measured: Instant::now(), loads: Vec::new() }
    }

    /// The load of each core over the last interval, 0 to 1; nothing before the end of the first one, and for another
    /// machine than this one.
    pub fn load(&mut self, host: &str) -> Vec<f64> {
        if host != self.host {
            return Vec::new();
        }
        if let Some(system) = &mut self.system
            && self.measured.elapsed() >= MINIMUM_CPU_UPDATE_INTERVAL
        {
            system.refresh_cpu_usage();
            self.measured = Instant::now();
            self.loads = system.cpus().iter().map(|core| f64::from(core.usage() / 100.0).clamp(0.0, 1.0)).collect();
        }
        self.loads.clone()
    }
}

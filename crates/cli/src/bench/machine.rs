//! What is measured on: the processor, and what it can do at most.

use crate::words::counted;
use meshwork::tensor::Precision;
use meshwork::{Device, Level, Par, limits};
use serde_json::{Value, json};

/// The machine as a measurement names it.
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Threads of the kernels.
    pub threads: usize,
    /// SIMD level of the kernels.
    pub level: Level,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        let device = Device::cpu(0).expect("the first device is always there");
        Machine {
            processor: processor().unwrap_or_else(|| std::env::consts::ARCH.to_string()),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            threads: device.num_threads(),
            level: Level::current(),
        }
    }

    /// This machine with the threads of all devices.
    pub fn of_all_devices() -> Machine {
        let threads = Device::cpus().map_or(1, |devices| devices.iter().map(Device::num_threads).sum());
        Machine { threads, ..Machine::here() }
    }

    /// Multiply-adds in registers of what products in a precision multiply, in GFLOP/s.
    pub fn peak(&self, precision: Precision) -> f64 {
        let par = Par::new(self.threads);
        let peak = match precision {
            Precision::BF16 => limits::fma_bf16(&par, self.level),
            Precision::F32 | Precision::F16 => limits::fma_f32(&par, self.level),
        };
        peak / 1e9
    }

    /// [`Machine::peak`] on a machine that others may use, too: the best of several measurements, about 0.1 s together.
    pub fn undisturbed_peak(&self, precision: Precision) -> f64 {
        (0..4).map(|_| self.peak(precision)).fold(0.0, f64::max)
    }

    /// Bandwidths of memory.
    pub fn bandwidth(&self) -> limits::Bandwidth {
        limits::bandwidth(&Par::new(self.threads), self.level)
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let Machine { processor, cores, threads, level } = self;
        format!("{processor}, {cores} cores; {}, {}", counted(*threads, "thread"), level.name())
    }

    /// As [`Machine::line`], where the threads are a matter of what is measured.
    pub fn line_without_threads(&self) -> String {
        format!("{}, {} cores; {}", self.processor, self.cores, self.level.name())
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "processor": self.processor,
            "cores": self.cores,
            "threads": self.threads,
            "simd": self.level.name(),
        })
    }
}

/// The name that Linux knows.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

//! The parts of the exercises, for people or for programs.

use super::rounds::Measured;
use crate::bench::machine::Machine;
use crate::bench::report::time;
use crate::devices::cores_of;
use crate::progress::say;
use meshwork::Device;
use serde_json::{Value, json};

/// One measured part of an exercise.
pub struct Row {
    /// What was done.
    pub name: String,
    /// How long it took, and who worked.
    pub measured: Measured,
    /// Seconds that the dependencies allow, where another part says so.
    pub allowed: Option<f64>,
    /// Seconds of the part beside which this one is seen.
    pub beside: Option<f64>,
}

impl Row {
    /// A part that others are held against.
    pub fn new(name: impl Into<String>, measured: Measured) -> Row {
        Row { name: name.into(), measured, allowed: None, beside: None }
    }

    /// A part for which the dependencies allow `allowed`, instead of what took `beside`.
    pub fn held(name: impl Into<String>, measured: Measured, allowed: f64, beside: f64) -> Row {
        Row { name: name.into(), measured, allowed: Some(allowed), beside: Some(beside) }
    }

    fn ratio(&self) -> Option<f64> {
        self.allowed.map(|allowed| self.measured.seconds / allowed)
    }

    fn speedup(&self) -> Option<f64> {
        self.beside.map(|beside| beside / self.measured.seconds)
    }

    fn possible(&self) -> Option<f64> {
        self.beside.zip(self.allowed).map(|(beside, allowed)| beside / allowed)
    }

    fn text(&self) -> String {
        let cell = |value: Option<String>| value.unwrap_or_default();
        let times = |value: Option<f64>| cell(value.map(|x| format!("{x:.0$} x", if x < 100.0 { 2 } else { 0 })));
        format!(
            "  {:<44}{:>12}{:>12}{:>8}{:>12}{:>12}  {}",
            self.name,
            time(self.measured.seconds),
            cell(self.allowed.map(time)),
            cell(self.ratio().map(|x| format!("{x:.2}"))),
            times(self.speedup()),
            times(self.possible()),
            self.measured.load.text()
        )
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "seconds": self.measured.seconds,
            "allowed_seconds": self.allowed,
            "ratio": self.ratio(),
            "speedup": self.speedup(),
            "possible_speedup": self.possible(),
            "busy_cores": self.measured.load.cores(),
            "threads": self.measured.load.json(),
        })
    }
}

/// Prints exercises as they come, or all at the end as one JSON object.
pub struct Report {
    machine: Value,
    json: Option<Vec<Value>>,
}

impl Report {
    /// A report without exercises.
    pub fn begin(machine: &Machine, json: bool) -> Report {
        if !json {
            say(&machine.line_without_threads());
        }
        Report { machine: machine.json(), json: json.then(Vec::new) }
    }

    /// Adds an exercise: its name, what it does in words, on which devices, and its parts.
    pub fn exercise(&mut self, name: &str, what: &str, devices: &[Device], rows: &[Row]) {
        if let Some(exercises) = &mut self.json {
            let device = |device: &Device| {
                let (name, threads) = (device.to_string(), device.num_threads());
                json!({ "name": name, "cores": device.cores(), "threads": threads })
            };
            exercises.push(json!({
                "name": name,
                "what": what,
                "devices": devices.iter().map(device).collect::<Value>(),
                "parts": rows.iter().map(Row::json).collect::<Value>(),
            }));
            return;
        }
        let device = |device: &Device| format!("{device} has {}", cores_of(device));
        say("");
        say(&format!("{name}: {what}"));
        say(&format!("  {}", devices.iter().map(device).collect::<Vec<_>>().join("; ")));
        let heads = ["time", "allowed", "ratio", "speed-up", "possible"];
        say(&format!(
            "  {:<44}{:>12}{:>12}{:>8}{:>12}{:>12}  threads",
            "", heads[0], heads[1], heads[2], heads[3], heads[4]
        ));
        rows.iter().for_each(|row| say(&row.text()));
    }

    /// Prints what is left to print.
    pub fn end(self) {
        if let Some(exercises) = self.json {
            say(&json!({ "bench": "parallel", "machine": self.machine, "exercises": exercises }).to_string());
        }
    }
}

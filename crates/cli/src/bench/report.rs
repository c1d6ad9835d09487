//! Rows of a measurement, for people or for programs.

use super::machine::Machine;
use crate::progress::say;
use serde_json::{Value, json};

/// One measured thing beside what the machine allows.
pub struct Row {
    /// What was done.
    pub name: String,
    /// Seconds of one time.
    pub seconds: f64,
    /// Billions of floating-point operations or of bytes, of one time.
    pub amount: f64,
    /// The most that the machine does of these in a second, in billions.
    pub bound: f64,
}

/// What the amounts are.
#[derive(Clone, Copy)]
pub enum Unit {
    Flops,
    Bytes,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Flops => "GFLOP/s",
            Unit::Bytes => "GB/s",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Unit::Flops => "gflops",
            Unit::Bytes => "gbytes_per_second",
        }
    }
}

/// Prints rows as they come, or all at the end as one JSON object.
pub struct Report {
    unit: Unit,
    json: Option<Vec<Value>>,
    head: Value,
}

impl Report {
    /// A report of `what`; `bounds` are the limits that were measured, in `unit`.
    pub fn begin(what: &str, machine: &Machine, unit: Unit, bounds: &[(&str, f64)], json: bool) -> Report {
        let mut head = json!({ "bench": what, "machine": machine.json() });
        for (name, value) in bounds {
            head[format!("{name}_{}", unit.key())] = json!(value);
        }
        if !json {
            let bounds: Vec<String> = bounds.iter().map(|(n, v)| format!("{n} {v:.1} {}", unit.name())).collect();
            say(&machine.line());
            say(&format!("most that it can do: {}", bounds.join(", ")));
            say(&format!("{:<44}{:>12}{:>10}{:>9}", what, "time", unit.name(), "of most"));
        }
        Report { unit, json: json.then(Vec::new), head }
    }

    /// Adds a row.
    pub fn row(&mut self, row: &Row) {
        let speed = row.amount / row.seconds;
        let share = speed / row.bound;
        match &mut self.json {
            Some(rows) => rows.push(json!({
                "name": row.name,
                "seconds": row.seconds,
                self.unit.key(): speed,
                "share": share,
            })),
            None => say(&format!("{:<44}{:>12}{speed:>10.1}{:>7.0} %", row.name, time(row.seconds), 100.0 * share)),
        }
    }

    /// Prints what is left to print.
    pub fn end(mut self) {
        if let Some(rows) = self.json {
            self.head["rows"] = Value::Array(rows);
            say(&self.head.to_string());
        }
    }
}

/// Seconds in a unit that fits.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}

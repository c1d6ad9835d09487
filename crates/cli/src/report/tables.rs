//! Tables of the page.

use super::plot::number;
use super::run::Recorded;
use crate::metrics::{Run, RunLine};
use crate::progress::thousands;
use crate::words::Escaped;
use meshwork::graph::human_bytes;
use std::fmt::Write;

/// Rows of the table of validations; of more, the last ones.
const LISTED: usize = 50;

/// A table whose first column is text, the others numbers.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut out = String::from("<div class=\"wide\"><table>\n");
    let mut row = |cells: &[&str], tag: &str| {
        out.push_str("<tr>");
        for (i, cell) in cells.iter().enumerate() {
            let class = if i > 0 { " class=\"number\"" } else { "" };
            let _ = write!(out, "<{tag}{class}>{}</{tag}>", Escaped(cell));
        }
        out.push_str("</tr>\n");
    };
    row(head, "th");
    rows.into_iter().for_each(|cells| row(&cells.iter().map(String::as_str).collect::<Vec<_>>(), "td"));
    out.push_str("</table></div>\n");
    out
}

/// Names and what they stand for.
fn pairs(rows: impl IntoIterator<Item = (String, String)>) -> String {
    let mut out = String::from("<div class=\"wide\"><table class=\"pairs\">\n");
    for (name, value) in rows {
        let _ = writeln!(out, "<tr><th>{}</th><td>{}</td></tr>", Escaped(&name), Escaped(&value));
    }
    out.push_str("</table></div>\n");
    out
}

/// The settings of a run.
pub fn settings(run: &Run) -> String {
    pairs(run.settings.iter().map(|(name, value)| (name.clone(), value.clone())))
}

/// On what a run is, and how it is spread over that.
pub fn plan(runs: &[RunLine], run: &Run) -> String {
    let mut rows = vec![
        ("plan".to_string(), run.plan.clone().unwrap_or_else(|| "one device".to_string())),
        ("devices".to_string(), run.devices.clone()),
        ("processor".to_string(), format!("{}, {} cores, {}", run.processor, run.cores, run.simd)),
        ("measured peak".to_string(), format!("{} GFLOP/s in f32", number(run.peak_gflops))),
        ("Meshwork".to_string(), run.version.clone()),
    ];
    let sessions = runs.windows(2).map(|pair| {
        let RunLine { step, run } = &pair[1];
        let plan = run.plan.clone().unwrap_or_else(|| "one device".to_string());
        (format!("resumed after step {}", thousands(*step as f64)), format!("{plan}; {}", run.devices))
    });
    rows.extend(sessions);
    let mut out = pairs(rows);
    if !run.memory.is_empty() {
        let rows = run.memory.iter().map(|memory| {
            let bytes = [memory.parameters, memory.gradients, memory.optimizer_state];
            let all: usize = bytes.iter().sum();
            [memory.device.clone()].into_iter().chain(bytes.into_iter().chain([all]).map(human_bytes)).collect()
        });
        out.push_str("<h3>Memory of each device between steps</h3>\n");
        out.push_str(&table(&["device", "parameters", "gradients", "optimizer state", "together"], rows));
    }
    out
}

/// What came out whenever the test set was gone through.
pub fn validations(recorded: &Recorded) -> String {
    let skipped = recorded.validations.len().saturating_sub(LISTED);
    let loss = |loss: Option<f64>| loss.map_or_else(|| "not finite".to_string(), number);
    let percent = |part: f64| format!("{:.2} %", 100.0 * part);
    let is_averaged = recorded.validations.iter().any(|line| line.ema_validation_accuracy.is_some());
    let rows = recorded.validations[skipped..].iter().map(|line| {
        let mut cells = vec![
            thousands(line.step as f64),
            line.epoch.map(|epoch| epoch.to_string()).unwrap_or_default(),
            line.train_loss.map(number).unwrap_or_default(),
            loss(line.validation_loss),
            percent(line.validation_accuracy),
        ];
        if is_averaged {
            let averaged =
                line.ema_validation_accuracy.map(|accuracy| [loss(line.ema_validation_loss), percent(accuracy)]);
            cells.extend(averaged.unwrap_or_default());
        }
        cells
    });
    let mut head = vec!["after step", "epoch", "training loss", "validation loss", "accuracy"];
    if is_averaged {
        head.extend(["validation loss, averaged weights", "accuracy, averaged weights"]);
    }
    let mut out = String::new();
    if skipped > 0 {
        let _ = writeln!(out, "<p>The last {LISTED} of {}.</p>", skipped + LISTED);
    }
    out + &table(&head, rows)
}

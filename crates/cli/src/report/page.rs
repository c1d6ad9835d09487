//! The page: HTML with everything in it.

use super::plot::{Plot, Series, number};
use super::run::Recorded;
use super::{tables, timeline};
use crate::metrics::{StepLine, ValidationLine};
use crate::progress::thousands;
use crate::timeline::spans::Timeline;
use crate::top;
use crate::words::Escaped;
use meshwork::graph::human_bytes;
use std::fmt::Write;
use std::time::Duration;

const STYLE: &str = include_str!("style.css");
const MIB: f64 = (1 << 20) as f64;

/// The page about a run of that name.
pub fn draw(recorded: &Recorded, name: &str, timeline: Option<&Timeline>) -> String {
    let run = recorded.runs.last().map(|line| &line.run);
    let model = run.map_or("a training", |run| run.model.as_str());
    let title = format!("{model} – {name}");
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
        Escaped(&title),
        Escaped(&title)
    );
    if let Some(run) = run {
        let parameters = thousands(run.parameters as f64);
        let _ = writeln!(out, "<p>{parameters} parameters; {}</p>", Escaped(&run.data));
    }
    tiles(&mut out, recorded);
    let lost = recorded.steps.iter().filter(|line| line.loss.is_none()).count();
    if lost > 0 {
        let _ = writeln!(out, "<p>The loss of {lost} steps is not finite; they are left out of its plot.</p>");
    }
    out.push_str("<div class=\"plots\">\n");
    plots(recorded).iter().filter_map(Plot::draw).for_each(|figure| out.push_str(&figure));
    out.push_str("</div>\n");
    if !recorded.validations.is_empty() {
        let _ = write!(out, "<section>\n<h2>Validation</h2>\n{}</section>\n", tables::validations(recorded));
    }
    if let Some(timeline) = timeline {
        out.push_str(&timeline::section(timeline));
    }
    if let Some(run) = run {
        let _ = write!(out, "<section>\n<h2>Plan</h2>\n{}</section>\n", tables::plan(&recorded.runs, run));
        let _ = write!(out, "<section>\n<h2>Settings</h2>\n{}</section>\n", tables::settings(run));
    }
    out.push_str("</body>\n</html>\n");
    out
}

/// The numbers that are looked at first.
fn tiles(out: &mut String, recorded: &Recorded) {
    out.push_str("<div class=\"tiles\">\n");
    let mut tile = |name: &str, value: String, note: &str| {
        let _ = writeln!(out, "<div><span>{name}</span><b>{value}</b> <small>{note}</small></div>");
    };
    let last = recorded.last();
    let of = recorded.runs.last().and_then(|line| line.run.steps);
    let of = of.map(|steps| format!("of {}", number_of(steps))).unwrap_or_default();
    tile("steps", number_of(last.step), &of);
    tile("training loss", last.loss.map_or_else(|| "not finite".into(), |loss| number(loss.into())), "last step");
    let losses = recorded.validations.iter().filter_map(|line| Some((line.validation_loss?, line)));
    if let Some((loss, best)) = losses.min_by(|a, b| a.0.total_cmp(&b.0)) {
        let when = format!("after step {}", number_of(best.step));
        tile("best validation loss", number(loss), &when);
        tile("accuracy", format!("{:.1} %", 100.0 * best.validation_accuracy), &when);
    }
    let (tokens, samples) =
        (recorded.median(|line| line.tokens_per_second), recorded.median(|line| Some(line.samples_per_second)));
    match (tokens, samples) {
        (Some(tokens), _) => tile("tokens/s", rate(tokens), "median"),
        (None, Some(samples)) => tile("samples/s", rate(samples), "median"),
        (None, None) => {}
    }
    if let Some(tflops) = recorded.median(|line| Some(line.tflops)) {
        tile("TFLOP/s", number(tflops), "median");
    }
    if let Some(mfu) = recorded.median(|line| Some(line.mfu)) {
        tile("of the measured peak", format!("{:.1} %", 100.0 * mfu), "median (MFU)");
    }
    tile("memory peak", human_bytes(last.peak_memory), "all devices");
    let seconds: f64 = recorded.steps.iter().map(|line| line.seconds).sum();
    tile("time of the steps", top::time(Duration::from_secs_f64(seconds)), "");
    out.push_str("</div>\n");
}

/// Everything over steps.
fn plots(recorded: &Recorded) -> Vec<Plot> {
    let of = |value: fn(&StepLine) -> Option<f64>| -> Vec<(f64, f64)> {
        recorded.steps.iter().filter_map(|line| Some((line.step as f64, value(line)?))).collect()
    };
    let one = |name, points| vec![Series { name, points }];
    let validations = |loss: fn(&ValidationLine) -> Option<f64>| -> Vec<(f64, f64)> {
        recorded.validations.iter().filter_map(|line| Some((line.step as f64, loss(line)?))).collect()
    };
    let mut loss = vec![
        Series { name: "training", points: of(|line| line.loss.map(f64::from)) },
        Series { name: "validation", points: validations(|line| line.validation_loss) },
    ];
    let averaged = validations(|line| line.ema_validation_loss);
    if !averaged.is_empty() {
        loss.push(Series { name: "validation, averaged weights", points: averaged });
    }
    let speed = match of(|line| line.tokens_per_second) {
        tokens if tokens.is_empty() => ("samples/s", of(|line| Some(line.samples_per_second))),
        tokens => ("tokens/s", tokens),
    };
    let plot = |title, unit, series, from_zero| Plot { title, unit, series, from_zero };
    vec![
        plot("Loss", "cross entropy (nats)", loss, false),
        plot("Learning rate", "learning rate", one("learning rate", of(|line| Some(line.lr))), true),
        plot("Gradient norm", "global norm before clipping", one("norm", of(|line| line.gradient_norm)), true),
        plot("Throughput", speed.0, one(speed.0, speed.1), true),
        plot("Arithmetic", "TFLOP/s", one("TFLOP/s", of(|line| Some(line.tflops))), true),
        plot("Share of the measured peak", "MFU (%)", one("MFU", of(|line| Some(100.0 * line.mfu))), true),
        plot("Memory", "peak so far (MiB)", one("MiB", of(|line| Some(line.peak_memory as f64 / MIB))), true),
    ]
}

fn number_of(count: u64) -> String {
    thousands(count as f64)
}

fn rate(per_second: f64) -> String {
    if per_second < 100.0 { number(per_second) } else { thousands(per_second) }
}

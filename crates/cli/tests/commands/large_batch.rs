//! Settings for large batches: rates, what is said about them, files and resuming.

use crate::common::Place;

/// The learning rates that a log tells.
fn rates(log: &str) -> Vec<f64> {
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter_map(|line| line["lr"].as_f64()).collect()
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64]) {
    let close = found.len() == expected.len() && found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-12);
    assert!(close, "{found:?}, not {expected:?}");
}

#[test]
fn scaled_rates_warm_up_and_say_so() {
    let place = Place::new();
    let recipe = "train mlp --steps 8 --batch 300 --optimizer sgd --lr-scaling linear --base-batch 100";
    let ran = place.ok(&format!("{recipe} --warmup-epochs 1 --log epochs.jsonl"));
    let line = "linear scaling: batch 300 = 3 × 100, learning rate 0.1 → 0.3, warm-up over 1 epoch";
    assert!(ran.stdout.lines().any(|l| l == line), "{}", ran.stdout);
    let warning = "warning: a batch of 300 is more than ten times the 10 classes: ";
    assert!(ran.stderr.starts_with(warning) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    // An epoch of 1438 digits has 5 batches.
    assert_close(&rates(&place.text("epochs.jsonl")), &[0.1, 0.14, 0.18, 0.22, 0.26, 0.3, 0.3, 0.3]);

    place.ok(&format!("{recipe} --warmup 5 --log steps.jsonl"));
    assert_eq!(place.text("steps.jsonl"), place.text("epochs.jsonl"));

    place.ok(&format!("{recipe} --schedule linear --min-lr 0.05 --warmup 4 --log line.jsonl"));
    assert_close(&rates(&place.text("line.jsonl")), &[0.1, 0.15, 0.2, 0.25, 0.3, 0.2625, 0.225, 0.1875]);
}

#[test]
fn small_batches_are_quiet_and_without_a_rule_nothing_is_scaled() {
    let place = Place::new();
    let ran = place.ok("train mlp --steps 2 --batch 100 --lr 0.5 --log run.jsonl");
    assert!(ran.stderr.is_empty() && !ran.stdout.contains("scaling"), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(rates(&place.text("run.jsonl")), [0.5, 0.5]);
}

#[test]
fn a_file_has_the_same_names() {
    let place = Place::new();
    let flags = "--optimizer lamb --lr-scaling sqrt --base-batch 25 --warmup-epochs 1 --min-trust 0.01 --max-trust 0.02 \
                 --exclude-vectors=false";
    place.ok(&format!("train mlp --steps 3 --batch 100 {flags} --save flags"));
    place.write(
        "run.toml",
        "optimizer = \"lamb\"\nlr-scaling = \"sqrt\"\nbase-batch = 25\nwarmup-epochs = 1\nmin-trust = 0.01\n\
         max-trust = 0.02\nexclude-vectors = false\nsteps = 3\nbatch = 100\n",
    );
    place.ok("train mlp --config run.toml --save file");
    assert!(place.read("flags/model.safetensors") == place.read("file/model.safetensors"));
    place.ok("train mlp --config run.toml --max-trust 0.015 --save other");
    assert!(place.read("flags/model.safetensors") != place.read("other/model.safetensors"));

    place.write("run.toml", "lr-scalling = \"sqrt\"");
    let line = place.mistake("train mlp --config run.toml");
    assert_eq!(line, "run.toml, line 1: there is no key \"lr-scalling\" (did you mean lr-scaling?)");
}

#[test]
fn resumed_runs_keep_their_rule_and_say_when_it_changes() {
    let place = Place::new();
    place.ok("train mlp --steps 2 --batch 100 --optimizer lars --lr-scaling linear --warmup-epochs 1 --save run");
    let ran = place.ok("train --resume run --steps 4 --lr-scaling sqrt");
    assert_eq!(ran.stderr, "note: --lr-scaling is sqrt from here on; the saved run had linear\n");
    let line = "square-root scaling: batch 100 = 3.125 × 32, learning rate 1 → 1.768, warm-up over 1 epoch";
    assert!(ran.stdout.lines().any(|l| l == line), "{}", ran.stdout);
    let line = place.mistake("train --resume run --steps 6 --optimizer lamb");
    assert!(line.starts_with("--optimizer lamb: the saved run has lars, and a run keeps its optimizer"), "{line}");
    let line = place.mistake("train --resume run --steps 6 --warmup 3");
    assert!(line.contains("--warmup and --warmup-epochs exclude each other"), "{line}");
}

//! Training from the command line: logs, saving, resuming, configuration, interruption.

use crate::common::Place;

/// Steps of the runs below: more than an epoch of 1438 digits in batches of 300, whose last one has 238.
const RUN: &str = "--steps 8 --batch 300 --schedule cosine --warmup 2";

#[test]
fn the_log_has_a_line_for_every_step_and_epoch() {
    let place = Place::new();
    let ran = place.ok("train mlp --epochs 2 --batch 300 --log run.jsonl");
    let warnings: Vec<&str> = ran.stderr.lines().collect();
    assert!(matches!(warnings[..], [line] if line.starts_with("warning: a batch of 300 is more than")), "{warnings:?}");
    assert!(ran.stdout.trim_end().lines().last().unwrap().starts_with("test accuracy "), "{}", ran.stdout);

    let text = place.text("run.jsonl");
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 12);
    let mut step = 0;
    let mut losses = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        if i == 5 || i == 11 {
            assert_eq!(line["epoch"], step / 5);
            let sizes = [300.0, 300.0, 300.0, 300.0, 238.0];
            let mean = losses.drain(..).zip(sizes).map(|(loss, n): (f64, f64)| loss * n).sum::<f64>() / 1438.0;
            assert!((line["train_loss"].as_f64().unwrap() - mean).abs() < 1e-6 * mean);
            assert!((0.0..=1.0).contains(&line["test_accuracy"].as_f64().unwrap()));
        } else {
            step += 1;
            assert_eq!(line["step"], step);
            assert_eq!(line["lr"], 0.003);
            losses.push(line["loss"].as_f64().unwrap());
        }
    }
    let first = text.lines().next().unwrap();
    let loss = first.strip_prefix("{\"step\":1,\"loss\":").and_then(|t| t.strip_suffix(",\"lr\":0.003}")).unwrap();
    assert_eq!(loss.parse::<f32>().unwrap().to_string(), loss);
}

#[test]
fn a_resumed_run_gives_the_bits_of_an_uninterrupted_one() {
    let cases = [
        ("mlp", "adam", &[1, 4][..]),
        ("mlp", "sgd --momentum 0.9", &[5]),
        ("lenet", "rmsprop", &[7]),
        ("mlp", "lars --lr-scaling linear --base-batch 100", &[1]),
        ("mlp", "lamb --lr-scaling sqrt --warmup 0 --warmup-epochs 1", &[3, 6]),
    ];
    for (model, optimizer, steps) in cases {
        let place = Place::new();
        let recipe = format!("train {model} {RUN} --optimizer {optimizer}");
        place.ok(&format!("{recipe} --save whole --log whole.jsonl"));
        for &step in steps {
            // The last checkpoint but one and a log that is further: as if the run had died just before its end.
            let (part, log) = (format!("part-{step}"), format!("part-{step}.jsonl"));
            place.ok(&format!("{recipe} --save {part} --save-every {step} --log {log} --threads 1"));
            let last = 8 - if 8 % step == 0 { step } else { 8 % step };
            let from = format!("{part}/step-{last}");
            let ran = place.ok(&format!("train --resume {from} --save {part}-on --log {log} --threads 3"));
            assert!(ran.stdout.contains(&format!("after step {last} of 8")), "{}", ran.stdout);
            for name in ["model.safetensors", "step-8/optimizer.safetensors"] {
                let (whole, resumed) = (place.read(&format!("whole/{name}")), place.read(&format!("{part}-on/{name}")));
                assert!(whole == resumed, "{name} of {model} resumed after step {last}");
            }
            assert_eq!(place.text(&log), place.text("whole.jsonl"), "{model} resumed after step {last}");
        }
    }
}

#[test]
fn a_run_keeps_its_precision() {
    let place = Place::new();
    let run = "train mlp --steps 6 --batch 300 --precision";
    let ran = place.ok(&format!("{run} bf16 --save whole"));
    assert!(ran.stdout.contains("compute on bf16; weights, sums, norms and losses are f32\n"), "{}", ran.stdout);
    place.write("run.toml", "precision = \"bf16\"\nsteps = 2\nbatch = 300\n");
    place.ok("train mlp --config run.toml --save part");
    let line = place.mistake("train --resume part --precision f32");
    assert_eq!(
        line,
        "--precision f32: the saved run has bf16, and a run keeps its precision; leave it out, or begin a new run from \
         the saved weights with --init"
    );
    let ran = place.ok("train --resume part --steps 6");
    assert!(ran.stdout.contains("compute on bf16"), "{}", ran.stdout);
    assert!(place.read("whole/model.safetensors") == place.read("part/model.safetensors"));
    place.ok("train mlp --steps 6 --batch 300 --save f32");
    assert!(place.read("whole/model.safetensors") != place.read("f32/model.safetensors"));

    let ran = place.ok(&format!("{run} f16 --save f16 --log run.jsonl"));
    assert!(
        ran.stdout.contains("0 steps were skipped, whose gradients did not fit into f16; the loss scale is 65536\n")
    );
    let first = place.text("run.jsonl").lines().next().unwrap().to_string();
    assert!(first.ends_with(",\"lr\":0.003,\"loss_scale\":65536,\"skipped\":false}"), "{first}");
    let metrics = place.text("f16/metrics.jsonl");
    assert!(metrics.lines().filter(|line| line.contains("\"loss_scale\":65536.0")).count() == 6, "{metrics}");
}

#[test]
fn the_scale_of_the_loss_is_chosen() {
    let place = Place::new();
    let run = "train mlp --steps 3 --batch 300 --precision f16";
    let ran = place.ok(&format!("{run} --loss-scale-window 1 --initial-loss-scale 8 --save whole"));
    let said = "0 steps were skipped, whose gradients did not fit into f16; the loss scale is 64\n";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    place
        .ok("train mlp --steps 1 --batch 300 --precision f16 --loss-scale-window 1 --initial-loss-scale 8 --save part");
    let ran = place.ok("train --resume part --steps 3");
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    assert!(place.read("whole/model.safetensors") == place.read("part/model.safetensors"));

    let large = format!("{run} --initial-loss-scale {}", 1u64 << 40);
    let ran = place.ok(&large);
    let skipped =
        |scale: u64| format!("3 steps were skipped, whose gradients did not fit into f16; the loss scale is {scale}\n");
    assert!(ran.stdout.contains(&skipped(1 << 37)), "{}", ran.stdout);
    let ran = place.ok(&format!("{large} --min-loss-scale {} --check-finite=false", 1u64 << 39));
    assert!(ran.stdout.contains(&skipped(1 << 39)), "{}", ran.stdout);
    let ran = place.ok(&format!("{large} --loss-scale-backoff 0.125"));
    assert!(ran.stdout.contains(&skipped(1 << 31)), "{}", ran.stdout);

    // Also after it went on.
    let grows = "train mlp --batch 300 --precision f16 --loss-scale-window 1 --loss-scale-growth 4";
    place.ok(&format!("{grows} --steps 1 --initial-loss-scale 8 --save grows"));
    let ran = place.ok("train --resume grows --steps 3");
    assert!(ran.stdout.contains("the loss scale is 512\n"), "{}", ran.stdout);

    assert_eq!(
        place.mistake(&format!("{run} --initial-loss-scale 1 --min-loss-scale 2")),
        "--initial-loss-scale 1 is below --min-loss-scale 2: raise the one or lower the other"
    );
    let ran = place.ok("train mlp --steps 1 --loss-scale-window 5");
    assert!(ran.stderr.contains("--loss-scale-window has no effect without --precision f16"), "{}", ran.stderr);
}

#[test]
fn shorter_runs_go_on() {
    let place = Place::new();
    place.ok("train mlp --steps 9 --batch 300 --save whole --log whole.jsonl");
    place.ok("train mlp --steps 3 --batch 300 --save part --log part.jsonl");
    place.ok("train --resume part --steps 7 --log part.jsonl");
    place.ok("train --resume part --steps 9 --log part.jsonl");
    assert!(place.read("whole/model.safetensors") == place.read("part/model.safetensors"));
    assert_eq!(place.text("whole.jsonl"), place.text("part.jsonl"));
    let ran = place.ok("train --resume part --log part.jsonl");
    assert!(ran.stdout.contains("after step 9 of 9; nothing is left to do"), "{}", ran.stdout);
    assert_eq!(place.text("whole.jsonl"), place.text("part.jsonl"));
}

#[test]
fn a_file_of_settings_gives_the_bits_of_the_flags() {
    let place = Place::new();
    place.ok("train mlp --steps 3 --batch 100 --optimizer sgd --lr 0.05 --seed 9 --order sequential --save flags");
    place.write(
        "run.toml",
        "steps = 3\nbatch = 100\noptimizer = \"sgd\"\nlr = 0.05\nseed = 9\norder = \"sequential\"\nsave = \"file\"\n",
    );
    place.ok("train mlp --config run.toml");
    assert!(place.read("flags/model.safetensors") == place.read("file/model.safetensors"));
    place.ok("train mlp --config run.toml --save other --seed 8");
    assert!(place.read("flags/model.safetensors") != place.read("other/model.safetensors"));
}

#[test]
fn saved_weights_are_weights_to_begin_with() {
    let place = Place::new();
    place.ok("train mlp --steps 2 --batch 100 --order sequential --save first");
    place.ok("train mlp --steps 1 --batch 100 --lr 0 --init first/model.safetensors --save second");
    assert!(place.read("first/model.safetensors") == place.read("second/model.safetensors"));
}

#[test]
fn programs_are_explained() {
    let place = Place::new();
    let text = place.ok("explain lenet --batch 8").stdout;
    for part in ["conv", "dot", "MFLOP", "scratch", "peak", "updated in place", "129068 parameters"] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert!(place.ok("devices").stdout.starts_with("cpu:0"));
    assert!(place.ok("--version").stdout.starts_with("meshwork "));
    assert!(place.ok("train --help").stdout.contains("--save-every <N>"));
}

#[cfg(unix)]
#[test]
fn ctrl_c_saves_and_the_run_goes_on() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::process::Stdio;
    use std::time::Duration;

    let place = Place::new();
    let mut command = place.command("train mlp --epochs 100000 --batch 100 --save run --log run.jsonl");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let steps = || std::fs::read_to_string(place.path("run.jsonl")).unwrap_or_default().matches("step").count();
    while steps() < 20 {
        assert!(child.try_wait().unwrap().is_none(), "the run has ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child
        .wait_with_output()
        .map(|output| {
            assert_eq!(output.status.code(), Some(130));
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains("saved to run; go on with: meshwork train --resume run"), "{text}");
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(text.contains("finishing the step"), "{text}");
        })
        .unwrap();

    let done = steps();
    let goal = done + 3;
    place.ok(&format!("train --resume run --steps {goal} --log run.jsonl"));
    place.ok(&format!("train mlp --steps {goal} --batch 100 --save whole --log whole.jsonl"));
    assert!(place.read("run/model.safetensors") == place.read("whole/model.safetensors"));
    assert_eq!(place.text("run.jsonl"), place.text("whole.jsonl"));
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run_and_the_saved_one_goes_on() {
    let place = Place::new();
    let diverging = "train mlp --optimizer sgd --lr 1e30 --steps 6 --save run";
    let line = place.run(diverging).stderr;
    let line = line.lines().last().unwrap();
    assert!(line.starts_with("error: step 2, learning rate 1"), "{line}");
    assert!(line.contains("gradients are not finite, or too large to be squared: fc1.weight, fc1.bias"), "{line}");
    assert!(line.contains("; saved to run; go on with: meshwork train --resume run --lr RATE ("), "{line}");
    let log = place.text("run/metrics.jsonl");
    assert!(log.contains("\"step\":1") && !log.contains("\"step\":2"), "{log}");
    let resumed = place.mistake("train --resume run");
    assert!(resumed.starts_with("step 2, "), "{resumed}");

    let regardless = place.ok("train mlp --optimizer sgd --lr 1e30 --steps 6 --check-finite=false");
    assert!(regardless.stdout.contains("try a smaller --lr"), "{}", regardless.stdout);
}

#[test]
fn averaged_weights_are_judged_saved_and_resumed() {
    let place = Place::new();
    let run = "train mlp --batch 300 --ema 0.9 --ema-warmup --log run.jsonl --epochs";
    let ran = place.ok(&format!("{run} 2 --save whole"));
    assert!(ran.stdout.lines().last().unwrap().starts_with("averaged weights: test accuracy "), "{}", ran.stdout);
    let log = place.text("run.jsonl");
    assert_eq!(log.matches("\"ema_test_loss\":").count(), 2);
    place.ok(&format!("{run} 1 --save parts"));
    place.ok("train --resume parts --epochs 2");
    assert!(place.read("whole/ema.safetensors") == place.read("parts/ema.safetensors"));
    assert!(place.read("whole/ema.safetensors") != place.read("whole/model.safetensors"));
    let line = place.mistake("train --resume parts --ema 0.5");
    assert!(line.contains("and a run keeps its ema"), "{line}");
}

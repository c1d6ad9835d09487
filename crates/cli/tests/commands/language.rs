//! Language models from the command line: trained on text, on any layout, resumed, and writing.

use crate::common::Place;
use serde_json::Value;

/// A folder with some text of its own.
fn with_text() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("text")).unwrap();
    for (name, line) in [("a.txt", "the tree of sums is the same everywhere. "), ("b.md", "Zwölf Boxkämpfer? ")] {
        place.write(&format!("text/{name}"), line.repeat(40));
    }
    place
}

const SMALL: &str = "--data text --layers 2 --width 24 --heads 4 --context 16 --batch 8";

#[test]
fn the_weights_do_not_depend_on_the_layout() {
    let models = [
        ("gpt --dropout 0.2", ["--parallel data=2,tensor=2,zero=1", "--devices cpu:3 --parallel zero=3"]),
        ("llama --kv-heads 2 --tokenizer bytes", ["--parallel tensor=4,accumulate=2", "--parallel data=2,sequence=2"]),
    ];
    for (model, layouts) in models {
        let place = with_text();
        place.ok(&format!("train {model} {SMALL} --steps 17 --threads 1 --save one --log one.jsonl"));
        for (i, layout) in layouts.iter().enumerate() {
            place.ok(&format!("train {model} {SMALL} --steps 17 {layout} --save {i} --log {i}.jsonl"));
            for file in ["model.safetensors", "step-17/optimizer.safetensors", "tokenizer.json"] {
                assert!(place.read(&format!("one/{file}")) == place.read(&format!("{i}/{file}")), "{model} {layout}");
            }
            assert_eq!(place.text("one.jsonl"), place.text(&format!("{i}.jsonl")), "{model} {layout}");
        }
    }
}

#[test]
fn a_run_goes_on_with_its_own_tokens() {
    let place = with_text();
    place.ok(&format!("train gpt {SMALL} --steps 9 --save one"));
    place.ok(&format!("train gpt {SMALL} --steps 9 --save-every 3 --save run"));
    place.ok("train --resume run/step-6 --steps 9 --save again");
    assert!(place.read("one/model.safetensors") == place.read("again/model.safetensors"));
    // A text with other characters: the run has a token for those that it does not know.
    place.write("text/a.txt", "THE TREE OF SUMS. ".repeat(90));
    place.ok("train --resume run --steps 12");
    assert!(place.text("run/tokenizer.json") == place.text("one/tokenizer.json"));
    let ran = place.run("train --resume run --steps 12 --width 48");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("--width 48: the saved run has 24, and a run keeps its width"), "{}", ran.stderr);
}

#[test]
fn a_trained_model_writes_what_it_has_learnt() {
    let place = with_text();
    let ran = place.ok(&format!("train llama {SMALL} --lr 0.01 --steps 150 --save run"));
    assert!(ran.stdout.contains("validation loss ") && ran.stdout.contains(" tokens/s"), "{}", ran.stdout);
    let write = |flags: &str| place.ok(&format!("generate --checkpoint run {flags}")).stdout;
    let text = write("--prompt the --tokens 60 --temperature 0");
    assert!(text.starts_with("the tree of sums is the same everywhere. the tree"), "{text}");
    assert_eq!(text.trim_end_matches('\n').chars().count(), 63);
    let random =
        |seed: u64, threads: u64| write(&format!("--tokens 40 --temperature 2 --seed {seed} --threads {threads}"));
    assert_eq!(random(1, 1), random(1, 2));
    assert_ne!(random(1, 1), random(2, 1));
    assert_eq!(write("--prompt the --tokens 20 --top-k 1"), write("--prompt the --tokens 20 --temperature 0"));
    assert_eq!(write("--prompt the --tokens 20 --top-p 1e-9"), write("--prompt the --tokens 20 --temperature 0"));
}

#[test]
fn the_log_has_losses_of_text_that_was_not_trained_on() {
    let place = with_text();
    place.ok(&format!("train gpt {SMALL} --epochs 2 --log log.jsonl"));
    let log = place.text("log.jsonl");
    let epochs: Vec<Value> =
        log.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()).filter(|l| l.get("epoch").is_some()).collect();
    let losses: Vec<f64> = epochs.iter().map(|epoch| epoch["test_loss"].as_f64().unwrap()).collect();
    assert!(losses.len() == 2 && losses[1] < losses[0] && losses[0] < 4.0, "{losses:?}");
}

#[test]
fn the_program_has_a_text_of_its_own() {
    let ran = Place::new()
        .ok("train gpt --layers 1 --width 8 --heads 1 --context 2000 --batch 2 --steps 1 --validation 0.01");
    assert!(ran.stdout.contains("documents of meshwork (built in)"), "{}", ran.stdout);
}

#[test]
fn explain_and_bench_know_language_models() {
    let place = Place::new();
    let sizes = "--layers 1 --width 16 --heads 2 --context 8 --vocabulary 11";
    let text = place.ok(&format!("explain gpt {sizes} --batch 4 --parallel data=2,tensor=2")).stdout;
    assert!(text.contains("blocks.0.attention.query.weight") && text.contains("tensor (2)"), "{text}");
    let report = place.ok(&format!("bench train llama {sizes} --batch 4 --steps 3 --optimizer adamw --json")).stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    assert!(report["tokens_per_second"].as_f64().unwrap() > 0.0 && report.get("images_per_second").is_none());
}

#[test]
fn mistakes_are_named() {
    let place = with_text();
    place.ok("train mlp --steps 1 --batch 500 --save mlp");
    place.ok(&format!("train gpt {SMALL} --steps 1 --save gpt"));
    std::fs::remove_file(place.path("gpt/tokenizer.json")).unwrap();
    let cases = [
        ("train gpt --heads 3", "error: --heads 3 does not divide --width 128"),
        ("train gpt --data nothing", "error: --data: there is no file or folder nothing; correct the path"),
        (
            "train gpt --data text --tokenizer words",
            "error: --tokenizer: \"words\" is neither a known tokenizer nor an existing file; use bytes, characters, or the \
             path of a tokenizer.json",
        ),
        ("train gpt --data text --context 100000", "error: --data: "),
        ("explain lenet --layers 3", "error: --layers: the model lenet has sizes of its own"),
        ("generate --checkpoint mlp", "error: --checkpoint: mlp is of mlp, which writes no text; train gpt or llama"),
        ("generate --checkpoint nothing", "error: --checkpoint: "),
        ("generate --checkpoint gpt", "error: "),
        ("generate --checkpoint gpt --top-p 0", "error: --top-p: \"0\" is not a number above 0, up to 1, such as 0.9"),
    ];
    for (arguments, expected) in cases {
        let ran = place.run(arguments);
        assert_eq!(ran.code, Some(2), "{arguments}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.starts_with(expected), "{arguments}: {}", ran.stderr);
    }
    let ran = place.ok("train mlp --steps 1 --batch 500 --context 9");
    assert!(ran.stderr.contains("--context has no effect with the model mlp"), "{}", ran.stderr);
    let ran = place.ok(&format!("train gpt {SMALL} --steps 1 --augment affine"));
    assert!(ran.stderr.contains("--augment has no effect with the model gpt"), "{}", ran.stderr);
}

/// What a step is said to take of a device.
fn planned_bytes(said: &str) -> f64 {
    let size = said.split_once("a step takes ").and_then(|(_, rest)| rest.split_once(" of a device"));
    match size.and_then(|(size, _)| size.split_once(' ')) {
        Some((size, "KiB")) => size.parse::<f64>().unwrap() * 1024.0,
        Some((size, "MiB")) => size.parse::<f64>().unwrap() * 1024.0 * 1024.0,
        _ => panic!("{said}"),
    }
}

#[test]
fn blocks_that_are_computed_again_change_no_bit_and_a_memory_limit_chooses_them() {
    let place = with_text();
    let run = format!("train gpt {SMALL} --layers 3 --dropout 0.1 --steps 5 --ema 0.9");
    place.ok(&format!("{run} --save kept"));
    place.ok(&format!("{run} --save all --recompute all --parallel data=2,zero=2"));
    place.ok(&format!("{run} --save one --recompute 1 --test-batch 3"));
    // On a mesh a limit also has the devices keep the order.
    let ran = place.ok(&format!("{run} --save limit --memory-limit 1GiB --parallel data=2,zero=1,accumulate=2"));
    assert!(ran.stdout.contains(" of a device: all activations are kept; testing takes "), "{}", ran.stdout);
    for other in ["all", "one", "limit"] {
        for file in ["model.safetensors", "ema.safetensors", "step-5/optimizer.safetensors"] {
            assert!(place.read(&format!("kept/{file}")) == place.read(&format!("{other}/{file}")), "{other}/{file}");
        }
    }
    // A step in f16 is two programs.
    let half = format!("{run} --precision f16 --initial-loss-scale 64");
    place.ok(&format!("{half} --save half"));
    let planned = place.ok(&format!("{half} --memory-limit 1GiB")).stdout;
    let bytes = planned_bytes(&planned);
    let ran = place.ok(&format!("{half} --save half-limit --memory-limit {}KiB", (0.9 * bytes / 1024.0) as usize));
    assert!(ran.stdout.contains(" of 3 blocks are computed again for their gradients ("), "{}", ran.stdout);
    assert!(place.read("half/model.safetensors") == place.read("half-limit/model.safetensors"));
    // LeNet computes convolutions again.
    let images = "train lenet --steps 1 --batch 512";
    let bytes = planned_bytes(&place.ok(&format!("{images} --save images --memory-limit 1GiB")).stdout);
    let limit = (0.9 * bytes / 1024.0) as usize;
    let ran = place.ok(&format!("{images} --save images-limit --memory-limit {limit}KiB"));
    assert!(ran.stdout.contains(": 1 of 2 blocks are computed again for their gradients ("), "{}", ran.stdout);
    assert!(place.read("images/model.safetensors") == place.read("images-limit/model.safetensors"));
    let refused = place.run(&format!("{run} --memory-limit 100KiB"));
    let line = refused.stderr.lines().last().unwrap();
    assert_eq!(refused.code, Some(2));
    assert!(line.starts_with("error: --memory-limit: a step does not fit into 100.0 KiB: it takes "), "{line}");
    assert!(line.contains(" of 3 blocks computed again; try a smaller batch"), "{line}");
    let refused = place.run("train mlp --memory-limit 100KiB").stderr;
    assert!(refused.contains(" at least; try a smaller batch"), "no blocks, and no word of them: {refused}");
    let warned = place.ok("train mlp --steps 1 --recompute all").stderr;
    assert!(warned.contains("warning: --recompute has no effect with the model mlp"), "{warned}");
}

#[test]
fn explain_and_bench_compute_blocks_again() {
    let place = Place::new();
    let sizes = "--layers 6 --width 32 --heads 2 --context 32 --vocabulary 40 --batch 16";
    let arena = |flags: &str| {
        let text = place.ok(&format!("explain gpt {sizes} {flags}")).stdout;
        let (_, arena) = text.split_once(", arena ").unwrap_or_else(|| panic!("{text}"));
        arena.split_once(" MiB").and_then(|(size, _)| size.parse::<f64>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let [kept, half, all] = ["--recompute none", "--recompute 3", "--recompute all"].map(arena);
    assert_eq!(kept, arena(""));
    assert!(all < half && half < kept && all < 0.5 * kept, "{kept} {half} {all} MiB");
    let peak = |flags: &str| {
        let text = place.ok(&format!("bench train gpt {sizes} --steps 3 --json {flags}")).stdout;
        let found: Value = serde_json::from_str(&text).unwrap();
        found["peak_bytes"].as_u64().unwrap()
    };
    let [kept, all] = ["", "--recompute all"].map(peak);
    assert!(all < kept * 6 / 10, "{kept} {all} bytes");
    for command in ["explain mlp", "bench train mlp --steps 1 --batch 2"] {
        let warned = place.ok(&format!("{command} --recompute all")).stderr;
        assert!(warned.contains("warning: --recompute has no effect with the model mlp"), "{warned}");
    }
}

#[test]
fn averaged_weights_write_and_are_exported() {
    let place = with_text();
    place.ok(&format!("train gpt {SMALL} --steps 30 --ema 0.99 --save run"));
    let write = |flags: &str| place.ok(&format!("generate --checkpoint run --tokens 20 --prompt t {flags}")).stdout;
    assert_ne!(write("--ema"), write(""));
    place.ok("export --checkpoint run --to plain");
    place.ok("export --checkpoint run --ema --to averaged");
    assert!(place.read("plain/model.safetensors") != place.read("averaged/model.safetensors"));
    let line = place.mistake("generate --checkpoint averaged --ema");
    assert_eq!(line, "--ema: averaged holds a model of Hugging Face, which has no averaged weights");
    place.ok(&format!("train gpt {SMALL} --steps 1 --save without"));
    for command in ["generate --ema --checkpoint without", "export --ema --checkpoint without --to other"] {
        let line = place.mistake(command);
        assert_eq!(
            line,
            "--ema: without has no averaged weights; they are kept by a training with --ema, such as --ema 0.999"
        );
    }
}

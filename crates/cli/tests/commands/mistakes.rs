//! Every mistake is one clear message and exit code 2.

use crate::common::Place;

#[test]
fn flags_and_names() {
    let place = Place::new();
    let cases = [
        (
            "",
            "which command? Known are train, generate, export, explain, bench, top, report, trace, devices; see meshwork --help",
        ),
        (
            "trian lenet",
            "there is no command \"trian\" (did you mean train?); known are train, generate, export, explain, bench, top, report, trace, devices",
        ),
        ("train", "which model? Known are lenet, mlp, gpt, llama: meshwork train lenet"),
        ("train lenett", "MODEL: \"lenett\" is not known (did you mean lenet?); known are lenet, mlp, gpt, llama"),
        ("train lenet mlp", "\"mlp\" is one name too many; see meshwork train --help"),
        ("train lenet --epoch 3", "there is no flag --epoch (did you mean --epochs?); see meshwork train --help"),
        (
            "train lenet --weight_decay 3",
            "there is no flag --weight_decay (did you mean --weight-decay?); see meshwork train --help",
        ),
        ("train lenet --lr", "--lr needs a value"),
        ("train lenet --lr fast", "--lr: \"fast\" is not a number of at least 0, such as 0.0001"),
        ("train lenet --lr -0.1", "--lr: \"-0.1\" is not a number of at least 0, such as 0.0001"),
        ("train lenet --lr nan", "--lr: \"nan\" is not a number of at least 0, such as 0.0001"),
        ("train lenet --batch 0", "--batch: \"0\" is not a whole number of at least 1, such as 64"),
        ("train lenet --epochs 1.5", "--epochs: \"1.5\" is not a whole number of at least 1, such as 64"),
        ("train lenet --seed -1", "--seed: \"-1\" is not a whole number from 0 to 18446744073709551615"),
        ("train lenet --momentum 1", "--momentum: \"1\" is not a number of at least 0 and below 1, such as 0.9"),
        (
            "train lenet --optimizer adma",
            "--optimizer: \"adma\" is not known (did you mean adam?); known are sgd, adam, adamw, rmsprop, adagrad, lars, lamb",
        ),
        (
            "train lenet --schedule cosin",
            "--schedule: \"cosin\" is not known (did you mean cosine?); known are constant, step, cosine, linear, one-cycle",
        ),
        ("train lenet --order random", "--order: \"random\" is not known; known are sequential, shuffled"),
        ("train lenet --optimizer sgd --nesterov", "--nesterov needs --momentum above 0, such as 0.9"),
        (
            "train lenet --lr-scaling liner",
            "--lr-scaling: \"liner\" is not known (did you mean linear?); known are none, linear, sqrt",
        ),
        ("train lenet --base-batch 0", "--base-batch: \"0\" is not a whole number of at least 1, such as 64"),
        ("train lenet --warmup-epochs 0.5", "--warmup-epochs: \"0.5\" is not a whole number from 0 to"),
        ("train lenet --trust-coefficient 0", "--trust-coefficient: \"0\" is not a number above 0, such as 0.001"),
        ("train lenet --optimizer lamb --min-trust 3 --max-trust 2", "--min-trust 3 is above --max-trust 2"),
        (
            "train lenet --warmup 9 --warmup-epochs 1",
            "--warmup and --warmup-epochs exclude each other: one of them must be 0, or left out",
        ),
        ("train gpt --recompute some", "--recompute: \"some\" is not a number of blocks, all or none"),
        ("train gpt --memory-limit 2", "--memory-limit: \"2\" is not an amount of memory, such as 512MiB or 2GiB"),
        (
            "train gpt --memory-limit 0GiB",
            "--memory-limit: \"0GiB\" is not an amount of memory, such as 512MiB or 2GiB",
        ),
        (
            "train gpt --recompute all --memory-limit 2GiB",
            "--recompute and --memory-limit exclude each other: the limit chooses the blocks",
        ),
        ("train mlp --memory-limit 1KiB", "--memory-limit: a step does not fit into 1.0 KiB: it takes "),
        ("train gpt --ema 1", "--ema: \"1\" is not a number of at least 0 and below 1, such as 0.9"),
        ("train lenet --threads 5000", "--threads: 5000 threads: a device needs 1 to 1024"),
        ("train lenet --init a --resume b", "--init and --resume exclude each other"),
        ("bench gemm --shape 3x", "--shape: \"3x\" is not sizes such as 256x800x128 (m, k, n) or 64x64x64x64"),
        ("bench gemm --shape 3x4x5-tx", "--shape: \"3x4x5-tx\" is not sizes such as 256x800x128"),
        ("bench gemm --shape 2x3x4x5-grad", "--shape: \"2x3x4x5-grad\" is not sizes such as 256x800x128"),
        ("bench pool --layer 2x3x9-2", "--layer: \"2x3x9-2\" is not a layer such as max-16x64x56x56-3x3-s2-p1"),
        ("bench pool --layer avg-2x3x9-2-d2", "--layer: \"avg-2x3x9-2-d2\" is not a layer such as"),
        ("bench pool --layer max-2x3x9x9-2", "--layer: \"max-2x3x9x9-2\" is not a layer such as"),
        (
            "bench pool --layer max-2x3x9-4-p3",
            "--layer: \"max-2x3x9-4-p3\" is not a layer whose window fits its input, with a padding of at most half the window",
        ),
        ("bench conv --layer 3x", "--layer: \"3x\" is not a layer such as 16x64x56x56-128x3x3-s2-p1"),
        ("bench conv --layer 2x3x9x9-4x3", "--layer: \"2x3x9x9-4x3\" is not a layer such as"),
        ("bench conv --layer 2x3x9-4x3-q1", "--layer: \"2x3x9-4x3-q1\" is not a layer such as"),
        ("bench conv --layer 2x3x9-4x3-s0", "--layer: \"2x3x9-4x3-s0\" is not a layer such as"),
        (
            "bench conv --layer 2x3x9-4x3-g2",
            "--layer: \"2x3x9-4x3-g2\" is not a layer whose kernel and groups fit its input",
        ),
        (
            "bench conv --layer 2x3x9-4x11",
            "--layer: \"2x3x9-4x11\" is not a layer whose kernel and groups fit its input",
        ),
        ("bench elementwise --size 99999999", "such a shape does not fit into memory"),
        ("bench train lenet --steps 0", "--steps: \"0\" is not a whole number of at least 1, such as 64"),
        (
            "devices --devices 2",
            "--devices: \"2\" is not cpu:N, the cores divided among N devices, or the cores of each",
        ),
        ("devices --devices cpu:0", "--devices: \"cpu:0\" is not cpu:N"),
        ("devices --devices cpu:2000", "--devices: 2000 CPU devices: there can be 1 to 1024"),
        ("devices --devices cpu:0,60000", "--devices: the cores [60000] of cpu:1: there is no core 60000"),
        ("bench parallel --devices gpu:2", "--devices: \"gpu:2\" is not cpu:N"),
        ("bench parallel --devices cpu:1", "--devices: the exercises need at least 2 devices, such as cpu:2"),
        (
            "bench parallel --exercise tow",
            "--exercise: \"tow\" is not known (did you mean two?); known are two, copies",
        ),
        ("bench parallel --exercise two --size 99999999", "--size and --count: 20 products of 99999999x99999999"),
        ("explain", "explain needs MODEL"),
        ("explain lenet --batch 99999999999999999", "--batch: such a batch does not fit into memory"),
    ];
    for (arguments, expected) in cases {
        let line = place.mistake(arguments);
        assert!(line.starts_with(expected), "{arguments}: {line}\nexpected {expected}");
    }
}

#[test]
fn data() {
    let place = Place::new();
    let line = place.mistake("train lenet --data digit");
    assert!(line.starts_with("--data: \"digit\" is neither a known data set nor an existing file"), "{line}");
    assert!(line.contains("did you mean \"digits\"?"), "{line}");

    let rows = |columns: usize, classes: usize| {
        let cells = "0.5,".repeat(columns);
        (0..20).map(|i| format!("{cells}{}\n", i % classes)).collect::<String>()
    };
    place.write("narrow.csv", rows(3, 2));
    let line = place.mistake("train mlp --data narrow.csv");
    assert!(line.starts_with("the data \"narrow.csv\" does not fit mlp: its samples"), "{line}");
    assert!(line.contains("F32[3], but the model takes F32[1, 28, 28]"), "{line}");
}

#[test]
fn configuration_files() {
    let place = Place::new();
    let config = |text: &str| {
        place.write("run.toml", text);
        place.mistake("train lenet --config run.toml")
    };
    assert_eq!(config("lr = 0.1\nepocs = 3"), "run.toml, line 2: there is no key \"epocs\" (did you mean epochs?)");
    assert_eq!(config("lr = \"0.1\""), "run.toml, line 1: lr must be a number without quotes, such as 0.001, not text");
    assert!(config("lr = ").starts_with("run.toml, line 1: "));
    let line = place.mistake("train lenet --config missing.toml");
    assert!(line.starts_with("--config: cannot read missing.toml: No such file"), "{line}");
    place.write("run.toml", "model = \"mlp\"");
    assert_eq!(place.run("train --config run.toml --steps 1").code, Some(0));
}

#[test]
fn weights_and_checkpoints() {
    let place = Place::new();
    place.ok("train mlp --steps 2 --save mlp");
    let line = place.mistake("train lenet --init mlp/model.safetensors");
    assert!(
        line.starts_with("--init: mlp/model.safetensors does not fit the model: fc1.bias is f32[256] there"),
        "{line}"
    );
    let line = place.mistake("train mlp --init mlp/modell.safetensors");
    assert!(line.starts_with("--init: cannot read mlp/modell.safetensors: No such file"), "{line}");
    let line = place.mistake("train lenet --resume mlp");
    assert!(line.starts_with("--model lenet: the saved run has mlp, and a run keeps its model"), "{line}");
    let line = place.mistake("train mlp --resume mlp --seed 5");
    assert!(line.starts_with("--seed 5: the saved run has 0, and a run keeps its seed"), "{line}");
    let line = place.mistake("train mlp --resume absent");
    assert_eq!(line, "--resume: absent does not exist; name the folder that a run was saved to");
    let line = place.mistake("train mlp --save mlp");
    assert!(
        line.starts_with("--save: mlp already holds a checkpoint of step 2; go on with it (--resume mlp)"),
        "{line}"
    );
    place.write("file", "");
    let line = place.mistake("train mlp --save file");
    assert_eq!(line, "--save: file is a file; name a folder to save to");
    place.write("notes.jsonl", "my notes\n");
    let line = place.mistake("train mlp --resume mlp --steps 3 --log notes.jsonl");
    assert_eq!(line, "--log: line 1 of notes.jsonl is not of a log; name another file");

    place.ok("train mlp --resume mlp --steps 4 --save-every 2");
    let mut bytes = place.read("mlp/step-4/model.safetensors");
    *bytes.last_mut().unwrap() ^= 1;
    place.write("mlp/step-4/model.safetensors", bytes);
    let line = place.mistake("train --resume mlp --steps 5");
    assert!(line.starts_with("--resume: mlp/step-4/model.safetensors is damaged"), "{line}");
    assert!(
        line.ends_with("the checkpoint mlp/step-2 is intact: to go on from there, resume from that folder"),
        "{line}"
    );
    let ran = place.ok("train --resume mlp/step-2 --steps 5");
    assert!(ran.stdout.contains("resumed from mlp/step-2 after step 2 of 5"), "{}", ran.stdout);
    assert!(place.path("mlp/step-5").exists());
}

#[test]
fn settings_without_effect_are_warned_about() {
    let place = Place::new();
    let ran = place.ok("train mlp --steps 1 --momentum 0.9 --gamma 0.5");
    assert_eq!(
        ran.stderr,
        "warning: --momentum has no effect with the optimizer adam\n\
         warning: --gamma has no effect with the schedule constant\n"
    );
}

#[test]
fn a_folder_with_weights_of_something_else_is_not_overwritten() {
    let place = Place::new();
    std::fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/model.safetensors", "precious");
    let ran = place.run("train mlp --steps 1 --save mine");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("holds a model.safetensors of something else"), "{}", ran.stderr);
    assert_eq!(place.text("mine/model.safetensors"), "precious");
}

#[test]
fn an_instruction_set_that_is_not_there_is_a_mistake() {
    let place = Place::new();
    let output = place.command("train mlp --steps 1").env("MESHWORK_SIMD", "avx9").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with("error: MESHWORK_SIMD=avx9: this processor can run portable"), "{text}");
}

#[test]
fn a_number_of_devices_that_makes_no_sense_is_a_mistake() {
    let place = Place::new();
    for (count, command) in
        [("0", "devices"), ("two", "train mlp --steps 1"), ("", "bench parallel"), ("9999", "explain mlp")]
    {
        let output = place.command(command).env("MESHWORK_CPU_DEVICES", count).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        let expected =
            format!("error: MESHWORK_CPU_DEVICES={count:?}: it must be a number of devices from 1 to 1024\n");
        assert_eq!(text, expected);
    }
}

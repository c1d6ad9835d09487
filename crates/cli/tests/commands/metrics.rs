//! Metrics of trainings: files of every format, cut where a run is resumed, and no bit of a result changed by them.

use crate::common::Place;
use serde_json::Value;
use std::collections::BTreeMap;

/// An epoch of 1438 digits is 5 batches.
const RUN: &str = "train mlp --steps 8 --batch 300 --ema 0.5";

const COLUMNS: [&str; 17] = [
    "step",
    "epoch",
    "loss",
    "lr",
    "gradient_norm",
    "samples",
    "seconds",
    "samples_per_second",
    "tokens_per_second",
    "tflops",
    "mfu",
    "peak_memory",
    "train_loss",
    "validation_loss",
    "validation_accuracy",
    "ema_validation_loss",
    "ema_validation_accuracy",
];

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Lines of the first kind are those of a run, then of steps, then of epochs.
fn kinds(lines: &[Value]) -> Vec<(char, u64)> {
    let kind = |line: &Value| match line {
        line if line.get("run").is_some() => 'r',
        line if line.get("validation_loss").is_some() => 'e',
        _ => 's',
    };
    lines.iter().map(|line| (kind(line), line["step"].as_u64().unwrap())).collect()
}

/// What metrics and logs both know, as it is not measured.
fn losses(lines: &[Value]) -> Vec<(Value, Value, Value)> {
    let of_step = |line: &&Value| line.get("lr").is_some();
    lines.iter().filter(of_step).map(|l| (l["step"].clone(), l["loss"].clone(), l["lr"].clone())).collect()
}

/// Steps, tags and values of an event file, and the steps at which sessions start.
#[derive(Debug, Default)]
struct Events {
    scalars: BTreeMap<(u64, String), f32>,
    starts: Vec<u64>,
    versions: Vec<String>,
}

/// The fields of a message: number, and the bytes or the number.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>, u64)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
        let number = bytes[..=end].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
        *bytes = &bytes[end + 1..];
        number
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (contents, number) = match key & 7 {
            0 => (Vec::new(), varint(&mut bytes)),
            wire => {
                let length = match wire {
                    1 => 8,
                    5 => 4,
                    2 => varint(&mut bytes) as usize,
                    other => panic!("wire type {other}"),
                };
                let contents = bytes[..length].to_vec();
                bytes = &bytes[length..];
                (contents, 0)
            }
        };
        found.push((key >> 3, contents, number));
    }
    found
}

/// CRC-32C bit by bit, masked as TFRecords have it.
fn masked(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    });
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn events(mut bytes: &[u8]) -> Events {
    let mut events = Events::default();
    while !bytes.is_empty() {
        let checksum = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert_eq!(checksum(&bytes[8..12]), masked(&bytes[..8]));
        let event = &bytes[12..12 + length];
        assert_eq!(checksum(&bytes[12 + length..16 + length]), masked(event));
        bytes = &bytes[16 + length..];

        let event = fields(event);
        let step = event.iter().find(|field| field.0 == 2).unwrap().2;
        let time = f64::from_le_bytes(event.iter().find(|field| field.0 == 1).unwrap().1[..].try_into().unwrap());
        assert!(time > 1.6e9, "{time}");
        for (field, contents, _) in event {
            match field {
                3 => events.versions.push(String::from_utf8(contents).unwrap()),
                5 => {
                    for (_, value, _) in fields(&contents) {
                        let value = fields(&value);
                        let tag = String::from_utf8(value[0].1.clone()).unwrap();
                        events.scalars.insert((step, tag), f32::from_le_bytes(value[1].1[..].try_into().unwrap()));
                    }
                }
                7 => {
                    assert_eq!(fields(&contents), [(1, Vec::new(), 1)]);
                    events.starts.push(step);
                }
                _ => {}
            }
        }
    }
    events
}

fn event_files(place: &Place, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(folder)).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names.into_iter().map(|name| format!("{folder}/{name}")).collect()
}

#[test]
fn metrics_are_written_in_three_formats_and_change_no_bit() {
    let place = Place::new();
    place.ok(&format!("{RUN} --log plain.jsonl"));
    place.ok(&format!("{RUN} --save plain"));
    place.ok(&format!(
        "{RUN} --save run --log log.jsonl --metrics m.jsonl --metrics m.csv --metrics board --metrics new/x/"
    ));
    for file in ["model.safetensors", "step-8/optimizer.safetensors"] {
        assert!(place.read(&format!("plain/{file}")) == place.read(&format!("run/{file}")), "{file}");
    }
    assert_eq!(place.text("log.jsonl"), place.text("plain.jsonl"));
    assert_eq!(place.text("m.jsonl").lines().count(), place.text("run/metrics.jsonl").lines().count());

    let lines = lines(&place.text("m.jsonl"));
    let step = |step| ('s', step);
    let expected =
        [('r', 0), step(1), step(2), step(3), step(4), step(5), ('e', 5), step(6), step(7), step(8), ('e', 8)];
    assert_eq!(kinds(&lines), expected);
    assert_eq!(losses(&lines), losses(&self::lines(&place.text("log.jsonl"))));
    let run = &lines[0]["run"];
    assert_eq!((&run["model"], &run["parameters"], &run["steps"]), (&"mlp".into(), &203_530.into(), &8.into()));
    assert_eq!(run["settings"]["batch"], "300");
    let peak = run["peak_gflops"].as_f64().unwrap() / 1e3;
    assert!(peak > 0.0);
    for line in lines.iter().filter(|line| line.get("lr").is_some()) {
        let number = |key: &str| line[key].as_f64().unwrap_or_else(|| panic!("{key} of {line}"));
        assert_eq!(number("samples"), if number("step") == 5.0 { 238.0 } else { 300.0 });
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-4 * b.abs();
        assert!(close(number("samples_per_second") * number("seconds"), number("samples")), "{line}");
        assert!(close(number("mfu") * peak, number("tflops")), "{line}");
        // Two matrices, three products by each but one.
        let flops = number("tflops") * 1e12 * number("seconds") / number("samples");
        assert!(flops > 2.0 * (2.0 * 784.0 * 256.0 + 3.0 * 256.0 * 10.0) && flops < 1.5e6, "{line}");
        assert!(number("peak_memory") > 4.0 * 203_530.0 * 3.0 && number("gradient_norm") > 0.0, "{line}");
        assert!(line.get("tokens_per_second").is_none());
    }

    // Averaged weights are other weights.
    for line in lines.iter().filter(|line| line.get("validation_loss").is_some()) {
        let number = |key: &str| line[key].as_f64().unwrap_or_else(|| panic!("{key} of {line}"));
        assert!(number("ema_validation_loss") != number("validation_loss"), "{line}");
        assert!((0.0..=1.0).contains(&number("ema_validation_accuracy")), "{line}");
    }

    let table = place.text("m.csv");
    let mut rows = table.lines().map(|row| row.split(',').collect::<Vec<_>>());
    assert_eq!(rows.next().unwrap(), COLUMNS);
    for (row, line) in rows.zip(&lines[1..]) {
        assert_eq!(row.len(), COLUMNS.len());
        for (cell, column) in row.iter().zip(COLUMNS) {
            let value = line.get(column).map(|value| value.as_f64().unwrap());
            assert_eq!(cell.parse().ok(), value, "{column} of {line}");
        }
    }
    assert_eq!(table.lines().count(), lines.len());

    let files = event_files(&place, "board");
    let [file] = &files[..] else { panic!("{files:?}") };
    assert!(file.starts_with("board/events.out.tfevents."), "{file}");
    let events = events(&place.read(file));
    assert_eq!((&events.versions[..], &events.starts[..]), (&["brain.Event:2".to_string()][..], &[1][..]));
    let told = [
        ("loss/train", "loss", 1.0),
        ("learning_rate", "lr", 1.0),
        ("gradient_norm", "gradient_norm", 1.0),
        ("throughput/samples_per_second", "samples_per_second", 1.0),
        ("throughput/tflops", "tflops", 1.0),
        ("throughput/mfu", "mfu", 1.0),
        ("memory/peak_gib", "peak_memory", 1.0 / f64::from(1 << 30)),
        ("loss/epoch", "train_loss", 1.0),
        ("loss/validation", "validation_loss", 1.0),
        ("accuracy/validation", "validation_accuracy", 1.0),
        ("loss/validation_ema", "ema_validation_loss", 1.0),
        ("accuracy/validation_ema", "ema_validation_accuracy", 1.0),
    ];
    let mut expected = BTreeMap::new();
    for line in &lines[1..] {
        for (tag, key, factor) in told {
            if let Some(value) = line.get(key).and_then(Value::as_f64) {
                expected.insert((line["step"].as_u64().unwrap(), tag.to_string()), (value * factor) as f32);
            }
        }
    }
    assert_eq!(events.scalars, expected);
    assert_eq!(event_files(&place, "new/x").len(), 1);
}

#[test]
fn metrics_of_a_resumed_run_are_cut_where_it_goes_on() {
    let place = Place::new();
    let targets = "--metrics m.jsonl --metrics m.csv --metrics board";
    place.ok("train mlp --steps 9 --batch 300 --save whole");
    place.ok(&format!("train mlp --steps 8 --batch 300 --save run --save-every 3 {targets}"));
    place.ok(&format!("train --resume run/step-6 --steps 9 --save on {targets}"));
    place.ok("train --resume run/step-6 --steps 9 --save-every 3");
    assert!(place.read("whole/model.safetensors") == place.read("on/model.safetensors"));

    let whole = losses(&lines(&place.text("whole/metrics.jsonl")));
    let step = |step| ('s', step);
    let until_6 = [('r', 0), step(1), step(2), step(3), step(4), step(5), ('e', 5), step(6)];
    let expected = [&until_6[..], &[('r', 6), step(7), step(8), step(9), ('e', 9)]].concat();
    for file in ["m.jsonl", "on/metrics.jsonl", "run/metrics.jsonl"] {
        let lines = lines(&place.text(file));
        assert_eq!(kinds(&lines), expected, "{file}");
        assert_eq!(losses(&lines), whole, "{file}");
    }
    let steps: Vec<String> =
        place.text("m.csv").lines().skip(1).map(|row| row.split(',').next().unwrap().to_string()).collect();
    assert_eq!(steps, ["1", "2", "3", "4", "5", "5", "6", "7", "8", "9", "9"]);

    let files = event_files(&place, "board");
    let sessions: Vec<Events> = files.iter().map(|file| events(&place.read(file))).collect();
    assert_eq!(sessions.iter().map(|events| events.starts[0]).collect::<Vec<_>>(), [1, 7]);
    let steps = |events: &Events| -> Vec<u64> {
        events.scalars.keys().filter(|(_, tag)| tag == "loss/train").map(|(step, _)| *step).collect()
    };
    assert_eq!((steps(&sessions[0]), steps(&sessions[1])), ((1..=8).collect(), vec![7, 8, 9]));
}

#[test]
fn tokens_are_counted_and_gradients_clipped_after_their_norm_is_taken() {
    let place = Place::new();
    place.write("text.txt", "the tree of sums is the same everywhere. ".repeat(60));
    let model = "gpt --data text.txt --layers 1 --width 16 --heads 2 --context 16 --batch 8 --steps 4";
    place.ok(&format!("train {model} --max-norm 1e-3 --metrics m.jsonl --parallel data=2,zero=1"));
    place.ok(&format!("train {model} --max-norm 1e-3 --metrics one.jsonl"));
    let spread = lines(&place.text("m.jsonl"));
    let run = &spread[0]["run"];
    assert_eq!((&run["plan"], run["memory"].as_array().unwrap().len()), (&"data=2, zero=1".into(), 2));
    for (line, one) in spread.iter().zip(lines(&place.text("one.jsonl"))).filter(|(line, _)| line.get("lr").is_some()) {
        let number = |key: &str| line[key].as_f64().unwrap();
        let tokens = number("tokens_per_second") / number("samples_per_second");
        assert!((tokens - 16.0).abs() < 1e-3, "{line}");
        assert!(number("gradient_norm") > 0.1, "{line}");
        assert_eq!((&line["loss"], &line["gradient_norm"]), (&one["loss"], &one["gradient_norm"]), "{line}");
    }
}

#[test]
fn a_configuration_names_one_or_several_files() {
    let place = Place::new();
    place.write("one.toml", "steps = 1\nmetrics = \"one.csv\"\n");
    place.write("two.toml", "steps = 1\nmetrics = [\"two.csv\", \"two.jsonl\"]\n");
    place.ok("train mlp --config one.toml");
    place.ok("train mlp --config two.toml --metrics three.csv");
    for file in ["one.csv", "two.csv", "three.csv", "two.jsonl"] {
        assert_eq!(place.text(file).lines().count(), 3, "{file}");
    }
    place.write("wrong.toml", "metrics = [\"a.csv\", 3]\n");
    let line = place.mistake("train mlp --config wrong.toml");
    assert_eq!(line, "wrong.toml, line 1: metrics must be text in quotes, not a whole number");
    place.write("wrong.toml", "steps = 1\nmetrics = [\"a.txt\"]\n");
    let line = place.mistake("train mlp --config wrong.toml");
    assert!(line.starts_with("wrong.toml, line 2: metrics: \"a.txt\" is not a FILE.jsonl, a FILE.csv"), "{line}");
}

#[test]
fn paths_that_make_no_sense_are_mistakes() {
    let place = Place::new();
    let line = place.mistake("train mlp --metrics run.txt");
    assert_eq!(
        line,
        "--metrics: \"run.txt\" is not a FILE.jsonl, a FILE.csv, or a folder for TensorBoard (with a slash at its end, if \
         it has a dot)"
    );
    let line = place.mistake("train mlp --steps 1 --log a.jsonl --metrics a.jsonl");
    assert_eq!(line, "--metrics: a.jsonl is the file of --log; name another one");
    let system = |arguments: &str| {
        let ran = place.run(arguments);
        assert_eq!(ran.code, Some(1), "{arguments}: {}", ran.stderr);
        ran.stderr
    };
    place.write("file", "");
    for (path, said) in [
        ("absent/m.jsonl", "error: --metrics: cannot write absent/m.jsonl: No such file or directory"),
        ("absent/m.csv", "error: --metrics: cannot write absent/m.csv: No such file or directory"),
        ("file", "error: --metrics: cannot write file: File exists"),
    ] {
        let text = system(&format!("train mlp --steps 1 --metrics {path}"));
        assert!(text.starts_with(said), "{text}");
    }

    place.ok("train mlp --steps 1 --save run --log log.jsonl");
    place.write("m.csv", "a,b\n1,2\n");
    place.write("bytes.jsonl", b"{}\n\xff\n");
    for (path, said) in [
        ("log.jsonl", "--metrics: line 1 of log.jsonl is not of the metrics of a run; name another file"),
        ("bytes.jsonl", "--metrics: line 2 of bytes.jsonl is not of the metrics of a run; name another file"),
        ("m.csv", "--metrics: line 1 of m.csv is not of a table of the metrics of a run; name another file"),
    ] {
        let line = place.mistake(&format!("train --resume run --steps 2 --metrics {path}"));
        assert_eq!(line, said);
    }
    place.write("run/metrics.jsonl", "my notes\n");
    let said = "--save: line 1 of run/metrics.jsonl is not of the metrics of a run; move the file away";
    assert_eq!(place.mistake("train --resume run --steps 2"), said);
    assert_eq!(place.mistake("train --resume run --steps 2 --save other"), said);
    std::fs::remove_file(place.path("run/metrics.jsonl")).unwrap();
    place.ok("train --resume run --steps 2");
    assert_eq!(kinds(&lines(&place.text("run/metrics.jsonl"))), [('r', 1), ('s', 2), ('e', 2)]);
}

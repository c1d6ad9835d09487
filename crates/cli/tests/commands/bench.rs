//! `meshwork bench` measures what it says and prints it for people and for programs.

use crate::common::Place;
use serde_json::Value;

fn json(arguments: &str) -> Value {
    let text = Place::new().ok(arguments).stdout;
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn number(object: &Value, key: &str) -> f64 {
    let value = object[key].as_f64().unwrap_or_else(|| panic!("{key} in {object}"));
    assert!(value.is_finite() && value >= 0.0, "{key} is {value}");
    value
}

#[test]
fn training() {
    let report = json("bench train lenet --batch 7 --steps 8 --threads 2 --json");
    assert_eq!((&report["model"], &report["batch"]), (&"lenet".into(), &7.into()));
    let (step, rate) = (number(&report, "step_ms"), number(&report, "images_per_second"));
    assert!((rate * step / 7e3 - 1.0).abs() < 1e-9);
    let (speed, peak) = (number(&report, "gflops"), number(&report, "peak_gflops"));
    assert!((number(&report, "share_of_peak") - speed / peak).abs() < 1e-9);
    assert!((number(&report, "gflop_per_step") / (speed * step * 1e-3) - 1.0).abs() < 1e-9);
    assert!(number(&report, "peak_bytes") > 4.0 * 129_068.0, "the parameters alone take more");
    assert!(number(&report, "kernels") > 4.0 && number(&report, "recording_us") > 0.0);

    let report = json("bench train mlp --batch 64 --steps 6 --devices cpu:0,0 --parallel data=2 --accumulate 2 --json");
    assert_eq!(report["parallel"], "data=2, accumulate=2, zero=0");
    let devices = report["devices"].as_array().unwrap();
    assert_eq!(devices.iter().map(|device| &device["name"]).collect::<Vec<_>>(), ["cpu:0", "cpu:1"]);
    let peaks: Vec<f64> = devices.iter().map(|device| number(device, "peak_bytes")).collect();
    assert!(
        peaks.iter().all(|&peak| peak > 4.0 * 203_530.0) && number(&report, "peak_bytes") == peaks.iter().sum::<f64>()
    );
    assert!(devices.iter().all(|device| device["threads"] == 1) && report["machine"]["threads"] == 2, "{report}");
    assert!(number(&report, "moved_bytes_per_step") >= 4.0 * 203_530.0, "each gradient is merged");
    let text = Place::new().ok("bench train mlp --batch 8 --steps 2 --parallel data=2").stdout;
    assert!(
        text.contains("mlp, batch 8, sgd, data=2, zero=0: 2 steps") && text.contains("moved between devices"),
        "{text}"
    );

    let text = Place::new().ok("bench train mlp --batch 3 --steps 2 --optimizer adam").stdout;
    assert!(text.contains("mlp, batch 3, adam: 2 steps") && text.contains("images/s"), "{text}");
}

#[test]
fn rows() {
    let names = ["33x20x17", "3x8x9x10", "5x7x9-tn", "5x7x9-nt", "3x5x7x9-tt", "5x7x9-grad"];
    let report = json(&format!("bench gemm --shape {} --json", names.join(" --shape ")));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| &row["name"]).collect::<Vec<_>>(), names);
    for row in rows {
        let speed = number(row, "gflops");
        assert!((number(row, "share") * number(&report, "peak_gflops") / speed - 1.0).abs() < 1e-9);
    }
    assert!((number(&rows[1], "gflops") * number(&rows[1], "seconds") * 1e9 - 2.0 * 3.0 * 720.0).abs() < 1e-6);

    let layers = ["2x3x9-4x3-p1", "2x4x6x5-6x3x3-s2-g2", "1x2x4x5x6-3x1x2x3-d2"];
    let report = json(&format!("bench conv --layer {} --json", layers.join(" --layer ")));
    let rows = report["rows"].as_array().unwrap();
    let what = ["forward", "input gradient", "weight gradient"];
    let names: Vec<String> =
        layers.iter().flat_map(|layer| what.iter().map(move |what| format!("{layer} {what}"))).collect();
    assert_eq!(rows.iter().map(|row| row["name"].as_str().unwrap()).collect::<Vec<_>>(), names);
    // Outputs, and the terms of each.
    for (rows, [outputs, terms]) in
        rows.chunks(3).zip([[2 * 4 * 9, 3 * 3], [2 * 6 * 2 * 2, 2 * 9], [3 * 4 * 3 * 2, 2 * 6]])
    {
        let flops = 2.0 * f64::from(outputs * terms);
        for row in rows {
            assert!((number(row, "gflops") * number(row, "seconds") * 1e9 / flops - 1.0).abs() < 1e-9, "{row}");
        }
    }

    let layers = ["max-2x3x9-3-s2-p1", "avg-2x4x6x5-2x3", "max-1x2x4x5x6-1x2x3-d2"];
    let report = json(&format!("bench pool --layer {} --json", layers.join(" --layer ")));
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<String> =
        layers.iter().flat_map(|layer| ["forward", "gradient"].map(|what| format!("{layer} {what}"))).collect();
    assert_eq!(rows.iter().map(|row| row["name"].as_str().unwrap()).collect::<Vec<_>>(), names);
    // Inputs and windows; a maximum's gradient reads its input.
    for (rows, [inputs, windows, read]) in
        rows.chunks(2).zip([[54, 2 * 3 * 5, 1], [240, 2 * 4 * 3, 0], [240, 2 * 4 * 2, 1]])
    {
        for (row, numbers) in rows.iter().zip([inputs + windows, (1 + read) * inputs + windows]) {
            let bytes = number(row, "gbytes_per_second") * number(row, "seconds") * 1e9;
            assert!((bytes / f64::from(4 * numbers) - 1.0).abs() < 1e-9, "{row}");
        }
    }

    let report = json("bench elementwise --size 50 --threads 1 --json");
    assert_eq!(report["machine"]["threads"], 1);
    let rows = report["rows"].as_array().unwrap();
    let sum = rows.iter().find(|row| row["name"] == "sum(a), 50x50").unwrap();
    let bytes = number(sum, "gbytes_per_second") * number(sum, "seconds") * 1e9;
    assert!((bytes - 4.0 * 2500.0).abs() < 1e-6, "{bytes}");
    assert!(number(&report, "read_gbytes_per_second") > 0.0);
}

#[test]
fn parallel() {
    let report = json("bench parallel --devices cpu:3 --size 16 --count 3 --json");
    assert_eq!(report["bench"], "parallel");
    let exercises = report["exercises"].as_array().unwrap();
    let names: Vec<&str> = exercises.iter().map(|exercise| exercise["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["two", "copies", "copies", "issue", "spread", "lenet", "merge", "loop", "scaling"]);
    for exercise in exercises {
        assert!(exercise["what"].is_string());
        for device in exercise["devices"].as_array().unwrap() {
            assert!(device["name"].as_str().unwrap().starts_with("cpu:"));
            assert_eq!(number(device, "threads") as usize, device["cores"].as_array().unwrap().len());
        }
        let parts = exercise["parts"].as_array().unwrap();
        assert!(parts.len() >= 2, "{exercise}");
        for part in parts {
            assert!(part["name"].is_string() && number(part, "seconds") > 0.0);
            assert!(number(part, "busy_cores") < 1e4);
            for thread in part["threads"].as_array().unwrap() {
                assert!(thread["name"].is_string() && number(thread, "busy") > 0.0 && number(thread, "core") < 1e4);
            }
            let pairs = [("allowed_seconds", "ratio"), ("allowed_seconds", "possible_speedup")];
            assert!(pairs.iter().all(|(a, b)| part[*b].is_null() || part[*a].is_number()), "{part}");
            if part["ratio"].is_number() {
                let ratio = number(part, "seconds") / number(part, "allowed_seconds");
                assert!((number(part, "ratio") / ratio - 1.0).abs() < 1e-9);
                let possible = number(part, "speedup") * number(part, "ratio");
                assert!((number(part, "possible_speedup") / possible - 1.0).abs() < 1e-9);
            }
        }
        // What the dependencies allow stands beside the parts that have any.
        let held = parts.iter().filter(|part| part["ratio"].is_number()).count();
        assert_eq!(held > 0, !["issue", "loop"].contains(&exercise["name"].as_str().unwrap()), "{exercise}");
    }
    let text = Place::new().ok("bench parallel --exercise two --exercise issue --size 8 --count 2").stdout;
    assert!(text.contains("two: 2 products of 8x8 matrices a device"), "{text}");
    assert!(text.contains("on both, without a wait between") && text.contains("issue: "), "{text}");
    assert!(!text.contains("copies: "), "{text}");
}

#[test]
fn devices() {
    let place = Place::new();
    let text = place.ok("devices --devices cpu:3").stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    for (i, line) in lines[..3].iter().enumerate() {
        assert!(line.starts_with(&format!("cpu:{i}  core")) && line.contains("thread"), "{text}");
    }
    assert!(lines[3].starts_with("SIMD"), "{text}");
    let text = place.ok("devices --devices cpu:0,0").stdout;
    assert!(text.contains("cpu:0  core 0, 1 thread") && text.contains("cpu:1  core 0, 1 thread"), "{text}");
    let ran = place.ok("devices --devices cpu:1000");
    assert!(ran.stderr.starts_with("meshwork: 1000 CPU devices share"), "{}", ran.stderr);
}

#[test]
fn narrow_products_and_steps_are_measured() {
    let place = Place::new();
    for precision in ["bf16", "f16"] {
        let text = place.ok(&format!("bench gemm --shape 32x16x8 --dtype {precision} --json")).stdout;
        assert!(text.contains("32x16x8"), "{text}");
        let flags = "--batch 2 --layers 1 --width 16 --heads 2 --context 8 --vocabulary 9 --steps 3 --json";
        let text = place.ok(&format!("bench train gpt {flags} --precision {precision}")).stdout;
        assert!(text.contains(&format!("\"precision\":\"{precision}\"")), "{text}");
    }
}

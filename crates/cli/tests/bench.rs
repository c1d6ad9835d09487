//! `meshwork bench` measures what it says and prints it for people and for programs.

mod common;

use common::Place;
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

    let text = Place::new().ok("bench train mlp --batch 3 --steps 2 --optimizer adam").stdout;
    assert!(text.contains("mlp, batch 3, adam: 2 steps") && text.contains("images/s"), "{text}");
}

#[test]
fn rows() {
    let report = json("bench gemm --shape 33x20x17 --shape 3x8x9x10 --json");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| &row["name"]).collect::<Vec<_>>(), ["33x20x17", "3x8x9x10"]);
    for row in rows {
        let speed = number(row, "gflops");
        assert!((number(row, "share") * number(&report, "peak_gflops") / speed - 1.0).abs() < 1e-9);
    }
    assert!((number(&rows[1], "gflops") * number(&rows[1], "seconds") * 1e9 - 2.0 * 3.0 * 720.0).abs() < 1e-6);

    let report = json("bench elementwise --size 50 --threads 1 --json");
    assert_eq!(report["machine"]["threads"], 1);
    let rows = report["rows"].as_array().unwrap();
    let sum = rows.iter().find(|row| row["name"] == "sum(a), 50x50").unwrap();
    let bytes = number(sum, "gbytes_per_second") * number(sum, "seconds") * 1e9;
    assert!((bytes - 4.0 * 2500.0).abs() < 1e-6, "{bytes}");
    assert!(number(&report, "read_gbytes_per_second") > 0.0);
}

//! `MESHWORK_PRINT` and `MESHWORK_SIMD`, tested from the outside: the test program starts itself.

use meshwork::Tensor;
use std::process::{Command, Output};

/// Runs the ignored test below in a process with one more environment variable.
fn with(name: &str, value: &str) -> (Output, String) {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args(["--exact", "work", "--ignored", "--nocapture"])
        .env_remove("MESHWORK_SIMD")
        .env_remove("MESHWORK_PRINT")
        .env(name, value)
        .output()
        .expect("this program runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, text)
}

#[test]
#[ignore = "what the other tests run in a process of its own"]
fn work() {
    let w = Tensor::from_slice(&[1.0f32, 2.0], &[2]).variable();
    // The first program makes the variable as well, so there are two.
    for _ in 0..4 {
        let loss = (&w * 2.0).exp().sum(..);
        assert!(meshwork::grad(&loss, &[&w]).remove(0).to_f64()[0] > 0.0);
    }
}

#[test]
fn passes_are_printed_when_something_is_compiled() {
    let (output, text) = with("MESHWORK_PRINT", "fuse, program");
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("--- fuse").count(), 2, "{text}");
    assert_eq!(text.matches("--- program").count(), 2, "{text}");
    assert!(!text.contains("--- record"), "{text}");
    assert!(text.contains("total ") && text.contains(" kernels; memory: "), "{text}");

    let (_, text) = with("MESHWORK_PRINT", "all");
    for pass in ["differentiate", "record", "simplify", "fuse", "order", "epilogue", "chain", "program"] {
        assert!(text.contains(&format!("--- {pass}\n")), "{pass} is missing in {text}");
    }
}

#[test]
fn nothing_is_printed_unasked() {
    let (output, text) = with("MESHWORK_PRINT", "");
    assert!(output.status.success() && !text.contains("---"), "{text}");
}

#[test]
fn an_unknown_pass_is_named() {
    let (output, text) = with("MESHWORK_PRINT", "fsue");
    assert!(output.status.success(), "{text}");
    assert!(text.contains("MESHWORK_PRINT: there is no pass \"fsue\"; known are differentiate"), "{text}");
}

/// The reader learns of it; nobody waits for a queue that has died.
#[test]
fn an_unknown_level_is_an_error_and_no_hang() {
    let (output, text) = with("MESHWORK_SIMD", "avx9");
    assert!(!output.status.success());
    assert!(text.contains("MESHWORK_SIMD=avx9: this processor can run portable"), "{text}");
    let (output, text) = with("MESHWORK_SIMD", "portable");
    assert!(output.status.success(), "{text}");
}

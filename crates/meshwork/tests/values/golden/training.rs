//! Twenty steps of SGD on the built-in digits, step by step as PyTorch does them.

use crate::golden::file::File;
use meshwork::tensor::no_grad;
use meshwork::{DType, Tensor, grad};
use meshwork_data::{Column, CsvImages, CsvOptions, digits, read_csv, read_samples};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where f32 trainings that add in different orders may be after 20 steps.
const RELATIVE: f64 = 1e-5;
/// The same in f64.
const RELATIVE_F64: f64 = 1e-9;

type Parameters = BTreeMap<String, Tensor>;

#[test]
fn the_digits_are_the_same() {
    let file = File::open("training");
    let (images, labels) = Batches::new().read(0..320);
    let stored = |name: &str| file.tensor(&format!("digits:{name}")).expect(name);
    close("images", &images.narrow(0, 0, 3), &stored("images"), 1e-7, 0.0);
    let [built_in, _] = digits().expect("the built-in digits");
    let columns = read_samples(&built_in, &[0, 1, 2], 0).expect("digits");
    let Column::F32(pixels) = &columns[0] else { panic!("images are f32") };
    close("built-in digits", &Tensor::from_slice(pixels, &[3, 1, TO, TO]), &stored("images"), 0.0, 1e-6);
    close("sums", &images.to_dtype(DType::F64).sum([1, 2, 3]), &stored("sums"), 1e-6, 0.0);
    assert_eq!(labels.to_vec::<i64>(), stored("labels").to_vec::<i64>());
}

#[test]
fn lenet20() {
    train("lenet20", DType::F32);
}

#[test]
fn mlp20() {
    train("mlp20", DType::F32);
}

#[test]
fn lenet20_momentum() {
    train("lenet20_momentum", DType::F32);
}

#[test]
fn lenet20_in_f64() {
    train("lenet20", DType::F64);
}

#[test]
fn mlp20_in_f64() {
    train("mlp20", DType::F64);
}

#[test]
fn lenet20_momentum_in_f64() {
    train("lenet20_momentum", DType::F64);
}

fn train(name: &str, dtype: DType) {
    let file = File::open("training");
    let cases = file.cases();
    let case = cases.iter().find(|c| c["name"] == name).expect(name);
    let args = &case["args"];
    let number = |key: &str| args[key].as_f64().expect(key);
    let (steps, batch_size) = (number("steps") as usize, number("batch_size") as usize);
    let forward = match args["model"].as_str() {
        Some("lenet") => lenet,
        Some("mlp") => mlp,
        other => panic!("model {other:?}"),
    };
    let (suffix, relative) = if dtype == DType::F64 { ("_f64", RELATIVE_F64) } else { ("", RELATIVE) };
    let stored = |tensor: &str| file.tensor(&format!("{name}:{tensor}")).unwrap_or_else(|| panic!("{name}:{tensor}"));

    let mut parameters: Parameters = initial_parameters(case, dtype);
    for (p, value) in &parameters {
        close(p, &value.flatten(0).narrow(0, 0, 5).to_dtype(DType::F32), &stored(&format!("initial.{p}")), 0.0, 0.0);
        close(p, &sums(value), &stored(&format!("initial_sums.{p}")), 1e-12, 1e-12);
    }
    let initial = parameters.clone();

    let batches = Batches::new();
    let mut velocities = Parameters::new();
    let mut losses = Vec::new();
    for step in 0..steps {
        let (images, labels) = batches.read(step * batch_size..(step + 1) * batch_size);
        let variables: Parameters = parameters.iter().map(|(p, value)| (p.clone(), value.variable())).collect();
        let loss = forward(&variables, &images.to_dtype(dtype)).cross_entropy(&labels);
        let wrt: Vec<&Tensor> = variables.values().collect();
        let gradients = grad(&loss, &wrt);
        for ((p, value), gradient) in parameters.iter_mut().zip(gradients) {
            let velocity = match velocities.get(p) {
                Some(old) => old * number("momentum") + gradient,
                None => gradient,
            };
            *value = no_grad(|| &*value - &velocity * number("lr"));
            velocities.insert(p.clone(), velocity);
        }
        losses.push(loss.item());
    }

    let losses = Tensor::from_slice(&losses, &[steps]).to_dtype(dtype);
    close("losses", &losses, &stored(&format!("losses{suffix}")), relative, 0.0);
    let (images, _) = batches.read(0..batch_size);
    let logits = forward(&parameters, &images.to_dtype(dtype));
    close("logits", &logits, &stored(&format!("logits{suffix}")), relative, relative);
    for (p, value) in &parameters {
        let change = value.to_dtype(DType::F64) - initial[p].to_dtype(DType::F64);
        // A sum of many terms of both signs: what it may be off by goes with their size, √(n · Σ squares).
        let spread = (value.numel() as f64 * change.square().sum(..).item()).sqrt() * relative;
        let off = (sums(value) - stored(&format!("final_sums{suffix}.{p}"))).to_f64();
        assert!(off[0].abs() <= spread, "{name}: the sum of {p} is {} off, {spread} is allowed", off[0]);
        let off = (sums(&change) - stored(&format!("change_sums{suffix}.{p}"))).to_f64();
        assert!(off[0].abs() <= spread, "{name}: the sum of the change of {p} is {} off, {spread} is allowed", off[0]);
        let squares = change.square().sum(..).item();
        assert!(
            off[1].abs() <= 4.0 * relative * squares,
            "{name}: the squares of the change of {p}: {} off {squares}",
            off[1]
        );
    }
}

fn lenet(p: &Parameters, images: &Tensor) -> Tensor {
    let options = Default::default();
    let x = images.conv2d(&p["conv1.weight"], Some(&p["conv1.bias"]), &options).relu().avg_pool2d(2);
    let x = x.conv2d(&p["conv2.weight"], Some(&p["conv2.bias"]), &options).relu().avg_pool2d(2);
    let x = x.flatten(1).linear(&p["fc1.weight"], Some(&p["fc1.bias"])).relu();
    x.linear(&p["fc2.weight"], Some(&p["fc2.bias"]))
}

fn mlp(p: &Parameters, images: &Tensor) -> Tensor {
    let x = images.flatten(1).linear(&p["fc1.weight"], Some(&p["fc1.bias"])).relu();
    x.linear(&p["fc2.weight"], Some(&p["fc2.bias"]))
}

/// The weights that the formula in `tests/golden/README.md` gives, in f32 or widened from it.
fn initial_parameters(case: &Value, dtype: DType) -> Parameters {
    let parameters = case["parameters"].as_array().expect("parameters");
    parameters
        .iter()
        .map(|json| {
            let name = json["name"].as_str().expect("a name");
            let shape = json["shape"].as_array().expect("a shape");
            let shape: Vec<usize> = shape.iter().map(|n| n.as_u64().expect("a size") as usize).collect();
            let bound = 1.0 / json["fan_in"].as_f64().expect("a fan-in").sqrt();
            let hash = u64::from(fnv1a(name));
            let weight = |i: u64| {
                let hashed = (i * 2654435761 + hash) % (1 << 32);
                ((hashed as f64 / 4294967296.0 - 0.5) * 2.0 * bound) as f32
            };
            let values: Vec<f32> = (0..shape.iter().product::<usize>() as u64).map(weight).collect();
            (name.to_string(), Tensor::from_slice(&values, &shape).to_dtype(dtype))
        })
        .collect()
}

fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811C9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x01000193))
}

/// Sum and sum of squares in f64.
fn sums(value: &Tensor) -> Tensor {
    let wide = value.to_dtype(DType::F64);
    meshwork::tensor::stack(&[&wide.sum(..), &wide.square().sum(..)], 0)
}

/// The digits in file order, scaled up in f64 and rounded once, as PyTorch's were. (Images scaled in f32 are an ulp
/// away, which is enough to switch a ReLU in one of the trainings.)
struct Batches {
    images: Vec<f32>,
    labels: Vec<i64>,
}

/// Edges of an image in the file and of the images trained on.
const FROM: usize = 8;
const TO: usize = 28;

impl Batches {
    fn new() -> Batches {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../data/assets/digits.csv.gz");
        let images = Some(CsvImages { size: [FROM, FROM], white: 16.0, resize: None });
        let table = read_csv(&path, &CsvOptions { images, ..CsvOptions::default() }).expect("the digits");
        let indices: Vec<usize> = (0..320).collect();
        match &read_samples(&table, &indices, 0).expect("digits")[..] {
            [Column::F32(pixels), Column::I64(labels)] => {
                let images = pixels.chunks(FROM * FROM).flat_map(scaled_up).collect();
                Batches { images, labels: labels.clone() }
            }
            other => panic!("{} columns of other types", other.len()),
        }
    }

    fn read(&self, range: std::ops::Range<usize>) -> (Tensor, Tensor) {
        let pixels = &self.images[range.start * TO * TO..range.end * TO * TO];
        let images = Tensor::from_slice(pixels, &[range.len(), 1, TO, TO]);
        (images, Tensor::from_slice(&self.labels[range.clone()], &[range.len()]))
    }
}

/// Bilinear interpolation between pixel centres, clamped to the edge.
fn scaled_up(image: &[f32]) -> Vec<f32> {
    let tap = |target: usize| {
        let source = (FROM as f64 / TO as f64 * (target as f64 + 0.5) - 0.5).max(0.0);
        let low = source as usize;
        (low, (low + 1).min(FROM - 1), source - low as f64)
    };
    let pixel = |y: usize, x: usize| f64::from(image[y * FROM + x]);
    let mix = |a: f64, b: f64, weight: f64| (1.0 - weight) * a + weight * b;
    (0..TO * TO)
        .map(|i| {
            let ((top, bottom, down), (left, right, across)) = (tap(i / TO), tap(i % TO));
            let upper = mix(pixel(top, left), pixel(top, right), across);
            let lower = mix(pixel(bottom, left), pixel(bottom, right), across);
            mix(upper, lower, down) as f32
        })
        .collect()
}

fn close(name: &str, found: &Tensor, expected: &Tensor, relative: f64, absolute: f64) {
    assert_eq!((found.dtype(), found.shape()), (expected.dtype(), expected.shape()), "{name}");
    let (found, expected) = (found.to_f64(), expected.to_f64());
    for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
        assert!((f - e).abs() <= relative * e.abs() + absolute, "{name}[{i}] is {f:?} instead of {e:?}");
    }
}

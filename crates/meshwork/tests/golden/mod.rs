//! Reads the golden files; their format is described in `tests/golden/README.md`.

#![allow(dead_code)]

use meshwork::{DType, Tensor};
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::HashMap;

/// A case: its description and its tensors.
pub struct Case {
    pub name: String,
    pub op: String,
    pub args: Value,
    pub tensors: HashMap<String, Tensor>,
}

impl Case {
    /// A tensor of the case.
    #[track_caller]
    pub fn tensor(&self, name: &str) -> &Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("{} has no tensor {name}", self.name))
    }

    /// An argument that is a number.
    #[track_caller]
    pub fn number(&self, name: &str) -> f64 {
        self.args[name].as_f64().unwrap_or_else(|| panic!("{} has no number {name}", self.name))
    }

    /// An argument that is a count.
    #[track_caller]
    pub fn count(&self, name: &str) -> u64 {
        self.args[name].as_u64().unwrap_or_else(|| panic!("{} has no count {name}", self.name))
    }
}

/// All cases of a group.
pub fn cases(group: &str) -> Vec<Case> {
    let path = format!("{}/../../tests/golden/{group}.safetensors", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let (_, metadata) = SafeTensors::read_metadata(&bytes).expect("a safetensors file");
    let list = metadata.metadata().as_ref().and_then(|m| m.get("cases")).expect("a list of cases");
    let list: Vec<Value> = serde_json::from_str(list).expect("JSON");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");

    let mut tensors: HashMap<String, HashMap<String, Tensor>> = HashMap::new();
    for (name, view) in file.tensors() {
        let (case, tensor) = name.rsplit_once(':').expect("<case>:<tensor>");
        let value = Tensor::from_bytes(view.data(), dtype(view.dtype()), view.shape());
        tensors.entry(case.to_string()).or_default().insert(tensor.to_string(), value);
    }
    list.into_iter()
        .map(|case| {
            let name = case["name"].as_str().expect("a name").to_string();
            let op = case["op"].as_str().expect("an op").to_string();
            Case { tensors: tensors.remove(&name).unwrap_or_default(), args: case["args"].clone(), name, op }
        })
        .collect()
}

fn dtype(dtype: safetensors::Dtype) -> DType {
    use safetensors::Dtype;
    match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        other => panic!("golden files hold no {other:?}"),
    }
}

/// Fails when an element differs by more than `absolute + relative · |expected|`.
#[track_caller]
pub fn assert_close(what: &str, found: &[f64], expected: &[f64], absolute: f64, relative: f64) {
    assert_eq!(found.len(), expected.len(), "{what}: number of elements");
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let same = (f - e).abs() <= absolute + relative * e.abs() || f == e || (f.is_nan() && e.is_nan());
        assert!(same, "{what}: element {i} is {f:e}, PyTorch has {e:e}");
    }
}

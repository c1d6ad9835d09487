//! A golden file: tensors by name, and the cases as JSON.

use meshwork::{DType, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::path::PathBuf;

/// An open golden file.
pub struct File {
    tensors: SafeTensors<'static>,
    cases: String,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// The names of all golden files.
pub fn groups() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("the folder of golden files");
    let names = entries.map(|e| e.expect("an entry").file_name().into_string().expect("a name in UTF-8"));
    names.filter_map(|n| n.strip_suffix(".safetensors").map(str::to_string)).collect()
}

impl File {
    /// The file of a group, whose bytes stay in memory.
    pub fn open(group: &str) -> File {
        let path = folder().join(format!("{group}.safetensors"));
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).leak();
        let (_, header) = SafeTensors::read_metadata(bytes).expect("a safetensors header");
        let cases = header.metadata().as_ref().expect("metadata")["cases"].clone();
        File { tensors: SafeTensors::deserialize(bytes).expect("a safetensors file"), cases }
    }

    /// The cases in file order.
    pub fn cases(&self) -> Vec<Value> {
        serde_json::from_str(&self.cases).expect("the cases as JSON")
    }

    /// A tensor by its full name, `<case>:<tensor>`.
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        let view = self.tensors.tensor(name).ok()?;
        let dtype = match view.dtype() {
            Dtype::F64 => DType::F64,
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            Dtype::I64 => DType::I64,
            Dtype::I32 => DType::I32,
            Dtype::U8 => DType::U8,
            Dtype::BOOL => DType::Bool,
            other => panic!("{name} is {other:?}"),
        };
        Some(Tensor::from_bytes(view.data(), dtype, view.shape()))
    }
}

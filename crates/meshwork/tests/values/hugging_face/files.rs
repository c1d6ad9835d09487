//! Folders of models, and what is in them.

use meshwork::Tensor;
use meshwork::checkpoint::load_weights;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder that `transformers` wrote.
pub fn golden(model: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/hugging_face").join(model)
}

/// What `transformers` says about a golden model: `expected` or `gradients`.
pub fn said(model: &str, file: &str) -> BTreeMap<String, Tensor> {
    load_weights(golden(model).join(format!("{file}.safetensors"))).expect("a golden file").into_iter().collect()
}

/// Copies the model of a golden folder.
pub fn copy(model: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(golden(model)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name != "expected.safetensors" && name != "gradients.safetensors" {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// The weights of a folder, whichever files they are in.
pub fn weights(folder: &Path) -> BTreeMap<String, Tensor> {
    let mut all = BTreeMap::new();
    for name in names(folder) {
        if name.starts_with("model") && name.ends_with(".safetensors") {
            all.extend(load_weights(folder.join(name)).expect("weights"));
        }
    }
    all
}

/// The names of the files in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A JSON file.
pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Changes a JSON file.
pub fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = json(path);
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

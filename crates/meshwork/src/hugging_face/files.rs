//! The files that hold the weights: one, or shards with an index.

use super::keys::{Keys, to_json};
use super::names::Entry;
use super::{HuggingFaceError, Result};
use crate::checkpoint::{disk, load_weights, to_bytes};
use crate::tensor::Tensor;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Bytes of an element.
const F32_BYTES: u64 = 4;

/// A file of weights.
#[derive(Debug)]
pub struct WeightFile {
    path: PathBuf,
    /// The index and the names that it says are here.
    announced: Option<(PathBuf, BTreeSet<String>)>,
}

/// The files of a folder.
///
/// # Errors
/// When there are none, the index makes no sense, or a shard is missing.
pub fn find(folder: &Path) -> Result<Vec<WeightFile>> {
    let whole = folder.join(WHOLE);
    if whole.exists() {
        return Ok(vec![WeightFile { path: whole, announced: None }]);
    }
    let index = folder.join(INDEX);
    if index.exists() {
        return shards(folder, &index);
    }
    let others = ["pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"];
    let problem = match others.into_iter().find(|name| folder.join(name).exists()) {
        Some(other) => format!(
            "has its weights in {other}, not in {WHOLE}; save it anew with save_pretrained(…, safe_serialization=True)"
        ),
        None => format!("has neither {WHOLE} nor {INDEX}"),
    };
    Err(HuggingFaceError::NoWeights { path: folder.to_owned(), problem })
}

fn shards(folder: &Path, index: &Path) -> Result<Vec<WeightFile>> {
    let wrong = |problem: String| HuggingFaceError::Index { path: index.to_owned(), problem };
    let keys = Keys::read(index)?;
    let map = match keys.get("weight_map") {
        Some(Value::Object(map)) if !map.is_empty() => map,
        _ => return Err(wrong("it has no weight_map from tensors to files".to_string())),
    };
    let mut files: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, file) in map {
        // Only files of this folder.
        let plain = |file: &&str| Path::new(file).file_name().is_some_and(|name| name == *file);
        let file = file.as_str().filter(plain).ok_or_else(|| {
            wrong(format!("the weight_map has {name} in {file}, which is not the name of a file beside it"))
        })?;
        files.entry(file).or_default().insert(name.clone());
    }
    if let Some((file, names)) = files.iter().find(|(file, _)| !folder.join(file).is_file()) {
        let name = names.first().expect("a file is known by what it holds");
        return Err(wrong(format!("the shard {file}, which holds {name}, is missing")));
    }
    let shard = |(file, names)| WeightFile { path: folder.join(file), announced: Some((index.to_owned(), names)) };
    Ok(files.into_iter().map(shard).collect())
}

impl WeightFile {
    /// The tensors, which are those that the index announced.
    ///
    /// # Errors
    /// A file that is damaged, or holds other tensors.
    pub fn read(&self) -> Result<Vec<(String, Tensor)>> {
        let tensors = load_weights(&self.path)?;
        let Some((index, announced)) = &self.announced else { return Ok(tensors) };
        let found: BTreeSet<String> = tensors.iter().map(|(name, _)| name.clone()).collect();
        let file = self.path.file_name().unwrap_or_default().display();
        let wrong = |problem: String| Err(HuggingFaceError::Index { path: index.clone(), problem });
        if let Some(name) = announced.difference(&found).next() {
            return wrong(format!("the weight_map has {name} in {file}, which does not hold it"));
        }
        match found.difference(announced).next() {
            Some(name) => wrong(format!("{file} holds {name}, which the weight_map does not have there")),
            None => Ok(tensors),
        }
    }
}

/// Writes weights to a folder of their own: to one file, or to shards of at most so many bytes.
pub fn write(folder: &Path, entries: &[Entry], state: &[(String, Tensor)], max_shard_bytes: u64) -> Result<()> {
    let values: HashMap<&str, &Tensor> = state.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let shards = divide(entries, max_shard_bytes);
    let mut map = Map::new();
    for (i, shard) in shards.iter().enumerate() {
        let file = match shards.len() {
            1 => WHOLE.to_string(),
            count => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
        };
        let tensor = |entry: &Entry| {
            let parts: Vec<Tensor> = entry.parts.iter().map(|(name, _)| gathered(values[name.as_str()])).collect();
            (entry.name.clone(), entry.join(&parts.iter().collect::<Vec<_>>()))
        };
        let tensors: Vec<(String, Tensor)> = shard.iter().map(tensor).collect();
        disk::write(&folder.join(&file), &to_bytes(&tensors))?;
        map.extend(shard.iter().map(|entry| (entry.name.clone(), json!(file))));
    }
    if shards.len() == 1 {
        return Ok(());
    }
    let elements: usize = entries.iter().map(Entry::numel).sum();
    let metadata = json!({ "total_parameters": elements, "total_size": bytes(entries) });
    let index = json!({ "metadata": metadata, "weight_map": map });
    Ok(disk::write(&folder.join(INDEX), &to_json(&index))?)
}

/// Cuts a list so that each part has at most so many bytes, or is a single tensor.
fn divide(entries: &[Entry], max_bytes: u64) -> Vec<&[Entry]> {
    let mut shards = Vec::new();
    let mut rest = entries;
    while !rest.is_empty() {
        let fitting = (1..=rest.len()).take_while(|&count| bytes(&rest[..count]) <= max_bytes).last();
        let (shard, others) = rest.split_at(fitting.unwrap_or(1));
        shards.push(shard);
        rest = others;
    }
    shards
}

fn bytes(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.numel() as u64 * F32_BYTES).sum()
}

/// The whole of a value, wherever its parts are.
fn gathered(value: &Tensor) -> Tensor {
    Tensor::from_bytes(&value.to_bytes(), value.dtype(), value.shape())
}

//! Tensors in safetensors files.

use super::{CheckpointError, Result, disk};
use crate::nn::{Module, StateError};
use crate::{DType, Tensor};
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

const _: () = assert!(cfg!(target_endian = "little"), "safetensors holds little-endian numbers");

/// Writes tensors to a safetensors file, which PyTorch reads with `safetensors.torch.load_file`.
///
/// The file is replaced as a whole or not at all. Equal tensors give equal bytes, whatever their order.
///
/// # Errors
/// [`CheckpointError::Io`] with the path.
pub fn save_weights(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<()> {
    disk::replace(path.as_ref(), &to_bytes(tensors))
}

/// Reads all tensors of a safetensors file, sorted by name.
///
/// # Errors
/// Files that are missing, cut off, damaged or lie about what they hold, and element types that Meshwork does not
/// have. Changed values cannot be noticed: a file of weights carries no hash. (Checkpoints do.)
pub fn load_weights(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    let bytes = fs::read(path).map_err(CheckpointError::io("read", path))?;
    from_bytes(&bytes, path)
}

/// Reads the weights of a model.
///
/// # Errors
/// As [`load_weights`], and [`CheckpointError::Misfit`] for other names or shapes than the model's. The model is
/// unchanged then.
pub fn load_module(path: impl AsRef<Path>, module: &dyn Module) -> Result<()> {
    let path = path.as_ref();
    fit(path, module, load_weights(path)?)
}

/// Gives a model its weights; `path` is where they come from.
pub(super) fn fit(path: &Path, module: &dyn Module, weights: Vec<(String, Tensor)>) -> Result<()> {
    module.load_state(weights).map_err(|e| CheckpointError::Misfit { path: path.to_owned(), problem: describe(&e) })
}

/// Differences that are listed before the rest is only counted.
const LISTED: usize = 4;

fn describe(error: &StateError) -> String {
    let wrong = error.wrong.iter().map(|w| {
        let ((dtype, shape), (found_dtype, found)) = (&w.expected, &w.found);
        format!("{} is {found_dtype}{found:?} there and {dtype}{shape:?} in the model", w.name)
    });
    let missing = error.missing.iter().map(|name| format!("{name} is missing"));
    let unexpected = error.unexpected.iter().map(|(name, nearest)| match nearest {
        Some(nearest) => format!("the model has no {name} (nearest: {nearest})"),
        None => format!("the model has no {name}"),
    });
    let all: Vec<String> = wrong.chain(missing).chain(unexpected).collect();
    let mut text = all[..all.len().min(LISTED)].join("; ");
    if all.len() > LISTED {
        text += &format!("; and {} differences more", all.len() - LISTED);
    }
    text + ". Choose the model that the file was made with"
}

struct View<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    bytes: Vec<u8>,
}

impl safetensors::View for View<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        self.bytes.as_slice().into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// The bytes of a safetensors file. The writer sorts by dtype and name, so they depend on the tensors alone.
pub(crate) fn to_bytes(tensors: &[(String, Tensor)]) -> Vec<u8> {
    let views = tensors
        .iter()
        .map(|(name, t)| (name, View { dtype: to_safetensors(t.dtype()), shape: t.shape(), bytes: t.to_bytes() }));
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    safetensors::serialize(views, Some(metadata)).expect("tensors have as many bytes as their types say")
}

pub(super) fn from_bytes(bytes: &[u8], path: &Path) -> Result<Vec<(String, Tensor)>> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| explain(e, bytes, path))?;
    let mut tensors = Vec::with_capacity(file.len());
    for (name, view) in file.iter() {
        let refused = |problem: String| {
            let (path, name) = (path.to_owned(), name.to_string());
            CheckpointError::Tensor { path, name, problem }
        };
        let Some(dtype) = from_safetensors(view.dtype()) else {
            return Err(refused(format!(
                "has elements of type {}; convert it to one of F32, F64, F16, BF16, I64, I32, U8, BOOL",
                view.dtype()
            )));
        };
        if dtype == DType::Bool && view.data().iter().any(|&b| b > 1) {
            return Err(refused("is BOOL but holds bytes other than 0 and 1; the file is damaged".to_string()));
        }
        tensors.push((name.to_string(), Tensor::from_bytes(view.data(), dtype, view.shape())));
    }
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(tensors)
}

/// What is wrong with a file that the reader refused.
fn explain(error: SafeTensorError, bytes: &[u8], path: &Path) -> CheckpointError {
    let (path, found) = (path.to_owned(), bytes.len() as u64);
    let Some(announced) = bytes.first_chunk().map(|n| u64::from_le_bytes(*n)) else {
        return CheckpointError::Truncated { path, by: "a safetensors header", expected: 8, found };
    };
    let end = announced.saturating_add(8);
    let problem = match error {
        SafeTensorError::InvalidHeaderLength => {
            return CheckpointError::Truncated { path, by: "its first number", expected: end, found };
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            let by = "its header";
            return match data_end(&bytes[8..end as usize]).map(|data| data.saturating_add(end)) {
                Some(expected) if expected > found => CheckpointError::Truncated { path, by, expected, found },
                Some(expected) => CheckpointError::Trailing { path, by, expected, found },
                None => CheckpointError::Header { path, end, problem: "its sizes contradict each other".to_string() },
            };
        }
        SafeTensorError::HeaderTooLarge => {
            format!("its length is given as {announced} bytes, which no header of weights needs")
        }
        SafeTensorError::InvalidHeader(e) => format!("not UTF-8 text from byte {}", e.valid_up_to() + 8),
        SafeTensorError::InvalidHeaderDeserialization(e) => format!("not the JSON of a safetensors header: {e}"),
        SafeTensorError::InvalidOffset(name) => {
            format!("the bytes of tensor {name:?} overlap those of another one or leave a gap")
        }
        SafeTensorError::TensorInvalidInfo => {
            "a tensor's shape and dtype do not make the number of bytes that is given".to_string()
        }
        SafeTensorError::ValidationOverflow => "a tensor's sizes multiply to more than any memory".to_string(),
        other => other.to_string(),
    };
    CheckpointError::Header { path, end: end.min(found), problem }
}

/// Where the last tensor ends, counted from the end of the header.
fn data_end(header: &[u8]) -> Option<u64> {
    let header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(header).ok()?;
    header.values().filter_map(|info| info.get("data_offsets")?.get(1)?.as_u64()).max()
}

fn to_safetensors(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

fn from_safetensors(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        _ => return None,
    })
}

//! JSON files, and the values of their keys.

use super::{HuggingFaceError, Result};
use crate::checkpoint::CheckpointError;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A JSON object of a file.
pub struct Keys {
    path: PathBuf,
    /// Where in the file it is: `rope_parameters.`, say.
    within: &'static str,
    values: Map<String, Value>,
}

impl Keys {
    /// The object that a file is.
    pub fn read(path: &Path) -> Result<Keys> {
        let bytes = fs::read(path).map_err(CheckpointError::io("read", path))?;
        let values = serde_json::from_slice(&bytes).map_err(|e| {
            let (line, column) = (e.line(), e.column());
            // The place is said already.
            let problem = e.to_string().split(" at line").next().unwrap_or_default().to_string();
            HuggingFaceError::Json { path: path.to_owned(), line, column, problem }
        })?;
        Ok(Keys { path: path.to_owned(), within: "", values })
    }

    /// The value of a key, unless it is missing or null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// The object of a key, if there is one. `within` is the key with a dot.
    pub fn object(&self, key: &str, within: &'static str) -> Result<Option<Keys>> {
        let object = |values: Map<String, Value>| Keys { path: self.path.clone(), within, values };
        Ok(self.typed(key, "an object", |value| value.as_object().cloned())?.map(object))
    }

    /// A whole number from 1 to `most`, if there is one.
    pub fn count(&self, key: &str, most: usize) -> Result<Option<usize>> {
        self.typed(key, &format!("a whole number from 1 to {most}"), |value| {
            usize::try_from(value.as_u64()?).ok().filter(|n| (1..=most).contains(n))
        })
    }

    /// A number that `fits`, or the default.
    pub fn number(&self, key: &str, default: f64, supported: &str, fits: impl Fn(f64) -> bool) -> Result<f64> {
        Ok(self.typed(key, supported, |value| value.as_f64().filter(|n| fits(*n)))?.unwrap_or(default))
    }

    /// True or false.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.typed(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    /// What a word stands for, by a list of words, if there is one.
    pub fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        let named =
            |value: &Value| words.iter().find(|(word, _)| value.as_str() == Some(word)).map(|(_, means)| *means);
        let supported: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        self.typed(key, &supported.join(", "), named)
    }

    /// Checks that a key has no value but this, if it has one.
    pub fn only(&self, key: &str, value: Value) -> Result<()> {
        match self.get(key) {
            Some(found) if *found != value => Err(self.unsupported(key, &value.to_string())),
            _ => Ok(()),
        }
    }

    /// Checks that a key has no value.
    pub fn none(&self, key: &str) -> Result<()> {
        self.only(key, Value::Null)
    }

    /// The value of a key that must have one.
    pub fn needed<T>(&self, key: &str, value: Result<Option<T>>) -> Result<T> {
        value?
            .ok_or_else(|| HuggingFaceError::Missing { path: self.path.clone(), key: format!("{}{key}", self.within) })
    }

    /// The error for the value of a key (null if there is none).
    pub fn unsupported(&self, key: &str, supported: &str) -> HuggingFaceError {
        HuggingFaceError::Unsupported {
            path: self.path.clone(),
            key: format!("{}{key}", self.within),
            value: self.values.get(key).unwrap_or(&Value::Null).to_string(),
            supported: supported.to_string(),
        }
    }

    fn typed<T>(&self, key: &str, supported: &str, as_type: impl Fn(&Value) -> Option<T>) -> Result<Option<T>> {
        self.get(key).map(|value| as_type(value).ok_or_else(|| self.unsupported(key, supported))).transpose()
    }
}

/// JSON as `transformers` writes it: indented, keys sorted, a line's end at the end.
pub fn to_json(value: &Value) -> Vec<u8> {
    format!("{:#}\n", json!(value)).into_bytes()
}

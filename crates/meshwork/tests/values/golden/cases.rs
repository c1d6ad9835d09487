//! Cases of the golden files of optimizers and schedules; their format is described in `tests/golden/README.md`.

use super::file::File;
use meshwork::Tensor;
use serde_json::Value;
use std::rc::Rc;

/// A case: its description and its tensors.
pub struct Case {
    pub name: String,
    pub op: String,
    pub args: Value,
    file: Rc<File>,
}

impl Case {
    /// A tensor of the case, if it has it.
    pub fn find(&self, name: &str) -> Option<Tensor> {
        self.file.tensor(&format!("{}:{name}", self.name))
    }

    /// A tensor of the case.
    #[track_caller]
    pub fn tensor(&self, name: &str) -> Tensor {
        self.find(name).unwrap_or_else(|| panic!("{} has no tensor {name}", self.name))
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
    let file = Rc::new(File::open(group));
    let text = |case: &Value, key: &str| case[key].as_str().expect("a text").to_string();
    let case =
        |c: &Value| Case { name: text(c, "name"), op: text(c, "op"), args: c["args"].clone(), file: file.clone() };
    file.cases().iter().map(case).collect()
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

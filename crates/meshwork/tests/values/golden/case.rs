//! One case: an operation, its arguments and what PyTorch says.

use crate::golden::file::File;
use meshwork::Tensor;
use serde_json::Value;
use std::collections::BTreeMap;

pub struct Case<'a> {
    pub name: String,
    pub op: String,
    /// Names of the inputs in the order of the operation's operands.
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub grad_inputs: Vec<String>,
    pub gradgrad: bool,
    file: &'a File,
    args: &'a Value,
    tensors: BTreeMap<String, Tensor>,
}

fn texts(json: &Value) -> Vec<String> {
    json.as_array().into_iter().flatten().map(|v| v.as_str().expect("a name").to_string()).collect()
}

impl<'a> Case<'a> {
    /// A case with its inputs, which are variables where gradients are wanted.
    pub fn new(file: &'a File, json: &'a Value) -> Case<'a> {
        let text = |key: &str| json[key].as_str().expect(key).to_string();
        let mut case = Case {
            name: text("name"),
            op: text("op"),
            inputs: texts(&json["inputs"]),
            outputs: texts(&json["outputs"]),
            grad_inputs: texts(&json["grad_inputs"]),
            gradgrad: json["gradgrad"].as_bool().unwrap_or(false),
            file,
            args: &json["args"],
            tensors: BTreeMap::new(),
        };
        for name in &case.inputs {
            let stored = case.stored(name);
            let tensor = if case.grad_inputs.contains(name) { stored.variable() } else { stored };
            case.tensors.insert(name.clone(), tensor);
        }
        case
    }

    pub fn maybe_stored(&self, tensor: &str) -> Option<Tensor> {
        self.file.tensor(&format!("{}:{tensor}", self.name))
    }

    pub fn stored(&self, tensor: &str) -> Tensor {
        self.maybe_stored(tensor).unwrap_or_else(|| panic!("{} has no tensor {tensor}", self.name))
    }

    pub fn input(&self, name: &str) -> &Tensor {
        self.maybe_input(name).unwrap_or_else(|| panic!("{} has no input {name}", self.name))
    }

    pub fn maybe_input(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// All inputs in order.
    pub fn all_inputs(&self) -> Vec<&Tensor> {
        self.inputs.iter().map(|name| self.input(name)).collect()
    }

    pub fn arg(&self, name: &str) -> &Value {
        let arg = self.args.get(name);
        arg.unwrap_or_else(|| panic!("{} has no argument {name}", self.name))
    }

    pub fn maybe_int(&self, name: &str) -> Option<isize> {
        self.arg(name).as_i64().map(|n| n as isize)
    }

    pub fn int(&self, name: &str) -> isize {
        self.maybe_int(name).unwrap_or_else(|| panic!("{}: {name} is no integer", self.name))
    }

    pub fn maybe_float(&self, name: &str) -> Option<f64> {
        self.arg(name).as_f64()
    }

    pub fn float(&self, name: &str) -> f64 {
        self.maybe_float(name).unwrap_or_else(|| panic!("{}: {name} is no number", self.name))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.arg(name).as_bool().unwrap_or_else(|| panic!("{}: {name} is no flag", self.name))
    }

    pub fn text(&self, name: &str) -> &str {
        self.arg(name).as_str().unwrap_or_else(|| panic!("{}: {name} is no text", self.name))
    }

    pub fn maybe_ints(&self, name: &str) -> Option<Vec<isize>> {
        let list = self.arg(name).as_array()?;
        Some(list.iter().map(|v| v.as_i64().expect("an integer") as isize).collect())
    }

    pub fn ints(&self, name: &str) -> Vec<isize> {
        self.maybe_ints(name).unwrap_or_else(|| panic!("{}: {name} is no list", self.name))
    }

    pub fn sizes(&self, name: &str) -> Vec<usize> {
        self.ints(name).into_iter().map(|n| usize::try_from(n).expect("a size")).collect()
    }
}

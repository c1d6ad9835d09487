//! Loading a module's state: all of it or nothing.

use super::{Buffer, Leaf, Parameter, Visitor};
use crate::DType;
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;
use std::fmt;

/// Why a state does not fit a module. Nothing has been loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct StateError {
    /// Names that the module has and the state has not.
    pub missing: Vec<String>,
    /// Names that the state has and the module has not, each with the nearest name that the module has.
    pub unexpected: Vec<(String, Option<String>)>,
    /// Values of another shape or dtype.
    pub wrong: Vec<Wrong>,
}

/// A value of another shape or dtype than the module's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its name.
    pub name: String,
    /// What the module needs.
    pub expected: (DType, Vec<usize>),
    /// What the state has.
    pub found: (DType, Vec<usize>),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the state does not fit the module; nothing was loaded")?;
        for name in &self.missing {
            write!(f, "\n  missing: {name}")?;
        }
        for (name, nearest) in &self.unexpected {
            write!(f, "\n  unknown: {name}")?;
            if let Some(nearest) = nearest {
                write!(f, " (did you mean {nearest}?)")?;
            }
        }
        for Wrong { name, expected: (d, s), found: (fd, fs) } in &self.wrong {
            write!(f, "\n  wrong: {name} is {fd}{fs:?} and must be {d}{s:?}")?;
        }
        Ok(())
    }
}

enum Slot {
    Parameter(Parameter),
    Buffer(Buffer),
}

impl Slot {
    fn ty(&self) -> (DType, Vec<usize>) {
        match self {
            Slot::Parameter(p) => (p.dtype(), p.shape().to_vec()),
            Slot::Buffer(b) => (b.dtype(), b.shape().to_vec()),
        }
    }

    fn address(&self) -> usize {
        match self {
            Slot::Parameter(p) => p.address(),
            Slot::Buffer(b) => b.address(),
        }
    }
}

pub(crate) fn load(visit: &mut dyn FnMut(&mut Visitor<'_>), state: Vec<(String, Tensor)>) -> Result<(), StateError> {
    let mut slots: Vec<(String, Slot)> = Vec::new();
    visit(&mut Visitor::new(&mut |path, leaf| match leaf {
        Leaf::Parameter(p) => slots.push((path.to_string(), Slot::Parameter(p.clone()))),
        Leaf::Buffer(b) => slots.push((path.to_string(), Slot::Buffer(b.clone()))),
        Leaf::Site(_) | Leaf::Mode(_) => {}
    }));
    let known: FxHashMap<&str, &Slot> = slots.iter().map(|(name, slot)| (name.as_str(), slot)).collect();

    let mut error = StateError::default();
    let mut found: FxHashMap<usize, ()> = FxHashMap::default();
    for (name, value) in &state {
        let Some(slot) = known.get(name.as_str()) else {
            error.unexpected.push((name.clone(), nearest(name, known.keys().copied())));
            continue;
        };
        found.insert(slot.address(), ());
        let (expected, given) = (slot.ty(), (value.dtype(), value.shape().to_vec()));
        if expected != given {
            error.wrong.push(Wrong { name: name.clone(), expected, found: given });
        }
    }
    let missing = slots.iter().filter(|(_, slot)| !found.contains_key(&slot.address()));
    error.missing = missing.map(|(name, _)| name.clone()).collect();
    if error != StateError::default() {
        return Err(error);
    }
    for (name, value) in state {
        match known[name.as_str()] {
            Slot::Parameter(p) => p.set(value.to(&p.value().device())),
            Slot::Buffer(b) => b.set(value.to(&b.value().device())),
        }
    }
    Ok(())
}

/// The known name with the fewest edits, if those are few for its length.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    known
        .map(|k| (edits(name, k), k))
        .filter(|(distance, k)| *distance <= 1 + k.len().max(name.len()) / 3)
        .min()
        .map(|(_, k)| k.to_string())
}

/// Characters to insert, remove or replace (Levenshtein distance).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

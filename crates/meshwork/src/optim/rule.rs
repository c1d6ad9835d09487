//! What distinguishes one optimizer from another.

use crate::DType;
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;

/// The options of an optimizer, and how it updates one parameter.
pub trait Rule: Clone {
    /// Its name in saved states.
    const NAME: &'static str;

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate.
    fn set_lr(&mut self, lr: f64);

    /// Tensors of the parameter's type that it keeps for every parameter.
    fn slots(&self) -> Vec<Slot>;

    /// The parameter after a step; `slots` are replaced by their new values. Records only.
    fn update(&self, numbers: &mut Numbers, parameter: &Tensor, gradient: &Tensor, slots: &mut [Tensor]) -> Tensor;

    /// Refuses options that make no sense.
    #[track_caller]
    fn check(&self);
}

/// A tensor that an optimizer keeps for every parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// Its name in saved states.
    pub name: &'static str,
    /// The value of all elements before the first step.
    pub initial: f64,
}

/// Numbers of a step as inputs of its program: those that change do not change its structure.
pub struct Numbers {
    step: u64,
    dtype: DType,
    made: FxHashMap<(u64, DType, &'static str), Tensor>,
}

impl Numbers {
    pub(crate) fn new() -> Numbers {
        Numbers { step: 0, dtype: DType::F32, made: FxHashMap::default() }
    }

    /// The numbers for a parameter of a dtype in its step number `step`.
    pub(crate) fn of(&mut self, step: u64, dtype: DType) -> &mut Numbers {
        (self.step, self.dtype) = (step, dtype);
        self
    }

    /// Which step of the parameter this is, from 1.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// A number of the parameter's dtype. In one step of a group a name always stands for the same number.
    pub fn get(&mut self, name: &'static str, value: f64) -> Tensor {
        self.made_as(self.dtype, name, value)
    }

    /// A number of the dtype that norms of the parameter have: at least f32. Names as in [`Numbers::get`].
    pub fn wide(&mut self, name: &'static str, value: f64) -> Tensor {
        self.made_as(self.dtype.promote(DType::F32), name, value)
    }

    fn made_as(&mut self, dtype: DType, name: &'static str, value: f64) -> Tensor {
        self.made.entry((self.step, dtype, name)).or_insert_with(|| Tensor::scalar(value, dtype)).clone()
    }
}

/// `from` moved toward `to` by `weight`, in the order of PyTorch's `lerp`. `names` are those of the weight and of
/// 1 − weight.
pub(crate) fn lerp(
    numbers: &mut Numbers,
    names: (&'static str, &'static str),
    from: &Tensor,
    to: &Tensor,
    weight: f64,
) -> Tensor {
    let way = to - from;
    if weight < 0.5 { from + way * numbers.get(names.0, weight) } else { to - way * numbers.get(names.1, 1.0 - weight) }
}

//! How the tensors of the ranks of a group belong together.

use std::fmt::Debug;

/// Equal tensors, used alike on all ranks; so are their gradients. Parameters that all ranks have, losses.
#[derive(Clone, Copy, Debug)]
pub enum Replicated {}

/// Equal tensors that each rank uses in its own way: each has a part of the gradient, and their sum is the whole.
#[derive(Clone, Copy, Debug)]
pub enum Shared {}

/// Tensors of which each rank has its own: a part of a split one, or what is computed from its part of the data. Each has
/// its own gradient.
#[derive(Clone, Copy, Debug)]
pub enum Varying {}

/// Tensors whose sum over the ranks is the value. The gradient of each is that of the sum.
#[derive(Clone, Copy, Debug)]
pub enum Partial {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Replicated {}
    impl Sealed for super::Shared {}
    impl Sealed for super::Varying {}
    impl Sealed for super::Partial {}
}

/// How the tensors of the ranks belong together: [`Replicated`], [`Shared`], [`Varying`] or [`Partial`].
pub trait Distribution: sealed::Sealed + Debug + 'static {
    /// How their gradients belong together.
    type Gradient: Distribution;
}

impl Distribution for Replicated {
    type Gradient = Replicated;
}

impl Distribution for Shared {
    type Gradient = Partial;
}

impl Distribution for Varying {
    type Gradient = Varying;
}

impl Distribution for Partial {
    type Gradient = Shared;
}

/// Values that each rank can compute with by itself. A partial value is not one: what is computed from the parts of a sum
/// is not what is computed from the sum.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` value cannot be computed with: each rank has a part of a sum",
    note = "add the parts up first: `.all_reduce()` or `.reduce_scatter(dim)`"
)]
pub trait Local: Distribution {}

impl Local for Replicated {}
impl Local for Shared {}
impl Local for Varying {}

/// Values that can be computed with together, and what that gives.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` value and a `{Other}` value cannot be computed with together",
    note = "a replicated value is made shared with `.fan_out()`, which adds its gradient up over the ranks",
    note = "the parts of a partial value are added up with `.all_reduce()`"
)]
pub trait Joins<Other: Distribution>: Distribution {
    /// How the results belong together.
    type Output: Local;
}

macro_rules! joins {
    ($($a:ident, $b:ident => $output:ident;)*) => { $(impl Joins<$b> for $a { type Output = $output; })* };
}

joins! {
    Replicated, Replicated => Replicated;
    Shared, Shared => Shared;
    Shared, Varying => Varying;
    Varying, Shared => Varying;
    Varying, Varying => Varying;
}

/// Values that can be trained: an update by their gradient, on each rank, leaves them what they are.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` value cannot be trained: only `Replicated` and `Varying` ones",
    note = "the gradient of a shared value is partial, and ranks would update their copies differently"
)]
pub trait Trained: Local + Distribution<Gradient = Self> {}

impl Trained for Replicated {}
impl Trained for Varying {}

//! From a case to calls of the library, one file a group.

mod conv;
mod elementwise;
mod index;
mod loss;
mod matmul;
mod norm;
mod pool;
mod reduce;
mod shape;

use crate::golden::case::Case;
use meshwork::Tensor;

/// The outputs of a case, or `None` where its operation is unknown.
pub fn call(case: &Case) -> Option<Vec<Tensor>> {
    let groups = [
        elementwise::call,
        reduce::call,
        matmul::call,
        conv::call,
        pool::call,
        norm::call,
        loss::call,
        index::call,
        shape::call,
    ];
    groups.iter().find_map(|call| call(case))
}

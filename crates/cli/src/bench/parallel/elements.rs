//! Adding elements one by one beside adding vectors.

use super::Sizes;
use super::report::{Report, Row};
use super::rounds::in_turn;
use crate::bench::gemm::random;
use crate::failure::Failure;
use meshwork::{Device, Tensor, synchronize};

/// Each element is an operation of its own, or all are one.
pub fn run(devices: &[Device], sizes: Sizes, report: &mut Report) -> Result<(), Failure> {
    let lengths = sizes.size.map_or(vec![1000, 10_000], |n| vec![n]);
    for n in lengths {
        measure(&devices[0], n, report)?;
    }
    Ok(())
}

fn measure(device: &Device, n: usize, report: &mut Report) -> Result<(), Failure> {
    let (a, b) = (random(&[n])?, random(&[n])?);
    let element = |i: usize| a.select(0, i as isize) + b.select(0, i as isize);
    let [vector, recorded, each] = in_turn([
        &mut || {
            let sum = &a + &b;
            synchronize();
            vec![sum]
        },
        &mut || {
            let sums: Vec<Tensor> = (0..n).map(element).collect();
            synchronize();
            sums
        },
        &mut || {
            let sums: Vec<Tensor> = (0..n).map(element).inspect(Tensor::eval).collect();
            synchronize();
            sums
        },
    ]);
    let rows = [
        Row::new("as vectors", vector),
        Row::new("one by one, handed over together", recorded),
        Row::new("one by one, each handed over", each),
    ];
    report.exercise("loop", &format!("adding {n} elements"), std::slice::from_ref(device), &rows);
    Ok(())
}

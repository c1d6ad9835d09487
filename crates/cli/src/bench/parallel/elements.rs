//! Adding elements one by one beside adding vectors.

use super::Sizes;
use super::report::{Report, Row};
use super::rounds::{BUDGET, in_turn};
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
    let finish = |sums: Vec<Tensor>| {
        synchronize();
        sums
    };
    let [vector, together] =
        in_turn(BUDGET, [&mut || finish(vec![&a + &b]), &mut || finish((0..n).map(element).collect())]);
    // By itself: so many different operations would drive the others' programs out of the cache.
    let [each] = in_turn(BUDGET, [&mut || finish((0..n).map(element).inspect(Tensor::eval).collect())]);
    let one_by_one = each.seconds;
    let rows = [
        Row::new("one by one, each handed over", each),
        Row { beside: Some(one_by_one), ..Row::new("one by one, handed over together", together) },
        Row { beside: Some(one_by_one), ..Row::new("as vectors", vector) },
    ];
    report.exercise("loop", &format!("adding {n} elements"), std::slice::from_ref(device), &rows);
    Ok(())
}

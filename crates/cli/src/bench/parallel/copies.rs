//! Products on a device whose results are copied to another one: copies of finished products go on beside the products
//! that follow. Both share the memory; how much that costs is seen where nothing waits for anything.

use super::products::Products;
use super::report::{Report, Row};
use super::rounds::{BUDGET, in_turn};
use super::{Sizes, together};
use crate::failure::Failure;
use meshwork::{Device, Tensor, synchronize, synchronize_device};

/// Large products, and flat ones whose copies take about as long as they do.
pub fn run(devices: &[Device], sizes: Sizes, report: &mut Report) -> Result<(), Failure> {
    let (n, count) = (sizes.size(1024), sizes.count(20));
    measure(devices, [n, n], count, report)?;
    measure(devices, [n, (n / 64).max(1)], sizes.count(100), report)
}

fn measure(devices: &[Device], [m, k]: [usize; 2], count: usize, report: &mut Report) -> Result<(), Failure> {
    let (here, there) = (&devices[0], &devices[1]);
    let products = Products::new(here, m, k, count)?;
    let finished = products.record();
    synchronize();
    let copy = |results: &[Tensor]| results.iter().map(|y| y.to(there)).collect::<Vec<_>>();
    let [computing, copying, apart, both, beside] = in_turn(
        BUDGET,
        [
            &mut || {
                let made = products.record();
                synchronize_device(here);
                made
            },
            &mut || {
                let copies = copy(&finished);
                synchronize_device(there);
                copies
            },
            &mut || {
                let mut made = products.record();
                synchronize_device(here);
                made.extend(copy(&made));
                synchronize_device(there);
                made
            },
            &mut || {
                let mut made = products.record();
                made.extend(copy(&made));
                synchronize();
                made
            },
            &mut || {
                let mut made = copy(&finished);
                made.extend(products.record());
                synchronize();
                made
            },
        ],
    );
    let (work, way) = (computing.seconds, copying.seconds);
    let least = together((here, work), (there, way));
    // The last copy cannot start before the last product is there, nor the first before the first.
    let allowed = together((here, work + way / count as f64), (there, way + work / count as f64));
    let waited = apart.seconds;
    let rows = [
        Row::new(format!("products on {here}"), computing),
        Row::new(format!("copies to {there}"), copying),
        Row::new("products, then copies", apart),
        Row::held("each copy when its product is there", both, allowed, waited),
        Row::held("products, and copies of other results", beside, least, waited),
    ];
    let what = format!("{count} products {m}x{k}x{m} on {here}, results copied to {there}");
    report.exercise("copies", &what, &devices[..2], &rows);
    Ok(())
}

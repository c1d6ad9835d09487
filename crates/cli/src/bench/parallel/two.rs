//! Products on one device, on another one, and on both at once.

use super::products::Products;
use super::report::{Report, Row};
use super::rounds::{BUDGET, in_turn};
use super::{Sizes, together};
use crate::failure::Failure;
use meshwork::{Device, synchronize, synchronize_device};

/// Both at once should take as long as the longer one alone.
pub fn run(devices: &[Device], sizes: Sizes, report: &mut Report) -> Result<(), Failure> {
    let (n, count) = (sizes.size(1024), sizes.count(20));
    let (first, second) = (&devices[0], &devices[1]);
    let (a, b) = (Products::new(first, n, n, count)?, Products::new(second, n, n, count)?);
    let alone = |products: &Products, device: &Device| {
        let made = products.record();
        synchronize_device(device);
        made
    };
    let [one, other, both] = in_turn(
        BUDGET,
        [&mut || alone(&a, first), &mut || alone(&b, second), &mut || {
            let made = [a.record(), b.record()].concat();
            synchronize();
            made
        }],
    );
    let allowed = together((first, one.seconds), (second, other.seconds));
    let apart = one.seconds + other.seconds;
    let rows = [
        Row::new(format!("on {first}"), one),
        Row::new(format!("on {second}"), other),
        Row::held("on both, without a wait between", both, allowed, apart),
    ];
    report.exercise("two", &format!("{count} products of {n}x{n} matrices a device"), &devices[..2], &rows);
    Ok(())
}

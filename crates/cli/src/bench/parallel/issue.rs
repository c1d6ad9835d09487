//! Handing work over beside finishing it.

use super::Sizes;
use super::products::Products;
use super::report::{Report, Row};
use super::rounds::{BUDGET, in_turn};
use crate::failure::Failure;
use meshwork::{Device, synchronize_device};

/// Recording and handing over take no part of the time that the work takes.
pub fn run(devices: &[Device], sizes: Sizes, report: &mut Report) -> Result<(), Failure> {
    let (n, count) = (sizes.size(1024), sizes.count(20));
    let device = &devices[0];
    let products = Products::new(device, n, n, count)?;
    let [record, issue, finish] = in_turn(
        BUDGET,
        [
            &mut || products.record(),
            &mut || {
                let made = products.record();
                made[0].eval();
                made
            },
            &mut || {
                let made = products.record();
                synchronize_device(device);
                made
            },
        ],
    );
    let all = finish.seconds;
    let rows = [
        Row { beside: Some(all), ..Row::new("recorded", record) },
        Row { beside: Some(all), ..Row::new("recorded and handed over", issue) },
        Row::new("finished", finish),
    ];
    report.exercise("issue", &format!("{count} products of {n}x{n} matrices"), &devices[..1], &rows);
    Ok(())
}

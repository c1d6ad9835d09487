//! `meshwork bench elementwise`: work whose floor is the bandwidth of memory.

use super::gemm::random;
use super::machine::Machine;
use super::report::{Report, Row, Unit};
use super::timing::seconds;
use crate::args::ElementwiseArgs;
use crate::failure::Failure;
use meshwork::Tensor;

/// Columns of the matrices with narrow rows, of about as many elements as the square ones.
const NARROW: [usize; 2] = [1000, 100];

/// Measures elementwise operations and reductions of square matrices, and what follows each row of narrower ones.
pub fn run(args: &ElementwiseArgs) -> Result<(), Failure> {
    let machine = Machine::here();
    let most = machine.bandwidth();
    let [read, copy, add, mul_add] = [most.read, most.copy, most.add, most.mul_add].map(|b| b / 1e9);
    let bounds = [("read", read), ("copy", copy), ("add", add), ("mul_add", mul_add)];
    let n = usize::try_from(args.size).unwrap_or(usize::MAX);
    let [a, b, c] = [random(&[n, n])?, random(&[n, n])?, random(&[n, n])?];
    let mut report = Report::begin("elementwise", &machine, Unit::Bytes, &bounds, args.common.json);
    let mut row_of =
        |[rows, columns]: [usize; 2], name: &str, matrices: f64, bound: f64, work: &mut dyn FnMut() -> Tensor| {
            let amount = matrices * 4e-9 * rows as f64 * columns as f64;
            report.row(&Row { name: format!("{name}, {rows}x{columns}"), seconds: seconds(work), amount, bound });
        };
    let mut row = |name: &str, matrices: f64, bound: f64, work: &mut dyn FnMut() -> Tensor| {
        row_of([n, n], name, matrices, bound, work);
    };
    row("a + b", 3.0, add, &mut || &a + &b);
    row("a * b", 3.0, add, &mut || &a * &b);
    row("relu(a)", 2.0, copy, &mut || a.relu());
    row("exp(a)", 2.0, copy, &mut || a.exp());
    row("relu(a * b + c)", 4.0, mul_add, &mut || (&a * &b + &c).relu());
    row("(a + row) * column", 2.0, copy, &mut || (&a + b.select(0, 0)) * b.narrow(1, 0, 1));
    row("a.t() + b", 3.0, add, &mut || a.t() + &b);
    row("sum(a)", 1.0, read, &mut || a.sum(..));
    row("max(a)", 1.0, read, &mut || a.amax(..));
    row("sum(a, 0)", 1.0, read, &mut || a.sum(0));
    row("sum(a, 1)", 1.0, read, &mut || a.sum(1));
    row("softmax(a, 1)", 2.0, copy, &mut || a.softmax(1));
    drop([a, b, c]);
    for columns in NARROW {
        let shape = [(n * n).div_ceil(columns), columns];
        let [x, weight, bias] = [random(&shape)?, random(&[columns])?, random(&[columns])?];
        let mut row = |name: &str, work: &mut dyn FnMut() -> Tensor| {
            row_of(shape, &format!("{name} of {columns} columns"), 2.0, copy, work);
        };
        row("softmax(x, 1)", &mut || x.softmax(1));
        row("layer_norm(x)", &mut || x.layer_norm(1, Some(&weight), Some(&bias), 1e-5));
    }
    report.end();
    Ok(())
}

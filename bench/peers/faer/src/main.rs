//! faer's matrix product on the sizes in GEMM ("MxKxN" or "BATCHxMxKxN", with "-tn", "-nt", "-tt" where operands lie
//! transposed, or "-grad", as "-tn", for the gradient of a weight), one line `row<TAB>unit<TAB>value` each.
//! The number of threads is in THREADS.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;
use std::time::Instant;

/// Median seconds of one call.
fn seconds(mut work: impl FnMut()) -> f64 {
    (0..3).for_each(|_| work());
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.len() < 5 || begin.elapsed().as_secs_f64() < 0.6 {
        let start = Instant::now();
        work();
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A matrix of this size that lies as it is, or as its transpose.
fn matrix(numbers: &[f32], rows: usize, columns: usize, transposed: bool) -> MatRef<'_, f32> {
    match transposed {
        false => MatRef::from_row_major_slice(numbers, rows, columns),
        true => MatRef::from_column_major_slice(numbers, rows, columns),
    }
}

fn product(par: Par, [m, k, n]: [usize; 3], [left, right]: [bool; 2], a: &[f32], b: &[f32], c: &mut [f32]) {
    let (a, b) = (matrix(a, m, k, left), matrix(b, k, n, right));
    matmul(MatMut::from_row_major_slice_mut(c, m, n), Accum::Replace, a, b, 1.0, par);
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("version") {
        return println!("0.24.4");
    }
    let threads: usize = std::env::var("THREADS").expect("THREADS").parse().expect("a number of threads");
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("threads");
    let par = if threads > 1 { Par::rayon(threads) } else { Par::Seq };
    for name in std::env::var("GEMM").expect("GEMM").split_whitespace() {
        let (sizes, lies) = name.split_once('-').unwrap_or((name, "nn"));
        let transposed = [lies.starts_with('t') || lies == "grad", lies.ends_with('t')];
        let sizes: Vec<usize> = sizes.split('x').map(|n| n.parse().expect("a size")).collect();
        let (batch, sizes) = match sizes[..] {
            [m, k, n] => (1, [m, k, n]),
            [batch, m, k, n] => (batch, [m, k, n]),
            _ => panic!("GEMM: {name} is neither MxKxN nor BATCHxMxKxN"),
        };
        let [m, k, n] = sizes;
        let numbers = |count: usize| (0..count).map(|i| (i % 7) as f32 - 3.0).collect::<Vec<f32>>();
        let (a, b, mut c) = (numbers(batch * m * k), numbers(batch * k * n), vec![0.0; batch * m * n]);
        let time = if batch == 1 {
            seconds(|| product(par, sizes, transposed, &a, &b, &mut c))
        } else {
            seconds(|| {
                c.par_chunks_mut(m * n).zip(a.par_chunks(m * k)).zip(b.par_chunks(k * n)).for_each(|((c, a), b)| {
                    product(Par::Seq, sizes, transposed, a, b, c);
                });
            })
        };
        println!("gemm {name}\tGFLOP/s\t{:.6}", 2e-9 * (batch * m * k * n) as f64 / time);
    }
}

//! Speed of matrix products, in GFLOP/s and against the processor's peak as a chain of multiply-adds finds it.
//!
//! `cargo run --release -p meshwork-cpu --example gemm_speed [threads]`

use meshwork_cpu::{Context, Level, Operand, Output, Par, dot};
use meshwork_graph::canonical::Blocking;
use meshwork_graph::ops::Dot;
use meshwork_graph::{Dims, Layout, Shape};
use std::time::Instant;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// The best of several runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.25 {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

/// GFLOP/s of a product that stays in the first-level cache: nothing is faster.
fn peak(par: &Par, level: Level) -> f64 {
    let kernels = <f32 as meshwork_cpu::gemm::Real>::kernels(level);
    let (rows, width, terms) = (kernels.rows(), kernels.columns(), 256);
    let time = best(|| {
        par.run(par.threads(), &|_| {
            let mut room = vec![Line([0; 64]); (terms * (rows + width) + 17 * rows * width) / 16 + 4];
            let base: *mut f32 = room.as_mut_ptr().cast();
            // SAFETY: all rooms lie inside `room`.
            unsafe {
                let call = meshwork_cpu::gemm::kernel::Call {
                    terms,
                    block: terms,
                    a: base,
                    a_row: 1,
                    a_term: rows as isize,
                    b: base.add(terms * rows),
                    b_term: width,
                    counter: base,
                    start: std::ptr::null(),
                    merge: std::ptr::null(),
                    merges: 0,
                    out: base.add(terms * (rows + width)),
                    out_row: width as isize,
                };
                for _ in 0..2000 {
                    kernels.table[rows - 1][1](std::hint::black_box(&call));
                }
            }
        });
    });
    (par.threads() * 2000 * 2 * rows * width * terms) as f64 / time * 1e-9
}

fn main() {
    let threads = std::env::args().nth(1).map_or(2, |t| t.parse().expect("a number of threads"));
    let (par, level) = (Par::new(threads), Level::current());
    let context = Context { par: &par, level };
    let peak = peak(&par, level);
    println!("{} on {threads} threads, peak {peak:.0} GFLOP/s", level.name());
    for (m, n, k) in [
        (1024, 1024, 1024),
        (256, 128, 800),
        (256, 10, 128),
        (256, 800, 128),
        (128, 800, 256),
        (64, 64, 64),
        (128, 128, 128),
        (256, 256, 256),
        (512, 512, 512),
        (384, 384, 4096),
        (4096, 64, 64),
        (20000, 48, 300),
        (32, 32, 20000),
        (1, 1024, 1024),
    ] {
        for (turned, name) in ["NN", "TN", "NT", "TT"].into_iter().enumerate() {
            let dense = |rows: usize, columns: usize, turned: bool| match turned {
                false => Layout::contiguous(&Shape::new(&[rows, columns])),
                true => Layout::contiguous(&Shape::new(&[columns, rows])).permute(&[1, 0]),
            };
            let (lhs, rhs) = (dense(m, k, turned & 1 != 0), dense(k, n, turned & 2 != 0));
            let contract = |d| Dims::from_slice(&[d]);
            let none = Dims::new();
            let op = Dot {
                lhs_batch: none.clone(),
                rhs_batch: none,
                lhs_contract: contract(1),
                rhs_contract: contract(0),
                blocking: Blocking::Features,
            };
            let (a, b) = (vec![0.5f32; m * k], vec![0.25f32; k * n]);
            let (mut c, shape) = (vec![0.0f32; m * n], Shape::new(&[m, n]));
            let bytes = dot::scratch(&op, meshwork_graph::DType::F32, &[&lhs, &rhs], threads);
            let mut lines = vec![Line([0; 64]); bytes.div_ceil(64)];
            // SAFETY: the lines are plain bytes; the layouts lie inside the vectors.
            let (scratch, inputs) = unsafe {
                (
                    std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), bytes),
                    [
                        Operand::new(a.as_ptr().cast(), meshwork_graph::DType::F32, &lhs),
                        Operand::new(b.as_ptr().cast(), meshwork_graph::DType::F32, &rhs),
                    ],
                )
            };
            let time = best(|| dot::run(&op, &inputs, Output::of(&mut c, &shape), scratch, context));
            let speed = (2 * m * n * k) as f64 / time * 1e-9;
            print!("{name} {m}×{n}×{k}: {speed:.0} ({:.0} %)   ", speed / peak * 100.0);
        }
        println!();
    }
}

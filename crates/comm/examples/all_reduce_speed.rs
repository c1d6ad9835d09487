//! How fast ranks of one process add up buffers, against what the memory of the machine allows.
//!
//! An all-reduce of n buffers of S bytes reads n·S bytes and writes n·S bytes at least. The bound is the time that as many
//! threads take to change the same bytes in the same places, each thread its share of every buffer, without a sum and
//! without a meeting. Both are measured in turns, and the median of each counts. (With more ranks than cores threads wait
//! for each other, and the bound says little.)
//!
//! cargo run --release -p meshwork-comm --example all_reduce_speed [RANKS] [SECONDS]

use meshwork_comm::{CommError, Communicator, ReduceOp, spawn};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Passes over the buffers before the other kind has its turn.
const PASSES: usize = 20;

/// Elements of a buffer that are changed before those of the next.
const BLOCK: usize = 1024;

/// Times of passes in which each thread changes its share of every buffer.
fn bound(buffers: &mut [Vec<f32>]) -> Vec<Duration> {
    let (ranks, len) = (buffers.len(), buffers[0].len());
    let mut shares: Vec<Vec<&mut [f32]>> = (0..ranks).map(|_| Vec::new()).collect();
    for buffer in buffers {
        let parts = buffer.chunks_mut(len.div_ceil(ranks));
        shares.iter_mut().zip(parts).for_each(|(share, part)| share.push(part));
    }
    let pass = &|share: &mut [&mut [f32]]| {
        let start = Instant::now();
        let offset = black_box(0.0);
        for from in (0..share[0].len()).step_by(BLOCK) {
            for part in share.iter_mut() {
                let to = part.len().min(from + BLOCK);
                part[from..to].iter_mut().for_each(|x| *x += offset);
            }
        }
        start.elapsed()
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for share in &mut shares {
            threads.push(scope.spawn(move || (0..PASSES).map(|_| pass(share)).collect::<Vec<_>>()));
        }
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Times of all-reduces of the buffers, after one that does not count.
fn all_reduce(buffers: &mut [Vec<f32>]) -> Result<Vec<Duration>, CommError> {
    let ranks = buffers.len();
    let buffers: Vec<_> = buffers.iter_mut().map(std::sync::Mutex::new).collect();
    let times = spawn(ranks, |group| {
        let mut buffer = buffers[group.rank()].lock().expect("each rank its own");
        group.all_reduce(&mut buffer, ReduceOp::Sum)?;
        let pass = |_| {
            let start = Instant::now();
            group.all_reduce(&mut buffer, ReduceOp::Sum)?;
            Ok(start.elapsed())
        };
        (0..PASSES).map(pass).collect::<Result<Vec<_>, CommError>>()
    })?;
    times.into_iter().collect::<Result<Vec<_>, CommError>>().map(|times| times.concat())
}

/// The middle one of some times.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The times of the bound and of the all-reduce, for buffers of so many bytes.
fn measure(ranks: usize, bytes: usize, seconds: f64) -> Result<(Duration, Duration), CommError> {
    let mut buffers = vec![vec![0.0f32; bytes / 4]; ranks];
    let (mut least, mut taken) = (Vec::new(), Vec::new());
    let started = Instant::now();
    while taken.is_empty() || started.elapsed().as_secs_f64() < seconds {
        least.extend(bound(&mut buffers));
        taken.extend(all_reduce(&mut buffers)?);
    }
    assert!(buffers.iter().flatten().all(|&x| x == 0.0));
    Ok((median(least), median(taken)))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |i: usize| std::env::args().nth(i);
    let ranks: usize = argument(1).map_or(Ok(2), |text| text.parse())?;
    let seconds: f64 = argument(2).map_or(Ok(1.0), |text| text.parse())?;
    println!("{ranks} ranks, f32      bound   all_reduce     bytes moved    of the bound");
    for bytes in [4 << 10, 64 << 10, 1 << 20, 4_000_000, 25_000_000, 100_000_000] {
        let (bound, taken) = measure(ranks, bytes, seconds)?;
        let moved = 2.0 * (ranks * bytes) as f64;
        println!(
            "{:>9.3} MB {:>9.3} ms {:>9.3} ms {:>10.1} GB/s {:>13.0} %",
            bytes as f64 / 1e6,
            bound.as_secs_f64() * 1e3,
            taken.as_secs_f64() * 1e3,
            moved / taken.as_secs_f64() / 1e9,
            100.0 * bound.as_secs_f64() / taken.as_secs_f64(),
        );
    }
    Ok(())
}

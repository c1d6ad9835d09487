//! Tensor parallelism by hand: the columns of a product are divided among ranks, each computes its own, and they are put
//! together again. The product has the bits of one that is computed in one piece.
//!
//! cargo run --release -p meshwork --example tensor_parallel [RANKS] [SIZE]

use meshwork::spmd::{CommError, Group, spawn};
use meshwork::tensor::randn;
use meshwork::{Tensor, manual_seed, set_cpu_devices, set_num_threads};

/// x · weightᵀ, with the outputs divided among the ranks.
fn column_parallel(group: &Group, x: &Tensor, weight: &Tensor) -> Result<Tensor, CommError> {
    let own = group.part_of(weight, 0);
    let product = x.linear(&own, None);
    println!("rank {} on {}: {:?} · {:?}ᵀ", group.rank(), group.device(), x.shape(), own.shape());
    group.all_gather(&product, 1)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |i: usize, default: usize| std::env::args().nth(i).map_or(Ok(default), |text| text.parse());
    let (ranks, size) = (argument(1, 2)?, argument(2, 500)?);
    set_cpu_devices(ranks)?;
    set_num_threads(1)?;
    let equal = spawn(ranks, |group| {
        // Every rank draws the same numbers.
        manual_seed(0);
        let (x, weight) = (randn(&[64, size]), randn(&[size, size]));
        let whole = x.linear(&weight, None);
        let gathered = column_parallel(&group, &x, &weight)?;
        Ok::<_, CommError>(gathered.to_bytes() == whole.to_bytes())
    })?;
    match equal.into_iter().collect::<Result<Vec<bool>, CommError>>()?.into_iter().all(|equal| equal) {
        true => println!("the product is that of one device, bit for bit"),
        false => return Err("the product depends on the number of ranks".into()),
    }
    Ok(())
}

//! `meshwork devices`.

use meshwork::Device;
use meshwork::Level;

/// Prints the devices: cores, threads, SIMD level.
pub fn run() {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let device = Device::cpu(0).expect("the first device is always there");
    let levels: Vec<&str> = Level::available().iter().map(|level| level.name()).collect();
    println!("{device:?}  {cores} cores, {} threads", device.num_threads());
    println!("       SIMD {} (of {})", Level::current().name(), levels.join(", "));
}

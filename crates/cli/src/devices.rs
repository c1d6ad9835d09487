//! The CPU devices: choosing them (`--devices`), and `meshwork devices`.

use crate::failure::Failure;
use crate::progress::say;
use crate::words::counted;
use meshwork::{Device, Level, set_cpu_devices, set_cpu_groups};
use std::str::FromStr;

/// How `--devices` divides the cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// `cpu:4`: so many devices, which share the cores evenly.
    Count(usize),
    /// `cpu:0-1,2-3`: the cores of each device.
    Groups(Vec<Vec<usize>>),
}

/// What `--devices` accepts.
const ACCEPTED: &str = "cpu:N, the cores divided among N devices, or the cores of each device, such as cpu:0-1,2-3";

impl FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Devices, String> {
        let list = text.strip_prefix("cpu:").ok_or(ACCEPTED)?;
        let devices = if list.contains([',', '-']) {
            list.split(',').map(cores).collect::<Option<_>>().map(Devices::Groups)
        } else {
            list.parse().ok().filter(|&count| count > 0).map(Devices::Count)
        };
        devices.ok_or_else(|| ACCEPTED.to_string())
    }
}

/// The cores of `3` or `0-1`.
fn cores(text: &str) -> Option<Vec<usize>> {
    /// More than any machine has, few enough to be listed.
    const MOST: usize = 1 << 16;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < MOST).then(|| (first..=last).collect())
}

impl Devices {
    /// Makes them the CPU devices of the process.
    pub fn apply(&self) -> Result<(), Failure> {
        let applied = match self {
            Devices::Count(count) => set_cpu_devices(*count),
            Devices::Groups(groups) => set_cpu_groups(&groups.iter().map(Vec::as_slice).collect::<Vec<_>>()),
        };
        applied.map_err(|e| Failure::Mistake(format!("--devices: {e}")))
    }
}

/// Prints the devices: cores, threads, memory; and what all of them share.
pub fn run(devices: Option<&Devices>) -> Result<(), Failure> {
    devices.map_or(Ok(()), Devices::apply)?;
    let memory = memory().map_or(String::new(), |(total, free)| {
        format!(", {:.1} GiB of memory ({:.1} GiB available)", gib(total), gib(free))
    });
    let shared = if Device::cpus().map_err(Failure::mistake)?.len() > 1 { " that all share" } else { "" };
    for device in Device::cpus().map_err(Failure::mistake)? {
        let threads = counted(device.num_threads(), "thread");
        say(&format!(
            "{device}  {}, {threads}{memory}{}",
            cores_of(&device),
            if memory.is_empty() { "" } else { shared }
        ));
    }
    let levels: Vec<&str> =
        Level::available().iter().filter(|level| level.is_native()).map(|level| level.name()).collect();
    say(&format!("SIMD   {} (of {})", Level::current().name(), levels.join(", ")));
    Ok(())
}

/// The cores of a device in words: `core 0`, `cores 0-3`, `cores 0, 2`.
pub fn cores_of(device: &Device) -> String {
    match device.cores() {
        [only] => format!("core {only}"),
        [first, .., last] if last - first + 1 == device.cores().len() => format!("cores {first}-{last}"),
        cores => format!("cores {}", cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Bytes of the machine's memory, and how many of them are available, where the system tells.
fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some((bytes("MemTotal:")?, bytes("MemAvailable:")?))
}

#[cfg(test)]
mod tests {
    use super::Devices;

    #[test]
    fn counts_and_groups() {
        assert_eq!("cpu:4".parse(), Ok(Devices::Count(4)));
        assert_eq!("cpu:0-1,2-3".parse(), Ok(Devices::Groups(vec![vec![0, 1], vec![2, 3]])));
        assert_eq!("cpu:1,0".parse(), Ok(Devices::Groups(vec![vec![1], vec![0]])));
        assert_eq!("cpu:5-5".parse(), Ok(Devices::Groups(vec![vec![5]])));
        for wrong in [
            "",
            "4",
            "cpu",
            "cpu:",
            "cpu:0",
            "cpu:-1",
            "cpu:1-",
            "cpu:3-2",
            "cpu:1,,2",
            "cpu:1.5",
            "gpu:1",
            "cpu:0-99999999999",
        ] {
            assert!(wrong.parse::<Devices>().is_err(), "{wrong}");
        }
    }
}

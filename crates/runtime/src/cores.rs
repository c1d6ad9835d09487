//! The cores of the machine, and who uses which.

use core_affinity::CoreId;
use std::sync::OnceLock;

/// The numbers of the cores that this process may use, ascending.
pub fn all() -> &'static [usize] {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    CORES.get_or_init(|| {
        let found = core_affinity::get_core_ids().unwrap_or_default();
        let mut cores: Vec<usize> = found.into_iter().map(|core| core.id).collect();
        if cores.is_empty() {
            cores.extend(0..std::thread::available_parallelism().map_or(1, |n| n.get()));
        }
        cores.sort_unstable();
        cores
    })
}

/// Groups of equal size in order, larger ones first; with more groups than cores they share them in turn.
pub fn groups(count: usize) -> Vec<Vec<usize>> {
    let cores = all();
    if count >= cores.len() {
        return (0..count).map(|i| vec![cores[i % cores.len()]]).collect();
    }
    let (size, larger) = (cores.len() / count, cores.len() % count);
    let start = |i: usize| i * size + i.min(larger);
    (0..count).map(|i| cores[start(i)..start(i + 1)].to_vec()).collect()
}

/// Number of cores of the other groups, if no two groups share a core.
pub fn elsewhere(groups: &[Vec<usize>], index: usize) -> usize {
    let mut cores: Vec<usize> = groups.concat();
    cores.sort_unstable();
    let shared = cores.windows(2).any(|pair| pair[0] == pair[1]);
    if shared { 0 } else { cores.len() - groups[index].len() }
}

/// Keeps the calling thread on one of the cores: thread number `thread` of a group takes them in turn. Where the system
/// does not allow it, the thread stays free.
pub fn pin(cores: &[usize], thread: usize) {
    if !cores.is_empty() {
        core_affinity::set_for_current(CoreId { id: cores[thread % cores.len()] });
    }
}

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

/// The core that the calling thread runs on just now, where the system says so.
#[cfg(target_os = "linux")]
pub fn current() -> Option<usize> {
    // SAFETY: it has no conditions.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Brings the calling thread to a core that it may run on; it need not stay there. Where the system does not allow that,
/// the thread stays where it is.
#[cfg(target_os = "linux")]
pub fn visit(core: usize) {
    const SIZE: usize = size_of::<libc::cpu_set_t>();
    // SAFETY: sets of cores are plain bits, and read and written as a whole.
    unsafe {
        let (mut own, mut one): (libc::cpu_set_t, libc::cpu_set_t) = (std::mem::zeroed(), std::mem::zeroed());
        let may = core < 8 * SIZE && libc::sched_getaffinity(0, SIZE, &mut own) == 0 && libc::CPU_ISSET(core, &own);
        if may {
            libc::CPU_SET(core, &mut one);
            if libc::sched_setaffinity(0, SIZE, &one) == 0 {
                libc::sched_setaffinity(0, SIZE, &own);
            }
        }
    }
}

/// Other systems are not asked.
#[cfg(not(target_os = "linux"))]
pub fn current() -> Option<usize> {
    None
}

/// See [`current`].
#[cfg(not(target_os = "linux"))]
pub fn visit(_: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_visits_a_core_and_is_free_again() {
        let Some(before) = current() else { return };
        for &core in all() {
            visit(core);
            // It may have gone elsewhere since, but not been kept.
            let free = core_affinity::get_core_ids().unwrap_or_default();
            assert_eq!(free.len(), all().len());
        }
        visit(before);
        visit(usize::MAX);
    }
}

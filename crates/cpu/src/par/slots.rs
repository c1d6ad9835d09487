//! Jobs whose tasks need room: each thread that does some has a slot for itself.

use super::{Par, Shares, is_called_away};

/// Runs `task` for `0..count`, giving each call one of `slots` slots for itself. Each slot has its share of the tasks
/// ([`Shares`]). The closure should hold what it needs: see [`Par::run_held`].
#[inline(always)]
pub fn with_slots(par: &Par, slots: usize, count: usize, task: impl Fn(usize, usize) + Sync) {
    /// For a slot: all that is left, come what may.
    const REST: usize = usize::MAX;
    let slots = slots.min(count);
    let shares = Shares::of(count, slots);
    let job = par.run_held(slots, move |slot| {
        let piece = |slot: usize| shares.take(slot).map(|i| task(slot, i)).is_some();
        match slot {
            REST => while piece(0) {},
            _ => while !is_called_away() && piece(slot) {},
        }
    });
    // Guests may have had all slots, and left.
    job(REST);
}

//! Which copy of a parameter each of its users reads, where parameters are split over devices: gathered before they are
//! used, freed afterwards, and gathered again for the next use (ZeRO stage 3: Rajbhandari et al., 2020; FSDP: Zhao et al.,
//! 2023).
//!
//! A device has room for twice what the hungriest of its nodes needs. In the order of use, what was used longest ago
//! makes room for what is needed next, and the copy of that begins when the piece of the last user has ended. So while one
//! layer is computed, the next one is on its way, and no more. What is still there when it is needed again (the last
//! layer, at the start of the backward pass) is not copied twice.

use crate::graph::NodeId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// Models whose parameters are smaller than this keep them: there is nothing to be gained.
const LITTLE: usize = 256 << 10;

/// Copies that a node needs on its device.
pub(super) struct Use {
    pub device: u32,
    pub user: NodeId,
    /// What is copied, and how many bytes.
    pub copies: Vec<(NodeId, usize)>,
}

/// The versions of copies that are made again.
#[derive(Default)]
pub(super) struct Window {
    /// The version of a copy that a user reads.
    versions: FxHashMap<(NodeId, NodeId), u32>,
    /// Users of any copy.
    users: FxHashSet<NodeId>,
    /// The user whose piece must have ended before a version of a copy to a device begins.
    after: FxHashMap<(NodeId, u32, u32), NodeId>,
}

/// A copy that is there.
struct There {
    copy: NodeId,
    version: u32,
    bytes: usize,
    last: NodeId,
}

impl Window {
    /// From the uses in the order of time.
    pub fn new(uses: &[Use]) -> Window {
        let mut window = Window::default();
        let mut devices: Vec<u32> = uses.iter().map(|u| u.device).collect();
        devices.sort_unstable();
        devices.dedup();
        for device in devices {
            let uses: Vec<&Use> = uses.iter().filter(|u| u.device == device).collect();
            let most = uses.iter().map(|u| u.copies.iter().map(|(_, bytes)| bytes).sum::<usize>()).max().unwrap_or(0);
            window.fill(device, &uses, (2 * most).max(LITTLE));
        }
        window
    }

    fn fill(&mut self, device: u32, uses: &[&Use], room: usize) {
        // Those that were used longest ago come first.
        let mut there: VecDeque<There> = VecDeque::new();
        let mut made: FxHashMap<NodeId, u32> = FxHashMap::default();
        let (mut bytes, mut freed) = (0, None);
        for Use { user, copies, .. } in uses {
            self.users.insert(*user);
            for &(copy, size) in copies {
                if let Some(at) = there.iter().position(|t| t.copy == copy) {
                    let known = there.remove(at).expect("it is there");
                    self.versions.insert((*user, copy), known.version);
                    there.push_back(There { last: *user, ..known });
                    continue;
                }
                while bytes + size > room
                    && let Some(oldest) = there.pop_front_if(|oldest| oldest.last != *user)
                {
                    bytes -= oldest.bytes;
                    freed = Some(oldest.last);
                }
                let version = made.entry(copy).or_insert(0);
                self.versions.insert((*user, copy), *version);
                if let Some(freed) = freed {
                    self.after.insert((copy, device, *version), freed);
                }
                there.push_back(There { copy, version: *version, bytes: size, last: *user });
                *version += 1;
                bytes += size;
            }
        }
    }

    /// The version of a copy that a user reads.
    pub fn version(&self, user: NodeId, copy: NodeId) -> u32 {
        self.versions.get(&(user, copy)).copied().unwrap_or(0)
    }

    /// Whether the node reads copies that are made again.
    pub fn has_user(&self, node: NodeId) -> bool {
        self.users.contains(&node)
    }

    /// Whether any copy waits for a piece.
    pub fn has_waiting(&self) -> bool {
        !self.after.is_empty()
    }

    /// The user after whose piece the version of a copy begins.
    pub fn after(&self, copy: NodeId, device: u32, version: u32) -> Option<NodeId> {
        self.after.get(&(copy, device, version)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(order: &[u32], size: usize) -> Vec<Use> {
        let layer = |(user, &layer): (usize, &u32)| Use {
            device: 0,
            user: NodeId(user as u32),
            copies: vec![(NodeId(100 + layer), size)],
        };
        order.iter().enumerate().map(layer).collect()
    }

    #[test]
    fn layers_are_copied_again_for_the_backward_pass_except_for_the_last_ones() {
        let window = Window::new(&uses(&[0, 1, 2, 3, 3, 2, 1, 0], 1 << 20));
        let versions: Vec<u32> = [0, 1, 2, 3, 3, 2, 1, 0]
            .into_iter()
            .enumerate()
            .map(|(user, layer)| window.version(NodeId(user as u32), NodeId(100 + layer)))
            .collect();
        assert_eq!(versions, [0, 0, 0, 0, 0, 0, 1, 1]);
        let after = |layer: u32, version| window.after(NodeId(100 + layer), 0, version).map(|user| user.0);
        assert_eq!([after(0, 0), after(1, 0), after(2, 0), after(3, 0)], [None, None, Some(0), Some(1)]);
        assert_eq!([after(1, 1), after(0, 1)], [Some(4), Some(5)]);
    }

    #[test]
    fn little_is_kept() {
        let window = Window::new(&uses(&[0, 1, 2, 3, 3, 2, 1, 0], 1 << 10));
        assert!(window.after.is_empty());
        assert!(window.versions.values().all(|&version| version == 0));
    }
}

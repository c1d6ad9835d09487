//! Copies between devices, and sets of them.

use crate::graph::NodeId;
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// A set of copies, interned.
pub(super) type SetId = usize;

/// A bundle of copies, 0 for none, and the phase of what is copied.
pub(super) type Bundle = (u32, usize);

/// A copy of a node's value, whose elements follow each other in the value of another node from `offset` on.
#[derive(Clone, Copy)]
pub(super) struct Copy {
    pub node: NodeId,
    pub base: NodeId,
    pub offset: usize,
    pub to: u32,
    pub result: usize,
    /// The group that must have ended before it begins.
    pub after: Option<usize>,
}

/// The copies between devices and sets of them.
#[derive(Default)]
pub(super) struct Copies {
    /// What is copied where, and the value of the copy.
    pub list: Vec<Copy>,
    /// By root, device and version.
    pub known: FxHashMap<(NodeId, u32, u32), usize>,
    /// The member of sets that stands for each copy: one for all of a bundle.
    pub members: Vec<usize>,
    bundles: FxHashMap<(u32, Bundle), usize>,
    count: usize,
    /// A bit for each copy, up to the last one that is in the set.
    sets: Vec<Rc<[u64]>>,
    set_ids: FxHashMap<Rc<[u64]>, SetId>,
    unions: FxHashMap<(SetId, SetId), SetId>,
}

impl Copies {
    /// None; set number 0 is empty.
    pub fn new() -> Self {
        let mut copies = Copies::default();
        copies.set(Rc::new([]));
        copies
    }

    fn set(&mut self, members: Rc<[u64]>) -> SetId {
        if let Some(&id) = self.set_ids.get(&members) {
            return id;
        }
        let id = self.sets.len();
        self.sets.push(members.clone());
        self.set_ids.insert(members, id);
        id
    }

    pub fn size(&self, set: SetId) -> u32 {
        self.sets[set].iter().map(|word| word.count_ones()).sum()
    }

    /// Adds a copy, and a member of sets unless it is one of a bundle that has its own.
    pub fn add(&mut self, copy: Copy, version: u32, bundle: Bundle) -> usize {
        let member = match self.bundles.get(&(copy.to, bundle)) {
            Some(&member) if bundle.0 != 0 => member,
            _ => {
                self.bundles.insert((copy.to, bundle), self.count);
                self.count += 1;
                self.count - 1
            }
        };
        self.known.insert((copy.node, copy.to, version), self.list.len());
        self.members.push(member);
        self.list.push(copy);
        self.list.len() - 1
    }

    /// A set with one more member.
    pub fn with(&mut self, set: SetId, member: usize) -> SetId {
        let (word, bit) = (member / 64, 1 << (member % 64));
        let mut members = self.sets[set].to_vec();
        members.resize(members.len().max(word + 1), 0);
        members[word] |= bit;
        self.set(members.into())
    }

    pub fn union(&mut self, a: SetId, b: SetId) -> SetId {
        if a == b {
            return a;
        }
        let key = (a.min(b), a.max(b));
        if let Some(&id) = self.unions.get(&key) {
            return id;
        }
        let (long, short) = if self.sets[a].len() < self.sets[b].len() { (b, a) } else { (a, b) };
        let mut members = self.sets[long].to_vec();
        members.iter_mut().zip(&*self.sets[short]).for_each(|(word, other)| *word |= other);
        let id = self.set(members.into());
        self.unions.insert(key, id);
        id
    }
}

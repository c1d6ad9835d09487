//! Where ranks meet: what tells one meeting from another.

/// What tells a group from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId {
    /// The number of the meeting that made it; 0 for the whole world.
    pub meeting: u64,
    /// Its position among the groups that were made there.
    pub index: usize,
}

/// Who of a group takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// All of it.
    All,
    /// Two members.
    Pair {
        /// The one that sends.
        from: usize,
        /// The one that receives.
        to: usize,
    },
}

/// What tells a meeting from all others: calls meet in the order in which each member makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Whose meeting.
    pub group: GroupId,
    /// Who of them.
    pub channel: Channel,
    /// How many there were before.
    pub number: u64,
}

/// A place in a meeting.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// Which meeting.
    pub key: Key,
    /// The position among its members.
    pub member: usize,
    /// The rank in the world.
    pub rank: usize,
}

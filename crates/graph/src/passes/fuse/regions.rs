//! Which operations run together.

use super::constant;
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::ops::{Space, TILE_COLUMNS};
use crate::passes::rewrite::live;

/// Most instructions of a region: its values must fit into the first-level cache, tile by tile.
const MAX_INSTRUCTIONS: usize = 48;
/// Most inputs of a region.
const MAX_INPUTS: usize = 16;
/// Most results of a region.
const MAX_RESULTS: usize = 8;
/// Fewest rows that are combined in a region if they are wider than a tile: fewer would leave threads idle.
const WIDE_ROWS: usize = 64;
/// Fewest rows that lie beside each other in a region: of fewer there is more time lost between rows than won.
const BESIDE: usize = 16;
/// Rows that lie beside each other and are taken together at least, where there are so many.
const TOGETHER: usize = 64;
/// Fewest such parts of rows, unless these are short: fewer would leave threads idle (4000 × 64 along the first dimension took 192
/// µs instead of 85).
const PARTS: usize = 16;
/// Elements of rows that are short.
const SHORT: usize = 512;
/// Bytes of a value that is worth not being kept: smaller ones stay in the first-level cache.
pub(super) const LEAST: usize = 32 << 10;
/// A region may compute a result so many heavy kernels before it is needed, but not earlier: it would occupy memory.
pub(super) const EARLY: usize = 4;

/// Nodes that run together.
pub(super) struct Region {
    pub space: Space,
    /// Ascending.
    pub members: Vec<NodeId>,
    /// Number of the heavy kernel before which a result is needed.
    pub due: usize,
}

/// How a member of a region reads an operand.
pub(super) struct Read {
    /// The value itself, with views between rows and their elements taken away.
    pub value: NodeId,
    /// Whether it is a value of rows that is spread over the elements.
    pub spread: bool,
}

impl Region {
    /// How a member reads its operand `x`.
    pub fn read(&self, graph: &Graph, x: NodeId) -> Read {
        let mut read = Read { value: x, spread: false };
        loop {
            let node = graph.node(read.value);
            let of_rows = |id: NodeId| self.space.is_of_rows(&graph.ty(id).shape);
            match node.op {
                Op::Expand(_) if node.ty.shape == self.space.shape && self.is_spread(graph, node.inputs[0]) => {
                    read.spread = true;
                }
                Op::Reshape(_) if of_rows(read.value) && of_rows(node.inputs[0]) => {}
                _ => return read,
            }
            read.value = node.inputs[0];
        }
    }

    /// Whether a value that is expanded to all elements is one of rows.
    fn is_spread(&self, graph: &Graph, id: NodeId) -> bool {
        let shape = &graph.ty(id).shape;
        // A shape with dimensions missing stands for the last ones.
        self.space.is_of_rows(shape) && (self.space.row_dims == 0 || shape.rank() == self.space.shape.rank())
    }

    /// The operands that a member reads: all but the zeros into which it scatters.
    pub fn reads(graph: &Graph, member: NodeId) -> &[NodeId] {
        let node = graph.node(member);
        if let Op::ScatterAdd(_) = node.op { &node.inputs[1..] } else { &node.inputs }
    }

    /// Whether the value of a node is inside.
    pub fn contains(&self, id: NodeId) -> bool {
        self.members.binary_search(&id).is_ok()
    }
}

/// A partition of the live elementwise nodes, and of the reductions of rows and the like beside them, such that the
/// regions, each taken as one node, still form a graph without cycles.
pub(super) struct Regions<'a> {
    pub graph: &'a Graph,
    pub live: Vec<bool>,
    pub users: Vec<Vec<NodeId>>,
    pub wanted: Vec<bool>,
    /// How many heavy kernels come before each node.
    pub numbers: Vec<usize>,
    /// For every node the number of the heavy kernel before which it is needed first.
    due: Vec<usize>,
    /// And of the one before which it is needed last.
    last: Vec<usize>,
    /// For every node the region it is in.
    region: Vec<Option<usize>>,
    regions: Vec<Region>,
}

impl<'a> Regions<'a> {
    pub fn new(graph: &'a Graph) -> Self {
        let mut regions = Regions::none(graph);
        regions.join_users();
        regions.join_producers();
        regions.join_siblings();
        regions.compute_early();
        regions.leave_alone();
        regions
    }

    /// The regions of another graph with computations that they do again: `of` says for each node of `graph` to which region of
    /// `others` it belongs. What is live of them stays.
    pub fn again(graph: &'a Graph, others: &Regions, of: &[Option<usize>]) -> Self {
        let mut regions = Regions::none(graph);
        let same = |other: &Region| Region { space: other.space.clone(), members: Vec::new(), due: other.due };
        regions.regions = others.regions.iter().map(same).collect();
        for id in graph.ids().filter(|id| regions.live[id.index()]) {
            if let Some(region) = of[id.index()] {
                regions.region[id.index()] = Some(region);
                regions.regions[region].members.push(id);
            }
        }
        regions.leave_alone();
        regions
    }

    /// A graph whose nodes are in no region.
    fn none(graph: &'a Graph) -> Self {
        let live = live(graph);
        let mut users: Vec<Vec<NodeId>> = vec![Vec::new(); graph.nodes.len()];
        for id in graph.ids().filter(|id| live[id.index()]) {
            for x in &graph.node(id).inputs {
                if !users[x.index()].contains(&id) {
                    users[x.index()].push(id);
                }
            }
        }
        let mut wanted = vec![false; graph.nodes.len()];
        for o in &graph.outputs {
            wanted[o.index()] = true;
        }
        let count = graph.nodes.len();
        let mut regions = Regions {
            graph,
            live,
            users,
            wanted,
            numbers: Vec::with_capacity(count),
            due: vec![usize::MAX; count],
            last: vec![0; count],
            region: vec![None; count],
            regions: Vec::new(),
        };
        regions.find_due();
        regions
    }

    /// The region of a node.
    pub fn of(&self, id: NodeId) -> Option<&Region> {
        self.region[id.index()].map(|r| &self.regions[r])
    }

    /// The number of a node's region.
    pub fn number(&self, id: NodeId) -> Option<usize> {
        self.region[id.index()]
    }

    /// All regions, with those that have become parts of others and have no members.
    pub fn all(&self) -> &[Region] {
        &self.regions
    }

    /// Whether a region is small enough to run as one kernel.
    pub fn fits(&self, region: &Region) -> bool {
        region.members.len() <= MAX_INSTRUCTIONS
            && self.inputs(region).len() <= MAX_INPUTS
            && self.results(region).len() <= MAX_RESULTS
    }

    /// What a region reads from memory.
    pub fn inputs(&self, region: &Region) -> Vec<NodeId> {
        let mut inputs: Vec<NodeId> = Vec::new();
        for &x in region.members.iter().flat_map(|&id| Region::reads(self.graph, id)) {
            if constant(self.graph, x).is_some() {
                continue;
            }
            let value = region.read(self.graph, x).value;
            if !region.contains(value) && !inputs.contains(&value) {
                inputs.push(value);
            }
        }
        inputs
    }

    /// The members of a region that are needed outside of it, at least one.
    pub fn results(&self, region: &Region) -> Vec<NodeId> {
        let needed = |id: &NodeId| self.is_needed(region, *id);
        region.members.iter().copied().filter(needed).collect()
    }

    /// Whether a member, or a view of one that the region reads as the member, is needed outside of the region.
    fn is_needed(&self, region: &Region, id: NodeId) -> bool {
        let is_view = |user: NodeId| {
            let read = region.read(self.graph, user).value;
            read != user && region.contains(read)
        };
        self.wanted[id.index()]
            || self.users[id.index()]
                .iter()
                .any(|&user| if is_view(user) { self.is_needed(region, user) } else { !region.contains(user) })
    }

    /// The space of the region that a node may begin.
    fn space(&self, id: NodeId) -> Option<Space> {
        let graph = self.graph;
        let node = graph.node(id);
        let shape = || graph.ty(node.inputs[0]).shape.clone();
        let picks = |dim: usize, index: NodeId| dim + 1 == shape().rank() && graph.ty(index).shape[dim] == 1;
        let rows = |row_dims: usize, block: usize| {
            let space = Space::rows(row_dims, shape());
            let columns = space.columns();
            // A row is computed by one thread, tile by tile, so that blocks must not reach over the end of a tile.
            let can_be_wide = row_dims + 1 == space.shape.rank()
                && space.row_shape().numel() >= WIDE_ROWS
                && TILE_COLUMNS.is_multiple_of(block);
            (columns > 1 && (columns <= TILE_COLUMNS || can_be_wide)).then_some(space)
        };
        match &node.op {
            Op::Element(_) => Some(Space::elements(node.ty.shape.clone())),
            Op::Reduce(op) => {
                let shape = shape();
                let (first, last) = (*op.dims.first()?, *op.dims.last()?);
                if !op.dims.iter().copied().eq(first..=last) {
                    None
                } else if last + 1 == shape.rank() {
                    rows(first, op.blocks(&shape).unit)
                } else {
                    let inner_dims = shape.rank() - (last + 1);
                    let space = Space { shape, row_dims: first, inner_dims };
                    (is_beside(&space) && self.comes_back(id, &space)).then_some(space)
                }
            }
            Op::Gather(op) if picks(op.dim, node.inputs[1]) => rows(op.dim, 1),
            Op::ScatterAdd(op) if picks(op.dim, node.inputs[1]) && is_zero(graph, node.inputs[0]) => rows(op.dim, 1),
            _ => None,
        }
    }

    /// Whether values of rows are for their elements again, as they are or as what is computed from them.
    fn comes_back(&self, id: NodeId, space: &Space) -> bool {
        let mut waiting = vec![id];
        let mut next = 0;
        while let Some(&value) = waiting.get(next) {
            next += 1;
            for &user in &self.users[value.index()] {
                let node = self.graph.node(user);
                match node.op {
                    Op::Expand(_) if node.ty.shape == space.shape => return true,
                    Op::Element(_) | Op::Reshape(_)
                        if space.is_of_rows(&node.ty.shape)
                            && !waiting.contains(&user)
                            && waiting.len() < MAX_INSTRUCTIONS =>
                    {
                        waiting.push(user);
                    }
                    _ => {}
                }
            }
        }
        false
    }

    /// Every node that may be in a region joins one of its users, or begins one.
    fn join_users(&mut self) {
        let graph = self.graph;
        for id in graph.ids().rev() {
            let Some(space) = self.space(id).filter(|_| self.live[id.index()]) else { continue };
            let new = self.regions.len();
            self.regions.push(Region { space, members: vec![id], due: self.due[id.index()] });
            self.region[id.index()] = Some(new);
            for user in self.users_of_views(id) {
                if self.region[user.index()].is_some_and(|r| self.merge(new, r)) {
                    break;
                }
            }
        }
    }

    /// The users of a value and of its views.
    fn users_of_views(&self, id: NodeId) -> Vec<NodeId> {
        let mut users = self.users[id.index()].clone();
        let mut i = 0;
        while let Some(user) = users.get(i) {
            if matches!(self.graph.node(*user).op, Op::Reshape(_) | Op::Expand(_)) {
                users.extend_from_slice(&self.users[user.index()]);
            }
            i += 1;
        }
        users
    }

    /// Reductions that found no company stay what they are.
    fn leave_alone(&mut self) {
        for region in &mut self.regions {
            if let [id] = region.members[..]
                && !matches!(self.graph.node(id).op, Op::Element(_))
            {
                self.region[id.index()] = None;
                region.members.clear();
            }
        }
    }

    /// Regions join the regions that they read.
    fn join_producers(&mut self) {
        for id in self.graph.ids() {
            for user in self.users_of_views(id) {
                if let (Some(producer), Some(user)) = (self.region[id.index()], self.region[user.index()]) {
                    self.merge(producer, user);
                }
            }
        }
    }

    /// Regions that read the same value join, which saves a pass over it.
    fn join_siblings(&mut self) {
        for id in self.graph.ids() {
            let users = &self.users[id.index()];
            let mut regions: Vec<usize> = users.iter().filter_map(|u| self.region[u.index()]).collect();
            regions.dedup();
            if regions.len() < 2 || constant(self.graph, id).is_some() || is_repeated(self.graph, id) {
                continue;
            }
            let users = users.clone();
            for pair in users.windows(2) {
                if let (Some(a), Some(b)) = (self.region[pair[0].index()], self.region[pair[1].index()]) {
                    self.merge(a, b);
                }
            }
        }
    }

    /// What a late region computes from nothing but a value that would be kept for it alone, and is smaller, is computed where the value
    /// is: of a ReLU's result in front of a pool the gradient needs only where it is positive.
    fn compute_early(&mut self) {
        for x in self.graph.ids() {
            let Some(early) = self.region[x.index()] else { continue };
            let limit = self.regions[early].due.saturating_add(EARLY);
            if self.graph.ty(x).bytes() < LEAST || self.wanted[x.index()] {
                continue;
            }
            let region = &self.regions[early];
            let outside = self.users[x.index()].iter().copied().filter(|&user| !region.contains(user));
            let (late, soon): (Vec<NodeId>, Vec<NodeId>) = outside.partition(|&user| self.is_due_after(user, limit));
            let bytes = |ids: &[NodeId]| ids.iter().map(|&id| self.graph.ty(id).bytes()).sum::<usize>();
            let kept = soon.iter().any(|&user| self.last_use(user) > limit);
            if late.is_empty() || kept || bytes(&late) >= bytes(&[x]) {
                continue;
            }
            if late.iter().all(|&id| self.can_move(id, early)) {
                self.move_to(&late, early);
            }
        }
    }

    /// Whether a node's region is needed only after so many heavy kernels.
    fn is_due_after(&self, id: NodeId, limit: usize) -> bool {
        self.of(id).is_some_and(|region| region.due > limit)
    }

    /// Whether an elementwise node of another region reads nothing but members of a region of its shape, and constants.
    fn can_move(&self, id: NodeId, to: usize) -> bool {
        let (node, region) = (self.graph.node(id), &self.regions[to]);
        let is_inside =
            |&x: &NodeId| constant(self.graph, x).is_some() || region.contains(region.read(self.graph, x).value);
        matches!(node.op, Op::Element(_)) && node.ty.shape == region.space.shape && node.inputs.iter().all(is_inside)
    }

    /// Moves nodes that read only members of a region to it, if it fits then.
    fn move_to(&mut self, ids: &[NodeId], to: usize) {
        let Region { space, members, due } = &self.regions[to];
        let mut members = [members.as_slice(), ids].concat();
        members.sort_unstable();
        let region = Region { space: space.clone(), members, due: *due };
        if !self.fits(&region) {
            return;
        }
        for &id in ids {
            let from = self.region[id.index()].replace(to).expect("a member");
            self.regions[from].members.retain(|&member| member != id);
        }
        self.regions[to] = region;
    }

    /// Numbers the heavy kernels, and finds which of them need each node.
    fn find_due(&mut self) {
        let is_heavy = |id: NodeId| is_heavy(&self.graph.node(id).op);
        let mut kernels = 0;
        for id in self.graph.ids() {
            self.numbers.push(kernels);
            kernels += usize::from(self.live[id.index()] && is_heavy(id));
        }
        for id in self.graph.ids().rev() {
            let i = id.index();
            let users = |light: &Vec<usize>| -> Vec<usize> {
                let by_user = |u: &NodeId| if is_heavy(*u) { self.numbers[u.index()] } else { light[u.index()] };
                self.users[i].iter().map(by_user).collect()
            };
            let own = if self.wanted[i] { (self.numbers[i], usize::MAX) } else { (usize::MAX, 0) };
            let (first, last) = (users(&self.due), users(&self.last));
            self.due[i] = first.into_iter().min().unwrap_or(usize::MAX).min(own.0);
            self.last[i] = last.into_iter().max().unwrap_or(0).max(own.1);
        }
    }

    /// Whether results that are needed late take no more memory, when they are computed early, than what they are computed
    /// from: that would have to be kept for them alone.
    fn is_kept_for(&self, early: &Region, late: &Region) -> bool {
        let ty = |id: &NodeId| self.graph.ty(*id).bytes();
        let read: Vec<NodeId> = self.inputs(late).into_iter().filter(|&x| early.contains(x)).collect();
        let is_kept_anyway = |x: &NodeId| {
            let others = self.users[x.index()].iter().filter(|&&user| !early.contains(user) && !late.contains(user));
            let mut last = others.map(|user| self.last_use(*user));
            self.wanted[x.index()] || last.any(|last| last > early.due + EARLY)
        };
        let results: usize = self.results(late).iter().map(ty).sum();
        !read.iter().any(is_kept_anyway) && results <= read.iter().map(ty).sum()
    }

    /// The number of the last heavy kernel that needs a node, or of itself if it is one.
    fn last_use(&self, id: NodeId) -> usize {
        if is_heavy(&self.graph.node(id).op) { self.numbers[id.index()] } else { self.last[id.index()] }
    }

    /// Makes one of two regions if they fit, and says whether it did.
    fn merge(&mut self, a: usize, b: usize) -> bool {
        if a == b {
            return true;
        }
        let (first, second) = (&self.regions[a], &self.regions[b]);
        let Some(space) = common_space(&first.space, &second.space) else { return false };
        let mut members = [first.members.as_slice(), &second.members].concat();
        members.sort_unstable();
        let region = Region { space, members, due: first.due.min(second.due) };
        if !self.fits(&region) {
            return false;
        }
        // Where all results of the first are for the second, it runs no earlier.
        let absorbed = first.members.iter().all(|&id| second.contains(id) || !self.is_needed(&region, id));
        let (early, late) = if first.due < second.due { (first, second) } else { (second, first) };
        let in_time = absorbed || late.due - early.due <= EARLY || self.is_kept_for(early, late);
        if !in_time || self.is_cyclic(&region) {
            return false;
        }
        for id in &region.members {
            self.region[id.index()] = Some(b);
        }
        self.regions[a].members.clear();
        self.regions[b] = region;
        true
    }

    /// Whether a region would need its own results by way of other nodes.
    fn is_cyclic(&self, region: &Region) -> bool {
        let mut seen = vec![false; self.graph.nodes.len()];
        let mut waiting: Vec<NodeId> = Vec::new();
        let mut group = region.members.clone();
        loop {
            for &id in &group {
                let is_inside = region.contains(region.read(self.graph, id).value);
                for &user in &self.users[id.index()] {
                    match region.contains(user) {
                        true if !is_inside => return true,
                        true => {}
                        false => waiting.push(user),
                    }
                }
            }
            waiting.retain(|id| !seen[id.index()]);
            let Some(id) = waiting.pop() else { return false };
            group = self.of(id).map_or_else(|| vec![id], |other| other.members.clone());
            group.iter().for_each(|m| seen[m.index()] = true);
        }
    }
}

/// Whether a region is worth it for rows that lie beside each other.
fn is_beside(space: &Space) -> bool {
    let inner = space.inner();
    let parts = space.outer() * inner.div_ceil(TOGETHER);
    space.columns() > 1 && inner >= BESIDE && (parts >= PARTS || space.columns() <= SHORT)
}

/// Whether all elements of a value are +0.
fn is_zero(graph: &Graph, id: NodeId) -> bool {
    constant(graph, id).is_some_and(|value| value.as_f64().to_bits() == 0)
}

/// The space in which the members of two regions can be together.
fn common_space(a: &Space, b: &Space) -> Option<Space> {
    let within = |part: &Space, whole: &Space| {
        part.columns() == 1 && (part.shape == whole.shape || whole.is_of_rows(&part.shape))
    };
    match (a, b) {
        _ if a == b || within(b, a) => Some(a.clone()),
        _ if within(a, b) => Some(b.clone()),
        _ => None,
    }
}

/// Whether a node is worth its own place in the order: not a view, and no mere pass over memory.
fn is_heavy(op: &Op) -> bool {
    !matches!(
        op,
        Op::Input(_)
            | Op::Const(_)
            | Op::Iota(_)
            | Op::Element(_)
            | Op::Reduce(_)
            | Op::Gather(_)
            | Op::ScatterAdd(_)
            | Op::Reshape(_)
            | Op::Permute(_)
            | Op::Expand(_)
            | Op::Slice(_)
            | Op::Barrier(_)
    )
}

/// Whether a value is spread over more elements than it has.
fn is_repeated(graph: &Graph, id: NodeId) -> bool {
    match &graph.node(id).op {
        Op::Expand(_) => true,
        Op::Reshape(_) | Op::Permute(_) | Op::Slice(_) => is_repeated(graph, graph.node(id).inputs[0]),
        _ => false,
    }
}

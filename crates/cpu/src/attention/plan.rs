//! What tasks work on: which queries and keys, and with which memory.

use super::BLOCK;
use super::ahead::Ahead;
use super::rows::{PADDING, padded};
use super::softmax::{Number, UNIT};
use super::tile::{self, Engine};
use crate::Level;
use crate::gemm::Element;
use crate::gemm::pack::SLACK;
use crate::gemm::real::same;
use crate::gemm::scratch::room;
use half::bf16;
use meshwork_graph::Layout;
use meshwork_graph::ops::{Attention, AttentionInput, AttentionMask, AttentionResult, AttentionSizes};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// Tasks for each thread, at least, so that they end together.
const TASKS: usize = 4;
/// Queries that read a key, from which a copy of scattered keys pays.
const OFTEN: usize = 64;

/// Tasks that run side by side. Each has a sample and a key head; some of the units of the query heads that read it; and some
/// of the keys.
#[derive(Clone, Debug)]
pub struct Pass {
    /// Parts of the units.
    units: usize,
    /// Parts of the keys.
    keys: usize,
    /// What is computed.
    pub results: SmallVec<[AttentionResult; 3]>,
}

impl Pass {
    /// Whether a result is computed.
    pub fn has(&self, result: AttentionResult) -> bool {
        self.results.contains(&result)
    }

    /// Whether tasks sum over queries.
    fn sums_over_queries(&self) -> bool {
        self.has(AttentionResult::Key) || self.has(AttentionResult::Value)
    }
}

/// Queries of neighbouring positions, which are computed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The queries.
    pub queries: Range<usize>,
    /// Number of the keys that they compute with: the first ones.
    pub keys: usize,
}

/// One task.
pub struct Task {
    /// The sample.
    pub sample: usize,
    /// The key head.
    pub group: usize,
    /// Query heads of the group, each with its units, one after the other: which of them.
    pub lines: Range<usize>,
    /// The keys.
    pub keys: Range<usize>,
    /// What its kernels ask for.
    pub ahead: Ahead,
}

/// How the work is cut.
pub struct Plan {
    pub sizes: AttentionSizes,
    pub mask: AttentionMask,
    /// One after the other.
    pub passes: SmallVec<[Pass; 2]>,
    /// Whether keys and values are copied.
    pub copies: [bool; 2],
    /// Whether operands are made pairs of where there are microkernels for them.
    in_pairs: bool,
    /// Whether gradients are computed.
    pub is_gradient: bool,
    threads: usize,
}

impl Plan {
    pub fn new<S: Element>(op: &Attention, inputs: &[&Layout], threads: usize) -> Plan {
        let shapes: Vec<_> = inputs.iter().map(|layout| &layout.shape).collect();
        let sizes = op.sizes_of(&shapes);
        let names = op.inputs();
        let readers = sizes.query_heads.checked_div(sizes.key_heads).unwrap_or(0) * sizes.queries;
        let copied = |name| {
            let Some(i) = names.iter().position(|x| *x == name) else { return false };
            let (width, step) = (inputs[i].shape[3], inputs[i].strides[1]);
            let scattered = step != width as isize && readers >= OFTEN;
            !same::<S, S::Real>() || !width.is_multiple_of(PADDING) || scattered
        };
        let mut plan = Plan {
            sizes,
            mask: op.mask,
            passes: SmallVec::new(),
            copies: [AttentionInput::Key, AttentionInput::Value].map(copied),
            // What a unit computes with ends where a pair does, or with the keys: it ends at a position that is a multiple
            // of units, and the first key's is even.
            in_pairs: same::<S, bf16>() && (op.mask.first_key % 2 == 0 || !op.mask.causal && !op.mask.padded),
            is_gradient: op.results[0].is_gradient(),
            threads,
        };
        plan.passes = plan.passes_for(op);
        plan
    }

    /// Tasks that sum over keys may share the queries, those that sum over queries the keys. Both at once, which saves work,
    /// needs enough samples and heads to go round.
    fn passes_for(&self, op: &Attention) -> SmallVec<[Pass; 2]> {
        let pairs = (self.sizes.batch * self.sizes.key_heads).max(1);
        let wanted = if self.threads == 1 { 1 } else { (self.threads * TASKS).div_ceil(pairs) };
        let by_query = Pass { units: self.lines().clamp(1, wanted), keys: 1, results: op.results.clone() };
        let by_key = Pass { units: 1, keys: self.sizes.keys.div_ceil(BLOCK).clamp(1, wanted), ..by_query.clone() };
        if !by_query.sums_over_queries() {
            return smallvec![by_query];
        }
        if !by_query.has(AttentionResult::Query) {
            return smallvec![by_key];
        }
        if self.threads == 1 || pairs >= 2 * self.threads {
            return smallvec![Pass { keys: 1, ..by_key }];
        }
        let only = |pass: Pass, of_query: bool| Pass {
            results: pass.results.iter().copied().filter(|r| (*r == AttentionResult::Query) == of_query).collect(),
            ..pass
        };
        smallvec![only(by_query, true), only(by_key, false)]
    }

    /// Units of a head.
    fn units(&self) -> usize {
        let first = self.mask.first_query.div_euclid(UNIT as i64);
        let end = self.mask.first_query + self.sizes.queries as i64 - 1;
        (end.div_euclid(UNIT as i64) - first + 1) as usize
    }

    /// Query heads that read a key head, times their units.
    fn lines(&self) -> usize {
        self.sizes.query_heads.checked_div(self.sizes.key_heads).unwrap_or(0) * self.units()
    }

    /// The query head of a line, and its unit, for a sample of so many keys.
    pub fn line(&self, group: usize, line: usize, length: Option<i64>) -> (usize, Unit) {
        let (unit, first) = (UNIT as i64, self.mask.first_query);
        let head = group * (self.sizes.query_heads / self.sizes.key_heads) + line / self.units();
        let start = (first.div_euclid(unit) + (line % self.units()) as i64) * unit;
        let end = start + unit;
        let query = |position: i64| (position - first).clamp(0, self.sizes.queries as i64) as usize;
        let mut bound = if self.mask.causal { end } else { i64::MAX };
        if let Some(length) = length {
            bound = bound.min(length.max(0).saturating_add(unit - 1) / unit * unit);
        }
        let keys = bound.saturating_sub(self.mask.first_key).clamp(0, self.sizes.keys as i64) as usize;
        (head, Unit { queries: query(start)..query(end), keys })
    }

    /// Tasks of a pass.
    pub fn tasks(&self, pass: &Pass) -> usize {
        self.sizes.batch * self.sizes.key_heads * pass.units * pass.keys
    }

    /// One of them.
    pub fn task(&self, pass: &Pass, index: usize) -> Task {
        let part = |whole: usize, parts: usize, part: usize| part * whole / parts..(part + 1) * whole / parts;
        let (index, keys) = (index / pass.keys, index % pass.keys);
        let (pair, units) = (index / pass.units, index % pass.units);
        let blocks = part(self.sizes.keys.div_ceil(BLOCK), pass.keys, keys);
        Task {
            sample: pair / self.sizes.key_heads,
            group: pair % self.sizes.key_heads,
            lines: part(self.lines(), pass.units, units),
            keys: blocks.start * BLOCK..(blocks.end * BLOCK).min(self.sizes.keys),
            ahead: Ahead::new(),
        }
    }

    /// Tasks that run at a time.
    pub fn slots(&self) -> usize {
        let most = self.passes.iter().map(|pass| self.tasks(pass)).max().unwrap_or(0);
        self.threads.min(most)
    }

    /// Bytes of a task's memory at any level.
    pub fn bytes<R: Number>(&self) -> usize {
        let bytes = |level| {
            let mut bytes = 0;
            self.rooms(&self.engine::<R>(level), |count| {
                bytes += room::<R>(count);
                std::ptr::null_mut()
            });
            bytes
        };
        Level::available().into_iter().map(bytes).max().unwrap_or(0)
    }

    /// The microkernels of a level.
    pub fn engine<R: Number>(&self, level: Level) -> Engine<R> {
        Engine { kernels: R::kernels(level), pairs: if self.in_pairs { R::pairs(level) } else { None } }
    }

    /// A task's memory; `take` gives room for so many numbers.
    pub fn rooms<R: Number>(&self, engine: &Engine<R>, mut take: impl FnMut(usize) -> *mut R) -> Rooms<R> {
        let AttentionSizes { keys, depth, width, .. } = self.sizes;
        let (columns, value_columns) = (padded(depth), padded(width));
        let backward = |count: usize| if self.is_gradient { count } else { 0 };
        let summed = |result, columns: usize| {
            let most =
                |pass: &Pass| if pass.has(result) { keys.div_ceil(BLOCK).div_ceil(pass.keys) * BLOCK } else { 0 };
            self.passes.iter().map(most).max().unwrap_or(0) * columns
        };
        let has = |result| self.passes.iter().any(|pass| pass.has(result));
        let panels = |terms: usize, columns: usize| {
            engine.units(terms) * columns.next_multiple_of(engine.kernels.columns()) + SLACK
        };
        let (key_rows, key_terms, value_rows, value_terms) = match engine.pairs {
            Some(_) => (
                keys * engine.units(depth),
                if has(AttentionResult::Query) { panels(keys, depth) } else { 0 },
                backward(keys * engine.units(width)),
                if has(AttentionResult::Output) { panels(keys, width) } else { 0 },
            ),
            None => {
                let copied = |i: usize, columns: usize| if self.copies[i] { keys * columns } else { 0 };
                (copied(0, columns), 0, copied(1, value_columns), 0)
            }
        };
        let rows = |columns: usize, padded: usize| {
            if engine.pairs.is_some() { panels(UNIT, columns) } else { UNIT * padded }
        };
        Rooms {
            keys: [take(key_rows), take(key_terms)],
            values: [take(value_rows), take(value_terms)],
            queries: [take(backward(rows(depth, columns))), take(panels(depth, UNIT))],
            gradients: [take(backward(rows(width, value_columns))), take(backward(panels(width, UNIT)))],
            scores: take(BLOCK * UNIT),
            slopes: take(backward(BLOCK * UNIT)),
            pairs: take(if engine.pairs.is_some() { BLOCK * UNIT / 2 } else { 0 }),
            result: take(UNIT * if self.is_gradient { columns } else { value_columns }),
            by_key: take(summed(AttentionResult::Key, columns)),
            by_value: take(summed(AttentionResult::Value, value_columns)),
            counter: take(tile::counter(&engine.kernels)),
        }
    }
}

/// A task's memory.
#[derive(Clone, Copy)]
pub struct Rooms<R> {
    /// Copies of the keys: as rows, and with keys as terms where that is something else.
    pub keys: [*mut R; 2],
    /// Copies of the values.
    pub values: [*mut R; 2],
    /// A unit's queries, for gradients, and their transpose.
    pub queries: [*mut R; 2],
    /// A unit's gradients, and their transpose.
    pub gradients: [*mut R; 2],
    /// A unit's scores by a block of keys.
    pub scores: *mut R,
    /// The gradients by them.
    pub slopes: *mut R,
    /// One of them in pairs.
    pub pairs: *mut R,
    /// What a unit's queries get.
    pub result: *mut R,
    /// Gradients by the keys of the task.
    pub by_key: *mut R,
    /// Gradients by their values.
    pub by_value: *mut R,
    /// The microkernels' counter.
    pub counter: *mut R,
}

//! Cutting a product into tasks for a group of threads.

use super::block::{Bounds, Chunks, Finish, Part, Product, compute};
use super::left::{Left, is_crowded};
use super::merge::Row;
use super::packed::{self, Packed};
use super::pairs::Pairs;
use super::real::{Element, Real};
use super::right::{SHALLOW, Want};
use super::scratch::{Arena, room};
use super::tile::Tile;
use super::{Offsets, Place, Side, Size, inner, strip};
use crate::Context;
use crate::Level;
use crate::operand::Shared;
use crate::par::with_slots;
use meshwork_simd::microkernel::Kernels;
use std::ops::{Range, RangeInclusive};

/// Rows of a task, at most. Each task packs both operands, which pays the more the larger it is; the right one is the dearer.
const ROWS: usize = 2048;
/// Rows of a product whose tasks have [`WIDE`] columns.
const TALL: usize = 1024;
/// Columns of a task, at most.
const COLUMNS: usize = 512;
/// Columns of a task of a tall product, at most.
const WIDE: usize = 1024;
/// Columns of a task that has whole rows, at most.
const WIDEST: usize = 2048;
/// Rows and columns of a task, at least, where there shall be more tasks than threads: smaller ones pack operands too
/// often.
const LARGE: usize = 512;
/// Rows or columns of a task that is cut further.
const LEAST: usize = 96;
/// Tiles of a task, one below the other, beside which one more does not count.
const MANY: usize = 32;
/// Elements of the result for each number that may be packed again so that threads have whole rows.
const AGAIN: usize = 2;
/// Numbers of a right operand up to which rows are cut for that: beyond them columns take as long, and where threads share no
/// cache rows took up to a quarter longer (256 × 256 × 784).
const COMMON: usize = 1 << 16;
/// Numbers of a right operand that all tasks may share, packed: fewer are packed in less time than threads need to come
/// together once more, more do not stay in the third-level cache.
const SHARED: RangeInclusive<usize> = 1 << 14..=1 << 20;
/// Numbers of a chunk's columns that a task reads of it: they stay in the second-level cache.
const NEAR: usize = 1 << 17;
/// Rows of a task that shares it, at least.
const SHARING: usize = 480;
/// Such tasks for each thread: they are small, so that threads that are slower than others leave some to these.
const TASKS: usize = 4;

/// Numbers of an operand that come from memory, or from a cache that is as slow: more than so many.
const FAR: usize = 1 << 20;

/// Columns that take no longer than what is read of the left operand beside them.
const NARROW: usize = 256;

/// Multiplications and additions that one thread has done before others have come.
const SMALL: f64 = 65_536.0;

/// Terms that a task must at least have for the terms to be cut.
const TERMS: usize = 1024;

/// Numbers of an operand that are packed while one of a partial result is stored, merged and stored again.
const ADDING: usize = 4;

/// Where the right operands of a batch come from: memory, or scratch memory that they are first put in.
pub trait Source<R>: Sync {
    /// Bytes of scratch memory that a task needs.
    fn bytes(&self, bounds: &Bounds) -> usize;

    /// Whether the operand lies in memory, so that all of it can be packed at once.
    fn is_there(&self) -> bool {
        false
    }

    /// Makes the elements of `columns` × `terms` readable and gives the place that their offsets count from.
    /// `staged` is empty at the start of a task and the source's to remember what `room` holds.
    ///
    /// # Safety
    /// `room` must have [`Source::bytes`] that nobody else uses.
    unsafe fn stage(
        &self,
        product: usize,
        columns: Range<usize>,
        terms: Range<usize>,
        room: *mut R,
        staged: &mut Range<usize>,
    ) -> *const R;
}

/// Right operands in memory.
struct Memory<'a, R> {
    data: *const R,
    products: &'a Offsets,
}

// SAFETY: the operand is only read.
unsafe impl<R: Sync> Sync for Memory<'_, R> {}

impl<R: Sync> Source<R> for Memory<'_, R> {
    fn bytes(&self, _: &Bounds) -> usize {
        0
    }

    fn is_there(&self) -> bool {
        true
    }

    unsafe fn stage(
        &self,
        product: usize,
        _: Range<usize>,
        _: Range<usize>,
        _: *mut R,
        _: &mut Range<usize>,
    ) -> *const R {
        self.data.wrapping_offset(self.products.at(product))
    }
}

/// Many products of one size.
pub struct Batch<'a, S, O> {
    /// Size of each.
    pub size: Size,
    /// The left operand of the first.
    pub left: *const S,
    /// Its elements.
    pub left_side: &'a Side,
    /// The elements of the right operand.
    pub right_side: &'a Side,
    /// The result of the first.
    pub out: *mut O,
    /// Its elements.
    pub place: &'a Place,
    /// Offsets of the products' left operands.
    pub lefts: &'a Offsets,
    /// Offsets of the products' results.
    pub outs: &'a Offsets,
    /// Takes parts of results as they are finished; nothing is stored then.
    pub finish: Option<&'a dyn Finish<O>>,
    /// Whether sums are at last added to +0, which makes +0 of −0; [`multiply_staged`] alone does that.
    pub from_zero: bool,
}

/// Takes parts of the transposed results.
struct Turned<'a, O>(&'a dyn Finish<O>);

impl<O> Finish<O> for Turned<'_, O> {
    fn take(&self, part: Part, first: *mut O, [row, column]: [usize; 2]) {
        self.0.take(Part { rows: part.columns, columns: part.rows, ..part }, first, [column, row]);
    }
}

// SAFETY: operands are only read, results written to by one task each.
unsafe impl<S: Sync, O: Send> Sync for Batch<'_, S, O> {}

/// A batch that holds where elements lie, for a closure that other threads read: see [`Par::run_held`](crate::Par::run_held).
struct Held<'a, S, O> {
    left: *const S,
    left_side: Side,
    right_side: Side,
    out: *mut O,
    place: Place,
    lefts: Offsets,
    outs: Offsets,
    finish: Option<&'a dyn Finish<O>>,
    from_zero: bool,
}

// SAFETY: as above.
unsafe impl<S: Sync, O: Send> Sync for Held<'_, S, O> {}

impl<'a, S, O> Held<'a, S, O> {
    fn new(batch: &Batch<'a, S, O>) -> Self {
        Held {
            left: batch.left,
            left_side: batch.left_side.clone(),
            right_side: batch.right_side.clone(),
            out: batch.out,
            place: batch.place.clone(),
            lefts: batch.lefts.clone(),
            outs: batch.outs.clone(),
            finish: batch.finish,
            from_zero: batch.from_zero,
        }
    }
}

/// Whether products of this size are computed in tiles or as inner products, wherever the operands lie.
fn by_tiles(size: &Size) -> bool {
    size.terms > 0 && !strip::fits(size) && !strip::fits(&turn(size))
}

/// Whether results of this size come in finished parts, wherever the operands lie: not where sums of runs of terms are added in
/// the end, nor where products are computed in strips.
pub fn finishes<T: Real>(level: Level, size: Size, products: usize, threads: usize) -> bool {
    let kernels = T::kernels(level);
    let finishes = |size: Size| {
        let plan = |&lies: &Lies| Plan::new(&kernels, size, products, threads, lies);
        Lies::all().iter().map(plan).all(|plan| plan.parts[2] == 1)
    };
    by_tiles(&size) && finishes(size) && finishes(turn(&size))
}

/// What matters for a plan of how operands lie.
#[derive(Clone, Copy, Debug)]
struct Lies {
    /// The right one can be packed at once, for all tasks.
    may_share: bool,
    /// See [`is_crowded`].
    is_crowded: bool,
    /// What the right one's panels want.
    want: Want,
}

impl Lies {
    /// All that there may be.
    fn all() -> [Lies; 12] {
        let is = |number: usize, bit: usize| number >> bit & 1 == 1;
        std::array::from_fn(|i| Lies { may_share: is(i, 0), is_crowded: is(i, 1), want: Want::ALL[i / 4] })
    }
}

/// How products are cut.
#[derive(Clone, Copy, Debug)]
struct Plan {
    products: usize,
    /// Threads that there is work for.
    threads: usize,
    size: Size,
    /// Ranges of rows, columns and terms.
    parts: [usize; 3],
    /// Tasks begin at multiples of so many rows and columns.
    step: [usize; 2],
    /// Terms of a task: a power of two of blocks.
    terms: usize,
    bounds: Bounds,
    /// Numbers of the right operand's panels, if tasks share them.
    shared: Option<usize>,
}

impl Plan {
    fn new<T: Real>(kernels: &Kernels<T>, size: Size, products: usize, threads: usize, lies: Lies) -> Self {
        let work = products as f64 * (size.rows * size.columns) as f64 * size.terms as f64;
        let threads = if work <= SMALL { 1 } else { threads };
        let tall = Tile::tall(kernels, &size).filter(|_| lies.want == Want::Tall);
        let tile = tall.unwrap_or_else(|| Tile::of(kernels, &size, lies.is_crowded));
        let (height, width) = (tile.rows, tile.columns);
        let tiles = [size.rows.div_ceil(height), size.columns.div_ceil(width)];
        let blocks = size.terms.div_ceil(size.block);
        // The update of a weight and other kernels cut rows: what a thread has written is in its own caches then, which
        // is worth more than packing all columns on each. Parts of rows share lines where they meet, and those of a power
        // of two of bytes lie on half of a cache's sets.
        let packed = size.columns * size.terms * (threads - 1) / threads;
        let result = size.rows * size.columns;
        let is_cheap = size.columns * size.terms <= COMMON && packed * AGAIN <= result;
        let by_rows = is_cheap && size.rows >= threads * LEAST;
        let widest = match by_rows {
            true => WIDEST,
            false if size.rows >= TALL => WIDE,
            false => COLUMNS,
        };
        let mut parts = [size.rows.div_ceil(ROWS), size.columns.div_ceil(widest)];
        let mut run = blocks;
        let tasks = |parts: [usize; 2], run: usize| products * parts[0] * parts[1] * blocks.div_ceil(run.max(1));
        let longer = |parts: [usize; 2]| {
            let is_higher = size.rows / parts[0] > size.columns / parts[1];
            if is_higher || by_rows && parts[0] < threads { 0 } else { 1 }
        };
        // The longest runs, up to some, of which all threads have about as many blocks.
        let evenly = |parts: [usize; 2], most: usize| {
            let all = products * parts[0] * parts[1] * blocks;
            let runs = std::iter::successors(Some(most), |run| Some(run / 2));
            let mut runs = runs.take_while(|run| run * size.block >= TERMS);
            runs.find(|&run| tasks(parts, run).next_multiple_of(threads) * run * 9 <= all * 10)
        };
        // First a run of blocks for each thread, where that packs less; then tasks that stay large, runs of blocks, and
        // whatever tiles there are.
        while threads > 1 && (tasks(parts, run) < threads || idle(tasks(parts, run), threads)) {
            let d = longer(parts);
            let half = run.div_ceil(2).next_power_of_two();
            let can_halve = run > 1 && half * size.block >= TERMS;
            // Tasks with other rows pack the same columns again, those with other terms have results to be added.
            let again = [size.columns, size.rows][d] / parts[1 - d] * run * size.block;
            let added = (size.rows / parts[0]) * (size.columns / parts[1]);
            let is_even = blocks.next_multiple_of(half) * 9 <= blocks * 10 && blocks.div_ceil(half) <= threads;
            if can_halve && is_even && again > ADDING * added {
                run = half;
            } else if [size.rows, size.columns][d] / parts[d] >= LEAST {
                parts[d] += 1;
            } else if let Some(even) = evenly(parts, half).filter(|_| run > 1) {
                run = even;
            } else if can_halve && parts == tiles {
                run = half;
            } else if tasks(parts, run) >= threads {
                break;
            } else if parts[d] < tiles[d] {
                parts[d] += 1;
            } else if parts[1 - d] < tiles[1 - d] {
                parts[1 - d] += 1;
            } else {
                break;
            }
        }
        // More of them, so that threads that are slower than others leave some to these.
        let mut finer = parts;
        while threads > 1 && work >= 1e8 && tasks(finer, run) < 3 * threads {
            let d = longer(finer);
            finer[d] += 1;
            if [size.rows, size.columns][d] / finer[d] < LARGE {
                break;
            }
            if !idle(tasks(finer, run), threads) {
                parts = finer;
            }
        }
        let chunks = Chunks::new(&size, if lies.want == Want::Shallow { SHALLOW } else { kernels.depth });
        // Where many tasks need the same columns, these are packed once.
        let mut shared = None;
        let may_share = lies.may_share && threads > 1 && products == 1 && run == blocks && work >= 1e8;
        if may_share && SHARED.contains(&(size.columns * size.terms)) {
            let columns = (size.columns * chunks.terms.min(size.terms)).div_ceil(NEAR).min(tiles[1]);
            let (least, most) = (size.rows.div_ceil(ROWS).max(3), size.rows / SHARING);
            let rows = (TASKS * threads).div_ceil(columns).min(most).max(least);
            let suits = |&rows: &usize| {
                let tasks = tasks([rows, columns], run);
                rows <= most && tasks >= threads && !idle(tasks, threads)
            };
            let even = |&a: &usize, &b: &usize| {
                let [one, other] = [a, b].map(|rows| unused(tasks([rows, columns], run), threads));
                one.total_cmp(&other).then(rows.abs_diff(a).cmp(&rows.abs_diff(b)))
            };
            if let Some(rows) = (least..=rows + threads).filter(suits).min_by(even) {
                parts = [rows, columns];
                shared = Some(packed::numbers(&chunks, [size.terms, size.columns], width));
            }
        }
        // A tile more for one of the threads is time that the others wait; a lower tile in each task costs less.
        let is_even = tiles[0] >= MANY * parts[0] || tiles[0].div_ceil(parts[0]) * height * parts[0] == size.rows;
        let step = [if is_even { height } else { kernels.floor.min(height) }, width];
        let most = |d: usize, len: usize| (len.div_ceil(step[d]).div_ceil(parts[d]) * step[d]).min(len);
        let numbers = [most(0, size.rows), most(1, size.columns), (run * size.block).min(size.terms)];
        let bounds = Bounds::new(kernels, numbers, tile, chunks);
        let parts = [parts[0], parts[1], blocks.div_ceil(run)];
        Plan { products, threads, size, parts, step, terms: run * size.block, bounds, shared }
    }

    fn tasks(&self) -> usize {
        self.products * self.parts.iter().product::<usize>()
    }

    /// Tasks at a time.
    fn slots(&self) -> usize {
        self.threads.min(self.tasks())
    }

    /// Bytes of all partial results, where the terms are cut.
    fn partial<T>(&self) -> usize {
        let runs = self.parts[2];
        if runs > 1 { room::<T>(runs * self.products * self.size.rows * self.size.columns) } else { 0 }
    }

    /// Rows (`d` = 0) or columns (1) of a part: parts differ by a step at most.
    fn range(&self, d: usize, part: usize) -> Range<usize> {
        let (len, step) = ([self.size.rows, self.size.columns][d], self.step[d]);
        let bound = |part: usize| (part * len.div_ceil(step) / self.parts[d] * step).min(len);
        bound(part)..bound(part + 1)
    }

    /// Terms of a run.
    fn run(&self, run: usize) -> Range<usize> {
        run * self.terms..((run + 1) * self.terms).min(self.size.terms)
    }
}

/// Whether some threads would have nothing to do for a tenth of the time, as equal tasks come to an end.
fn idle(tasks: usize, threads: usize) -> bool {
    unused(tasks, threads) >= 0.1
}

/// The share of the time of all threads in which they have nothing to do, as equal tasks come to an end.
fn unused(tasks: usize, threads: usize) -> f64 {
    let turns = tasks.next_multiple_of(threads);
    (turns - tasks) as f64 / turns as f64
}

/// Cycles that a level's kernels need for a product, about; what packing and storing add is guessed.
fn cycles<L: Element>(kernels: &Kernels<L::Real>, size: &Size, left: &Side, right: &Side, place: &Place) -> f64 {
    let height = Tile::of(kernels, size, is_crowded::<L>(kernels, left, size.columns)).rows;
    let rest = size.rows % height;
    let high = size.rows / height * height.max(kernels.floor) + if rest > 0 { rest.max(kernels.floor) } else { 0 };
    let wide = size.columns.next_multiple_of(kernels.lanes);
    let (rows, columns, terms) = (size.rows as f64, size.columns as f64, size.terms as f64);
    // Panels of the left side are a few numbers of each term, which lie far apart, those of the right one are whole lines: that
    // matters most where they come from memory, and columns are too few to ask for them in time.
    let scattered = if size.rows * size.terms > FAR && size.columns <= NARROW { 1.0 } else { 0.4 };
    let packing = |side: &Side, beside: f64| match (side.lines.inner(), side.terms.inner()) {
        ((1, run), _) if run >= 8 => beside,
        (_, (1, run)) if run >= 8 => 0.6,
        _ => 1.5,
    };
    let in_place = left.lines.stride().is_some() && left.terms.stride() == Some(1);
    // The processors that have slender tiles multiply a vector a cycle, others two.
    let pace = kernels.slender.map_or(0.5, |_| 1.0);
    high as f64 * wide as f64 * terms * pace / kernels.lanes as f64
        + if in_place { 0.0 } else { rows * terms * packing(left, scattered) }
        + columns * terms * packing(right, 0.3)
        + rows * columns * if place.columns.inner().0 == 1 { 0.2 } else { 1.5 }
}

/// Whether to compute the transposed product instead.
fn turned<S: Element>(kernels: &Kernels<S::Real>, size: &Size, left: &Side, right: &Side, place: &Place) -> bool {
    let other = Place { rows: place.columns.clone(), columns: place.rows.clone() };
    cycles::<S>(kernels, &turn(size), right, left, &other) < cycles::<S>(kernels, size, left, right, place)
}

/// The size of the transposed product.
pub fn turn(size: &Size) -> Size {
    Size { rows: size.columns, columns: size.rows, ..*size }
}

/// Bytes of scratch memory for [`multiply`] at any level.
pub fn scratch_bytes<T: Real>(size: Size, products: usize, threads: usize) -> usize {
    let bytes = |size: Size| {
        let tiles = Lies::all().map(|lies| bytes_of::<T>(size, products, threads, lies, &|_| 0));
        let tiles = tiles.into_iter().max().unwrap_or(0);
        tiles.max(strip::scratch_bytes::<T>(&size, threads)).max(inner::scratch_bytes(&size, threads))
    };
    bytes(size).max(bytes(turn(&size)))
}

/// Bytes of scratch memory for [`multiply_staged`] at any level; `source` gives those of the source for a task.
pub fn staged_bytes<T: Real>(size: Size, products: usize, threads: usize, source: &dyn Fn(&Bounds) -> usize) -> usize {
    let all = Lies::all().into_iter().filter(|lies| !lies.may_share);
    all.map(|lies| bytes_of::<T>(size, products, threads, lies, source)).max().unwrap_or(0)
}

fn bytes_of<T: Real>(
    size: Size,
    products: usize,
    threads: usize,
    lies: Lies,
    source: &dyn Fn(&Bounds) -> usize,
) -> usize {
    if products * size.rows * size.columns * size.terms == 0 {
        return 0;
    }
    let bytes = |level: Level| {
        let kernels = T::kernels(level);
        let plan = Plan::new(&kernels, size, products, threads, lies);
        let slot = plan.bounds.bytes::<T>() + room::<u8>(source(&plan.bounds));
        plan.partial::<T>() + plan.shared.map_or(0, room::<T>) + slot * plan.slots()
    };
    Level::available().into_iter().map(bytes).max().unwrap_or(0)
}

/// Computes all products of a batch, whose right operands are at `right`, `rights` apart. Says whether it did: not where
/// parts of results should be taken and they do not come in such ([`finishes`]).
///
/// # Safety
/// All elements must be there, the results used by nobody else, `arena` must have [`scratch_bytes`] for the threads of
/// the context, and the processor must be able to run the context's level.
pub unsafe fn multiply<S: Element, O: Element<Real = S::Real>>(
    batch: &Batch<S, O>,
    right: *const S,
    rights: &Offsets,
    arena: Arena,
    context: Context,
) -> bool {
    let place = Place { rows: batch.place.columns.clone(), columns: batch.place.rows.clone() };
    let finish = batch.finish.map(Turned);
    let other = Batch {
        size: turn(&batch.size),
        left: right,
        left_side: batch.right_side,
        right_side: batch.left_side,
        place: &place,
        lefts: rights,
        finish: finish.as_ref().map(|finish| finish as &dyn Finish<O>),
        ..*batch
    };
    let kernels = S::Real::kernels(context.level);
    // SAFETY: the caller's promise.
    unsafe {
        if batch.finish.is_some() && !by_tiles(&batch.size) {
            return false;
        }
        let done = strip::multiply(batch, right, rights, arena, context)
            || strip::multiply(&other, batch.left, batch.lefts, arena, context)
            || inner::is_better_turned(&batch.size) && inner::multiply(&other, batch.left, batch.lefts, arena, context)
            || inner::multiply(batch, right, rights, arena, context)
            || inner::multiply(&other, batch.left, batch.lefts, arena, context);
        if done {
            return true;
        }
        if turned::<S>(&kernels, &batch.size, batch.left_side, batch.right_side, batch.place) {
            multiply_staged(&other, &Memory { data: batch.left, products: batch.lefts }, arena, context)
        } else {
            multiply_staged(batch, &Memory { data: right, products: rights }, arena, context)
        }
    }
}

/// Computes all products of a batch, whose right operands come from `source`. Says whether it did, as [`multiply`]; nor does it
/// where sums that are cut into runs should be added to +0.
///
/// # Safety
/// As for [`multiply`], with the scratch memory of [`scratch_bytes`] for an operand that is there, of [`staged_bytes`] for another.
pub unsafe fn multiply_staged<L: Element, R: Element<Real = L::Real>, O: Element<Real = L::Real>>(
    batch: &Batch<L, O>,
    source: &dyn Source<R>,
    mut arena: Arena,
    context: Context,
) -> bool {
    let (size, threads) = (batch.size, context.par.lanes());
    let products = batch.outs.len;
    if products * size.rows * size.columns == 0 {
        return true;
    }
    if size.terms == 0 {
        // SAFETY: the caller's promise.
        unsafe { clear(batch) };
        return true;
    }
    let kernels = L::Real::kernels(context.level);
    let is_in_pairs = Pairs::new::<L, R>(context.level, &Chunks::new(&size, kernels.depth), size.terms).is_some();
    let is_crowded = is_crowded::<L>(&kernels, batch.left_side, size.columns);
    let want = Want::of::<R>(&kernels, batch.right_side, &Tile::of(&kernels, &size, is_crowded), &size);
    let lies = Lies { may_share: source.is_there() && !is_in_pairs && want == Want::Nothing, is_crowded, want };
    let plan = Plan::new(&kernels, size, products, threads, lies);
    let [row_parts, column_parts, runs] = plan.parts;
    if runs > 1 && (batch.finish.is_some() || batch.from_zero) {
        return false;
    }
    let bytes = [plan.bounds.bytes::<L::Real>(), room::<u8>(source.bytes(&plan.bounds))];
    let slots = plan.slots();
    let rooms = arena.slots(slots, bytes[0] + bytes[1]);
    let numbers = size.rows * size.columns;
    let partial =
        Shared(if runs > 1 { arena.take::<L::Real>(runs * products * numbers) } else { std::ptr::null_mut() });
    let dense = Place {
        rows: Offsets::new().axis(size.rows, size.columns as isize),
        columns: Offsets::new().axis(size.columns, 1),
    };
    let packed = plan.shared.map(|_| {
        let all = [size.terms, size.columns];
        // SAFETY: the caller's promise.
        unsafe {
            let data = source.stage(0, 0..size.columns, 0..size.terms, std::ptr::null_mut(), &mut (0..0));
            Packed::new(data, batch.right_side, &plan.bounds.chunks, all, plan.bounds.tile.columns, &mut arena, context)
        }
    });
    let packed = packed.as_ref();
    let held = Held::new(batch);
    with_slots(context.par, slots, plan.tasks(), move |slot, task| {
        let batch = &held;
        let (row, rest) = (task % row_parts, task / row_parts);
        let (column, rest) = (rest % column_parts, rest / column_parts);
        let (run, product) = (rest % runs, rest / runs);
        let (rows, columns, terms) = (plan.range(0, row), plan.range(1, column), plan.run(run));
        let mut room = rooms.room(slot);
        let (stage, mut staged) = (room.take::<u8>(bytes[1]).cast::<R>(), 0..0);
        let across = columns.clone();
        // SAFETY: the caller's promise; every task has its own part of the result and every slot its own room.
        unsafe {
            let mut right = |terms| source.stage(product, across.clone(), terms, stage, &mut staged);
            let left = Left::Elements(batch.left.offset(batch.lefts.at(product)), &batch.left_side);
            let right_side = &batch.right_side;
            if runs == 1 {
                let (out, place) = (batch.out.wrapping_offset(batch.outs.at(product)), &batch.place);
                let finish = batch.finish.map(|finish| (finish, product));
                let upwards = row < row_parts / 2;
                let from_zero = batch.from_zero;
                let product = Product { size, left, right_side, packed, out, place, upwards, finish, from_zero };
                compute(context.level, &product, &mut right, &plan.bounds, rows, columns, terms, room);
            } else {
                let (out, place) = ({ partial }.0.add((run * products + product) * numbers), &dense);
                let product = Product::<L, L::Real> {
                    size,
                    left,
                    right_side,
                    packed: None,
                    out,
                    place,
                    upwards: false,
                    finish: None,
                    from_zero: false,
                };
                compute(context.level, &product, &mut right, &plan.bounds, rows, columns, terms, room);
            }
        }
    });
    if runs > 1 {
        let lines = products * size.rows;
        context.par.ranges(lines, 1 + 4096 / (size.columns * runs), &|range| {
            for line in range {
                let (product, row) = (line / size.rows, line % size.rows);
                let at = batch.outs.at(product) + batch.place.rows.at(row);
                // SAFETY: parts of all runs, and a row of the result that belongs to this task.
                unsafe {
                    let parts = { partial }.0.add(line * size.columns);
                    let (out, columns) = (batch.out.offset(at), &batch.place.columns);
                    Row { parts, step: products * numbers, runs, out, columns }.merge(context.level);
                }
            }
        });
    }
    true
}

/// Stores the sums of no terms.
///
/// # Safety
/// The results must be writable.
unsafe fn clear<L: Element, O: Element<Real = L::Real>>(batch: &Batch<L, O>) {
    for p in 0..batch.outs.len {
        for i in 0..batch.size.rows {
            for j in 0..batch.size.columns {
                let at = batch.outs.at(p) + batch.place.rows.at(i) + batch.place.columns.at(j);
                // SAFETY: an element of the result.
                unsafe { *batch.out.offset(at) = O::narrow(L::Real::ZERO) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much longer the products take than with equal shares, if each thread takes the next task when it has done one.
    fn unevenness(plan: &Plan) -> f64 {
        let [row_parts, column_parts, runs] = plan.parts;
        let mut threads = vec![0; plan.threads];
        for task in 0..plan.tasks() {
            let (row, column, run) =
                (task % row_parts, task / row_parts % column_parts, task / row_parts / column_parts % runs);
            let work = plan.range(0, row).len() * plan.range(1, column).len() * plan.run(run).len();
            *threads.iter_mut().min().expect("a thread") += work;
        }
        let most = *threads.iter().max().expect("a thread") as f64;
        most * threads.len() as f64 / threads.iter().sum::<usize>() as f64
    }

    #[test]
    fn threads_have_equal_shares_of_few_results_of_long_sums() {
        let sizes =
            [[32, 32, 20_000], [48, 48, 10_000], [64, 64, 10_000], [10, 64, 20_000], [32, 80, 6000], [24, 64, 5000]];
        for kernels in Level::available().into_iter().map(f32::kernels) {
            for [rows, columns, terms] in sizes {
                for threads in [2, 4] {
                    let size = Size { rows, columns, terms, block: 128, run: 1 };
                    let lies = Lies { may_share: true, is_crowded: false, want: Want::Nothing };
                    let uneven = unevenness(&Plan::new(&kernels, size, 1, threads, lies));
                    assert!(uneven < 1.2, "{uneven} with {threads} threads: {size:?}");
                }
            }
        }
    }

    #[test]
    fn threads_have_equal_shares_of_packed_columns() {
        for kernels in Level::available().into_iter().map(f32::kernels) {
            for [rows, columns, terms] in [[3072, 768, 512], [5000, 1500, 512], [2400, 900, 400], [8192, 512, 512]] {
                let size = Size { rows, columns, terms, block: 128, run: 1 };
                let lies = Lies { may_share: true, is_crowded: false, want: Want::Nothing };
                let uneven = unevenness(&Plan::new(&kernels, size, 1, 2, lies));
                assert!(uneven < 1.05, "{uneven}: {size:?}");
            }
        }
    }

    #[test]
    fn gradients_of_weights_are_packed_on_their_narrow_side() {
        // Samples × inputs, transposed, by samples × outputs.
        for kernels in Level::available().into_iter().map(f32::kernels) {
            let is_turned = |inputs: usize, outputs: usize, samples: usize| {
                let size = Size { rows: inputs, columns: outputs, terms: samples, block: 8, run: 1 };
                let side = |lines: usize| {
                    let [lines, terms] =
                        [(lines, 1), (samples, lines as isize)].map(|(len, step)| Offsets::new().axis(len, step));
                    Side { lines, terms }
                };
                let [rows, columns] =
                    [(inputs, outputs as isize), (outputs, 1)].map(|(len, step)| Offsets::new().axis(len, step));
                turned::<f32>(&kernels, &size, &side(inputs), &side(outputs), &Place { rows, columns })
            };
            assert!(is_turned(512, 64, 100_000) && !is_turned(64, 512, 100_000), "from memory");
            assert!(!is_turned(256, 128, 256) && !is_turned(128, 256, 256), "from caches");
        }
    }
}

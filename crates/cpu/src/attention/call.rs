//! One call: operands, results, and what both passes do with them.

use super::BLOCK;
use super::ahead::Ahead;
use super::pairs::{pair_columns, pair_rows};
use super::plan::{Pass, Plan, Rooms, Task, Unit};
use super::rows::{Matrix, Rows, copy_rows, store_rows};
use super::softmax::{Each, Input, Number, Softmax, UNIT};
use super::tile::{Engine, Left, Panels, Product, Side, Target};
use crate::gemm::Real;
use crate::gemm::pack::{dense, pack};
use crate::gemm::pairs::{Factor, Operand as Pairs, Span};
use crate::gemm::scratch::Arena;
use crate::kernel::Outputs;
use crate::operand::Shared;
use crate::par::with_slots;
use crate::{Context, Operand};
use meshwork_graph::Layout;
use meshwork_graph::canonical::{Blocking, Blocks};
use meshwork_graph::ops::{Attention, AttentionInput, AttentionResult, AttentionSizes};
use smallvec::{SmallVec, smallvec};

/// Offsets of lines or terms.
type Offsets = SmallVec<[isize; 256]>;

/// Operands, results and parameters.
pub struct Call<'a, S: Input> {
    pub plan: Plan,
    pub context: Context<'a>,
    pub engine: Engine<S::Real>,
    pub scale: S::Real,
    query: Rows<'a, S>,
    key: Rows<'a, S>,
    value: Option<Rows<'a, S>>,
    gradient: Option<Rows<'a, S>>,
    normalizer: Option<Rows<'a, S::Real>>,
    delta: Option<Rows<'a, S::Real>>,
    lengths: Option<&'a [i64]>,
    /// By result.
    outputs: [Option<Shared<u8>>; 5],
}

/// The keys of a task, or their values.
#[derive(Clone, Copy)]
pub struct Sides<R> {
    /// As left operand: rows of features.
    pub rows: Option<Side<R>>,
    /// As right operand, whose terms are keys.
    pub terms: Option<Side<R>>,
}

/// A unit of a query head, and what is needed of it again and again.
pub struct Line<'a, R> {
    pub head: usize,
    pub unit: Unit,
    /// Its queries as right operand whose terms are queries, if gradients are wanted ...
    pub queries: Option<Side<R>>,
    /// ... and one whose terms are features.
    pub turned: Side<R>,
    /// Columns of its tiles.
    pub width: usize,
    /// Keys that each query sees.
    seen: Each<usize>,
    /// What its kernels ask for.
    ahead: &'a Ahead,
}

impl<R> Line<'_, R> {
    /// Queries.
    pub fn len(&self) -> usize {
        self.unit.queries.len()
    }

    /// How many of the keys from `first` on each query sees, if not all see all `count` of them.
    pub fn mask(&self, first: usize, count: usize) -> Option<Each<i32>> {
        let all = self.seen[..self.len()].iter().all(|&seen| seen >= first + count);
        (!all).then(|| self.seen.map(|seen| seen.saturating_sub(first).min(count) as i32))
    }
}

// SAFETY: operands are only read, and tasks write to rows of results that are theirs alone.
unsafe impl<S: Input> Sync for Call<'_, S> {}

impl<'a, S: Input> Call<'a, S> {
    pub fn new(op: &Attention, inputs: &[Operand<'a>], outputs: &Outputs, context: Context<'a>) -> Self {
        let layouts: Vec<&Layout> = inputs.iter().map(|input| input.layout).collect();
        let names = op.inputs();
        let find = |name| names.iter().position(|x| *x == name).map(|i| &inputs[i]);
        let elements = |name| find(name).map(Rows::<S>::new);
        let numbers = |name| find(name).map(Rows::<S::Real>::new);
        let mut places = [None; 5];
        for (result, output) in op.results.iter().zip(outputs) {
            places[*result as usize] = Some(Shared(output.bytes()));
        }
        let plan = Plan::new::<S>(op, &layouts, context.par.lanes());
        Call {
            engine: plan.engine(context.level),
            plan,
            context,
            scale: S::Real::from_f64(op.scale.as_f64()),
            query: elements(AttentionInput::Query).expect("an operand of all results"),
            key: elements(AttentionInput::Key).expect("an operand of all results"),
            value: elements(AttentionInput::Value),
            gradient: elements(AttentionInput::Gradient),
            normalizer: numbers(AttentionInput::Normalizer),
            delta: numbers(AttentionInput::Delta),
            lengths: find(AttentionInput::Lengths).map(Operand::slice),
            outputs: places,
        }
    }

    /// Does all tasks of all passes.
    pub fn run(&self, scratch: &mut [u8], work: impl Fn(&Pass, &Task, Rooms<S::Real>) + Sync) {
        let (slots, bytes) = (self.plan.slots(), self.plan.bytes::<S::Real>());
        let rooms = Arena::new(scratch).slots(slots, bytes);
        for pass in &self.plan.passes {
            with_slots(self.context.par, slots, self.plan.tasks(pass), |slot, task| {
                let mut arena = rooms.room(slot);
                let rooms = self.plan.rooms(&self.engine, |count| arena.take(count));
                work(pass, &self.task(pass, task), rooms);
            });
        }
    }

    /// A task, whose kernels ask for what the next one reads.
    fn task(&self, pass: &Pass, index: usize) -> Task {
        let mut task = self.plan.task(pass, index);
        if index + 1 < self.plan.tasks(pass) {
            task.ahead = self.read_by(&self.plan.task(pass, index + 1));
        }
        task
    }

    /// The rows that a task reads.
    fn read_by(&self, task: &Task) -> Ahead {
        let (AttentionSizes { depth, width, .. }, mut ahead) = (self.plan.sizes, Ahead::new());
        let mut add = |rows: Option<&Rows<S>>, first: [usize; 3], count: usize, width: usize| {
            if let Some(rows) = rows.filter(|_| count > 0) {
                // SAFETY: the task's keys and queries are the operands'.
                ahead.add(unsafe { rows.at(first) }, count, width);
            }
        };
        let first = [task.sample, task.keys.start, task.group];
        add(Some(&self.key), first, task.keys.len(), depth);
        add(self.value.as_ref(), first, task.keys.len(), width);
        for (head, Unit { queries, .. }) in task.lines.clone().map(|line| self.unit(task, line)) {
            let first = [task.sample, queries.start, head];
            add(Some(&self.query), first, queries.len(), depth);
            add(self.gradient.as_ref(), first, queries.len(), width);
        }
        ahead
    }

    /// The keys of a task, those from its first key on.
    ///
    /// # Safety
    /// The rooms must be the task's.
    pub unsafe fn keys(&self, pass: &Pass, task: &Task, rooms: &Rooms<S::Real>) -> Sides<S::Real> {
        let wanted = [true, pass.has(AttentionResult::Query)];
        // SAFETY: the caller's promise.
        unsafe { self.sides(&self.key, 0, self.plan.sizes.depth, wanted, task, rooms.keys) }
    }

    /// The values of a task, those from its first key on, as far as they are needed.
    ///
    /// # Safety
    /// The rooms must be the task's.
    pub unsafe fn values(&self, pass: &Pass, task: &Task, rooms: &Rooms<S::Real>) -> Sides<S::Real> {
        let by_scores = pass.has(AttentionResult::Query) || pass.has(AttentionResult::Key);
        match &self.value {
            Some(rows) if by_scores || pass.has(AttentionResult::Output) => {
                let wanted = [by_scores, pass.has(AttentionResult::Output)];
                // SAFETY: the caller's promise.
                unsafe { self.sides(rows, 1, self.plan.sizes.width, wanted, task, rooms.values) }
            }
            _ => Sides { rows: None, terms: None },
        }
    }

    unsafe fn sides(
        &self,
        rows: &Rows<S>,
        which: usize,
        width: usize,
        wanted: [bool; 2],
        task: &Task,
        [room, terms_room]: [*mut S::Real; 2],
    ) -> Sides<S::Real> {
        let (level, count) = (self.context.level, task.keys.len());
        // SAFETY: the task's keys are the operand's; what is not copied has the type of numbers.
        unsafe {
            let rows = rows.at([task.sample, task.keys.start, task.group]);
            if self.engine.pairs.is_some() {
                return Sides {
                    rows: wanted[0].then(|| self.pairs_of_features(rows, count, width, room)),
                    terms: wanted[1].then(|| self.pairs_of_rows(rows, count, width, terms_room)),
                };
            }
            let matrix = match self.plan.copies[which] {
                true => copy_rows(level, rows, count, width, room),
                false => Matrix { first: rows.first.cast(), step: rows.step },
            };
            let side = |wanted: bool| wanted.then_some(self.in_rows(matrix));
            Sides { rows: side(wanted[0]), terms: side(wanted[1]) }
        }
    }

    /// Rows of numbers as an operand.
    fn in_rows(&self, matrix: Matrix<S::Real>) -> Side<S::Real> {
        Side { matrix, panel: self.engine.kernels.columns(), span: Span::NONE }
    }

    /// A copy of rows, in pairs of neighbouring features: a left operand.
    ///
    /// # Safety
    /// The rows must be readable, elements be bf16, and `room` large enough.
    unsafe fn pairs_of_features(
        &self,
        rows: Matrix<S>,
        count: usize,
        width: usize,
        room: *mut S::Real,
    ) -> Side<S::Real> {
        let (lines, terms) = (steps(count, rows.step), steps(width, 1));
        let operand = Pairs { factor: Factor::Left, data: rows.first.cast(), lines: &lines, terms: &terms };
        // SAFETY: the caller's promise.
        let span = unsafe { operand.copy(self.context.level, room.cast()) };
        Side { matrix: Matrix { first: room, step: self.engine.units(width) as isize }, panel: 0, span }
    }

    /// A copy of rows, in pairs of neighbouring ones: a right operand whose terms are rows.
    ///
    /// # Safety
    /// As for [`Call::pairs_of_features`].
    unsafe fn pairs_of_rows(&self, rows: Matrix<S>, count: usize, width: usize, room: *mut S::Real) -> Side<S::Real> {
        // SAFETY: the caller's promise.
        unsafe { self.packed_pairs(rows.first, &steps(width, 1), &steps(count, rows.step), room) }
    }

    /// Lines by terms, packed in pairs of terms: a right operand.
    ///
    /// # Safety
    /// As for [`Call::pairs_of_features`].
    unsafe fn packed_pairs(
        &self,
        data: *const S,
        lines: &[isize],
        terms: &[isize],
        room: *mut S::Real,
    ) -> Side<S::Real> {
        let columns = self.engine.kernels.columns();
        let operand = Pairs { factor: Factor::Right, data: data.cast(), lines, terms };
        // SAFETY: the caller's promise.
        let span = unsafe { operand.pack(self.context.level, columns, room.cast()) };
        let matrix = Matrix { first: room.cast_const(), step: columns as isize };
        Side { matrix, panel: self.engine.units(terms.len()) * columns, span }
    }

    /// A unit's rows of an operand as right operands: with rows as terms, which only gradients need, and with features.
    ///
    /// # Safety
    /// The unit's queries must be the operand's, and the rooms a task's.
    unsafe fn turn(
        &self,
        rows: &Rows<S>,
        [sample, head]: [usize; 2],
        unit: &Unit,
        width: usize,
        [plain, panels]: [*mut S::Real; 2],
    ) -> (Option<Side<S::Real>>, Side<S::Real>) {
        let (level, queries, columns) = (self.context.level, &unit.queries, self.engine.kernels.columns());
        let (count, terms) = (queries.len(), steps(width, 1));
        let by_rows = self.plan.is_gradient;
        // SAFETY: the caller's promise: the unit's queries, and rooms for a unit.
        unsafe {
            let rows = rows.at([sample, queries.start, head]);
            if self.engine.pairs.is_some() {
                let turned = self.packed_pairs(rows.first, &steps(count, rows.step), &terms, panels);
                return (by_rows.then(|| self.pairs_of_rows(rows, count, width, plain)), turned);
            }
            let copy = by_rows.then(|| copy_rows(level, rows, count, width, plain));
            match copy {
                Some(copy) => pack(level, copy.first, &steps(count, copy.step), &terms, dense(columns, width), panels),
                None => pack(level, rows.first, &steps(count, rows.step), &terms, dense(columns, width), panels),
            }
            let turned = Matrix { first: panels.cast_const(), step: columns as isize };
            (copy.map(|copy| self.in_rows(copy)), Side { panel: width * columns, ..self.in_rows(turned) })
        }
    }

    /// The query head of a line of a task, and its unit.
    pub fn unit(&self, task: &Task, line: usize) -> (usize, Unit) {
        self.plan.line(task.group, line, self.length(task))
    }

    fn length(&self, task: &Task) -> Option<i64> {
        self.lengths.map(|lengths| lengths[task.sample])
    }

    /// What is needed of a unit.
    ///
    /// # Safety
    /// The rooms must be the task's.
    pub unsafe fn line<'t>(
        &self,
        task: &'t Task,
        head: usize,
        unit: Unit,
        rooms: &Rooms<S::Real>,
    ) -> Line<'t, S::Real> {
        let AttentionSizes { depth, keys, .. } = self.plan.sizes;
        // SAFETY: the caller's promise.
        let (queries, turned) = unsafe { self.turn(&self.query, [task.sample, head], &unit, depth, rooms.queries) };
        let mut seen = [0; UNIT];
        for (seen, query) in seen.iter_mut().zip(unit.queries.clone()) {
            *seen = self.plan.mask.seen(query, keys, self.length(task));
        }
        let width = unit.queries.len().next_power_of_two().max(8).max(self.engine.kernels.lanes);
        Line { head, unit, queries, turned, width, seen, ahead: &task.ahead }
    }

    /// The gradients by a line's outputs as right operands: with queries as terms, and with features.
    ///
    /// # Safety
    /// The rooms must be the task's.
    pub unsafe fn gradients(
        &self,
        task: &Task,
        line: &Line<S::Real>,
        rooms: &Rooms<S::Real>,
    ) -> (Option<Side<S::Real>>, Side<S::Real>) {
        let rows = self.gradient.as_ref().expect("an operand of gradients");
        let (at, width) = ([task.sample, line.head], self.plan.sizes.width);
        // SAFETY: the caller's promise.
        unsafe { self.turn(rows, at, &line.unit, width, rooms.gradients) }
    }

    /// What is done to a line's tiles between the products.
    pub fn softmax(&self, line: &Line<S::Real>) -> Softmax<S> {
        Softmax { level: self.context.level, width: line.width, scale: self.scale }
    }

    /// Normalizers and deltas of a line's queries.
    pub fn numbers(&self, task: &Task, line: &Line<S::Real>) -> [Each<S::Real>; 2] {
        [&self.normalizer, &self.delta].map(|rows| {
            let mut numbers = [S::Real::ZERO; UNIT];
            if let Some(rows) = rows {
                for (x, query) in numbers.iter_mut().zip(line.unit.queries.clone()) {
                    // SAFETY: the unit's queries are the operand's.
                    *x = unsafe { *rows.at([task.sample, query, line.head]).first };
                }
            }
            numbers
        })
    }

    /// The products of `count` rows of `features` and a line's queries: a tile.
    ///
    /// # Safety
    /// The rows must be there, and room for the tile at `out`.
    pub unsafe fn tile(
        &self,
        line: &Line<S::Real>,
        [rows, turned]: [Side<S::Real>; 2],
        [count, features]: [usize; 2],
        rooms: &Rooms<S::Real>,
        out: *mut S::Real,
    ) {
        let product = Product {
            rows: count,
            columns: line.len(),
            terms: features,
            block: Blocks::contraction(Blocking::Features, features, 1).unit,
            left: (Left::Rows, rows),
            right: turned,
        };
        // SAFETY: the caller's promise.
        unsafe { self.engine.compute(&product, rooms.counter, Target::Rows(out, line.width), line.ahead) };
    }

    /// A tile of `count` keys as left operand; `lies` says whether its rows are keys.
    ///
    /// # Safety
    /// The tile must be there, and the rooms the task's.
    unsafe fn left(
        &self,
        line: &Line<S::Real>,
        tile: *const S::Real,
        count: usize,
        lies: Left,
        rooms: &Rooms<S::Real>,
    ) -> (Left, Side<S::Real>) {
        let (level, width) = (self.context.level, line.width);
        let side = self.in_rows(Matrix { first: tile, step: width as isize });
        if self.engine.pairs.is_none() {
            return (lies, side);
        }
        // SAFETY: the caller's promise; numbers that are made pairs are f32.
        let (tile, out) = unsafe {
            let tile = std::slice::from_raw_parts(tile.cast(), count * width);
            (tile, std::slice::from_raw_parts_mut(rooms.pairs.cast(), UNIT * BLOCK / 2))
        };
        let (step, span) = match lies {
            Left::Rows => (width / 2, pair_columns(level, width, tile, line.len(), out)),
            Left::Terms => (width, pair_rows(level, width, tile, line.len(), out)),
        };
        (lies, Side { matrix: Matrix { first: rooms.pairs, step: step as isize }, span, ..side })
    }

    /// For each query the sum over `count` keys, from number `from` of the task on, of what a tile has of both times the
    /// key's row; added to the queries' rows of `out`, or written there.
    ///
    /// # Safety
    /// The tile and the rows must be there, and `out` the task's.
    pub unsafe fn sum_over_keys(
        &self,
        line: &Line<S::Real>,
        tile: *const S::Real,
        rows: Side<S::Real>,
        [from, count]: [usize; 2],
        rooms: &Rooms<S::Real>,
        (out, adds): (Panels<S::Real>, bool),
    ) {
        // SAFETY: the caller's promise; blocks begin at even keys.
        unsafe {
            let product = Product {
                rows: line.len(),
                columns: out.columns,
                terms: count,
                block: BLOCK,
                left: self.left(line, tile, count, Left::Terms, rooms),
                right: rows.from(self.engine.units(from)),
            };
            self.engine.compute(&product, rooms.counter, Target::Panels(out, 0, adds), line.ahead);
        }
    }

    /// For each of `count` keys the sum over a line's queries of what a tile has of both times the query's row; added to the
    /// rows of `out` from `first` on.
    ///
    /// # Safety
    /// The tile and the rows must be there, and `out` the task's.
    pub unsafe fn sum_over_queries(
        &self,
        line: &Line<S::Real>,
        tile: *const S::Real,
        rows: Option<Side<S::Real>>,
        count: usize,
        rooms: &Rooms<S::Real>,
        (out, first): (Panels<S::Real>, usize),
    ) {
        let rows = rows.expect("gradients have their rows copied");
        // SAFETY: the caller's promise.
        unsafe {
            let product = Product {
                rows: count,
                columns: out.columns,
                terms: line.len(),
                block: UNIT,
                left: self.left(line, tile, count, Left::Rows, rooms),
                right: rows,
            };
            self.engine.compute(&product, rooms.counter, Target::Panels(out, first, true), line.ahead);
        }
    }

    /// Stores rows of a result for positions from the given one on, each times its factor.
    ///
    /// # Safety
    /// The task must own those rows of the result, and the panels.
    pub unsafe fn store(
        &self,
        result: AttentionResult,
        [sample, position, head]: [usize; 3],
        panels: Panels<S::Real>,
        factors: &[S::Real],
    ) {
        let Some(out) = self.outputs[result as usize] else { return };
        let AttentionSizes { queries, keys, query_heads, key_heads, .. } = self.plan.sizes;
        let is_of_keys = matches!(result, AttentionResult::Key | AttentionResult::Value);
        let (positions, heads) = if is_of_keys { (keys, key_heads) } else { (queries, query_heads) };
        let (width, row) = (panels.columns, (sample * positions + position) * heads + head);
        // SAFETY: the caller's promise.
        unsafe {
            let out = out.pointer().cast::<S>().add(row * width);
            for (column, own, numbers) in panels.parts(&self.engine.kernels) {
                let columns = own.min(width - column);
                store_rows(self.context.level, numbers, own, columns, factors, out.add(column), heads * width);
            }
        }
    }

    /// Stores the normalizers of a line's queries.
    ///
    /// # Safety
    /// The task must own them.
    pub unsafe fn store_normalizers(&self, task: &Task, line: &Line<S::Real>, normalizers: &Each<S::Real>) {
        let Some(out) = self.outputs[AttentionResult::Normalizer as usize] else { return };
        let AttentionSizes { queries, query_heads, .. } = self.plan.sizes;
        for (query, x) in line.unit.queries.clone().zip(normalizers) {
            let at = (task.sample * queries + query) * query_heads + line.head;
            // SAFETY: the caller's promise.
            unsafe { *out.pointer().cast::<S::Real>().add(at) = *x };
        }
    }
}

/// Offsets that are `step` apart.
fn steps(count: usize, step: isize) -> Offsets {
    let mut offsets: Offsets = smallvec![0; count];
    offsets.iter_mut().enumerate().for_each(|(i, offset)| *offset = i as isize * step);
    offsets
}

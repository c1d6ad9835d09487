//! One call: operands, results, and what both passes do with them.

use super::BLOCK;
use super::plan::{Pass, Plan, Rooms, Task, Unit};
use super::rows::{Matrix, Rows, copy_rows, padded, store_rows};
use super::softmax::{Each, Number, UNIT};
use super::tile::{Left, Panels, Product, Target};
use crate::gemm::drive::with_slots;
use crate::gemm::kernel::Kernels;
use crate::gemm::pack::pack;
use crate::gemm::scratch::Arena;
use crate::gemm::{Element, Real};
use crate::kernel::Outputs;
use crate::operand::Shared;
use crate::{Context, Operand};
use meshwork_graph::Layout;
use meshwork_graph::canonical::{Blocking, Blocks};
use meshwork_graph::ops::{Attention, AttentionInput, AttentionResult, AttentionSizes};
use smallvec::SmallVec;

/// Operands, results and parameters.
pub struct Call<'a, S: Element<Real: Number>> {
    pub plan: Plan,
    pub context: Context<'a>,
    pub kernels: Kernels<S::Real>,
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

/// A unit of a query head, and what is needed of it again and again.
pub struct Line<R> {
    pub head: usize,
    pub unit: Unit,
    /// Its queries, scaled, as rows ...
    pub queries: Matrix<R>,
    /// ... and transposed, as right operand of a product.
    pub turned: Matrix<R>,
    /// Columns of its tiles.
    pub width: usize,
    /// Keys that each query sees.
    seen: Each<usize>,
}

impl<R> Line<R> {
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
unsafe impl<S: Element<Real: Number>> Sync for Call<'_, S> {}

impl<'a, S: Element<Real: Number>> Call<'a, S> {
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
        Call {
            plan: Plan::new::<S>(op, &layouts, context.par.lanes()),
            context,
            kernels: S::Real::kernels(context.level),
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
        let rooms = Arena::new(scratch).split(slots * bytes);
        for pass in &self.plan.passes {
            with_slots(self.context.par, slots, self.plan.tasks(pass), &|slot, task| {
                let mut arena = rooms.slot(slot, bytes);
                let rooms = self.plan.rooms(&self.kernels, |count| arena.take(count));
                work(pass, &self.plan.task(pass, task), rooms);
            });
        }
    }

    /// The keys' rows of a task, those from its first key on.
    ///
    /// # Safety
    /// The rooms must be the task's.
    pub unsafe fn keys(&self, task: &Task, rooms: &Rooms<S::Real>) -> Matrix<S::Real> {
        // SAFETY: the caller's promise.
        unsafe { self.rows(&self.key, 0, self.plan.sizes.depth, task, rooms.keys) }
    }

    /// The values' rows of a task, those from its first key on.
    ///
    /// # Safety
    /// The rooms must be the task's.
    pub unsafe fn values(&self, task: &Task, rooms: &Rooms<S::Real>) -> Matrix<S::Real> {
        let rows = self.value.as_ref().expect("an operand of this result");
        // SAFETY: the caller's promise.
        unsafe { self.rows(rows, 1, self.plan.sizes.width, task, rooms.values) }
    }

    unsafe fn rows(
        &self,
        rows: &Rows<S>,
        which: usize,
        width: usize,
        task: &Task,
        out: *mut S::Real,
    ) -> Matrix<S::Real> {
        // SAFETY: the task's keys are the operand's; what is not copied has the type of numbers.
        unsafe {
            let rows = rows.at(task.sample, task.keys.start, task.group);
            if self.plan.copies[which] {
                return copy_rows(self.context.level, rows, task.keys.len(), width, S::Real::ONE, out);
            }
            Matrix { first: rows.first.cast(), step: rows.step }
        }
    }

    /// A unit's rows of an operand, as they are and transposed.
    ///
    /// # Safety
    /// The unit's queries must be the operand's, and the rooms a task's.
    unsafe fn turn(
        &self,
        rows: &Rows<S>,
        [sample, head]: [usize; 2],
        unit: &Unit,
        width: usize,
        factor: S::Real,
        [plain, panels]: [*mut S::Real; 2],
    ) -> [Matrix<S::Real>; 2] {
        let (level, queries) = (self.context.level, &unit.queries);
        let step = padded(width) as isize;
        let lines: Each<isize> = std::array::from_fn(|i| i as isize * step);
        let columns = self.kernels.columns();
        // SAFETY: the caller's promise: the unit's queries, and rooms for a unit.
        unsafe {
            let plain = copy_rows(level, rows.at(sample, queries.start, head), queries.len(), width, factor, plain);
            let terms: SmallVec<[isize; 256]> = (0..width as isize).collect();
            pack(level, plain.first, &lines[..queries.len()], &terms, columns, panels);
            [plain, Matrix { first: panels, step: columns as isize }]
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
    pub unsafe fn line(&self, task: &Task, head: usize, unit: Unit, rooms: &Rooms<S::Real>) -> Line<S::Real> {
        let AttentionSizes { depth, keys, .. } = self.plan.sizes;
        let rooms = [rooms.queries, rooms.query_panels];
        // SAFETY: the caller's promise.
        let [queries, turned] = unsafe { self.turn(&self.query, [task.sample, head], &unit, depth, self.scale, rooms) };
        let mut seen = [0; UNIT];
        for (seen, query) in seen.iter_mut().zip(unit.queries.clone()) {
            *seen = self.plan.mask.seen(query, keys, self.length(task));
        }
        let width = unit.queries.len().next_power_of_two().max(8).max(self.kernels.lanes);
        Line { head, unit, queries, turned, width, seen }
    }

    /// The gradients by a line's outputs, as rows and transposed.
    ///
    /// # Safety
    /// The rooms must be the task's.
    pub unsafe fn gradients(&self, task: &Task, line: &Line<S::Real>, rooms: &Rooms<S::Real>) -> [Matrix<S::Real>; 2] {
        let rows = self.gradient.as_ref().expect("an operand of gradients");
        let rooms = [rooms.gradients, rooms.gradient_panels];
        // SAFETY: the caller's promise.
        unsafe { self.turn(rows, [task.sample, line.head], &line.unit, self.plan.sizes.width, S::Real::ONE, rooms) }
    }

    /// Normalizers and deltas of a line's queries.
    pub fn numbers(&self, task: &Task, line: &Line<S::Real>) -> [Each<S::Real>; 2] {
        [&self.normalizer, &self.delta].map(|rows| {
            let mut numbers = [S::Real::ZERO; UNIT];
            if let Some(rows) = rows {
                for (x, query) in numbers.iter_mut().zip(line.unit.queries.clone()) {
                    // SAFETY: the unit's queries are the operand's.
                    *x = unsafe { *rows.at(task.sample, query, line.head).first };
                }
            }
            numbers
        })
    }

    /// The products of `count` rows of `features` and a line's transposed rows: a tile.
    ///
    /// # Safety
    /// The rows must be there, and room for the tile at `out`.
    pub unsafe fn tile(
        &self,
        line: &Line<S::Real>,
        [rows, turned]: [Matrix<S::Real>; 2],
        [count, features]: [usize; 2],
        rooms: &Rooms<S::Real>,
        out: *mut S::Real,
    ) {
        let product = Product {
            rows: count,
            columns: line.len(),
            terms: features,
            block: Blocks::contraction(Blocking::Features, features, 1).unit,
            left: Left::Rows(rows),
            right: turned,
            right_panel: features * self.kernels.columns(),
        };
        // SAFETY: the caller's promise.
        unsafe { product.compute(&self.kernels, rooms.counter, Target::Rows(out, line.width)) };
    }

    /// For each query the sum over `count` keys of what a tile has of both times the key's row; added to the queries' rows of
    /// `out`, or written there.
    ///
    /// # Safety
    /// The tile and the rows must be there, and `out` the task's.
    pub unsafe fn sum_over_keys(
        &self,
        line: &Line<S::Real>,
        tile: *const S::Real,
        rows: Matrix<S::Real>,
        count: usize,
        rooms: &Rooms<S::Real>,
        (out, adds): (Panels<S::Real>, bool),
    ) {
        let product = Product {
            rows: line.len(),
            columns: out.columns,
            terms: count,
            block: BLOCK,
            left: Left::Terms(Matrix { first: tile, step: line.width as isize }),
            right: rows,
            right_panel: self.kernels.columns(),
        };
        // SAFETY: the caller's promise.
        unsafe { product.compute(&self.kernels, rooms.counter, Target::Panels(out, 0, adds)) };
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
        rows: Matrix<S::Real>,
        count: usize,
        rooms: &Rooms<S::Real>,
        (out, first): (Panels<S::Real>, usize),
    ) {
        let product = Product {
            rows: count,
            columns: out.columns,
            terms: line.len(),
            block: UNIT,
            left: Left::Rows(Matrix { first: tile, step: line.width as isize }),
            right: rows,
            right_panel: self.kernels.columns(),
        };
        // SAFETY: the caller's promise.
        unsafe { product.compute(&self.kernels, rooms.counter, Target::Panels(out, first, true)) };
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
            for (column, own, numbers) in panels.parts(&self.kernels) {
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

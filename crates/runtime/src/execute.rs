//! Running a program: one kernel after the other.

use crate::buffer::Buffer;
use crate::load::{Running, kernel_name};
use crate::trace;
use crate::value::{Ready, Value};
use crate::worker::Width;
use meshwork_cpu::element::Refused;
use meshwork_cpu::{Context, Level, Operand, Output, Par, kernel};
use meshwork_graph::Op;
use meshwork_graph::program::{Location, Program, Step, View};
use meshwork_queue::{Event, RunError, message};
use smallvec::SmallVec;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What is bound to an input of a program.
pub enum Binding {
    /// The memory of a value on the device. It is no clone of the value.
    Buffer(Arc<Buffer>, Ready),
    /// A 0-d value: the bytes of the number in memory begin with the element.
    Scalar(u64),
}

impl From<&Value> for Binding {
    fn from(value: &Value) -> Self {
        Binding::Buffer(value.buffer().clone(), value.ready().clone())
    }
}

/// A program that has been handed over.
pub(crate) struct Run {
    pub program: Arc<Program>,
    /// What the program was compiled for.
    pub width: Width,
    pub inputs: Vec<Binding>,
    pub outputs: Vec<Arc<Buffer>>,
}

impl Run {
    /// Lets go of all buffers.
    pub fn let_go(&mut self) {
        self.inputs.clear();
        self.outputs.clear();
    }

    /// Runs the steps and completes each output when its last step is done. A step that fails spoils its results, and
    /// one that reads what failed those that depend on it; all others run: only what depends on a failure fails, with
    /// its cause.
    pub fn execute(&self, arena: *mut u8, par: &Par, level: Level, done: &Event, running: &Running<'_>) {
        let mut spoilt: Vec<(Location, RunError)> = Vec::new();
        for (i, input) in self.inputs.iter().enumerate() {
            if let Binding::Buffer(_, ready) = input
                && let Err(e) = ready.wait()
            {
                spoilt.push((Location::Input(i), e));
            }
        }
        let context = Context { par, level };
        let tracing = trace::is_on();
        for (i, step) in self.program.steps.iter().enumerate() {
            running.at(i);
            let cause = |view: &View| spoilt.iter().find(|(at, _)| *at == view.location).map(|(_, e)| e.clone());
            let causes: SmallVec<[_; 4]> = step.inputs.iter().map(cause).collect();
            let mut failures: SmallVec<[_; 1]> = (0..step.outputs.len()).map(|k| inherited(step, k, &causes)).collect();
            if failures.iter().any(Option::is_none)
                && let Err(panic) = catch_unwind(AssertUnwindSafe(|| {
                    let _span = tracing.then(|| trace::kernel(&self.program, i));
                    self.step(step, arena, context);
                }))
            {
                let (name, what) = (kernel_name(&step.op), cause_of(&*panic));
                let failure = RunError(format!("kernel {i} ({name} -> {}) failed: {what}", step.outputs[0].ty).into());
                let spoils = |k: usize| match &step.op {
                    Op::Fused(op) if panic.is::<Refused>() => op.depends_on_indices(k),
                    _ => true,
                };
                for (_, failed) in failures.iter_mut().enumerate().filter(|(k, _)| spoils(*k)) {
                    failed.get_or_insert_with(|| failure.clone());
                }
            }
            spoilt.retain(|(at, _)| step.outputs.iter().all(|output| *at != output.location));
            for (output, failure) in step.outputs.iter().zip(failures) {
                if let Location::Output(k) = output.location {
                    done.complete(k, failure.clone().map_or(Ok(()), Err));
                }
                spoilt.extend(failure.map(|e| (output.location, e)));
            }
        }
    }

    fn pointer(&self, location: Location, arena: *mut u8) -> *mut u8 {
        match location {
            Location::Input(i) => match &self.inputs[i] {
                Binding::Buffer(buffer, _) => buffer.pointer(),
                Binding::Scalar(bytes) => std::ptr::from_ref(bytes).cast_mut().cast(),
            },
            Location::Output(i) => self.outputs[i].pointer(),
            // SAFETY: the arena has the size that the program asks for.
            Location::Arena(at) => unsafe { arena.add(at) },
        }
    }

    fn step(&self, step: &Step, arena: *mut u8, context: Context) {
        let operands: SmallVec<[Operand; 4]> = step
            .inputs
            .iter()
            .map(|view| {
                let data = self.pointer(view.location, arena);
                // SAFETY: the plan gives every value room for its layout, and only this thread's kernel writes.
                unsafe { Operand::new(data, view.ty.dtype, &view.layout) }
            })
            .collect();
        let outputs = step
            .outputs
            .iter()
            .map(|output| {
                let data = self.pointer(output.location, arena);
                // SAFETY: the plan keeps the outputs apart from each other and from all operands, except where an
                // elementwise kernel works in place, also within a chain.
                unsafe { Output::new(data, output.ty.dtype, &output.ty.shape) }
            })
            .collect();
        let (at, bytes) = step.scratch;
        // SAFETY: the plan reserves this room for the step alone.
        let scratch = unsafe { std::slice::from_raw_parts_mut(arena.add(at), bytes) };
        kernel::run(&step.op, &operands, outputs, scratch, context);
    }
}

/// The failure that result number `k` of a step has from the operands that failed.
fn inherited(step: &Step, k: usize, causes: &[Option<RunError>]) -> Option<RunError> {
    if causes.iter().all(Option::is_none) {
        return None;
    }
    let depends = step.op.dependencies(k, causes.len());
    causes.iter().zip(depends).find_map(|(cause, depends)| cause.clone().filter(|_| depends))
}

fn cause_of(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<Refused>().map_or_else(|| message(panic), |refused| refused.0.as_str())
}

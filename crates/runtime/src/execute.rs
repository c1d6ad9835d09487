//! Running a program: one kernel after the other.

use crate::Value;
use crate::buffer::Buffer;
use crate::event::{Event, RunError};
use meshwork_cpu::{Context, Level, Operand, Output, Par, kernel};
use meshwork_graph::program::{Location, Program, Step};
use smallvec::SmallVec;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What is bound to an input of a program.
#[derive(Clone)]
pub enum Binding {
    /// A value on the device.
    Value(Value),
    /// A 0-d value: the bytes of the number in memory begin with the element.
    Scalar(u64),
}

/// A binding on the queue, which is no clone of the value any more.
pub(crate) enum Bound {
    Buffer(Arc<Buffer>, Arc<Event>),
    Scalar(u64),
}

impl From<Binding> for Bound {
    fn from(binding: Binding) -> Self {
        match binding {
            Binding::Value(value) => Bound::Buffer(value.buffer, value.ready),
            Binding::Scalar(bytes) => Bound::Scalar(bytes),
        }
    }
}

/// A program that has been handed over.
pub(crate) struct Run {
    pub program: Arc<Program>,
    pub inputs: Vec<Bound>,
    pub outputs: Vec<Arc<Buffer>>,
    pub ready: Arc<Event>,
}

impl Run {
    /// Runs all steps, or says which one failed, or whose failure reaches this run.
    pub fn execute(&self, arena: *mut u8, par: &Par, level: Level) -> Result<(), RunError> {
        for input in &self.inputs {
            if let Bound::Buffer(_, ready) = input {
                ready.wait()?;
            }
        }
        let context = Context { par, level };
        for (i, step) in self.program.steps.iter().enumerate() {
            catch_unwind(AssertUnwindSafe(|| self.step(step, arena, context))).map_err(|panic| {
                let name = step.op.operation().name();
                RunError::new(format!("kernel {i} ({name} -> {}) failed: {}", step.ty, message(&*panic)))
            })?;
        }
        Ok(())
    }

    fn pointer(&self, location: Location, arena: *mut u8) -> *mut u8 {
        match location {
            Location::Input(i) => match &self.inputs[i] {
                Bound::Buffer(buffer, _) => buffer.pointer(),
                Bound::Scalar(bytes) => std::ptr::from_ref(bytes).cast_mut().cast(),
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
        let data = self.pointer(step.output, arena);
        // SAFETY: the plan keeps the output apart from all operands, except where an elementwise kernel works in place.
        let output = unsafe { Output::new(data, step.ty.dtype, &step.ty.shape) };
        let (at, bytes) = step.scratch;
        // SAFETY: the plan reserves this room for the step alone.
        let scratch = unsafe { std::slice::from_raw_parts_mut(arena.add(at), bytes) };
        kernel::run(&step.op, &operands, output, scratch, context);
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it panicked without a message")
}

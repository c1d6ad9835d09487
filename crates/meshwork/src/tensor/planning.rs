//! Evaluations that are planned and not run.

use super::device::device;
use super::evaluate::evaluate;
use meshwork_graph::plan::{Plan, ValueId};
use meshwork_runtime::{Buffer, Device, DeviceId, Value, synchronize_all};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

thread_local! {
    static PLANNING: RefCell<Option<Planning>> = const { RefCell::new(None) };
}

/// What the evaluations of a thread would have taken so far.
#[derive(Default)]
struct Planning {
    /// Results of earlier evaluations that would be in new memory, by their addresses.
    made: FxHashMap<*const Buffer, Weak<Buffer>>,
    peaks: BTreeMap<DeviceId, usize>,
}

impl Planning {
    /// Bytes of results that would be in use on a device.
    fn made_on(&self, device: DeviceId) -> usize {
        let made = self.made.values().filter_map(Weak::upgrade).filter(|buffer| buffer.device() == device);
        made.map(|buffer| buffer.bytes()).sum()
    }
}

/// The most bytes that would be in use on each device while what `body` evaluates ran, other things there included. Nothing
/// runs: values that were to be computed read as zeros within `body`, and are gone afterwards.
pub(crate) fn plan_only(body: impl FnOnce()) -> Vec<(Device, usize)> {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            PLANNING.take();
        }
    }
    evaluate(None);
    synchronize_all();
    PLANNING.set(Some(Planning::default()));
    let _restore = Restore;
    body();
    let planning = PLANNING.take().expect("planning has begun");
    planning.peaks.into_iter().map(|(id, bytes)| (device(id), bytes)).collect()
}

/// Has the peaks begin anew with what comes next.
pub(crate) fn forget_peaks() {
    PLANNING.with_borrow_mut(|planning| {
        if let Some(planning) = planning {
            planning.peaks.clear();
        }
    });
}

/// Whether evaluations of this thread are planned and not run.
pub(crate) fn is_planning() -> bool {
    PLANNING.with_borrow(Option::is_some)
}

/// Notes what an evaluation would take, before its results are made.
pub(crate) fn note_plan(plan: &Plan, ending: HashMap<ValueId, (u32, usize)>) {
    PLANNING.with_borrow_mut(|planning| {
        let Some(planning) = planning else { return };
        for (id, growth) in plan.growth(&ending) {
            let id = DeviceId(id);
            let used = device(id).memory().allocated + planning.made_on(id) + growth;
            let peak = planning.peaks.entry(id).or_default();
            *peak = used.max(*peak);
        }
    });
}

/// Notes the results of a planned evaluation that take new memory.
pub(crate) fn note_results(values: &[Value]) {
    PLANNING.with_borrow_mut(|planning| {
        let Some(planning) = planning else { return };
        planning.made.retain(|_, buffer| buffer.strong_count() > 0);
        let new = values.iter().map(Value::buffer).filter(|buffer| !buffer.has_memory());
        planning.made.extend(new.map(|buffer| (Arc::as_ptr(buffer), Arc::downgrade(buffer))));
    });
}

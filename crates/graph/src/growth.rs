//! The memory that a plan takes.

use crate::plan::{Plan, Task, ValueId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// For each device how many of its programs, in the order of hand-over.
type Clock = BTreeMap<u32, usize>;

/// What is known of the order of tasks, if each device runs its programs in the order of hand-over. Copies begin as soon as
/// they can.
struct Order<'a> {
    plan: &'a Plan,
    /// The place of each task among the programs of its device; of a copy the number of those handed over before.
    places: Vec<usize>,
    /// The task that makes each value.
    makers: HashMap<ValueId, usize>,
    /// The tasks that read each value.
    readers: HashMap<ValueId, Vec<usize>>,
    /// The programs that have ended for certain when a task begins.
    before: Vec<Clock>,
    /// The first program of each device that begins for certain after a task has begun, and a copy has ended.
    after: Vec<Clock>,
    /// The number of programs of each device.
    programs: Clock,
}

impl Order<'_> {
    fn of(plan: &Plan) -> Order<'_> {
        let mut programs = Clock::new();
        let (mut makers, mut readers) = (HashMap::new(), HashMap::<ValueId, Vec<usize>>::new());
        let mut places = Vec::new();
        for (at, task) in plan.tasks.iter().enumerate() {
            let (read, made) = values(task);
            makers.extend(made.iter().map(|&id| (id, at)));
            read.iter().for_each(|&id| readers.entry(id).or_default().push(at));
            let count = programs.entry(device(task)).or_default();
            places.push(*count);
            *count += usize::from(matches!(task, Task::Run { .. }));
        }
        let mut order = Order { plan, places, makers, readers, before: Vec::new(), after: Vec::new(), programs };
        order.find_before();
        order.find_after();
        order
    }

    fn find_before(&mut self) {
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        for (at, task) in self.plan.tasks.iter().enumerate() {
            let mut clock = Clock::new();
            let mut join = |other: &Clock| {
                for (&device, &count) in other {
                    let own = clock.entry(device).or_default();
                    *own = count.max(*own);
                }
            };
            // A result is there before its program has ended.
            for maker in values(task).0.iter().filter_map(|id| self.makers.get(id)) {
                join(&self.before[*maker]);
            }
            match task {
                Task::Run { device, .. } => {
                    last.insert(*device, at).iter().for_each(|&previous| join(&self.before[previous]));
                    clock.insert(*device, self.places[at]);
                }
                Task::Copy { after, .. } => {
                    for &maker in after.iter().filter_map(|id| self.makers.get(id)) {
                        join(&self.before[maker]);
                        join(&Clock::from([(device(&self.plan.tasks[maker]), self.places[maker] + 1)]));
                    }
                }
            }
            self.before.push(clock);
        }
    }

    fn find_after(&mut self) {
        let tasks = &self.plan.tasks;
        let mut after = vec![Clock::new(); tasks.len()];
        let mut next: BTreeMap<u32, usize> = BTreeMap::new();
        for (at, task) in tasks.iter().enumerate().rev() {
            let mut own = std::mem::take(&mut after[at]);
            let join = |own: &mut Clock, later: usize, of: &Clock| {
                let begins = match &tasks[later] {
                    Task::Run { device, .. } => Some((*device, self.places[later])),
                    Task::Copy { .. } => None,
                };
                for (device, place) in of.iter().map(|(&device, &place)| (device, place)).chain(begins) {
                    let known = own.entry(device).or_insert(place);
                    *known = place.min(*known);
                }
            };
            let (_, made) = values(task);
            for &reader in made.iter().filter_map(|id| self.readers.get(id)).flatten() {
                join(&mut own, reader, &after[reader]);
            }
            if let Task::Run { device, .. } = task
                && let Some(later) = next.insert(*device, at)
            {
                join(&mut own, later, &after[later]);
            }
            after[at] = own;
        }
        self.after = after;
    }

    /// The programs of a device that may run while a value is in its memory: the first, and the one after the last.
    fn life(&self, id: ValueId, on: u32, is_wanted: bool) -> (usize, usize) {
        let all = self.programs[&on].max(1);
        let begin = self.makers.get(&id).map_or(0, |&maker| match &self.plan.tasks[maker] {
            Task::Run { .. } => self.places[maker],
            Task::Copy { .. } => self.before[maker].get(&on).copied().unwrap_or(0),
        });
        let end = |&reader: &usize| match &self.plan.tasks[reader] {
            Task::Run { .. } => self.places[reader] + 1,
            Task::Copy { .. } => self.after[reader].get(&on).copied().unwrap_or(all),
        };
        let end = match is_wanted {
            true => all,
            false => self.readers.get(&id).into_iter().flatten().map(end).max().unwrap_or(0),
        };
        (begin.min(all - 1), end.max(begin + 1).min(all))
    }
}

/// What a task reads and makes.
fn values(task: &Task) -> (&[ValueId], &[ValueId]) {
    match task {
        Task::Run { inputs, outputs, .. } => (inputs, outputs),
        Task::Copy { value, result, .. } => (std::slice::from_ref(value), std::slice::from_ref(result)),
    }
}

/// Where a task's results are.
fn device(task: &Task) -> u32 {
    match task {
        Task::Run { device, .. } => *device,
        Task::Copy { to, .. } => *to,
    }
}

impl Plan {
    /// The most bytes that each device has in use at a time on top of those before the first task: what may be there while a
    /// program runs, and what the program needs. A bound where programs begin in the order of hand-over (one that overtakes
    /// may need more); copies may come at any time. `ending` are the leaves that nobody needs afterwards, with their devices and
    /// bytes: their memory is taken over, or free after their last use. For one program exactly the outputs and arena of its
    /// [`Memory`](crate::program::Memory).
    pub fn growth(&self, ending: &HashMap<ValueId, (u32, usize)>) -> BTreeMap<u32, usize> {
        let order = Order::of(self);
        // By device and program: what it needs, and what is there meanwhile.
        let count = |device: u32| order.programs[&device].max(1);
        let mut needed: BTreeMap<u32, Vec<usize>> =
            order.programs.keys().map(|&device| (device, vec![0; count(device)])).collect();
        let mut taken: HashMap<ValueId, usize> = HashMap::new();
        let mut there: Vec<(ValueId, u32, usize)> =
            ending.iter().map(|(&id, &(device, bytes))| (id, device, bytes)).collect();
        for (at, task) in self.tasks.iter().enumerate() {
            match task {
                Task::Run { device, program, inputs, outputs } => {
                    needed.get_mut(device).expect("a device of the plan")[order.places[at]] = program.memory.arena;
                    for (&id, place) in outputs.iter().zip(&program.outputs) {
                        there.push((id, *device, place.ty.bytes()));
                        taken.extend(place.donated.map(|input| (inputs[input], order.places[at])));
                    }
                }
                Task::Copy { to, result, ty, .. } => there.push((*result, *to, ty.bytes())),
            }
        }
        let wanted: HashSet<ValueId> = self.outputs.iter().copied().collect();
        for (id, device, bytes) in there {
            let Some(needed) = needed.get_mut(&device) else { continue };
            let (begin, end) = order.life(id, device, wanted.contains(&id));
            let end = taken.get(&id).copied().unwrap_or(end);
            needed[begin.min(end)..end].iter_mut().for_each(|needed| *needed += bytes);
        }
        let before =
            |device: u32| ending.values().filter(|(on, _)| *on == device).map(|(_, bytes)| bytes).sum::<usize>();
        let most = |(device, needed): (u32, Vec<usize>)| {
            (device, needed.into_iter().max().unwrap_or(0).saturating_sub(before(device)))
        };
        needed.into_iter().map(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Memory, OutputPlace, Program};
    use crate::{DType, Type};
    use std::sync::Arc;

    fn bytes(count: usize) -> Type {
        Type::new(DType::U8, [count])
    }

    fn run(device: u32, inputs: &[ValueId], output: (ValueId, usize), donated: Option<usize>, arena: usize) -> Task {
        let memory = Memory { arena, ..Memory::default() };
        let outputs = vec![OutputPlace { ty: bytes(output.1), donated }];
        let program = Program { inputs: vec![bytes(1); inputs.len()], outputs, steps: Vec::new(), memory };
        Task::Run { device, program: Arc::new(program), inputs: inputs.to_vec(), outputs: vec![output.0] }
    }

    /// Two devices compute, and one adds what both have computed.
    fn growth(after: Option<ValueId>) -> BTreeMap<u32, usize> {
        let tasks = vec![
            run(1, &[0], (2, 40), None, 1000),
            run(2, &[1], (3, 30), None, 500),
            Task::Copy { value: 3, offset: 0, to: 1, result: 4, ty: bytes(30), after },
            run(1, &[2, 4], (5, 40), Some(0), 7),
        ];
        let plan = Plan { tasks, values: 6, outputs: vec![5], spread: Vec::new(), exchanges: Vec::new() };
        plan.growth(&HashMap::from([(0, (1, 100))]))
    }

    #[test]
    fn a_copy_may_come_while_a_program_runs_that_it_does_not_wait_for() {
        assert_eq!(growth(None), BTreeMap::from([(1, 40 + 30 + 1000), (2, 30 + 500)]));
        assert_eq!(growth(Some(2)), BTreeMap::from([(1, 40 + 1000), (2, 30 + 500)]));
    }
}

//! Models that are small enough to try all their orders.

use crate::explore::{AtomicUsize, Cell, Mutex, Queues, explore, failure, thread};
use meshwork_queue::{Gate, Idle, Part, Queue};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn a_chain_over_queues_sees_what_it_needs() {
    explore(|| {
        let queues = Queues::start(2);
        let (x, y, z) = (Cell::new(), Cell::new(), Cell::new());
        let (write, read) = (x.clone(), x);
        let first = queues[0].submit(1, 1, [], move |_, _| write.set(1));
        let (write, last) = (y.clone(), y);
        let second = queues[1].submit(2, 1, [(&first, Part::Result(0))], move |_, _| write.set(read.get() + 1));
        let write = z.clone();
        let third = queues[0].submit(3, 0, [(&second, Part::End)], move |_, _| write.set(last.get() + 1));
        assert_eq!(third.wait(Part::End), Ok(()));
        assert_eq!(z.get(), 3);
        queues.close();
    });
}

/// Others start from a result that is there early; its first outcome counts.
#[test]
fn a_result_may_be_there_before_its_task_ends() {
    explore(|| {
        let queues = Queues::start(2);
        let (x, y, end) = (Cell::new(), Cell::new(), Cell::new());
        let (write, last) = (x.clone(), end.clone());
        let task = queues[0].submit(1, 2, [], move |_, done| {
            write.set(1);
            done.complete(0, failure("first"));
            done.complete(0, Ok(()));
            last.set(1);
        });
        let (read, write) = (x, y.clone());
        let reader = queues[1].submit(2, 0, [(&task, Part::Result(0))], move |_, _| write.set(read.get()));
        assert_eq!(reader.wait(Part::End), Ok(()));
        assert_eq!(y.get(), 1);
        assert_eq!(task.wait(Part::Result(1)), Ok(()));
        assert_eq!(end.get(), 1, "what is not completed early is complete at the end");
        assert_eq!(task.wait(Part::Result(0)), failure("first"));
        assert_eq!(task.wait(Part::End), failure("first"));
        queues.close();
    });
}

/// A task is submitted while what it needs, some of it twice, is being completed.
#[test]
fn submission_races_with_completion() {
    explore(|| {
        let queues = Queues::start(2);
        let (x, y, sum) = (Cell::new(), Cell::new(), Cell::new());
        let (left, right) = (x.clone(), y.clone());
        let a = queues[0].submit(1, 1, [], move |_, _| left.set(1));
        let b = queues[1].submit(2, 1, [], move |_, _| right.set(2));
        let write = sum.clone();
        let after = [(&a, Part::Result(0)), (&b, Part::Result(0)), (&a, Part::End)];
        let c = queues[0].submit(3, 1, after, move |ran, _| {
            ran.push(3);
            write.set(x.get() + y.get());
        });
        assert_eq!(c.wait(Part::Result(0)), Ok(()));
        assert_eq!(sum.get(), 3);
        assert_eq!(queues.close(), [vec![3], vec![]]);
    });
}

#[test]
fn several_threads_submit() {
    explore(|| {
        let queues = Queues::start(1);
        let queue = queues[0].clone();
        let other = thread::spawn(move || {
            let first = queue.submit(1, 0, [], |ran, _| ran.push(1));
            let second = queue.submit(3, 0, [(&first, Part::End)], |ran, _| ran.push(3));
            assert_eq!(second.wait(Part::End), Ok(()));
        });
        let mine = queues[0].submit(2, 0, [], |ran, _| ran.push(2));
        assert_eq!(mine.wait(Part::End), Ok(()));
        other.join().expect("the other thread ends");
        let mut ran = queues.close().remove(0);
        assert!(ran.iter().position(|&n| n == 1) < ran.iter().position(|&n| n == 3));
        ran.sort_unstable();
        assert_eq!(ran, [1, 2, 3]);
    });
}

#[test]
fn closed_queues_finish_their_tasks() {
    explore(|| {
        let queues = Queues::start(2);
        let a = queues[0].submit(1, 1, [], |ran, _| ran.push(1));
        let b = queues[1].submit(2, 1, [(&a, Part::End)], |ran, _| ran.push(2));
        let c = queues[0].submit(3, 1, [(&b, Part::Result(0))], |ran, _| ran.push(3));
        assert_eq!(queues.close(), [vec![1, 3], vec![2]]);
        assert!([a, b, c].iter().all(|event| event.is_complete(Part::End)));
    });
}

/// What waits for the end, or for a result that is not there yet, does not start with another part.
#[test]
fn each_part_has_its_own_dependents() {
    explore(|| {
        let queues = Queues::start(2);
        let last = Cell::new();
        let write = last.clone();
        let task = queues[0].submit(1, 2, [], move |_, done| {
            done.complete(0, Ok(()));
            write.set(1);
        });
        let read = last.clone();
        let end = queues[1].submit(2, 0, [(&task, Part::End)], move |_, _| assert_eq!(read.get(), 1));
        let result = queues[1].submit(3, 0, [(&task, Part::Result(1))], move |_, _| assert_eq!(last.get(), 1));
        assert_eq!(end.wait(Part::End), Ok(()));
        assert_eq!(result.wait(Part::End), Ok(()));
        queues.close();
    });
}

#[test]
fn idle_queues_close() {
    explore(|| {
        let queues = Queues::start(2);
        assert_eq!(queues.close(), [vec![], vec![]]);
    });
}

#[test]
fn two_threads_wait_for_different_parts() {
    explore(|| {
        let queues = Queues::start(1);
        let (x, y) = (Cell::new(), Cell::new());
        let (early, late) = (x.clone(), y.clone());
        let task = queues[0].submit(1, 1, [], move |_, done| {
            early.set(1);
            done.complete(0, Ok(()));
            late.set(1);
        });
        let event = task.clone();
        let reader = thread::spawn(move || {
            assert_eq!(event.wait(Part::Result(0)), Ok(()));
            assert_eq!(x.get(), 1);
        });
        assert_eq!(task.wait(Part::End), Ok(()));
        assert_eq!(y.get(), 1);
        reader.join().expect("the reader ends");
        queues.close();
    });
}

#[test]
fn room_is_there_when_the_tasks_have_ended() {
    explore(|| {
        let queues = Queues::start(1);
        let first = queues[0].submit(1, 0, [], |_, _| {});
        let second = queues[0].submit(2, 0, [(&first, Part::End)], |_, _| {});
        let (queue, last) = (queues[0].clone(), second.clone());
        let other = thread::spawn(move || {
            queue.wait_for_room(2, 2);
            assert!(last.is_complete(Part::End));
        });
        queues[0].wait_for_room(0, 0);
        queues[0].wait_for_room(1, 2);
        assert!(first.is_complete(Part::End));
        other.join().expect("there is room");
        queues.close();
    });
}

/// Whether the ringer comes in time or not, looks before or after it is called, or ends.
#[test]
fn ringers_wake_who_waits_for_room() {
    explore(|| {
        let queues = Queues::start(1);
        let ringer = queues[0].ringer();
        let other = thread::spawn(move || ringer.ring_if_due());
        let first = queues[0].submit(1, 0, [], |_, _| {});
        let second = queues[0].submit(2, 0, [], |_, _| {});
        queues[0].wait_for_room(1, 1);
        assert!(first.is_complete(Part::End));
        queues[0].wait_for_room(2, 2);
        assert!(second.is_complete(Part::End));
        other.join().expect("the ringer ends");
        queues.close();
    });
}

/// A panic fails what the task had not completed, and is nobody else's business.
#[test]
fn a_panic_fails_its_results_and_nothing_else() {
    explore(|| {
        let queues = Queues::start(2);
        let task = queues[0].submit(1, 2, [], |_, done| {
            done.complete(0, Ok(()));
            std::panic::resume_unwind(Box::new("too bad"));
        });
        let reader = queues[1].submit(2, 0, [(&task, Part::Result(0)), (&task, Part::Result(1))], |ran, _| ran.push(2));
        let next = queues[0].submit(3, 1, [(&task, Part::End)], |ran, done| {
            ran.push(3);
            done.complete(0, Ok(()));
            std::panic::resume_unwind(Box::new("afterwards"));
        });
        assert_eq!(next.wait(Part::End), failure("afterwards"));
        assert_eq!(next.wait(Part::Result(0)), Ok(()));
        assert_eq!(reader.wait(Part::End), Ok(()));
        assert_eq!(task.wait(Part::Result(0)), Ok(()));
        assert_eq!(task.wait(Part::Result(1)), failure("too bad"));
        assert_eq!(task.wait(Part::End), failure("too bad"));
        assert_eq!(queues.close(), [vec![3], vec![2]]);
    });
}

/// Tasks may submit tasks, to their own queue too, while other threads do.
#[test]
fn tasks_submit_tasks() {
    explore(|| {
        let queues = Queues::start(2);
        let (own, other) = (queues[0].clone(), queues[1].clone());
        let parent = queues[0].submit(1, 0, [], move |_, _| {
            let there = other.submit(2, 1, [], |ran, _| ran.push(2));
            own.submit(3, 0, [(&there, Part::Result(0))], |ran, _| ran.push(3));
        });
        assert_eq!(parent.wait(Part::End), Ok(()));
        assert_eq!(queues.close(), [vec![3], vec![2]]);
    });
}

/// A task may read what is there; what is not it must not wait for.
#[test]
fn a_task_that_waits_fails() {
    explore(|| {
        let queues = Queues::start(2);
        let ready = queues[0].submit(1, 1, [], |_, _| {});
        let fine = queues[0].submit(3, 0, [(&ready, Part::End)], {
            let ready = ready.clone();
            move |_, _| assert_eq!(ready.wait(Part::End), Ok(()))
        });
        // What waits for a later task: it is not complete when the wait begins.
        let gate = Cell::new();
        let opened = gate.clone();
        let late = queues[0].submit(4, 1, [(&fine, Part::End)], move |_, _| gate.set(1));
        let bad = queues[0].submit(2, 1, [(&ready, Part::End)], {
            let late = late.clone();
            move |_, _| drop(late.wait(Part::End))
        });
        let outcome = bad.wait(Part::End);
        assert_eq!(late.wait(Part::End), Ok(()));
        assert_eq!(opened.get(), 1);
        if let Err(cause) = outcome {
            assert!(cause.to_string().contains("a kernel must not wait"), "{cause}");
        }
        assert_eq!(fine.wait(Part::End), Ok(()));
        queues.close();
    });
}

/// Of the tasks that are ready the lowest number is first, and one that is not ready is overtaken.
#[test]
fn the_order_is_that_of_numbers() {
    explore(|| {
        let queues = Queues::start(2);
        let other = queues[1].submit(1, 0, [], |_, _| {});
        let queue = queues[0].clone();
        let all = queues[0].submit(2, 0, [(&other, Part::End)], move |_, _| {
            for number in [7, 5, 6] {
                queue.submit(number as u64, 0, [], move |ran, _| ran.push(number));
            }
        });
        assert_eq!(all.wait(Part::End), Ok(()));
        assert_eq!(queues.close(), [vec![5, 6, 7], vec![]]);
    });
}

/// In order, what is ready waits for what is not.
#[test]
fn a_queue_in_order_lets_nothing_overtake() {
    explore(|| {
        let queues = Queues::start(2);
        queues[0].set_in_order(true);
        let other = queues[1].submit(1, 0, [], |_, _| {});
        queues[0].submit(2, 0, [(&other, Part::End)], |ran, _| ran.push(2));
        let last = queues[0].submit(3, 0, [], |ran, _| ran.push(3));
        assert_eq!(last.wait(Part::End), Ok(()));
        assert_eq!(queues.close(), [vec![2, 3], vec![]]);
    });
}

/// What was kept back runs when the order is given up.
#[test]
fn a_queue_may_stop_keeping_the_order() {
    explore(|| {
        let queues = Queues::start(1);
        queues[0].set_in_order(true);
        let gate = Gate::new();
        queues[0].submit(1, 0, [(gate.event(), Part::End)], |ran, _| ran.push(1));
        let ready = queues[0].submit(2, 0, [], |ran, _| ran.push(2));
        queues[0].set_in_order(false);
        assert_eq!(ready.wait(Part::End), Ok(()));
        drop(gate);
        assert_eq!(queues.close(), [vec![2, 1]]);
    });
}

#[test]
fn a_gate_holds_tasks_back_until_it_is_dropped() {
    explore(|| {
        let queues = Queues::start(1);
        let (gate, open) = (Gate::new(), Cell::new());
        let read = open.clone();
        let task = queues[0].submit(1, 0, [(gate.event(), Part::End)], move |_, _| assert_eq!(read.get(), 1));
        open.set(1);
        drop(gate);
        assert_eq!(task.wait(Part::End), Ok(()));
        queues.close();
    });
}

/// Work that is not the queue's own: it opens the gates.
#[derive(Default)]
struct Elsewhere {
    gates: Mutex<Vec<Gate>>,
    asleep: AtomicUsize,
}

struct Helper(Arc<Elsewhere>);

impl Idle<Vec<usize>> for Helper {
    const HELPS: bool = true;

    fn help(&self, _: &mut Vec<usize>, called: &(dyn Fn() -> bool + Sync)) {
        while !called() {
            let Some(gate) = self.0.gates.lock().unwrap().pop() else { break };
            drop(gate);
        }
    }

    fn lie_down(&self, _: &mut Vec<usize>) -> bool {
        self.0.asleep.fetch_add(1, Ordering::SeqCst);
        !self.0.gates.lock().unwrap().is_empty()
    }

    fn get_up(&self, _: &mut Vec<usize>) {
        self.0.asleep.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A queue's own task waits for work that comes from elsewhere, is done by the queue's thread, and finds it asleep or not.
#[test]
fn who_waits_helps_others_and_is_woken_for_it() {
    explore(|| {
        let queue = Arc::new(Queue::new());
        let elsewhere = Arc::new(Elsewhere::default());
        let thread = {
            let (queue, helper) = (queue.clone(), Helper(elsewhere.clone()));
            thread::spawn(move || {
                let mut ran = Vec::new();
                queue.serve(&mut ran, &helper);
                ran
            })
        };
        let gate = Gate::new();
        let task = queue.submit(1, 0, [(gate.event(), Part::End)], |ran: &mut Vec<usize>, _| ran.push(1));
        elsewhere.gates.lock().unwrap().push(gate);
        if elsewhere.asleep.load(Ordering::SeqCst) > 0 {
            queue.nudge();
        }
        assert_eq!(task.wait(Part::End), Ok(()));
        queue.close();
        assert_eq!(thread.join().unwrap(), [1]);
    });
}

/// Looks out for the next task twice.
struct Lingering;

impl Idle<Vec<usize>> for Lingering {
    const HELPS: bool = false;

    fn linger(&self, _: &mut Vec<usize>, called: &dyn Fn() -> bool) {
        if !called() {
            thread::yield_now();
            called();
        }
    }
}

/// A task finds the queue's thread running, looking out for it, or asleep.
#[test]
fn who_looks_out_for_tasks_sleeps_when_none_comes() {
    explore(|| {
        let queue = Arc::new(Queue::new());
        let thread = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut ran = Vec::new();
                queue.serve(&mut ran, &Lingering);
                ran
            })
        };
        for number in 1..=2 {
            let task = queue.submit(number, 0, [], move |ran: &mut Vec<usize>, _| ran.push(number as usize));
            assert_eq!(task.wait(Part::End), Ok(()));
        }
        queue.close();
        assert_eq!(thread.join().unwrap(), [1, 2]);
    });
}

/// Whoever makes a light task ready runs it, also the last one of a queue that is closed, and releases what waits for it.
#[test]
fn light_tasks_run_where_they_become_ready() {
    explore(|| {
        let queues = Queues::start(2);
        let (x, y, z) = (Cell::new(), Cell::new(), Cell::new());
        let write = x.clone();
        let first = queues[0].submit(1, 1, [], move |_, _| write.set(1));
        let (read, write) = (x, y.clone());
        let threads = Arc::new(Mutex::new(Vec::new()));
        let seen = threads.clone();
        let light = queues[1].submit_light(2, 1, [(&first, Part::Result(0))], move |_| {
            seen.lock().unwrap().push(thread::current().id());
            write.set(read.get() + 1);
        });
        let (read, write) = (y, z.clone());
        let last = queues[0].submit(3, 0, [(&light, Part::Result(0))], move |_, _| write.set(read.get() + 1));
        let seen = threads.clone();
        let own = queues[1].submit(4, 0, [(&last, Part::End)], move |_, _| {
            seen.lock().unwrap().push(thread::current().id());
        });
        assert_eq!(own.wait(Part::End), Ok(()));
        assert_eq!(z.get(), 3);
        let threads = threads.lock().unwrap();
        assert!(threads.len() == 2 && threads[0] != threads[1], "not on the queue's own thread");
        queues.close();
    });
}

#[test]
fn a_queue_that_is_closed_ends_after_its_light_tasks() {
    explore(|| {
        let queues = Queues::start(2);
        let (x, y) = (Cell::new(), Cell::new());
        let write = x.clone();
        let first = queues[0].submit(1, 1, [], move |_, _| write.set(1));
        let (read, write) = (x, y.clone());
        queues[1].submit_light(2, 0, [(&first, Part::End)], move |_| write.set(read.get() + 1));
        queues[1].wait_for_room(2, 2);
        assert_eq!(y.get(), 2);
        queues[1].submit_light(3, 0, [(&queues[0].submit(4, 0, [], |_, _| ()), Part::End)], |_| ());
        queues.close();
    });
}

/// Many light tasks, each of which makes the next one ready, do not run one in another without end.
#[cfg(not(any(loom, shuttle)))]
#[test]
fn a_long_chain_of_light_tasks_needs_no_deep_stack() {
    crate::explore::within_a_minute(|| {
        let queues = Queues::start(2);
        let gate = Gate::new();
        let mut last = gate.event().clone();
        let sum = Cell::new();
        for i in 0..100_000 {
            let sum = sum.clone();
            last = queues[i % 2].submit_light(i as u64, 1, [(&last, Part::End)], move |_| sum.set(sum.get() + 1));
        }
        drop(gate);
        assert_eq!(last.wait(Part::End), Ok(()));
        assert_eq!(sum.get(), 100_000);
        queues.close();
    });
}

/// A task of a queue that keeps the order waits for a light one, which ends on another thread.
#[test]
fn a_queue_in_order_goes_on_after_a_light_task() {
    explore(|| {
        let queues = Queues::start(1);
        queues[0].set_in_order(true);
        let (x, y) = (Cell::new(), Cell::new());
        let gate = Gate::new();
        let write = x.clone();
        queues[0].submit_light(1, 0, [(gate.event(), Part::End)], move |_| write.set(1));
        let (read, write) = (x, y.clone());
        let own = queues[0].submit(2, 0, [], move |_, _| write.set(read.get() + 1));
        drop(gate);
        assert_eq!(own.wait(Part::End), Ok(()));
        assert_eq!(y.get(), 2);
        queues.close();
    });
}

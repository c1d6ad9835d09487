//! Random graphs of tasks over several queues, submitted by several threads and by tasks.

use crate::explore::{Cell, Queues, failure, thread};
use meshwork_queue::{Event, Outcome, Part, Queue, is_serving};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// How large a random graph is, and how much happens in it.
#[derive(Clone, Copy)]
struct Size {
    queues: usize,
    threads: u64,
    /// Tasks that each thread submits.
    tasks: usize,
    /// Whether the queues are closed while tasks are unfinished.
    hasty: bool,
}

/// A task that has been submitted, and what it must come to.
#[derive(Clone)]
struct Made {
    event: Arc<Event>,
    expected: Vec<Outcome>,
    end: Outcome,
    /// Whether whoever makes it ready runs it.
    is_light: bool,
    /// How often it has run, and which parts it has completed: its results, and its end.
    runs: Cell,
    completed: Vec<Cell>,
}

impl Made {
    fn part(&self, numbers: &mut Numbers) -> Part {
        match numbers.below(self.expected.len() + 1) {
            i if i == self.expected.len() => Part::End,
            i => Part::Result(i),
        }
    }

    /// Checks that the part is complete, and that who sees so sees all that came before.
    fn check(&self, part: Part) {
        assert!(self.event.is_complete(part), "started too early");
        let completed = match part {
            Part::Result(i) => &self.completed[i],
            Part::End => self.completed.last().expect("the end"),
        };
        assert_eq!(completed.get(), 1, "what a part comes after is not there with it");
    }

    fn outcome(&self, part: Part) -> &Outcome {
        match part {
            Part::Result(i) => &self.expected[i],
            Part::End => &self.end,
        }
    }
}

/// What all threads of a graph share.
struct Graph {
    size: Size,
    queues: Vec<Arc<Queue<Vec<usize>>>>,
    made: Mutex<Vec<Made>>,
    next: AtomicU64,
}

impl Graph {
    fn some(&self, numbers: &mut Numbers) -> Option<Made> {
        let made = self.made.lock().expect("no panic");
        if made.is_empty() {
            return None;
        }
        // Half of the time one of the latest.
        let reach = if numbers.below(2) == 0 { made.len() } else { made.len().min(4) };
        Some(made[made.len() - 1 - numbers.below(reach)].clone())
    }

    fn submit(self: &Arc<Self>, numbers: &mut Numbers) {
        let needed = (0..numbers.below(5)).filter_map(|_| {
            let made = self.some(numbers)?;
            let part = made.part(numbers);
            Some((made, part))
        });
        let after: Vec<(Made, Part)> = needed.collect();
        let results = numbers.below(4);
        let (panics, is_light) = (numbers.below(8) == 0, numbers.below(3) == 0);
        let rest = if panics { failure("a panic") } else { Ok(()) };
        let early = (0..results).filter_map(|i| match numbers.below(12) {
            0 => Some((i, failure("a failure"))),
            1..6 => Some((i, Ok(()))),
            _ => None,
        });
        let early: Vec<(usize, Outcome)> = early.collect();
        let mut expected = vec![rest.clone(); results];
        early.iter().for_each(|(i, outcome)| expected[*i] = outcome.clone());
        let end = expected.iter().find(|outcome| outcome.is_err()).cloned().unwrap_or(rest);
        let runs = Cell::new();
        let completed: Vec<Cell> = (0..results + 1).map(|_| Cell::new()).collect();
        let children = if self.size.hasty || numbers.below(6) > 0 { 0 } else { 1 + numbers.below(2) };

        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (graph, mut own, needed) = (self.clone(), Numbers(numbers.next()), after.clone());
        let (count, marks) = (runs.clone(), completed.clone());
        let mut work = move |done: &Event| {
            count.set(count.get() + 1);
            needed.iter().for_each(|(made, part)| made.check(*part));
            pause(&mut own);
            for (i, outcome) in &early {
                marks[*i].set(1);
                done.complete(*i, outcome.clone());
                pause(&mut own);
            }
            (0..children).for_each(|_| graph.submit(&mut own));
            marks.iter().for_each(|mark| mark.set(1));
            if panics {
                std::panic::resume_unwind(Box::new("a panic"));
            }
        };
        pause(numbers);
        let queue = &self.queues[numbers.below(self.queues.len())];
        let after = after.iter().map(|(made, part)| (&made.event, *part));
        let event = if is_light {
            queue.submit_light(number, results, after, work)
        } else {
            queue.submit(number, results, after, move |ran, done| {
                ran.push(number as usize);
                assert!(is_serving());
                work(done);
            })
        };
        pause(numbers);
        self.made.lock().expect("no panic").push(Made { event, expected, end, is_light, runs, completed });
    }

    /// Submits tasks, and waits now and then: for a part of one, or for room.
    fn thread(self: &Arc<Self>, mut numbers: Numbers) {
        for _ in 0..self.size.tasks {
            self.submit(&mut numbers);
            match numbers.below(16) {
                0 => {
                    let made = self.some(&mut numbers).expect("one is made");
                    let part = made.part(&mut numbers);
                    assert_eq!(made.event.wait(part), *made.outcome(part));
                    made.check(part);
                }
                1 => {
                    let number = self.next.load(Ordering::Relaxed).saturating_sub(8);
                    let queue = &self.queues[numbers.below(self.queues.len())];
                    queue.wait_for_room(number, number);
                }
                _ => {}
            }
        }
    }
}

/// Submits a random graph of tasks; each must run once, after all that it needs, and complete as it says.
fn graph(size: Size, seed: u64) {
    let queues = Queues::start(size.queues);
    let graph =
        Arc::new(Graph { size, queues: queues.list().to_vec(), made: Mutex::default(), next: AtomicU64::new(1) });
    let submitting = (1..size.threads).map(|i| {
        let graph = graph.clone();
        thread::spawn(move || graph.thread(Numbers(seed ^ i << 32)))
    });
    let submitting: Vec<_> = submitting.collect();
    graph.thread(Numbers(seed));
    submitting.into_iter().for_each(|thread| thread.join().expect("submitting does not panic"));
    let mut waited = 0;
    loop {
        let made: Vec<Made> = graph.made.lock().expect("no panic").iter().skip(waited).cloned().collect();
        if size.hasty || made.is_empty() {
            break;
        }
        // A task whose end is there has listed its children.
        made.iter().for_each(|made| drop(made.event.wait(Part::End)));
        waited += made.len();
    }
    let ran: usize = queues.close().iter().map(Vec::len).sum();
    let made = graph.made.lock().expect("no panic");
    assert_eq!(ran, made.iter().filter(|made| !made.is_light).count());
    for Made { event, expected, end, runs, .. } in made.iter() {
        assert_eq!(runs.get(), 1);
        assert!(event.ended().is_some());
        assert_eq!(event.wait(Part::End), *end);
        let found: Vec<Outcome> = (0..expected.len()).map(|i| event.wait(Part::Result(i))).collect();
        assert_eq!(found, *expected);
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 32) as usize % n
    }
}

/// Lets others go first, or not.
#[cfg(not(shuttle))]
fn pause(numbers: &mut Numbers) {
    match numbers.below(64) {
        0 => thread::sleep(std::time::Duration::from_micros(numbers.below(100) as u64)),
        1..8 => thread::yield_now(),
        8..24 => (0..numbers.below(500)).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

/// Shuttle lets others go first where the protocol does something.
#[cfg(shuttle)]
fn pause(_: &mut Numbers) {}

#[cfg(not(shuttle))]
mod plain {
    use super::{Size, graph};
    use crate::explore::within_a_minute;

    #[test]
    fn thousands_of_tasks() {
        within_a_minute(|| {
            for seed in 0..6 {
                graph(Size { queues: 1 + seed as usize, threads: 3, tasks: 2000, hasty: false }, seed);
            }
        });
    }

    #[test]
    fn queues_that_are_closed_in_haste() {
        within_a_minute(|| {
            for seed in 0..200 {
                graph(Size { queues: 4, threads: 2, tasks: 40, hasty: true }, seed);
            }
        });
    }

    #[test]
    fn more_queues_than_cores() {
        within_a_minute(|| graph(Size { queues: 64, threads: 4, tasks: 1000, hasty: false }, 1));
    }
}

#[cfg(shuttle)]
mod many_orders {
    use super::{Size, graph};
    use shuttle::rand::RngCore;

    fn try_orders(size: Size, orders: usize) {
        shuttle::check_random(move || graph(size, shuttle::rand::thread_rng().next_u64()), orders);
        shuttle::check_pct(move || graph(size, shuttle::rand::thread_rng().next_u64()), orders, 4);
    }

    #[test]
    fn small_graphs() {
        try_orders(Size { queues: 2, threads: 2, tasks: 4, hasty: false }, 10_000);
    }

    #[test]
    fn larger_graphs() {
        try_orders(Size { queues: 4, threads: 3, tasks: 20, hasty: false }, 1000);
    }

    #[test]
    fn queues_that_are_closed_in_haste() {
        try_orders(Size { queues: 3, threads: 2, tasks: 8, hasty: true }, 3000);
    }
}

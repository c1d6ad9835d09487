//! A window of a timeline, and what can be counted in it.

use super::spans::{Kind, Lane, Nanos, Span, Text, Timeline};
use std::collections::HashMap;

/// What is drawn: all lanes from one moment to another.
pub struct View<'a> {
    pub timeline: &'a Timeline,
    pub from: Nanos,
    pub to: Nanos,
    /// Those in the window, the one that takes the most time first.
    pub operations: Vec<Operation>,
    ranks: HashMap<Text, usize>,
}

/// All that one operation did in the window.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    pub name: Text,
    pub count: u64,
    pub time: Nanos,
    pub flops: f64,
    pub bytes: f64,
}

/// How a lane spent the window, as parts of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub busy: f64,
    pub waiting: f64,
    pub spans: u64,
}

impl<'a> View<'a> {
    pub fn new(timeline: &'a Timeline, from: Nanos, to: Nanos) -> View<'a> {
        let mut found: HashMap<Text, Operation> = HashMap::new();
        let mut view = View { timeline, from, to, operations: Vec::new(), ranks: HashMap::new() };
        for span in timeline.lanes.iter().flat_map(|lane| view.spans(lane)).filter(|span| span.kind == Kind::Work) {
            let new = Operation { name: span.name, count: 0, time: 0, flops: 0.0, bytes: 0.0 };
            let operation = found.entry(span.name).or_insert(new);
            let time = span.within(from, to);
            // Of a span that the window cuts, its part.
            let part = if time == 0 { 1.0 } else { time as f64 / (span.end - span.start) as f64 };
            operation.count += span.calls;
            operation.time += time;
            operation.flops += part * span.flops as f64;
            operation.bytes += part * span.bytes as f64;
        }
        view.operations = found.into_values().collect();
        view.operations.sort_by_key(|operation| (-operation.time, operation.name));
        view.ranks = view.operations.iter().enumerate().map(|(rank, operation)| (operation.name, rank)).collect();
        view
    }

    /// Nanoseconds of the window.
    pub fn length(&self) -> Nanos {
        self.to - self.from
    }

    /// The spans of a lane that the window shows.
    pub fn spans<'b>(&self, lane: &'b Lane) -> impl Iterator<Item = &'b Span> + use<'b> {
        let first = lane.spans.partition_point(|span| span.end < self.from);
        let last = lane.spans.partition_point(|span| span.start <= self.to);
        let (from, to) = (self.from, self.to);
        let is_in = move |span: &&Span| span.start == span.end || span.within(from, to) > 0;
        lane.spans[first..last.max(first)].iter().filter(is_in)
    }

    /// The place of an operation in the order of time taken.
    pub fn rank(&self, name: Text) -> usize {
        self.ranks[&name]
    }

    /// Time that all operations take together.
    pub fn work(&self) -> Nanos {
        self.operations.iter().map(|operation| operation.time).sum()
    }

    pub fn share(&self, lane: &Lane) -> Share {
        let time = |kind| -> Nanos {
            self.spans(lane).filter(|span| span.kind == kind).map(|span| span.within(self.from, self.to)).sum()
        };
        let part = |time: Nanos| time as f64 / self.length() as f64;
        let spans = self.spans(lane).map(|span| span.calls).sum();
        Share { busy: part(time(Kind::Work)), waiting: part(time(Kind::Wait)), spans }
    }

    /// Parts of the window in which 0, 1, 2, … queues were busy.
    pub fn overlap(&self) -> Vec<f64> {
        let work = |lane| self.spans(lane).filter(|span| span.kind == Kind::Work);
        let changes = |span: &Span| [(span.start.max(self.from), 1), (span.end.min(self.to), -1)];
        let mut changes: Vec<(Nanos, isize)> = self.timeline.lanes.iter().flat_map(work).flat_map(changes).collect();
        // What ends makes room for what begins at the same moment, unless it is the same span without length.
        changes.sort_unstable();
        let mut times: Vec<Nanos> = vec![0];
        let (mut busy, mut last) = (0isize, self.from);
        for (at, change) in changes.into_iter().chain([(self.to, 0)]) {
            let level = busy.max(0) as usize;
            if at > last {
                times.resize(times.len().max(level + 1), 0);
                times[level] += at - last;
                last = at;
            }
            busy += change;
        }
        times.into_iter().map(|time| time as f64 / self.length() as f64).collect()
    }
}

/// What fills a stretch of a lane that is too short to show its spans.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    pub busy: Nanos,
    pub waiting: Nanos,
    pub spans: u64,
    /// Operations by their ranks, and their time.
    pub operations: Vec<(usize, Nanos)>,
}

impl Mix {
    /// Adds so much time of a span.
    pub fn add(&mut self, view: &View, span: &Span, time: Nanos) {
        self.spans += span.calls;
        if span.kind == Kind::Wait {
            self.waiting += time;
            return;
        }
        self.busy += time;
        let rank = view.rank(span.name);
        match self.operations.iter_mut().find(|(known, _)| *known == rank) {
            Some((_, sum)) => *sum += time,
            None => self.operations.push((rank, time)),
        }
    }

    /// The operation that takes the most time.
    pub fn main(&self) -> Option<usize> {
        self.operations.iter().max_by_key(|(rank, time)| (*time, usize::MAX - rank)).map(|(rank, _)| *rank)
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::read::parse;
    use super::*;

    /// Two queues that overlap, and a third that waits; microseconds.
    pub fn sample() -> Timeline {
        let event = |queue: u32, name: &str, start: u32, end: u32, rest: &str| {
            format!(r#"{{"ph":"X","pid":1,"tid":{queue},"ts":{start},"dur":{},"name":"{name}",{rest}}},"#, end - start)
        };
        let amounts = r#""cat":"kernel","args":{"shapes":"f32[8] -> f32[]","bytes":4000,"flops":8000}"#;
        let wait = r#""cat":"wait""#;
        let mut text = String::from("[");
        for (queue, name) in [(1, "cpu:0"), (2, "cpu:1"), (3, "host main")] {
            text += &format!(r#"{{"ph":"M","pid":1,"tid":{queue},"name":"thread_name","args":{{"name":"{name}"}}}},"#);
        }
        text += &event(1, "dot", 0, 40, amounts);
        text += &event(1, "sum <&>", 40, 60, amounts);
        text += &event(1, "dot", 80, 100, amounts);
        text += &event(2, "dot", 20, 50, amounts);
        text += &event(3, "the value of f32[]", 10, 100, wait);
        text.pop();
        parse((text + "]").as_bytes()).unwrap()
    }

    #[test]
    fn shares_overlap_and_totals() {
        let timeline = sample();
        let view = View::new(&timeline, 0, timeline.end());
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        let shares: Vec<Share> = timeline.lanes.iter().map(|lane| view.share(lane)).collect();
        assert_eq!(shares[0], Share { busy: 0.8, waiting: 0.0, spans: 3 });
        assert_eq!(shares[1], Share { busy: 0.3, waiting: 0.0, spans: 1 });
        assert_eq!(shares[2], Share { busy: 0.0, waiting: 0.9, spans: 1 });
        let overlap = view.overlap();
        assert_eq!(overlap.len(), 3);
        assert!(close(overlap[0], 0.2) && close(overlap[1], 0.5) && close(overlap[2], 0.3), "{overlap:?}");
        let [dot, sum] = &view.operations[..] else { panic!("{:?}", view.operations) };
        assert_eq!((timeline.texts.get(dot.name), dot.count, dot.time), ("dot", 3, 90_000));
        assert_eq!((timeline.texts.get(sum.name), sum.count, sum.time), ("sum <&>", 1, 20_000));
        assert_eq!((dot.flops, dot.bytes), (24_000.0, 12_000.0));
        assert_eq!((view.rank(dot.name), view.rank(sum.name), view.work()), (0, 1, 110_000));
    }

    #[test]
    fn a_window_cuts_spans() {
        let timeline = sample();
        let view = View::new(&timeline, 30_000, 50_000);
        let [dot, sum] = &view.operations[..] else { panic!("{:?}", view.operations) };
        assert_eq!((dot.count, dot.time, sum.count, sum.time), (2, 30_000, 1, 10_000));
        assert!((dot.flops - 8000.0 * (0.25 + 2.0 / 3.0)).abs() < 1e-9 && (sum.flops - 4000.0).abs() < 1e-9);
        assert_eq!(view.overlap(), [0.0, 0.0, 1.0]);
        assert_eq!(view.share(&timeline.lanes[2]).waiting, 1.0);
        assert!(View::new(&timeline, 61_000, 79_000).operations.is_empty());
    }
}

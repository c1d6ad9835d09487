//! What a timeline consists of: lanes, one for each queue, with spans that do not overlap.

use std::cmp::Reverse;
use std::collections::HashMap;

/// Nanoseconds since the first span.
pub type Nanos = i64;

/// What a queue does during a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It computes, or copies.
    Work,
    /// It waits for something.
    Wait,
}

/// A text of the timeline's [`Texts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(usize);

/// Names and shapes, each kept once.
#[derive(Debug, Default)]
pub struct Texts {
    texts: Vec<String>,
    known: HashMap<String, Text>,
}

impl Texts {
    /// The text that reads so.
    pub fn find_or_add(&mut self, text: &str) -> Text {
        if let Some(&known) = self.known.get(text) {
            return known;
        }
        let new = Text(self.texts.len());
        self.texts.push(text.to_string());
        self.known.insert(text.to_string(), new);
        new
    }

    /// How a text reads.
    pub fn get(&self, text: Text) -> &str {
        &self.texts[text.0]
    }
}

/// A stretch of time in which a queue does one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub start: Nanos,
    pub end: Nanos,
    pub kind: Kind,
    /// The operation, or what is waited for.
    pub name: Text,
    /// Types of operands and results.
    pub shapes: Text,
    pub bytes: u64,
    pub flops: u64,
    /// 1, or 0 for the continuation of a span that another one interrupted.
    pub calls: u64,
}

impl Span {
    /// Nanoseconds that lie in a window.
    pub fn within(&self, from: Nanos, to: Nanos) -> Nanos {
        (self.end.min(to) - self.start.max(from)).max(0)
    }
}

/// A queue's spans in the order of time.
#[derive(Debug)]
pub struct Lane {
    pub name: String,
    pub spans: Vec<Span>,
}

/// All queues of a file.
#[derive(Debug)]
pub struct Timeline {
    pub lanes: Vec<Lane>,
    pub texts: Texts,
    /// Whether the end of the file is missing.
    pub is_cut: bool,
}

impl Timeline {
    /// When the last span ends.
    pub fn end(&self) -> Nanos {
        self.lanes.iter().flat_map(|lane| lane.spans.last()).map(|span| span.end).max().unwrap_or(0)
    }
}

/// Spans in the order of time without overlap: where one lies in another, as calls in profiles of other programs do,
/// the time is that of the inner one.
pub fn disjoint(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| (span.start, Reverse(span.end)));
    let mut done = Vec::with_capacity(spans.len());
    let mut open: Vec<Span> = Vec::new();
    for next in spans {
        close(&mut open, &mut done, next.start);
        if let Some(outer) = open.last_mut().filter(|outer| outer.start < next.start) {
            done.push(Span { end: next.start, ..*outer });
            *outer = Span { start: next.start, bytes: 0, flops: 0, calls: 0, ..*outer };
        }
        open.push(next);
    }
    close(&mut open, &mut done, Nanos::MAX);
    done
}

/// Ends the open spans that end before `until`; what is left of those around them begins there.
fn close(open: &mut Vec<Span>, done: &mut Vec<Span>, until: Nanos) {
    while let Some(inner) = open.pop_if(|span| span.end <= until) {
        if inner.calls > 0 || inner.start < inner.end {
            done.push(inner);
        }
        if let Some(outer) = open.last_mut() {
            outer.start = outer.start.max(inner.end);
            outer.end = outer.end.max(outer.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_spans_interrupt_outer_ones() {
        let mut texts = Texts::default();
        let mut span = |name: &str, start, end| {
            let name = texts.find_or_add(name);
            Span { start, end, kind: Kind::Work, name, shapes: name, bytes: 8, flops: 2, calls: 1 }
        };
        let (outer, first, second) = (span("outer", 0, 100), span("first", 10, 30), span("second", 30, 40));
        let (deep, late, over) = (span("deep", 15, 20), span("late", 150, 160), span("over", 155, 170));
        let result = disjoint(vec![late, deep, outer, second, over, first]);
        let listed: Vec<_> = result.iter().map(|s| (texts.get(s.name), s.start, s.end, s.calls)).collect();
        let expected = [
            ("outer", 0, 10, 1),
            ("first", 10, 15, 1),
            ("deep", 15, 20, 1),
            ("first", 20, 30, 0),
            ("second", 30, 40, 1),
            ("outer", 40, 100, 0),
            ("late", 150, 155, 1),
            ("over", 155, 170, 1),
        ];
        assert_eq!(listed, expected);
        let total: u64 = result.iter().map(|s| s.bytes).sum();
        assert_eq!(total, 6 * 8);
    }

    #[test]
    fn spans_that_begin_together_are_all_counted() {
        let mut texts = Texts::default();
        let name = texts.find_or_add("x");
        let span = |start, end| Span { start, end, kind: Kind::Work, name, shapes: name, bytes: 0, flops: 0, calls: 1 };
        let result = disjoint(vec![span(5, 9), span(5, 9), span(5, 7), span(5, 5)]);
        assert_eq!(result.iter().map(|s| s.calls).sum::<u64>(), 4);
        assert_eq!(result.iter().map(|s| s.end - s.start).sum::<i64>(), 4);
        assert!(result.is_sorted_by_key(|s| s.start) && result.windows(2).all(|w| w[0].end <= w[1].start));
    }
}

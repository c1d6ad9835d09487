//! Reading Chrome's trace events, our own or others'.

use super::spans::{Kind, Lane, Span, Texts, Timeline, disjoint};
use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The complete events (`"ph":"X"`) of a trace: an array, or an object with `traceEvents`. A file whose end is missing
/// is read as far as it goes.
///
/// # Errors
/// What is wrong with the file, to be said behind its name.
pub fn parse(bytes: &[u8]) -> Result<Timeline, String> {
    const HINT: &str = "meshwork train … --trace FILE writes one";
    if bytes.trim_ascii().is_empty() {
        return Err(format!("is empty; {HINT}"));
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Err("is compressed; unpack it first (gunzip)".to_string());
    }
    let mut events = Events::default();
    let outcome = serde_json::Deserializer::from_slice(bytes).deserialize_any(File(&mut events));
    let no_trace = |why: &dyn fmt::Display| format!("is not a trace: {why}; {HINT}");
    let is_cut = match outcome {
        Ok(()) => false,
        Err(e) if e.is_eof() && events.count > 0 => true,
        Err(e) => return Err(no_trace(&e)),
    };
    if events.spans.is_empty() {
        return Err(no_trace(&"it has no spans (events with \"ph\":\"X\")"));
    }
    Ok(events.timeline(is_cut))
}

/// Process and thread, as the file writes them.
type Id = (String, String);

/// An event of a queue; times are in microseconds of the file's clock.
struct Complete {
    start: f64,
    duration: f64,
    span: Span,
}

/// What has been read of a file.
#[derive(Default)]
struct Events {
    /// Events of all kinds.
    count: usize,
    spans: BTreeMap<Id, Vec<Complete>>,
    texts: Texts,
    /// Of processes, with an empty thread, and of threads.
    names: HashMap<Id, String>,
    places: HashMap<Id, i64>,
}

impl Events {
    fn add(&mut self, event: &Value) {
        self.count += 1;
        let text = |key| event.get(key).and_then(Value::as_str).unwrap_or_default();
        let id = |key| match event.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let argument = |key| event.get("args").and_then(|args| args.get(key));
        match (text("ph"), text("name")) {
            ("M", name @ ("process_name" | "thread_name")) => {
                let thread = if name == "thread_name" { id("tid") } else { String::new() };
                if let Some(Value::String(name)) = argument("name") {
                    self.names.insert((id("pid"), thread), name.clone());
                }
            }
            ("M", "thread_sort_index") => {
                let place = argument("sort_index").and_then(Value::as_i64);
                self.places.extend(place.map(|place| ((id("pid"), id("tid")), place)));
            }
            ("X", name) => {
                let number = |key| event.get(key).and_then(Value::as_f64).filter(|x| x.is_finite());
                let Some(start) = number("ts") else { return };
                let amount = |key| argument(key).and_then(Value::as_u64).unwrap_or(0);
                let span = Span {
                    start: 0,
                    end: 0,
                    kind: if text("cat") == "wait" { Kind::Wait } else { Kind::Work },
                    name: self.texts.find_or_add(name),
                    shapes: self.texts.find_or_add(argument("shapes").and_then(Value::as_str).unwrap_or_default()),
                    bytes: amount("bytes"),
                    flops: amount("flops"),
                    calls: 1,
                };
                let complete = Complete { start, duration: number("dur").unwrap_or(0.0).max(0.0), span };
                self.spans.entry((id("pid"), id("tid"))).or_default().push(complete);
            }
            _ => {}
        }
    }

    fn timeline(mut self, is_cut: bool) -> Timeline {
        let origin = self.spans.values().flatten().map(|event| event.start).fold(f64::INFINITY, f64::min);
        let nanos = |micros: f64| (micros * 1e3).round() as i64;
        let spans = std::mem::take(&mut self.spans);
        let several = spans.keys().any(|id| id.0 != spans.keys().next().expect("there is a span").0);
        let mut lanes: Vec<(LaneOrder, Lane)> = Vec::new();
        for (id, events) in spans {
            let place = |event: Complete| {
                let start = nanos(event.start - origin);
                Span { start, end: start + nanos(event.duration), ..event.span }
            };
            let name = self.name(&id, several);
            let order = (id.0.clone(), self.places.get(&id).copied().unwrap_or(i64::MAX), by_device(&name));
            lanes.push((order, Lane { name, spans: disjoint(events.into_iter().map(place).collect()) }));
        }
        lanes.sort_by(|a, b| a.0.cmp(&b.0));
        Timeline { lanes: lanes.into_iter().map(|(_, lane)| lane).collect(), texts: self.texts, is_cut }
    }

    /// The name of a thread, with that of its process where there are several.
    fn name(&self, id: &Id, several: bool) -> String {
        let thread = self.names.get(id).cloned().unwrap_or_else(|| format!("thread {}", id.1));
        match self.names.get(&(id.0.clone(), String::new())) {
            _ if !several => thread,
            Some(process) => format!("{process} {}: {thread}", id.0),
            None => format!("{}: {thread}", id.0),
        }
    }
}

/// Process, place among its threads, name.
type LaneOrder = (String, i64, (String, usize, String));

/// `cpu:0`, `copy to cpu:0`, `cpu:1`, …, `cpu:10`, …: by the device, which is the name's last word, and its number.
fn by_device(name: &str) -> (String, usize, String) {
    let last = name.rsplit(' ').next().unwrap_or(name);
    let digits = last.len() - last.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (device, number) = last.split_at(last.len() - digits);
    let rank = name.len() - last.len();
    (device.to_string(), number.parse().unwrap_or(0), format!("{rank:04}{name}"))
}

/// The top of a file.
struct File<'a>(&'a mut Events);

impl<'de> Visitor<'de> for File<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events or an object with traceEvents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(event) = seq.next_element::<Value>()? {
            if !event.is_object() {
                return Err(A::Error::custom("an event is not an object"));
            }
            self.0.add(&event);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "traceEvents" {
                found = true;
                map.next_value_seed(Array(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if found { Ok(()) } else { Err(A::Error::custom("it has no traceEvents")) }
    }
}

/// The array of an object's events.
struct Array<'a>(&'a mut Events);

impl<'de> DeserializeSeed<'de> for Array<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(File(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::spans::Text;
    use super::*;
    use meshwork::trace;
    use std::time::{Duration, Instant};

    fn error(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err()
    }

    fn text(timeline: &Timeline, text: Text) -> &str {
        timeline.texts.get(text)
    }

    #[test]
    fn what_is_written_is_read() {
        let names =
            ["dot", "", "a \"b\" \\c\\", "line\nbreak\ttab\u{0}\u{1f}\u{7f}", "größer → ∞ 🦀", "</title>&", "\u{2028}"];
        let origin = Instant::now();
        let at = |nanos: u64| origin + Duration::from_nanos(nanos);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let timeline = trace::start(&path).unwrap();
        let mut written = Vec::new();
        for (i, name) in (0u64..).zip(names) {
            for (queue, kind) in [("cpu:0", trace::Kind::Kernel), ("copy \"1\"", trace::Kind::Wait)] {
                // The first begins at a time of its own; all begin after the trace.
                let (start, end) = (1_000_000_000 + 1_234_567 * i, 1_000_000_000 + 1_234_567 * i + 1_001 * i);
                let shapes = format!("{name}[{i}]");
                let (bytes, flops) = (u64::MAX - i, i << 40);
                written.push((
                    queue,
                    start - 1_000_000_000,
                    end - 1_000_000_000,
                    kind,
                    name,
                    shapes.clone(),
                    bytes,
                    flops,
                ));
                let (start, end) = (at(start), at(end));
                let (queue, name, shapes) = (queue.into(), name.into(), shapes.into());
                trace::record(trace::Span { queue, kind, name, start, end, shapes, bytes, flops });
            }
        }
        assert_eq!(timeline.stop().unwrap(), 2 * names.len() as u64);

        let read = parse(&std::fs::read(path).unwrap()).unwrap();
        assert!(!read.is_cut);
        assert_eq!(read.lanes.iter().map(|lane| lane.name.as_str()).collect::<Vec<_>>(), ["copy \"1\"", "cpu:0"]);
        for lane in &read.lanes {
            let expected: Vec<_> = written.iter().filter(|span| span.0 == lane.name).collect();
            assert_eq!(lane.spans.len(), expected.len());
            for (span, (_, start, end, kind, name, shapes, bytes, flops)) in lane.spans.iter().zip(expected) {
                assert_eq!((span.start as u64, span.end as u64), (*start, *end));
                assert_eq!(span.kind == Kind::Wait, *kind == trace::Kind::Wait);
                assert_eq!((text(&read, span.name), text(&read, span.shapes)), (*name, shapes.as_str()));
                assert_eq!((span.bytes, span.flops, span.calls), (*bytes, *flops, 1));
            }
        }
    }

    #[test]
    fn files_that_are_cut_off_are_read_as_far_as_they_go() {
        let whole = r#"[{"ph":"X","pid":1,"tid":1,"ts":0.5,"dur":1,"name":"a"},
            {"ph":"X","pid":1,"tid":1,"ts":2.5,"dur":1,"name":"ü"}]"#;
        let first = whole.find(",\n").unwrap();
        for end in first - 1..whole.len() {
            let Ok(timeline) = parse(&whole.as_bytes()[..end]) else {
                assert!(end < first, "{end}");
                continue;
            };
            assert!(timeline.is_cut);
            let spans = &timeline.lanes[0].spans;
            assert_eq!(spans.len(), if end < whole.len() - 1 { 1 } else { 2 }, "{end}");
            assert_eq!((spans[0].start, spans[0].end), (0, 1000));
        }
    }

    #[test]
    fn traces_of_other_programs_are_read() {
        let timeline = parse(
            br#"{"schemaVersion": 1, "deviceProperties": [{}], "traceEvents": [
                {"ph": "M", "pid": 7, "tid": 2, "name": "thread_name", "args": {"name": "second"}},
                {"ph": "M", "pid": 7, "tid": 2, "name": "thread_sort_index", "args": {"sort_index": 1}},
                {"ph": "M", "pid": 7, "tid": "x", "name": "thread_sort_index", "args": {"sort_index": 2}},
                {"ph": "s", "id": 1, "pid": 7, "tid": 2, "ts": 1},
                {"ph": "X", "pid": 7, "tid": "x", "ts": 1700000000000000.25, "dur": 3, "cat": "cpu_op", "args": {"dims": [[1]]}},
                {"ph": "X", "pid": 7, "tid": 2, "ts": 1700000000000010, "dur": 5, "name": "aten::mm", "args": "none"},
                {"ph": "X", "pid": 7, "tid": 2, "ts": 1700000000000011, "dur": 1, "name": "inner"},
                {"ph": "X", "pid": 7, "tid": 2, "name": "timeless"}
            ], "traceName": "x.json"}"#,
        )
        .unwrap();
        let lanes: Vec<_> = timeline.lanes.iter().map(|l| (l.name.as_str(), l.spans.len())).collect();
        assert_eq!(lanes, [("second", 3), ("thread x", 1)]);
        assert_eq!(timeline.end(), 14_750);
    }

    #[test]
    fn processes_are_told_apart() {
        let event = |pid: u32| format!(r#"{{"ph":"X","pid":{pid},"tid":1,"ts":1,"dur":1,"name":"a"}}"#);
        let name = r#"{"ph":"M","pid":2,"name":"process_name","args":{"name":"worker"}}"#;
        let timeline = parse(format!("[{},{},{name}]", event(1), event(2)).as_bytes()).unwrap();
        let lanes: Vec<_> = timeline.lanes.iter().map(|l| l.name.as_str()).collect();
        assert_eq!(lanes, ["1: thread 1", "worker 2: thread 1"]);
    }

    #[test]
    fn lanes_go_by_device() {
        let mut names = ["host main", "cpu:10", "copy to cpu:2", "cpu:2", "copy to cpu:10", "cpu:0"];
        names.sort_by_key(|name| by_device(name));
        assert_eq!(names, ["cpu:0", "cpu:2", "copy to cpu:2", "cpu:10", "copy to cpu:10", "host main"]);
    }

    #[test]
    fn other_files_are_refused() {
        let hint = "; meshwork train … --trace FILE writes one";
        for (text, expected) in [
            ("", "is empty"),
            (" \n", "is empty"),
            ("hello", "is not a trace: expected value at line 1 column 1"),
            ("12", "is not a trace: invalid type: integer `12`, expected an array of events"),
            ("{\"step\":1,\"loss\":2.3}\n{\"step\":2}\n", "is not a trace: it has no traceEvents"),
            ("[1, 2]", "is not a trace: an event is not an object"),
            ("[]", "is not a trace: it has no spans (events with \"ph\":\"X\")"),
            ("[{\"ph\":\"M\"}]", "is not a trace: it has no spans (events with \"ph\":\"X\")"),
            ("[{\"ph\":\"X\",\"ts\":0,\"dur\":1}, nonsense]", "is not a trace: expected ident at line 1 column 30"),
            ("[", "is not a trace: EOF while parsing"),
        ] {
            let error = error(text);
            assert!(error.starts_with(expected) && error.ends_with(hint), "{text}: {error}");
        }
        assert!(parse(&[0x1f, 0x8b, 8, 0]).unwrap_err().contains("compressed"));
    }
}

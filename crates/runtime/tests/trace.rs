//! Timelines are written while they are recorded, one at a time, and never at the expense of the work.

use meshwork_runtime::trace::{self, Kind, Span, Trace, TraceError};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Tracing is one for the process.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

fn start(name: &str) -> (Trace, PathBuf) {
    let path = file(name);
    (trace::start(&path).unwrap(), path)
}

fn text(path: &PathBuf) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let process = std::process::id().to_string();
    text.replace(&format!("\"pid\":{process},"), "")
}

fn span(queue: &str, name: &'static str) -> Span {
    let start = Instant::now();
    let end = start + Duration::from_nanos(1_234_005);
    let shapes = "f32[2] -> f32[]".into();
    Span { queue: queue.into(), kind: Kind::Kernel, name: name.into(), start, end, shapes, bytes: 12, flops: 2 }
}

#[test]
fn the_file_has_every_span_and_names_every_queue_once() {
    let _turn = alone();
    assert!(!trace::is_on());
    trace::record(span("cpu:0", "before"));
    let (timeline, path) = start("whole.json");
    assert!(trace::is_on());
    trace::record(span("cpu:0", "say \"a\\b\"\u{1}\n"));
    trace::record(span("cpu:1", "sum"));
    trace::record(span("cpu:0", "dot"));
    assert_eq!(timeline.stop().unwrap(), 3);
    assert!(!trace::is_on());
    trace::record(span("cpu:0", "after"));

    let text = text(&path);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[7]), ("[", "]"), "{text}");
    assert_eq!(lines[1], r#"{"ph":"M","tid":0,"name":"process_name","args":{"name":"meshwork"}},"#);
    assert_eq!(lines[2], r#"{"ph":"M","tid":1,"name":"thread_name","args":{"name":"cpu:0"}},"#);
    assert_eq!(lines[4], r#"{"ph":"M","tid":2,"name":"thread_name","args":{"name":"cpu:1"}},"#);
    for (line, queue, name) in
        [(lines[3], 1, r#"say \"a\\b\"\u0001\u000a"#), (lines[5], 2, "sum"), (lines[6], 1, "dot")]
    {
        assert!(line.starts_with(&format!(r#"{{"ph":"X","tid":{queue},"ts":"#)), "{line}");
        let rest = r#""cat":"kernel","args":{"shapes":"f32[2] -> f32[]","bytes":12,"flops":2}}"#;
        assert!(line.contains(&format!(r#","dur":1234.005,"name":"{name}",{rest}"#)), "{line}");
    }
}

#[test]
fn a_file_is_readable_while_it_grows() {
    let _turn = alone();
    let (timeline, path) = start("grows.json");
    trace::record(span("cpu:0", "first"));
    let until = Instant::now() + Duration::from_secs(20);
    while !text(&path).ends_with("\"bytes\":12,\"flops\":2}}") {
        assert!(Instant::now() < until, "{}", text(&path));
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(timeline);
    assert!(text(&path).ends_with("}}\n]\n"));
}

#[test]
fn there_is_one_timeline_at_a_time() {
    let _turn = alone();
    let (timeline, path) = start("one.json");
    match trace::start(file("two.json")) {
        Err(TraceError::AlreadyOn(at)) => assert_eq!(at, path),
        other => panic!("{other:?}"),
    }
    assert!(!file("two.json").exists());
    timeline.stop().unwrap();
    start("two.json").0.stop().unwrap();
    let e = trace::start(file("no-such-folder").join("x.json")).unwrap_err().to_string();
    assert!(e.starts_with("cannot write ") && e.contains("no-such-folder") && e.contains("No such file"), "{e}");
    assert!(!trace::is_on());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_timeline_and_nothing_else() {
    let _turn = alone();
    let e = trace::start("/dev/full").unwrap_err().to_string();
    assert!(e.starts_with("cannot write /dev/full: No space left"), "{e}");

    // A pipe whose reader goes away: the beginning is written, and then no more.
    let (reader, writer) = std::io::pipe().unwrap();
    let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
    let timeline = trace::start(&path).unwrap();
    drop(reader);
    let until = Instant::now() + Duration::from_secs(20);
    while trace::is_on() {
        assert!(Instant::now() < until);
        trace::record(span("cpu:0", "sum"));
        std::thread::sleep(Duration::from_millis(1));
    }
    trace::record(span("cpu:0", "unheard"));
    assert!(matches!(trace::start(file("three.json")), Err(TraceError::AlreadyOn(_))), "until it is stopped");
    let e = timeline.stop().unwrap_err().to_string();
    assert!(e.starts_with(&format!("cannot write {path}: Broken pipe")), "{e}");
}

#[test]
fn who_records_faster_than_the_writer_waits_for_it() {
    let _turn = alone();
    let (timeline, path) = start("many.json");
    const EACH: u64 = 150_000;
    let queues: Vec<Arc<str>> = (0..3).map(|i| format!("cpu:{i}").into()).collect();
    std::thread::scope(|scope| {
        for queue in queues {
            scope.spawn(move || (0..EACH).for_each(|_| trace::record(Span { queue: queue.clone(), ..span("", "x") })));
        }
    });
    assert_eq!(timeline.stop().unwrap(), 3 * EACH);
    assert_eq!(text(&path).matches("\"ph\":\"X\"").count() as u64, 3 * EACH);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn threads_are_queues_and_waits_are_measured() {
    let _turn = alone();
    let (timeline, path) = start("threads.json");
    let work = || {
        let _wait = trace::wait(|| "the milk".to_string());
        std::thread::sleep(Duration::from_millis(2));
    };
    std::thread::Builder::new().name("fetcher".into()).spawn(work).unwrap().join().unwrap();
    let copy = std::thread::spawn(|| {
        trace::name_thread("copy to cpu:1");
        let ty = meshwork_graph::shape::Type::new(meshwork_graph::DType::F32, [2, 3]);
        drop(trace::copy(|| "cpu:0 -> cpu:1".to_string(), &ty));
    });
    copy.join().unwrap();
    drop(trace::wait(|| "nothing".to_string()));
    timeline.stop().unwrap();
    let text = text(&path);
    for part in [
        r#""name":"thread_name","args":{"name":"host fetcher"}"#,
        r#""name":"the milk","cat":"wait","args":{}}"#,
        r#""name":"thread_name","args":{"name":"copy to cpu:1"}"#,
        r#""name":"cpu:0 -> cpu:1","cat":"copy","args":{"shapes":"f32[2, 3]","bytes":24}"#,
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

//! Timelines from the command line: written while a model is trained, drawn as text and as a picture.

use crate::common::Place;
use serde_json::Value;
use std::collections::BTreeMap;

/// The events of a file, and the names of its queues by their numbers.
fn events(text: &str) -> (Vec<Value>, BTreeMap<u64, String>) {
    let Value::Array(events) = serde_json::from_str(text).unwrap() else { panic!("{text}") };
    let named = events.iter().filter(|e| e["ph"] == "M" && e["name"] == "thread_name");
    let name = |e: &Value| (e["tid"].as_u64().unwrap(), e["args"]["name"].as_str().unwrap().to_string());
    let queues = named.map(name).collect();
    (events, queues)
}

#[test]
fn a_training_writes_its_timeline_and_it_is_drawn() {
    let place = Place::new();
    let ran = place.ok("train lenet --steps 3 --batch 64 --test-batch 100 --trace run.json --save traced");
    assert!(ran.stdout.ends_with("timeline in run.json; draw it with: meshwork trace run.json\n"), "{}", ran.stdout);
    place.ok("train lenet --steps 3 --batch 64 --test-batch 100 --save plain");
    assert!(place.read("plain/model.safetensors") == place.read("traced/model.safetensors"));

    let text = place.text("run.json");
    let (events, queues) = events(&text);
    let mut names: Vec<&String> = queues.values().collect();
    names.sort();
    assert_eq!(names, ["cpu:0", "host main"]);
    assert!(events.iter().all(|e| e["ph"] == "M" || e["ph"] == "X"));
    assert_eq!((&events[0]["name"], &events[0]["args"]["name"]), (&"process_name".into(), &"meshwork".into()));

    let spans = |queue: u64| events.iter().filter(move |e| e["ph"] == "X" && e["tid"] == queue);
    for (&number, name) in &queues {
        let mut times: Vec<(f64, f64)> =
            spans(number).map(|e| (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap())).collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(times.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0 + 1e-6), "spans of {name} overlap");
    }
    let number = |name: &str| *queues.iter().find(|(_, queue)| *queue == name).unwrap().0;
    let with = |name: &str, shapes: &str| {
        let is_it = |e: &&Value| e["name"] == name && e["args"]["shapes"] == shapes;
        let found: Vec<&Value> = spans(number("cpu:0")).filter(is_it).collect();
        assert_eq!(found.len(), 3, "{name} {shapes} in\n{text}");
        found[0].clone()
    };
    let conv = with("conv", "f32[64, 20, 13, 13] f32[50, 20, 5, 5] -> f32[64, 50, 9, 9]");
    assert_eq!((&conv["cat"], &conv["args"]["flops"]), (&"kernel".into(), &(64 * 50 * 81 * 500 * 2).into()));
    assert_eq!(conv["args"]["bytes"], 4 * (64 * 20 * 169 + 50 * 500 + 64 * 50 * 81));
    with("dot + fused(add relu)", "f32[64, 800] f32[128, 800] f32[64, 128] -> f32[64, 128]");
    assert!(spans(number("host main")).all(|e| e["cat"] == "wait"));
    assert!(spans(number("host main")).any(|e| e["name"] == "the value of f32[]"), "{text}");

    let drawn = place.ok("trace run.json --width 90");
    assert!(drawn.stderr.is_empty() && !drawn.stdout.contains('\x1b'), "{}{}", drawn.stdout, drawn.stderr);
    for part in
        ["run.json: 2 queues, ", "cpu:0 ", "host main ", "busy at the same time: none ", " conv_weight ", "GFLOP/s"]
    {
        assert!(drawn.stdout.contains(part), "{part:?} is missing in\n{}", drawn.stdout);
    }
    let lanes: Vec<&str> = drawn.stdout.lines().skip(2).take_while(|line| !line.is_empty()).collect();
    assert!(lanes.len() == 4 && lanes.iter().all(|line| line.chars().count() <= 90), "{}", drawn.stdout);

    // The picture shows the time around one kernel, for many of them together would be one rectangle.
    let ms = |e: &Value, key: &str| e[key].as_f64().unwrap() / 1e3;
    let begin = events.iter().filter_map(|e| e["ts"].as_f64()).fold(f64::INFINITY, f64::min) / 1e3;
    let (from, to) = (ms(&conv, "ts") - begin, ms(&conv, "ts") + ms(&conv, "dur") - begin);
    let range = [(from - 0.1).max(0.0), to + 0.1].map(|x| format!("{x:.3}"));
    let said =
        place.ok(&format!("trace run.json --svg run.svg --from {} --to {} --width 1000", range[0], range[1])).stdout;
    assert!(said.contains(" ms of ") && said.ends_with("drawn to run.svg\n"), "{said}");
    let picture = place.text("run.svg");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    let tooltip = "<title>conv\nf32[64, 20, 13, 13] f32[50, 20, 5, 5] -&gt; f32[64, 50, 9, 9]\n";
    assert!(picture.contains(tooltip) && picture.contains(" GFLOP/s\n"), "{picture}");
}

#[test]
fn the_configuration_and_the_measurement_know_it() {
    let place = Place::new();
    place.write("run.toml", "model = \"mlp\"\nsteps = 2\ntrace = \"from file.json\"\n");
    place.ok("train --config run.toml");
    assert!(events(&place.text("from file.json")).0.len() > 20);
    let said = place.ok("bench train mlp --batch 3 --steps 4 --trace bench.json").stdout;
    assert!(said.ends_with("timeline in bench.json; draw it with: meshwork trace bench.json\n"), "{said}");
    assert!(events(&place.text("bench.json")).0.len() > 20);
}

#[cfg(unix)]
#[test]
fn the_timeline_of_a_killed_training_is_readable() {
    use std::process::Stdio;
    use std::time::{Duration, Instant};
    let place = Place::new();
    let mut command = place.command("train mlp --trace run.json");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while std::fs::metadata(place.path("run.json")).map_or(0, |file| file.len()) < 100_000 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = place.ok("trace run.json");
    assert!(ran.stderr.contains("note: the end of run.json is missing"), "{}", ran.stderr);
    assert!(ran.stdout.contains("cpu:0"), "{}", ran.stdout);
    assert!(ran.stdout.contains("spans in a column; nearer: meshwork trace run.json --from "), "{}", ran.stdout);
}

#[cfg(target_os = "linux")]
#[test]
fn a_timeline_that_cannot_be_written_is_said() {
    let place = Place::new();
    for (path, why) in [("/dev/full", "No space left"), ("absent/run.json", "No such file"), (".", "Is a directory")] {
        let ran = place.run(&format!("train mlp --steps 1 --trace {path}"));
        let expected = format!("error: --trace: cannot write {path}: {why}");
        assert!(ran.code == Some(1) && ran.stderr.starts_with(&expected), "{}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
    place.ok("train mlp --steps 1 --trace run.json");
    let ran = place.run("trace run.json --svg /dev/full");
    assert!(ran.stderr.starts_with("error: --svg: cannot write /dev/full: No space left"), "{}", ran.stderr);
}

#[test]
fn mistakes() {
    let place = Place::new();
    place.write("empty.json", "");
    place.write("notes.txt", "my notes");
    let span = |ts: u32| format!(r#"{{"ph":"X","pid":1,"tid":1,"ts":{ts},"dur":1000,"name":"a"}}"#);
    place.write("two.json", format!("[{},{}]", span(0), span(7500)));
    for (arguments, expected) in [
        ("trace", "trace needs FILE; see meshwork trace --help"),
        ("trace absent.json", "cannot read absent.json: No such file"),
        ("trace .", "cannot read .: Is a directory"),
        ("trace empty.json", "empty.json is empty; meshwork train … --trace FILE writes one"),
        ("trace notes.txt", "notes.txt is not a trace: expected "),
        ("trace two.json --from 5 --to 3", "--from 5 is not before --to 3"),
        ("trace two.json --from 8.5", "--from 8.5: the timeline ends at 8.5 (milliseconds)"),
        ("trace two.json --from -1", "--from: \"-1\" is not a number of at least 0"),
        ("trace two.json --to soon", "--to: \"soon\" is not a number of at least 0"),
        ("trace two.json --width 3", "--width: \"3\" is not a whole number from 40 to 20000"),
        ("trace two.json --png x", "there is no flag --png"),
    ] {
        let line = place.mistake(arguments);
        assert!(line.starts_with(expected), "{arguments}: {line}\nexpected {expected}");
    }
    let text = place.ok("trace two.json --from 2 --to 3").stdout;
    assert!(text.contains("2 to 3 ms of 8.5") && text.contains("no operation in this time"), "{text}");
}

#[test]
fn copies_and_waits_of_several_devices_are_drawn() {
    let place = Place::new();
    place.ok("bench parallel --devices cpu:2 --exercise copies --exercise spread --size 64 --count 3 --trace run.json");
    let text = place.text("run.json");
    let (events, queues) = events(&text);
    for queue in ["cpu:0", "cpu:1", "copy to cpu:1", "host main"] {
        assert!(queues.values().any(|name| name == queue), "no {queue} in {queues:?}");
    }
    let copy = events.iter().find(|e| e["cat"] == "copy").expect("a copy");
    assert_eq!(copy["name"], "cpu:0 -> cpu:1");
    assert_eq!(copy["args"]["shapes"], "f32[64, 64]");
    assert_eq!(copy["args"]["bytes"], 64 * 64 * 4);
    let waits = |queue: &str| {
        let number = queues.iter().find(|(_, name)| *name == queue).expect("a queue").0;
        events.iter().any(|e| e["cat"] == "wait" && e["tid"] == *number)
    };
    assert!(waits("cpu:1") && waits("copy to cpu:1"), "queues wait for each other");
    assert!(place.ok("trace run.json --width 100").stdout.contains("copy to cpu:1"));
}

//! Pages about trainings.

use crate::common::Place;

/// The text between tags.
fn has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part:?} is missing in\n{page}");
    }
}

/// A page that needs nothing else, whose tags are closed.
fn is_whole(page: &str) {
    assert!(page.starts_with("<!doctype html>\n<html lang=\"en\">") && page.ends_with("</html>\n"));
    for foreign in ["http", "<script", "<link", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign} in\n{page}");
    }
    for tag in ["figure", "svg", "table", "tr", "td", "th", "div", "section", "span", "b", "title", "text"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("width=device-width"));
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn a_page_about_an_image_model_with_its_timeline() {
    let place = Place::new();
    place.ok("train lenet --epochs 2 --batch 300 --save run --trace t.json --metrics m.jsonl");
    let ran = place.ok("report run --timeline t.json");
    assert_eq!(ran.stdout, "lenet: 10 steps, 2 epochs done; written to run/report.html\n");
    let page = place.text("run/report.html");
    is_whole(&page);
    has(
        &page,
        &[
            "<title>lenet – run</title>",
            "129,068 parameters; 1438 training and 359 test samples of digits",
            "<b>Loss</b><span class=\"key k0\">training</span><span class=\"key k1\">validation</span>",
            ">cross entropy (nats)</text>",
            "<b>Learning rate</b>",
            "<b>Gradient norm</b>",
            "<b>Throughput</b>",
            ">samples/s</text>",
            "<b>Arithmetic</b>",
            "<b>Share of the measured peak</b>",
            "<b>Memory</b>",
            ">peak so far (MiB)</text>",
            "step 10: training ",
            "<tr><th>optimizer</th><td>adam</td></tr>",
            "<tr><th>batch</th><td>300</td></tr>",
            "<tr><th>plan</th><td>one device</td></tr>",
            "<h2>Timeline</h2>",
            "<tr><td>cpu:0</td><td class=\"number\">",
            "<h3>What took longest</h3>",
            "<td>conv",
        ],
    );
    assert_eq!(page.matches("<figure>").count(), 7);
    assert_eq!(page.matches("<circle class=\"mark c1\"").count(), 2, "a mark for each epoch");

    let ran = place.ok("report m.jsonl");
    assert!(ran.stdout.ends_with("written to m.html\n"), "{}", ran.stdout);
    assert!(!page.contains("averaged"));
    assert!(!place.text("m.html").contains("Timeline"));
}

#[test]
fn a_page_about_a_language_model_on_a_mesh() {
    let place = Place::new();
    place.write("a <b>.txt", "the tree of sums is the same everywhere. ".repeat(60));
    place.write(
        "run.toml",
        "data = \"a <b>.txt\"\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 16\nbatch = 8\nsteps = 6\nema = 0.5\nsave = \"run\"\n",
    );
    place.ok("train gpt --config run.toml --parallel data=2,zero=1 --save-every 3");
    place.ok("train --resume run/step-3 --steps 6");
    place.ok("report run --to page.html");
    let page = place.text("page.html");
    is_whole(&page);
    has(
        &page,
        &[
            "<title>gpt – run</title>",
            ">tokens/s</text>",
            "<span>tokens/s</span>",
            "a &lt;b&gt;.txt",
            "<tr><th>resumed after step 3</th><td>one device; ",
            "<tr><th>layers</th><td>1</td></tr>",
            "<span class=\"key k1\">validation</span><span class=\"key k2\">validation, averaged weights</span>",
            "<th class=\"number\">accuracy, averaged weights</th>",
        ],
    );
    assert!(!page.contains("<b>.txt"));
    place.ok("train gpt --config run.toml --parallel data=2,zero=1 --overwrite");
    place.ok("report run");
    has(
        &place.text("run/report.html"),
        &[
            "<tr><th>plan</th><td>data=2, zero=1</td></tr>",
            "<h3>Memory of each device between steps</h3>",
            "<td>cpu:1</td>",
        ],
    );
}

#[test]
fn what_is_no_run_is_a_mistake() {
    let place = Place::new();
    let hint = "meshwork train … --save DIR keeps metrics in DIR, --metrics FILE.jsonl in a file";
    let absent = "No such file or directory (os error 2)";
    assert_eq!(place.mistake("report"), "report needs RUN; see meshwork report --help");
    assert_eq!(place.mistake("report absent"), format!("cannot read absent: {absent}; {hint}"));
    std::fs::create_dir(place.path("empty")).unwrap();
    assert_eq!(place.mistake("report empty"), format!("cannot read empty/metrics.jsonl: {absent}; {hint}"));
    place.ok("train mlp --steps 1 --batch 300 --log log.jsonl --metrics m.jsonl");
    assert_eq!(place.mistake("report log.jsonl"), "line 1 of log.jsonl is not of the metrics of a run");
    let metrics = place.text("m.jsonl");
    place.write("begun.jsonl", format!("{}\n{{\"step\":1,", metrics.lines().next().unwrap()));
    assert_eq!(place.mistake("report begun.jsonl"), "begun.jsonl has no steps yet");
    assert_eq!(place.mistake("report m.jsonl --timeline t.json"), format!("--timeline: cannot read t.json: {absent}"));
    place.write("t.json", "{}");
    let line = place.mistake("report m.jsonl --timeline t.json");
    assert!(line.starts_with("--timeline: t.json is not a trace: it has no traceEvents"), "{line}");
    let ran = place.run("report m.jsonl --to absent/page.html");
    let said = format!("error: cannot write absent/page.html: {absent}; --to FILE.html names another\n");
    assert_eq!((ran.code, ran.stderr), (Some(1), said));
}

#[test]
fn losses_that_are_no_numbers_are_left_out() {
    let place = Place::new();
    place.ok("train mlp --steps 40 --batch 300 --optimizer sgd --lr 1e30 --check-finite=false --metrics m.jsonl");
    place.ok("report m.jsonl");
    let page = place.text("m.html");
    has(&page, &["steps is not finite; they are left out of its plot", "<b>not finite</b>"]);
    assert!(!page.contains("NaN"), "{page}");
}

//! A timeline as a picture that needs nothing else: an SVG file.

use super::axis::{self, Tick};
use super::spans::{Kind, Lane, Nanos, Span};
use super::terminal::overlap;
use super::view::{Mix, View};
use crate::bench::time;
use crate::progress::thousands;
use crate::words::Escaped;
use std::fmt::Write;

/// Colours of the operations that take the most time; further ones are grey.
const COLOURS: [&str; 12] = [
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#edc948", "#76b7b2", "#ff9da7", "#9c755f", "#2f5d8a",
    "#8cd17d", "#d37295",
];
const GREY: &str = "#bab0ac";
/// Operations in the legend.
const LISTED: usize = 20;
/// Operations that the note of a merged stretch names.
const NAMED: usize = 6;

const MARGIN: f64 = 16.0;
const TOP: f64 = 78.0;
const LANE: f64 = 38.0;
const BAR: f64 = 28.0;
const ROW: f64 = 20.0;
/// Room for the share on the right, and for a character.
const SHARE: f64 = 56.0;
const CHARACTER: f64 = 7.0;
/// Spans from this width on are drawn by themselves, in pixels.
const OWN: f64 = 1.0;

/// The picture, `width` pixels wide unless it is scaled. Spans thinner than a pixel are merged: their colour is that of
/// the operation that takes the most time, the paler the less the queue was busy.
pub fn draw(view: &View, title: &str, width: usize) -> String {
    let lanes = &view.timeline.lanes;
    let longest = lanes.iter().map(|lane| lane.name.chars().count()).max().unwrap_or(0) as f64;
    let left = MARGIN + CHARACTER * longest.min(30.0) + 10.0;
    let plot = (width as f64 - left - SHARE - MARGIN).max(50.0);
    let scale = Scale { from: view.from, left, pixels: plot / view.length() as f64 };
    let bottom = TOP + LANE * lanes.len() as f64;
    let rows = view.operations.len().min(LISTED + 1) + 1;
    let height = bottom + 24.0 + ROW * rows as f64 + MARGIN;

    let mut svg = String::new();
    head(&mut svg, width, height, view.operations.len().min(COLOURS.len()));
    let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"26\" class=\"title\">{}</text>", Escaped(title));
    let _ =
        writeln!(svg, "<text x=\"{MARGIN}\" y=\"46\" class=\"pale\">busy at the same time: {}</text>", overlap(view));
    for Tick { at, label } in axis::ticks(view.from, view.to, (plot / 90.0) as usize) {
        let x = scale.x(at);
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{x:.2} {:.1}V{bottom:.1}\"/>", TOP - 10.0);
        let _ = writeln!(svg, "<text x=\"{x:.2}\" y=\"{:.1}\" class=\"tick\">{label}</text>", TOP - 14.0);
    }
    for (i, lane) in lanes.iter().enumerate() {
        let y = TOP + LANE * i as f64;
        let _ = writeln!(svg, "<g transform=\"translate(0 {y:.1})\">");
        draw_lane(&mut svg, view, lane, &scale, left + plot);
        svg.push_str("</g>\n");
    }
    legend(&mut svg, view, bottom + 24.0);
    svg.push_str("</svg>\n");
    svg
}

/// From time to pixels.
struct Scale {
    from: Nanos,
    left: f64,
    pixels: f64,
}

impl Scale {
    fn x(&self, at: Nanos) -> f64 {
        self.left + (at - self.from) as f64 * self.pixels
    }
}

fn head(svg: &mut String, width: usize, height: f64, colours: usize) {
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width} {height:.0}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12\">"
    );
    svg.push_str(
        "<style>text{fill:#222}.title{font-size:15px;font-weight:600}.pale{fill:#666}.tick{fill:#666;text-anchor:middle}\
         .grid{stroke:#e4e4e4}.in{fill:#fff;stroke:#0005;stroke-width:2px;paint-order:stroke;pointer-events:none}.number{text-anchor:end}.back{fill:#f6f6f6}\
         .wait{fill:url(#waiting)}",
    );
    let _ = write!(svg, ".other{{fill:{GREY}}}");
    for (rank, colour) in COLOURS.iter().enumerate().take(colours) {
        let _ = write!(svg, ".o{rank}{{fill:{colour}}}");
    }
    svg.push_str(
        "</style>\n<defs><pattern id=\"waiting\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#efefef\"/>\
         <rect width=\"2\" height=\"6\" fill=\"#d6d6d6\"/></pattern></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
    );
}

/// The CSS class of an operation's colour.
fn class(rank: usize) -> String {
    if rank < COLOURS.len() { format!("o{rank}") } else { "other".to_string() }
}

fn draw_lane(svg: &mut String, view: &View, lane: &Lane, scale: &Scale, right: f64) {
    let middle = BAR / 2.0 + 4.0;
    let (name, share) = (Escaped(&lane.name), view.share(lane));
    let _ = write!(svg, "<text x=\"{MARGIN}\" y=\"{middle}\">{name}<title>");
    let (busy, waiting, spans) = (100.0 * share.busy, 100.0 * share.waiting, thousands(share.spans as f64));
    let _ = writeln!(svg, "{name}: busy {busy:.1} %, waiting {waiting:.1} %, {spans} spans</title></text>");
    let (left, width) = (scale.left, right - scale.left);
    let _ = writeln!(svg, "<rect class=\"back\" x=\"{left:.2}\" width=\"{width:.2}\" height=\"{BAR}\"/>");
    let x = right + SHARE - 4.0;
    let _ = writeln!(svg, "<text class=\"number pale\" x=\"{x:.1}\" y=\"{middle}\">{busy:.1} %</text>");

    let mut thin = Thin::default();
    for span in view.spans(lane) {
        let (start, end) = (span.start.max(view.from), span.end.min(view.to));
        if (end - start) as f64 * scale.pixels >= OWN {
            thin.draw(svg, view, scale);
            draw_span(svg, view, span, scale.x(start), scale.x(end));
            continue;
        }
        let pixel = scale.x(start).floor();
        if thin.mix.spans > 0 && pixel != thin.pixel {
            thin.draw(svg, view, scale);
        }
        thin.add(view, span, (start, end), pixel);
    }
    thin.draw(svg, view, scale);
}

fn draw_span(svg: &mut String, view: &View, span: &Span, from: f64, to: f64) {
    let class = if span.kind == Kind::Wait { "wait".to_string() } else { class(view.rank(span.name)) };
    let width = to - from;
    let _ = write!(svg, "<rect class=\"{class}\" x=\"{from:.2}\" width=\"{width:.2}\" height=\"{BAR}\"><title>");
    let name = view.timeline.texts.get(span.name);
    describe(svg, view, span, name);
    svg.push_str("</title></rect>\n");
    if span.kind == Kind::Work && width > CHARACTER * name.chars().count() as f64 + 8.0 {
        let (x, y, name) = (from + 4.0, BAR / 2.0 + 4.0, Escaped(name));
        let _ = writeln!(svg, "<text class=\"in\" x=\"{x:.2}\" y=\"{y}\">{name}</text>");
    }
}

/// Name, shapes, time and speed, a line each.
fn describe(svg: &mut String, view: &View, span: &Span, name: &str) {
    let waiting = if span.kind == Kind::Wait { "waiting for " } else { "" };
    let _ = write!(svg, "{waiting}{}", Escaped(name));
    let shapes = view.timeline.texts.get(span.shapes);
    if !shapes.is_empty() {
        let _ = write!(svg, "\n{}", Escaped(shapes));
    }
    let (seconds, at) = ((span.end - span.start) as f64 / 1e9, span.start as f64 / 1e6);
    let _ = write!(svg, "\n{} at {at:.3} ms", time(seconds));
    let rate = |amount: u64| amount as f64 / 1e9 / seconds.max(1e-9);
    if span.flops > 0 {
        let _ = write!(svg, "\n{:.1} GFLOP/s", rate(span.flops));
    }
    if span.bytes > 0 {
        let _ = write!(svg, "\n{:.1} GB/s ({} bytes)", rate(span.bytes), thousands(span.bytes as f64));
    }
}

/// Spans of a pixel that are drawn as one.
#[derive(Default)]
struct Thin {
    pixel: f64,
    from: Nanos,
    to: Nanos,
    mix: Mix,
}

impl Thin {
    fn add(&mut self, view: &View, span: &Span, (start, end): (Nanos, Nanos), pixel: f64) {
        if self.mix.spans == 0 {
            (self.pixel, self.from) = (pixel, start);
        }
        self.to = end;
        self.mix.add(view, span, end - start);
        // A stretch with spans, be they only continuations.
        self.mix.spans = self.mix.spans.max(1);
    }

    fn draw(&mut self, svg: &mut String, view: &View, scale: &Scale) {
        let Thin { from, to, mix, .. } = std::mem::take(self);
        if mix.spans == 0 {
            return;
        }
        let (x, width) = (scale.x(from), (scale.x(to) - scale.x(from)).max(0.5));
        let class = mix.main().map_or_else(|| "wait".to_string(), class);
        let busy = mix.busy as f64 / (to - from).max(1) as f64;
        let opacity = if mix.busy > 0 { 0.3 + 0.7 * busy.min(1.0) } else { 1.0 };
        let _ = write!(svg, "<rect class=\"{class}\" x=\"{x:.2}\" width=\"{width:.2}\" height=\"{BAR}\"");
        let _ =
            write!(svg, " opacity=\"{opacity:.2}\"><title>{} spans in {}", mix.spans, time((to - from) as f64 / 1e9));
        let mut operations = mix.operations;
        operations.sort_by_key(|(rank, time)| (-time, *rank));
        for (rank, nanos) in operations.into_iter().take(NAMED) {
            let name = view.timeline.texts.get(view.operations[rank].name);
            let _ = write!(svg, "\n{} {}", Escaped(name), time(nanos as f64 / 1e9));
        }
        if mix.waiting > 0 {
            let _ = write!(svg, "\nwaiting {}", time(mix.waiting as f64 / 1e9));
        }
        svg.push_str("</title></rect>\n");
    }
}

/// The operations with their colours, one a row.
fn legend(svg: &mut String, view: &View, top: f64) {
    let (listed, others) = view.operations.split_at(view.operations.len().min(LISTED));
    let longest = listed.iter().map(|operation| view.timeline.texts.get(operation.name).chars().count()).max();
    let names = MARGIN + 20.0;
    let first = names + CHARACTER * longest.unwrap_or(0).clamp(9, 60) as f64 + 60.0;
    let column = |i: usize| first + 90.0 * i as f64;
    let mut row = |i: usize, name: &str, class: Option<String>, cells: &[String]| {
        let y = top + ROW * i as f64;
        if let Some(class) = class {
            let _ = write!(svg, "<rect class=\"{class}\" x=\"{MARGIN}\" y=\"{y}\" width=\"12\" height=\"12\"/>");
        }
        let y = y + 11.0;
        let pale = if i == 0 { " class=\"pale\"" } else { "" };
        let _ = write!(svg, "<text{pale} x=\"{names}\" y=\"{y}\">{}</text>", Escaped(name));
        for (k, cell) in cells.iter().enumerate() {
            let x = column(k);
            let _ = write!(
                svg,
                "<text class=\"number{}\" x=\"{x}\" y=\"{y}\">{cell}</text>",
                if i == 0 { " pale" } else { "" }
            );
        }
        svg.push('\n');
    };
    row(0, "operation", None, &["count", "time", "share", "GFLOP/s", "GB/s"].map(String::from));
    let share = |time: Nanos| format!("{:.1} %", 100.0 * time as f64 / view.work().max(1) as f64);
    for (rank, operation) in listed.iter().enumerate() {
        let seconds = operation.time as f64 / 1e9;
        let rate = |amount: f64| if amount > 0.0 { format!("{:.1}", amount / 1e9 / seconds) } else { String::new() };
        let cells = [
            thousands(operation.count as f64),
            time(seconds),
            share(operation.time),
            rate(operation.flops),
            rate(operation.bytes),
        ];
        row(rank + 1, view.timeline.texts.get(operation.name), Some(class(rank)), &cells);
    }
    if !others.is_empty() {
        let (count, nanos) = others.iter().fold((0, 0), |(n, t), operation| (n + operation.count, t + operation.time));
        let cells = [thousands(count as f64), time(nanos as f64 / 1e9), share(nanos)];
        row(LISTED + 1, &format!("{} others", others.len()), Some(class(LISTED)), &cells);
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::parse;
    use super::super::view::tests::sample;
    use super::*;

    #[test]
    fn spans_are_where_they_belong() {
        let timeline = sample();
        let view = View::new(&timeline, 0, timeline.end());
        let svg = draw(&view, "a <b> & c", 800);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt;b&gt; &amp; c") && svg.contains("sum &lt;&amp;&gt;") && !svg.contains("<&>"));
        assert_eq!(svg.matches("<rect class=\"o0\"").count(), 3 + 1, "three spans and the legend");
        assert_eq!(svg.matches("<rect class=\"wait\"").count(), 1);
        let left = MARGIN + CHARACTER * 9.0 + 10.0;
        let (x, width) = (left + 0.4 * (800.0 - left - SHARE - MARGIN), 0.2 * (800.0 - left - SHARE - MARGIN));
        let sum = format!(
            "<rect class=\"o1\" x=\"{x:.2}\" width=\"{width:.2}\" height=\"28\"><title>sum &lt;&amp;&gt;\n\
             f32[8] -&gt; f32[]\n20.0 µs at 0.040 ms\n0.4 GFLOP/s\n0.2 GB/s (4,000 bytes)</title></rect>"
        );
        assert!(svg.contains(&sum), "{sum}\nis missing in\n{svg}");
        assert!(svg.contains("cpu:0: busy 80.0 %, waiting 0.0 %, 3 spans"));
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }

    #[test]
    fn thin_spans_are_merged() {
        let event = |i: u32| format!(r#"{{"ph":"X","ts":{},"dur":1,"name":"op {}"}}"#, 2 * i, i % 3);
        let events: Vec<String> = (0..100_000).map(event).collect();
        let timeline = parse(format!("[{}]", events.join(",")).as_bytes()).unwrap();
        let whole = View::new(&timeline, 0, timeline.end());
        let svg = draw(&whole, "", 1000);
        assert!(svg.matches("<rect").count() < 1100, "{}", svg.matches("<rect").count());
        assert!(svg.contains(" opacity=\"0.65\"") && svg.contains(" spans in ") && svg.contains("\nop 1 "));
        let near = View::new(&timeline, 1_000_000, 1_100_000);
        assert_eq!(draw(&near, "", 1000).matches("</title></rect>").count(), 50);
    }
}

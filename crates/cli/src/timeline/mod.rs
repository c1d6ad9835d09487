//! `meshwork trace`: draws the timeline that `--trace` has written, or one of another program.

mod axis;
pub mod read;
pub mod spans;
mod svg;
mod terminal;
pub mod view;

use crate::args::TraceArgs;
use crate::failure::Failure;
use crate::progress::{say, thousands};
use spans::{Nanos, Timeline};
use std::io::IsTerminal;
use std::path::Path;
use view::View;

/// Columns where nobody tells how wide the paper is, and pixels of a picture.
const COLUMNS: usize = 110;
const PIXELS: usize = 1500;
/// Spans in a column from which on a nearer look is proposed.
const CROWDED: usize = 3;

/// Reads the file and draws it.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    let file = args.file.display();
    let bytes = std::fs::read(&args.file).map_err(|e| Failure::Mistake(format!("cannot read {file}: {e}")))?;
    let timeline = read::parse(&bytes).map_err(|what| Failure::Mistake(format!("{file} {what}")))?;
    let (from, to) = window(args, &timeline)?;
    let view = View::new(&timeline, from, to);
    let title = title(&args.file, &view);
    let width = args.width.map(|width| usize::try_from(width).unwrap_or(usize::MAX));
    match &args.svg {
        Some(path) => {
            let picture = svg::draw(&view, &title, width.unwrap_or(PIXELS));
            let cannot = |e| Failure::System(format!("--svg: cannot write {}: {e}", path.display()));
            std::fs::write(path, picture).map_err(cannot)?;
            say(&format!("{title}\ndrawn to {}", path.display()));
        }
        None => {
            let width = width.or_else(columns).unwrap_or(COLUMNS);
            say(&title);
            say("");
            say(terminal::draw(&view, width, has_colours()).trim_end());
            if let Some(hint) = nearer(&args.file, &view, width) {
                say(&format!("\n{hint}"));
            }
        }
    }
    if timeline.is_cut {
        eprintln!("note: the end of {file} is missing, as when a process is killed; drawn is what is there");
    }
    Ok(())
}

/// The part of the file that is asked for.
fn window(args: &TraceArgs, timeline: &Timeline) -> Result<(Nanos, Nanos), Failure> {
    let nanos = |ms: f64| (ms * 1e6).round() as Nanos;
    let end = timeline.end().max(1);
    let from = args.from.map_or(0, nanos);
    let to = args.to.map_or(end, nanos);
    if from >= end {
        let (from, end) = (milliseconds(from), milliseconds(end));
        return Err(Failure::Mistake(format!("--from {from}: the timeline ends at {end} (milliseconds)")));
    }
    if from >= to {
        return Err(Failure::Mistake(format!("--from {} is not before --to {}", milliseconds(from), milliseconds(to))));
    }
    Ok((from, to.min(end)))
}

/// `run.json: 2 queues, 1,234 spans, 0 to 56.789 ms of 100 ms`
fn title(path: &Path, view: &View) -> String {
    let lanes = &view.timeline.lanes;
    let spans: u64 = lanes.iter().map(|lane| view.share(lane).spans).sum();
    let end = view.timeline.end().max(1);
    let length = match (view.from, view.to) {
        (0, to) if to == end => format!("{} ms", milliseconds(end)),
        (from, to) => format!("{} to {} ms of {}", milliseconds(from), milliseconds(to), milliseconds(end)),
    };
    let queues = if lanes.len() == 1 { "1 queue".to_string() } else { format!("{} queues", lanes.len()) };
    format!("{}: {queues}, {} spans, {length}", path.display(), thousands(spans as f64))
}

/// How to see single spans, where there are many.
fn nearer(path: &Path, view: &View, width: usize) -> Option<String> {
    let spans = |lane| view.share(lane).spans as usize;
    let most = view.timeline.lanes.iter().map(spans).max().unwrap_or(0);
    if most < CROWDED * width {
        return None;
    }
    // About a span for two columns, from the middle on, in round numbers.
    let length = ((i128::from(view.length()) * width as i128 / 2 / most as i128) as Nanos).max(1000);
    let unit = 10_i64.pow(length.ilog10());
    let from = (view.from + view.length() / 2) / unit * unit;
    let (from, to) = (milliseconds(from), milliseconds(from + (length / unit + 1) * unit));
    let each = most / width;
    Some(format!("{each} spans in a column; nearer: meshwork trace {} --from {from} --to {to}", path.display()))
}

/// Milliseconds with at most three decimals.
fn milliseconds(nanos: Nanos) -> String {
    ((nanos as f64 / 1e3).round() / 1e3).to_string()
}

/// Width of the terminal that standard output goes to.
fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(size.ws_col.into()).filter(|columns| *columns > 0)
}

fn has_colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

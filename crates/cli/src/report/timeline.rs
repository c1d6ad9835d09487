//! What a timeline comes to: how busy the queues were, and with what.

use super::tables::table;
use crate::bench::time;
use crate::failure::Failure;
use crate::progress::thousands;
use crate::timeline::{read, spans::Timeline, view::View};
use crate::words::Escaped;
use std::fmt::Write;
use std::path::Path;

/// Kernels in the table.
const LISTED: usize = 15;

/// Reads a timeline.
///
/// # Errors
/// A file that is not there, or no timeline.
pub fn read(file: &Path) -> Result<Timeline, Failure> {
    let name = file.display();
    let bytes = std::fs::read(file).map_err(|e| Failure::Mistake(format!("--timeline: cannot read {name}: {e}")))?;
    read::parse(&bytes).map_err(|what| Failure::Mistake(format!("--timeline: {name} {what}")))
}

/// A section of the page.
pub fn section(timeline: &Timeline) -> String {
    let view = View::new(timeline, 0, timeline.end().max(1));
    let seconds = |nanos: i64| nanos as f64 / 1e9;
    let mut out = String::new();
    let cut = if timeline.is_cut { "; its end is missing" } else { "" };
    let _ = writeln!(
        out,
        "<section>\n<h2>Timeline</h2>\n<p>{} of work and waiting{cut}.</p>",
        time(seconds(view.length()))
    );

    out.push_str("<div class=\"wide\"><table>\n<tr><th>queue</th><th class=\"number\">busy</th><th></th>");
    out.push_str("<th class=\"number\">waiting</th><th class=\"number\">spans</th></tr>\n");
    for lane in &timeline.lanes {
        let share = view.share(lane);
        let (busy, waiting) = (100.0 * share.busy, 100.0 * share.waiting);
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"number\">{busy:.1} %</td><td class=\"bar\"><i style=\"width:{busy:.1}%\"></i></td>\
             <td class=\"number\">{waiting:.1} %</td><td class=\"number\">{}</td></tr>",
            Escaped(&lane.name),
            thousands(share.spans as f64)
        );
    }
    out.push_str("</table></div>\n");

    let rate = |amount: f64, nanos: i64| match nanos {
        nanos if nanos > 0 && amount > 0.0 => format!("{:.1}", amount / 1e9 / seconds(nanos)),
        _ => String::new(),
    };
    let rows = view.operations.iter().take(LISTED).map(|operation| {
        vec![
            timeline.texts.get(operation.name).to_string(),
            thousands(operation.count as f64),
            time(seconds(operation.time)),
            format!("{:.1} %", 100.0 * operation.time as f64 / view.work().max(1) as f64),
            rate(operation.flops, operation.time),
            rate(operation.bytes, operation.time),
        ]
    });
    out.push_str("<h3>What took longest</h3>\n");
    out.push_str(&table(&["kernel or copy", "count", "time", "share", "GFLOP/s", "GB/s"], rows));
    let others = view.operations.len().saturating_sub(LISTED);
    if others > 0 {
        let _ = writeln!(out, "<p>and {others} others, which took less</p>");
    }
    out.push_str("</section>\n");
    out
}

//! A timeline as text.

use super::axis::{self, Tick};
use super::spans::Lane;
use super::view::{Mix, View};
use crate::bench::time;
use crate::progress::thousands;
use std::fmt::Write;

/// Operations that the table lists.
const LISTED: usize = 20;
/// Longest name of a queue, in characters.
const LONGEST_NAME: usize = 24;
/// How much of a column is busy, in eighths.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A column that waits.
const WAITING: char = '·';
/// Colours of the 256 that terminals have; further operations are grey.
const COLOURS: [u8; 12] = [33, 208, 70, 160, 98, 136, 205, 44, 142, 25, 216, 29];
const GREY: u8 = 245;

/// One line with the bars of each queue (without colours a second one that names the operations by letters), the share
/// of time that each queue was busy, and what each operation took.
pub fn draw(view: &View, width: usize, colours: bool) -> String {
    let page = Page { view, colours };
    let mut text = page.lanes(width);
    text += &page.queues();
    text += &page.operations();
    text
}

/// What is drawn, and whether in colours.
struct Page<'a> {
    view: &'a View<'a>,
    colours: bool,
}

impl Page<'_> {
    fn lanes(&self, width: usize) -> String {
        let lanes = &self.view.timeline.lanes;
        let longest = lanes.iter().map(|lane| lane.name.chars().count()).max().unwrap_or(0).min(LONGEST_NAME);
        let columns = width.saturating_sub(longest + 1 + " 100 %".len()).max(10);
        let mut text = format!("{:longest$} {}\n", "", ruler(self.view, columns));
        for lane in lanes {
            let cells = columns_of(self.view, lane, columns);
            let busy = 100.0 * self.view.share(lane).busy;
            let bars: String = cells.iter().map(|cell| self.bar(cell, self.view.length() / columns as i64)).collect();
            let _ = writeln!(text, "{:longest$} {bars}{busy:>4.0} %", shortened(&lane.name, longest));
            let letters: String = cells.iter().map(|cell| cell.main().map_or(' ', letter)).collect();
            if !self.colours && !letters.trim().is_empty() {
                let _ = writeln!(text, "{:longest$} {}", "", letters.trim_end());
            }
        }
        text + "\n"
    }

    fn bar(&self, cell: &Mix, length: i64) -> String {
        let level = (8 * i128::from(cell.busy) / i128::from(length.max(1))).min(7) as usize;
        match cell.main() {
            Some(rank) if cell.busy > 0 => self.coloured(rank, BARS[level]),
            _ if cell.waiting > 0 => WAITING.to_string(),
            _ => " ".to_string(),
        }
    }

    fn coloured(&self, rank: usize, mark: char) -> String {
        if !self.colours {
            return mark.to_string();
        }
        format!("\x1b[38;5;{}m{mark}\x1b[0m", COLOURS.get(rank).unwrap_or(&GREY))
    }

    fn queues(&self) -> String {
        let lanes = &self.view.timeline.lanes;
        let longest = lanes.iter().map(|lane| lane.name.chars().count()).max().unwrap_or(0).max("queue".len());
        let mut text = format!("{:longest$}{:>10}{:>10}{:>12}\n", "queue", "busy", "waiting", "spans");
        for lane in lanes {
            let share = self.view.share(lane);
            let (busy, waiting) = (100.0 * share.busy, 100.0 * share.waiting);
            let spans = thousands(share.spans as f64);
            let _ = writeln!(text, "{:longest$}{busy:>8.1} %{waiting:>8.1} %{spans:>12}", lane.name);
        }
        let _ = writeln!(text, "busy at the same time: {}\n", overlap(self.view));
        text
    }

    fn operations(&self) -> String {
        let view = self.view;
        if view.operations.is_empty() {
            return "no operation in this time\n".to_string();
        }
        let (listed, others) = view.operations.split_at(view.operations.len().min(LISTED));
        let names: Vec<String> =
            listed.iter().map(|operation| shortened(view.timeline.texts.get(operation.name), 40)).collect();
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("operation".len());
        let mut text = format!(
            "  {:longest$}{:>10}{:>12}{:>9}{:>12}{:>10}{:>9}\n",
            "operation", "count", "time", "share", "mean", "GFLOP/s", "GB/s"
        );
        let share = |nanos: i64| 100.0 * nanos as f64 / view.work().max(1) as f64;
        for (rank, (operation, name)) in listed.iter().zip(names).enumerate() {
            let mark = self.coloured(rank, if self.colours { BARS[7] } else { letter(rank) });
            let seconds = operation.time as f64 / 1e9;
            let rate =
                |amount: f64| if amount > 0.0 { format!("{:.1}", amount / 1e9 / seconds) } else { String::new() };
            let row = format!(
                "{mark} {name:longest$}{:>10}{:>12}{:>7.1} %{:>12}{:>10}{:>9}",
                thousands(operation.count as f64),
                time(seconds),
                share(operation.time),
                time(seconds / operation.count.max(1) as f64),
                rate(operation.flops),
                rate(operation.bytes)
            );
            let _ = writeln!(text, "{}", row.trim_end());
        }
        if !others.is_empty() {
            let (count, nanos) =
                others.iter().fold((0, 0), |(n, t), operation| (n + operation.count, t + operation.time));
            let (name, count) = (format!("{} others", others.len()), thousands(count as f64));
            let (taken, share) = (time(nanos as f64 / 1e9), share(nanos));
            let _ = writeln!(text, "  {name:longest$}{count:>10}{taken:>12}{share:>7.1} %");
        }
        text
    }
}

/// The parts of the time in which 0, 1, 2, … queues were busy, in words.
pub fn overlap(view: &View) -> String {
    let part = |(queues, share): (usize, f64)| match queues {
        0 => format!("none {:.1} %", 100.0 * share),
        n => format!("{n} {:.1} %", 100.0 * share),
    };
    view.overlap().into_iter().enumerate().map(part).collect::<Vec<_>>().join(", ")
}

/// What fills each of the columns of a lane.
fn columns_of(view: &View, lane: &Lane, columns: usize) -> Vec<Mix> {
    let mut cells = vec![Mix::default(); columns];
    let edge = |i: usize| view.from + (i128::from(view.length()) * i as i128 / columns as i128) as i64;
    let column = |at: i64| {
        let part = i128::from(at - view.from) * columns as i128 / i128::from(view.length());
        part.clamp(0, columns as i128 - 1) as usize
    };
    for span in view.spans(lane) {
        let first = column(span.start);
        for (i, cell) in (first..).zip(&mut cells[first..=column(span.end)]) {
            let time = span.within(edge(i), edge(i + 1));
            if time > 0 {
                cell.add(view, span, time);
            }
        }
    }
    cells
}

/// Ticks with their labels over the columns.
fn ruler(view: &View, columns: usize) -> String {
    let mut line: Vec<char> = Vec::new();
    for Tick { at, label } in axis::ticks(view.from, view.to, columns / 14) {
        let column = (i128::from(at - view.from) * columns as i128 / i128::from(view.length())) as usize;
        if column >= line.len() && column + label.chars().count() < columns + 6 {
            line.resize(column, ' ');
            line.push('╷');
            line.extend(label.chars());
        }
    }
    line.into_iter().collect()
}

/// `a`, `b`, …, `z` for the operations that take the most time, `*` for others.
fn letter(rank: usize) -> char {
    u8::try_from(rank).ok().filter(|rank| *rank < 26).map_or('*', |rank| char::from(b'a' + rank))
}

fn shortened(name: &str, longest: usize) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    if name.chars().count() <= longest {
        return name.chars().map(printable).collect();
    }
    name.chars().take(longest - 1).map(printable).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::sample;
    use super::*;

    #[test]
    fn a_page_without_colours() {
        let timeline = sample();
        let view = View::new(&timeline, 0, timeline.end());
        let text = draw(&view, 56, false);
        let expected = "          ╷0 µs               ╷50                 ╷100
cpu:0     ████████████████████████        ████████  80 %
          aaaaaaaaaaaaaaaabbbbbbbb        aaaaaaaa
cpu:1             ████████████                      30 %
                  aaaaaaaaaaaa
host main     ····································   0 %

queue          busy   waiting       spans
cpu:0        80.0 %     0.0 %           3
cpu:1        30.0 %     0.0 %           1
host main     0.0 %    90.0 %           1
busy at the same time: none 20.0 %, 1 50.0 %, 2 30.0 %

  operation     count        time    share        mean   GFLOP/s     GB/s
a dot               3     90.0 µs   81.8 %     30.0 µs       0.3      0.1
b sum <&>           1     20.0 µs   18.2 %     20.0 µs       0.4      0.2
";
        assert_eq!(text, expected, "\n{text}");
        assert!(text.lines().take(6).all(|line| line.chars().count() <= 56));
    }

    #[test]
    fn colours_take_the_place_of_letters() {
        let timeline = sample();
        let view = View::new(&timeline, 0, timeline.end());
        let text = draw(&view, 56, true);
        assert!(text.contains("\x1b[38;5;33m█\x1b[0m dot ") && text.contains("\x1b[38;5;208m█\x1b[0m sum"), "{text}");
        assert!(!text.contains("aaaa"));
    }

    #[test]
    fn columns_that_are_busy_in_part_have_lower_bars() {
        let timeline = sample();
        let view = View::new(&timeline, 0, timeline.end());
        let cells = columns_of(&view, &timeline.lanes[0], 2);
        assert_eq!(cells.iter().map(|cell| (cell.busy, cell.spans)).collect::<Vec<_>>(), [(50_000, 2), (30_000, 2)]);
        assert_eq!(cells.iter().map(Mix::main).collect::<Vec<_>>(), [Some(0), Some(0)]);
        let page = Page { view: &view, colours: false };
        assert_eq!(cells.iter().map(|cell| page.bar(cell, 50_000)).collect::<String>(), "█▅");
    }

    #[test]
    fn any_window_and_width_can_be_drawn() {
        let timeline = sample();
        for (from, to) in [(0, 1), (0, 100_000), (61_000, 79_000), (99_999, 100_001), (0, i64::MAX / 4)] {
            for width in [1, 20, 33, 500] {
                draw(&View::new(&timeline, from, to), width, width == 33);
            }
        }
    }
}

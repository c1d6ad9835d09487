//! A picture on a terminal.

use super::picture::Picture;
use super::words::{bytes, loss, of, percent, rate, thousands, time};
use meshwork::monitor::{DeviceStatus, QueueStatus};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Sparkline};
use std::time::Duration;

/// From here on it is said that nothing is heard.
pub const SILENT: Duration = Duration::from_secs(5);

/// Most cores that have a bar each; more are one column each.
const FEW_CORES: usize = 16;
/// Width of a core's number, bar and load.
const CORE_WIDTH: usize = 19;
/// Width of bars of queues and memory.
const BAR: usize = 12;
/// Heights that make the eighths of a column.
const COLUMNS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const BUSY: Color = Color::Cyan;

/// Draws everything. `note` says what the keys do, or what is going on.
pub fn draw(frame: &mut Frame<'_>, picture: &Picture, note: &str) {
    let width = usize::from(frame.area().width.saturating_sub(2));
    let cores = cores(&picture.cores, width);
    let mut heights = vec![Constraint::Length(2), Constraint::Min(3)];
    if !cores.is_empty() {
        heights.push(Constraint::Length(cores.len() as u16 + 2));
    }
    heights.extend(picture.status.devices.iter().map(|device| Constraint::Length(device.queues.len() as u16 + 3)));
    let areas = Layout::vertical(heights).split(frame.area());
    let mut areas = areas.iter().copied();
    let mut next = || areas.next().unwrap_or_default();

    head(frame, next(), picture, note);
    losses(frame, next(), picture);
    if !cores.is_empty() {
        frame.render_widget(Paragraph::new(cores).block(titled("cores".into())), next());
    }
    for (device, busy) in picture.status.devices.iter().zip(&picture.busy) {
        let threads = if device.threads == 1 { "thread" } else { "threads" };
        let title = format!("{}, {} {threads}", device.name, device.threads);
        frame.render_widget(Paragraph::new(queues(device, busy)).block(titled(title)), next());
    }
}

fn titled(title: String) -> Block<'static> {
    Block::bordered().border_style(Style::new().dim()).title(Span::from(format!(" {title} ")).bold())
}

/// What is trained and how far it is.
fn head(frame: &mut Frame<'_>, area: Rect, picture: &Picture, note: &str) {
    let status = &picture.status;
    let what = format!("{} on {}", status.model, status.data);
    let whose = format!("  process {}  running for {}", status.pid, time(Duration::from_nanos(status.elapsed_ns)));
    let mut progress =
        vec![format!("step {}", of(status.step, status.steps)), format!("epoch {}", of(status.epoch, status.epochs))];
    progress.extend(picture.done().map(percent));
    progress.extend(status.steps_per_second.map(|speed| format!("{} steps/s", rate(speed))));
    progress.extend(status.samples_per_second.map(|speed| format!("{} samples/s", thousands(speed))));
    progress.extend(picture.left().filter(|_| status.step > 0).map(|left| format!("{} left", time(left))));
    let silent = format!("no news for {}", time(picture.silence));
    let note = if picture.silence >= SILENT { silent.as_str() } else { note };
    let [first, second] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    let [left, right] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(note.chars().count() as u16)]).areas(first);
    frame.render_widget(Line::from(vec![what.bold(), whose.into()]), left);
    frame.render_widget(Line::from(note).dim(), right);
    frame.render_widget(Line::from(progress.join("  ")), second);
}

/// The losses as columns; the lowest one that is seen is one eighth high.
fn losses(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let status = &picture.status;
    let shown = usize::from(area.width.saturating_sub(2));
    let losses: Vec<f32> = picture.losses.iter().skip(picture.losses.len().saturating_sub(shown)).copied().collect();
    let low = losses.iter().copied().fold(f32::INFINITY, f32::min);
    let high = losses.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut title = format!("loss {}", loss(status.loss, status.step));
    if high > low {
        title += &format!("  ({low:.4} to {high:.4})");
    }
    if let Some(accuracy) = status.test_accuracy {
        title += &format!("  test accuracy {:.1} %", 100.0 * accuracy);
    }
    let rows = u64::from(area.height.saturating_sub(2).max(1)) * 8;
    let height = |loss: &f32| {
        let share = if high > low { f64::from((loss - low) / (high - low)) } else { 0.0 };
        1 + (share * (rows - 1) as f64).round() as u64
    };
    let columns: Vec<u64> = losses.iter().map(height).collect();
    frame.render_widget(Sparkline::default().data(columns).max(rows).style(BUSY).block(titled(title)), area);
}

/// A bar for each of a few cores, a column for each of many.
fn cores(loads: &[f64], width: usize) -> Vec<Line<'static>> {
    if loads.len() > FEW_CORES {
        let column = |load: &f64| COLUMNS[(load * 8.0).round() as usize];
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        let columns: Vec<char> = loads.iter().map(column).collect();
        let rows = columns.chunks(width.max(1)).map(|row| Line::from(row.iter().collect::<String>().fg(BUSY)));
        return rows.chain([Line::from(format!("{} in the mean", percent(mean)))]).collect();
    }
    let core = |(i, load): (usize, &f64)| {
        [format!("{i:>2} ").into(), bar(*load, 10), format!(" {:>5}", percent(*load)).into(), " ".into()]
    };
    let all: Vec<[Span<'static>; 4]> = loads.iter().enumerate().map(core).collect();
    all.chunks((width / CORE_WIDTH).max(1)).map(|row| Line::from(row.concat())).collect()
}

/// A line for each queue, and one for the memory.
fn queues(device: &DeviceStatus, busy: &[f64]) -> Vec<Line<'static>> {
    let names = device.queues.iter().map(|queue| queue.name.chars().count());
    let width = names.chain(["memory".len()]).max().unwrap_or(0);
    let label = |name: &str| Span::from(format!("{name:width$} "));
    let queue = |(queue, busy): (&QueueStatus, &f64)| {
        let numbers = format!(" {:>5} busy  {} waiting  ", percent(*busy), queue.depth);
        let running = queue.running.clone().unwrap_or_else(|| "idle".to_string());
        Line::from(vec![label(&queue.name), bar(*busy, BAR), numbers.into(), running.into()])
    };
    let memory = device.memory;
    let share = memory.used as f64 / memory.planned.max(memory.peak).max(1) as f64;
    let numbers =
        format!(" {} used, {} at most, {} planned", bytes(memory.used), bytes(memory.peak), bytes(memory.planned));
    let lines = device.queues.iter().zip(busy).map(queue);
    lines.chain([Line::from(vec![label("memory"), bar(share, BAR), numbers.into()])]).collect()
}

/// `██████░░░░`
fn bar(share: f64, width: usize) -> Span<'static> {
    let full = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(width - full)).fg(BUSY)
}

#[cfg(test)]
mod tests {
    use super::super::picture::tests::{device, status};
    use super::*;
    use meshwork::monitor::Status;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Instant;

    fn drawn(picture: &Picture, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, picture, "q quits")).unwrap();
        let lines = terminal.backend().to_string();
        lines.lines().map(|line| line.trim_matches('"').trim_end().to_string() + "\n").collect()
    }

    fn picture() -> Picture {
        let mut picture = Picture::new(status(), Instant::now());
        picture.losses.extend([1.0, 0.625, 0.25]);
        picture.cores = vec![0.98, 0.5];
        picture
    }

    #[test]
    fn everything_is_drawn() {
        insta::assert_snapshot!(drawn(&picture(), 80, 16), @r"
        lenet on digits  process 1234  running for 0 s                           q quits
        step 1,125/4,500  epoch 3/100  25 %  112 steps/s  3,600 samples/s  30 s left
        ┌ loss 0.2500  (0.2500 to 1.0000)  test accuracy 96.4 % ───────────────────────┐
        │ █                                                                            │
        │ █▁                                                                           │
        │ ██                                                                           │
        │▁██▁                                                                          │
        └──────────────────────────────────────────────────────────────────────────────┘
        ┌ cores ───────────────────────────────────────────────────────────────────────┐
        │ 0 ██████████  98 %  1 █████░░░░░  50 %                                       │
        └──────────────────────────────────────────────────────────────────────────────┘
        ┌ cpu:0, 2 threads ────────────────────────────────────────────────────────────┐
        │cpu:0         ███████████░  90 % busy  2 waiting  dot -> f32[32, 10]          │
        │copy to cpu:0 ░░░░░░░░░░░░   0 % busy  0 waiting  idle                        │
        │memory        ██████████░░ 13.0 MiB used, 15.0 MiB at most, 14.0 MiB planned  │
        └──────────────────────────────────────────────────────────────────────────────┘
        ");
    }

    #[test]
    fn many_cores_are_columns() {
        let mut picture = picture();
        picture.cores = (0..96).map(|i| f64::from(i % 9) / 8.0).collect();
        picture.status.devices = vec![device("cpu:0", 0), device("cpu:1", 0)];
        picture.busy = vec![vec![0.25, 0.0], vec![1.0, 0.5]];
        insta::assert_snapshot!(drawn(&picture, 80, 22), @r"
        lenet on digits  process 1234  running for 0 s                           q quits
        step 1,125/4,500  epoch 3/100  25 %  112 steps/s  3,600 samples/s  30 s left
        ┌ loss 0.2500  (0.2500 to 1.0000)  test accuracy 96.4 % ───────────────────────┐
        │ █                                                                            │
        │ █▅                                                                           │
        │▁██▁                                                                          │
        └──────────────────────────────────────────────────────────────────────────────┘
        ┌ cores ───────────────────────────────────────────────────────────────────────┐
        │ ▁▂▃▄▅▆▇█ ▁▂▃▄▅▆▇█ ▁▂▃▄▅▆▇█ ▁▂▃▄▅▆▇█ ▁▂▃▄▅▆▇█ ▁▂▃▄▅▆▇█ ▁▂▃▄▅▆▇█ ▁▂▃▄▅▆▇█ ▁▂▃▄▅│
        │▆▇█ ▁▂▃▄▅▆▇█ ▁▂▃▄▅                                                            │
        │49 % in the mean                                                              │
        └──────────────────────────────────────────────────────────────────────────────┘
        ┌ cpu:0, 2 threads ────────────────────────────────────────────────────────────┐
        │cpu:0         ███░░░░░░░░░  25 % busy  2 waiting  dot -> f32[32, 10]          │
        │copy to cpu:0 ░░░░░░░░░░░░   0 % busy  0 waiting  idle                        │
        │memory        ██████████░░ 13.0 MiB used, 15.0 MiB at most, 14.0 MiB planned  │
        └──────────────────────────────────────────────────────────────────────────────┘
        ┌ cpu:1, 2 threads ────────────────────────────────────────────────────────────┐
        │cpu:1         ████████████ 100 % busy  2 waiting  dot -> f32[32, 10]          │
        │copy to cpu:1 ██████░░░░░░  50 % busy  0 waiting  idle                        │
        │memory        ██████████░░ 13.0 MiB used, 15.0 MiB at most, 14.0 MiB planned  │
        └──────────────────────────────────────────────────────────────────────────────┘
        ");
    }

    #[test]
    fn what_is_not_known_yet_is_no_trouble() {
        let early = Status {
            step: 0,
            epoch: 0,
            steps: None,
            epochs: None,
            steps_per_second: None,
            samples_per_second: None,
            loss: None,
            test_accuracy: None,
            devices: Vec::new(),
            ..status()
        };
        let mut picture = Picture::new(early, Instant::now());
        picture.silence = Duration::from_secs(7);
        insta::assert_snapshot!(drawn(&picture, 70, 6), @r"
        lenet on digits  process 1234  running for 0 s         no news for 7 s
        step 0  epoch 0
        ┌ loss – ────────────────────────────────────────────────────────────┐
        │                                                                    │
        │                                                                    │
        └────────────────────────────────────────────────────────────────────┘
        ");
        // Nor is a small terminal, or next to none.
        for (width, height) in [(20, 4), (1, 1), (200, 2), (3, 50)] {
            drawn(&self::picture(), width, height);
        }
    }
}

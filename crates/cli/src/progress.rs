//! What a person sees while a model is trained: a bar on a terminal, plain lines elsewhere, or a view of the load.

use indicatif::{ProgressBar, ProgressStyle};
use meshwork::train::{BuiltIn, EpochDone, Evaluation, StepDone};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two plain lines of an epoch at least this much time passes.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How steps are reported.
enum Steps {
    Bar(ProgressBar),
    Lines,
    /// A view shows them. Where it takes the whole terminal, lines wait until it is closed.
    View {
        waiting: Option<Vec<String>>,
    },
}

/// What a model reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Images, of which one is a sample.
    Images,
    /// Tokens, so many of which are a sample.
    Tokens(usize),
}

/// A progress report.
pub struct Progress {
    steps: Steps,
    total: Option<u64>,
    epochs: Option<u64>,
    unit: Unit,
    last_line: Instant,
    /// Samples and seconds of the epoch at hand.
    speed: (usize, f64),
}

impl Progress {
    /// A report that begins after `done` of `total` steps.
    pub fn new(done: u64, total: Option<u64>, epochs: Option<u64>, unit: Unit) -> Progress {
        let bar = || {
            let style = ProgressStyle::with_template("{bar:30} step {pos}/{len}  {msg}  {eta} left")
                .expect("the template is right");
            let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new).with_style(style);
            bar.set_position(done);
            bar.reset_eta();
            bar
        };
        let steps = if std::io::stderr().is_terminal() { Steps::Bar(bar()) } else { Steps::Lines };
        Progress { steps, total, epochs, unit, last_line: Instant::now(), speed: (0, 0.0) }
    }

    /// A report beside a view of the load, which shows the steps and may take the whole terminal.
    pub fn beside_view(takes_terminal: bool, epochs: Option<u64>, unit: Unit) -> Progress {
        let steps = Steps::View { waiting: takes_terminal.then(Vec::new) };
        Progress { steps, total: None, epochs, unit, last_line: Instant::now(), speed: (0, 0.0) }
    }

    /// A step is done.
    pub fn step(&mut self, step: &StepDone) {
        self.speed.0 += step.samples;
        self.speed.1 += step.samples as f64 / step.samples_per_second;
        let speed = self.unit.speed(self.speed.0 as f64 / self.speed.1);
        match &self.steps {
            Steps::Bar(bar) => {
                bar.set_position(step.step);
                bar.set_message(format!("epoch {}  loss {:.4}  {speed}", step.epoch, step.loss));
            }
            Steps::Lines if self.last_line.elapsed() >= LINE_EVERY => {
                let total = self.total.map(|n| format!("/{n}")).unwrap_or_default();
                self.say(&format!("step {}{total}  loss {:.4}  {speed}", step.step, step.loss));
            }
            _ => {}
        }
    }

    /// An epoch is done.
    pub fn epoch(&mut self, epoch: &EpochDone) {
        let speed = self.unit.speed(self.speed.0 as f64 / self.speed.1);
        self.speed = (0, 0.0);
        let of = self.epochs.map(|n| format!("/{n}")).unwrap_or_default();
        self.say(&format!(
            "epoch {}{of}  train loss {:.4}  {}  {speed}",
            epoch.epoch,
            epoch.train_loss,
            self.unit.result(&epoch.test)
        ));
        if let Some(averaged) = &epoch.averaged {
            self.say(&format!("epoch {}{of}  averaged weights: {}", epoch.epoch, self.unit.result(averaged)));
        }
    }

    /// Prints a line to standard output.
    pub fn say(&mut self, line: &str) {
        self.last_line = Instant::now();
        match &mut self.steps {
            Steps::Bar(bar) => bar.suspend(|| say(line)),
            Steps::View { waiting: Some(waiting) } => waiting.push(line.to_string()),
            Steps::Lines | Steps::View { waiting: None } => say(line),
        }
    }

    /// Takes the bar away, and prints the lines that a view, which is closed now, made wait.
    pub fn finish(&mut self) {
        match &mut self.steps {
            Steps::Bar(bar) => bar.finish_and_clear(),
            Steps::View { waiting: Some(waiting) } => waiting.drain(..).for_each(|line| say(&line)),
            Steps::Lines | Steps::View { waiting: None } => {}
        }
    }
}

impl Unit {
    /// What models of this kind read.
    pub fn of(model: &BuiltIn) -> Unit {
        model.transformer().map_or(Unit::Images, |config| Unit::Tokens(config.context))
    }

    /// So many samples a second, in words.
    pub fn speed(self, samples: f64) -> String {
        match self {
            Unit::Images => format!("{} images/s", thousands(samples)),
            Unit::Tokens(length) => format!("{} tokens/s", thousands(samples * length as f64)),
        }
    }

    /// How well a model does on what it was not trained on, in words.
    pub fn result(self, test: &Evaluation) -> String {
        match self {
            Unit::Images => format!("test accuracy {:.1} %", 100.0 * test.accuracy),
            Unit::Tokens(_) => {
                let loss = test.loss;
                format!(
                    "validation loss {loss:.4} (perplexity {:.2}), accuracy {:.1} %",
                    loss.exp(),
                    100.0 * test.accuracy
                )
            }
        }
    }
}

/// Prints a line to standard output. That nobody reads it is no reason to end.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A whole number with its thousands apart.
pub fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([7.2, 999.0, 1000.0, 1234567.0].map(super::thousands), ["7", "999", "1,000", "1,234,567"]);
    }
}

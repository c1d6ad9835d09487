//! Where the time axis has ticks, and what they say.

use super::spans::Nanos;

/// A mark on the time axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    pub at: Nanos,
    /// The time since the beginning of the file; the first one with its unit.
    pub label: String,
}

/// At most about so many ticks at round times (1, 2, 5, 10, … of a unit).
pub fn ticks(from: Nanos, to: Nanos, count: usize) -> Vec<Tick> {
    let wanted = ((to - from) / count.max(1) as Nanos).max(1);
    let power = 10i64.pow(wanted.ilog10());
    let step =
        [1, 2, 5].map(|n| n * power).into_iter().find(|step| *step >= wanted).unwrap_or(power.saturating_mul(10));
    let (unit, name) = match step {
        ..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let first = from.div_euclid(step) * step;
    let inside = (0..)
        .map(|i| step.saturating_mul(i).saturating_add(first))
        .skip_while(|at| *at < from)
        .take_while(|at| *at <= to);
    let label = |(i, at): (usize, Nanos)| Tick {
        at,
        label: format!("{}{}", at / unit, if i == 0 { format!(" {name}") } else { String::new() }),
    };
    inside.enumerate().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::ticks;

    fn labels(from: i64, to: i64, count: usize) -> Vec<String> {
        ticks(from, to, count).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_at_round_times() {
        assert_eq!(labels(0, 100_000, 2), ["0 µs", "50", "100"]);
        assert_eq!(labels(0, 99_000_000, 6), ["0 ms", "20", "40", "60", "80"]);
        assert_eq!(labels(1_234_567, 1_300_000, 4), ["1240 µs", "1260", "1280", "1300"]);
        assert_eq!(labels(0, 7_000_000_000_000, 3), ["0 s", "5000"]);
        assert_eq!(labels(5, 6, 10), ["5 ns", "6"]);
    }
}

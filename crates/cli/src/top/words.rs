//! Numbers as a person reads them.

use std::time::Duration;

pub use crate::progress::thousands;

/// `3/100`, or `3` where there is no end.
pub fn of(done: u64, total: Option<u64>) -> String {
    let total = total.map(|total| format!("/{}", thousands(total as f64))).unwrap_or_default();
    format!("{}{total}", thousands(done as f64))
}

/// `12.3 MiB`
pub fn bytes(bytes: usize) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    // What would be rounded to 1024.0 is one of the next unit.
    while amount >= 1023.95 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{amount:.1} {}", units[unit]) }
}

/// `98 %`
pub fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// `0.85`, `12.3`, `4,567`
pub fn rate(per_second: f64) -> String {
    match per_second {
        slow if slow < 9.995 => format!("{slow:.2}"),
        medium if medium < 99.95 => format!("{medium:.1}"),
        fast => thousands(fast),
    }
}

/// `12 s`, `3 min 05 s`, `2 h 10 min`
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A loss; there may be none yet, or one that is no number.
pub fn loss(loss: Option<f32>, step: u64) -> String {
    match loss {
        Some(loss) => format!("{loss:.4}"),
        None if step == 0 => "–".to_string(),
        None => "not a number".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([of(1234, Some(5000)), of(7, None)], ["1,234/5,000", "7"]);
        assert_eq!(
            [0, 1023, 1024, 1_048_575, 1 << 20, 3 << 29, 1 << 60].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "1.0 MiB", "1.5 GiB", "1048576.0 TiB"]
        );
        assert_eq!([0.0, 0.005, 1.0].map(percent), ["0 %", "0 %", "100 %"]);
        assert_eq!([0.854, 9.999, 12.34, 99.99, 4567.8].map(rate), ["0.85", "10.0", "12.3", "100", "4,568"]);
        assert_eq!([12, 185, 7810].map(|s| time(Duration::from_secs(s))), ["12 s", "3 min 05 s", "2 h 10 min"]);
        assert_eq!([loss(Some(0.5), 3), loss(None, 0), loss(None, 3)], ["0.5000", "–", "not a number"]);
    }
}

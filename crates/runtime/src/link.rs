//! A slower link between devices than memory is: copies take as long as they would take there.

use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// What copies between CPU devices take at least, to see on one machine what a plan does on machines that are linked.
///
/// A device receives one copy after the other: the link is that of its network card, in one direction. Results do not
/// depend on it. `MESHWORK_LINK=1GB/s` or `MESHWORK_LINK=1GB/s,50us` sets it from outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes that a device receives in a second.
    pub bytes_per_second: f64,
    /// What each copy takes besides.
    pub latency: Duration,
}

/// What is wrong with a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// A value of `MESHWORK_LINK` that means nothing.
    #[error(
        "MESHWORK_LINK={0:?}: it must be bytes a second and, after a comma, a latency, such as 1GB/s or 1GB/s,50us"
    )]
    Environment(String),
    /// A link on which nothing would ever arrive.
    #[error(
        "a link of {0} bytes a second and {1:?}: it must have a finite speed above 0, and at most a second of latency"
    )]
    Impossible(String, Duration),
}

type Setting = Result<Option<Link>, LinkError>;

static SETTING: LazyLock<RwLock<Setting>> = LazyLock::new(|| {
    RwLock::new(match std::env::var("MESHWORK_LINK") {
        Err(_) => Ok(None),
        Ok(text) => match parse(&text) {
            Some(link) => link.checked().map(Some),
            None => Err(LinkError::Environment(text)),
        },
    })
});

/// The link that copies between devices are slowed down to, if any.
///
/// # Errors
/// When `MESHWORK_LINK` makes no sense.
pub fn link() -> Result<Option<Link>, LinkError> {
    SETTING.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Slows copies that are handed over from now on down to a link, or lets them be as fast as they can. With a link, devices stand
/// for machines: each has a thread for all that arrives, and none helps another with its work.
///
/// # Errors
/// When nothing would ever arrive.
pub fn set_link(link: Option<Link>) -> Result<(), LinkError> {
    let link = link.map(Link::checked).transpose()?;
    *SETTING.write().unwrap_or_else(PoisonError::into_inner) = Ok(link);
    Ok(())
}

impl Link {
    fn checked(self) -> Result<Link, LinkError> {
        let possible = self.bytes_per_second.is_finite() && self.bytes_per_second > 0.0;
        if !possible || self.latency > Duration::from_secs(1) {
            return Err(LinkError::Impossible(self.bytes_per_second.to_string(), self.latency));
        }
        Ok(self)
    }

    /// What a copy of so many bytes takes.
    pub fn time(&self, bytes: usize) -> Duration {
        self.latency + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second)
    }
}

/// Waits until a copy of so many bytes that began at `start` would have arrived.
pub(crate) fn arrive(start: Instant, bytes: usize) {
    // Devices do not start with a setting that makes no sense.
    let Ok(Some(link)) = link() else { return };
    std::thread::sleep(link.time(bytes).saturating_sub(start.elapsed()));
}

fn parse(text: &str) -> Option<Link> {
    let (speed, latency) = match text.split_once(',') {
        Some((speed, latency)) => (speed, quantity(latency, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)])?),
        None => (text, 0.0),
    };
    let units = [("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)];
    let latency = Duration::try_from_secs_f64(latency).ok()?;
    Some(Link { bytes_per_second: quantity(speed, &units)?, latency })
}

/// A number with one of these units.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    units.iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * factor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_from_outside() {
        let link = |speed: f64, micros| Some(Link { bytes_per_second: speed, latency: Duration::from_micros(micros) });
        assert_eq!(parse("1GB/s"), link(1e9, 0));
        assert_eq!(parse(" 2.5 MB/s, 50us"), link(2.5e6, 50));
        assert_eq!(parse("10kB/s,1.5ms"), link(1e4, 1500));
        for text in ["", "1", "GB/s", "1GB", "1GB/s,", "1GB/s,5", "1GB/s,-5us", "x,1s"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn links_on_which_nothing_arrives_are_refused() {
        for (bytes_per_second, seconds) in [(0.0, 0), (-1.0, 0), (f64::NAN, 0), (f64::INFINITY, 0), (1e9, 2)] {
            let link = Link { bytes_per_second, latency: Duration::from_secs(seconds) };
            let refused = link.checked().unwrap_err().to_string();
            assert!(refused.contains("finite speed above 0, and at most a second of latency"), "{refused}");
        }
    }

    #[test]
    fn what_a_copy_takes() {
        let link = Link { bytes_per_second: 1e6, latency: Duration::from_micros(20) };
        assert_eq!(link.time(5_000), Duration::from_micros(5_020));
    }
}

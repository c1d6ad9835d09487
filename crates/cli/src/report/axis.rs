//! Where the axes of a plot have ticks, and what they say.

/// Round numbers (1, 2, 5, 10, … of a power of ten) of which a range is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The first and the last tick enclose what is drawn.
    pub ticks: Vec<f64>,
    step: f64,
}

impl Axis {
    /// At most about `count` ticks around a range.
    pub fn around(low: f64, high: f64, count: usize) -> Axis {
        let (low, high) =
            if low < high { (low, high) } else { (low - low.abs().max(1.0) * 0.5, low + low.abs().max(1.0) * 0.5) };
        let step = step((high - low) / count as f64);
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let ticks = (0..=(last - first) as usize).map(|i| (first + i as f64) * step).collect();
        Axis { ticks, step }
    }

    /// Whole numbers inside a range.
    pub fn whole(low: f64, high: f64, count: usize) -> Axis {
        let step = step((high - low) / count as f64).max(1.0);
        let first = (low / step).ceil();
        let ticks = (0..).map(|i| (first + f64::from(i)) * step).take_while(|tick| *tick <= high).collect();
        Axis { ticks, step }
    }

    pub fn low(&self) -> f64 {
        self.ticks[0]
    }

    pub fn high(&self) -> f64 {
        self.ticks[self.ticks.len() - 1]
    }

    /// `0.25`, `1.5k`, `3e-5`
    pub fn label(&self, tick: f64) -> String {
        let largest = self.ticks.iter().fold(0.0f64, |most, tick| most.max(tick.abs()));
        let decimals = |unit: f64| (-(self.step / unit).log10() - 1e-9).ceil().max(0.0) as usize;
        match largest {
            _ if tick == 0.0 => "0".to_string(),
            large if large >= 1e9 => format!("{:.*}G", decimals(1e9), tick / 1e9),
            large if large >= 1e6 => format!("{:.*}M", decimals(1e6), tick / 1e6),
            large if large >= 1e4 => format!("{:.*}k", decimals(1e3), tick / 1e3),
            small if small < 1e-3 => {
                let power = 10f64.powi(small.log10().floor() as i32);
                format!("{:.*}e{}", decimals(power), tick / power, power.log10().round())
            }
            _ => format!("{tick:.*}", decimals(1.0)),
        }
    }
}

/// The next round number from this one on.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|n| n * power)
        .into_iter()
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::Axis;

    fn labels(axis: Axis) -> Vec<String> {
        axis.ticks.iter().map(|tick| axis.label(*tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_enclose_the_range() {
        assert_eq!(labels(Axis::around(0.03, 2.31, 5)), ["0", "0.5", "1.0", "1.5", "2.0", "2.5"]);
        assert_eq!(labels(Axis::around(0.0, 0.003, 3)), ["0", "0.001", "0.002", "0.003"]);
        assert_eq!(labels(Axis::around(0.0, 5e-5, 5)), ["0", "1e-5", "2e-5", "3e-5", "4e-5", "5e-5"]);
        assert_eq!(labels(Axis::around(11_000.0, 13_900.0, 3)), ["11k", "12k", "13k", "14k"]);
        assert_eq!(labels(Axis::around(1e6, 2.4e6, 3)), ["1.0M", "1.5M", "2.0M", "2.5M"]);
        assert_eq!(labels(Axis::around(3.0, 3.0, 3)), ["1", "2", "3", "4", "5"]);
        assert_eq!(labels(Axis::around(0.0, 0.0, 2)), ["-0.5", "0", "0.5"]);
    }

    #[test]
    fn steps_are_whole() {
        assert_eq!(labels(Axis::whole(1.0, 3.0, 5)), ["1", "2", "3"]);
        assert_eq!(labels(Axis::whole(1.0, 1438.0, 5)), ["500", "1000"]);
        assert_eq!(labels(Axis::whole(1.0, 40_000.0, 5)), ["10k", "20k", "30k", "40k"]);
        assert_eq!(labels(Axis::whole(7.0, 7.0, 5)), ["7"]);
    }
}

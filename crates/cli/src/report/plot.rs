//! Lines over steps, as SVG that takes its colours from the page.

use super::axis::Axis;
use crate::progress::thousands;
use std::fmt::Write;

/// Pixels of a picture that is not scaled.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
/// Longer lines are drawn by the means of so many stretches, with a band from the least to the most of each.
const STRETCHES: usize = 300;
/// Values of shorter lines are marked.
const MARKED: usize = 40;
/// Strips that tell their values when they are pointed at.
const STRIPS: usize = 96;

/// A line.
#[derive(Clone, Debug)]
pub struct Series {
    /// As the legend and the notes call it.
    pub name: &'static str,
    /// By step.
    pub points: Vec<(f64, f64)>,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Plot {
    pub title: &'static str,
    /// What the vertical axis shows, with its unit.
    pub unit: &'static str,
    pub series: Vec<Series>,
    /// Whether the vertical axis begins at zero.
    pub from_zero: bool,
}

impl Plot {
    /// The figure, if there is anything to be drawn.
    pub fn draw(&self) -> Option<String> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let range = |of: fn(&(f64, f64)) -> f64| {
            let values = points().map(of);
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
        };
        points().next()?;
        let (steps, values) = (range(|p| p.0), range(|p| p.1));
        let low = if self.from_zero { 0.0 } else { values.0 };
        let frame = Frame { steps, y: Axis::around(low, values.1, 5), x: Axis::whole(steps.0, steps.1, 6) };

        let mut out = String::from("<figure>\n<figcaption>");
        let _ = write!(out, "<b>{}</b>", self.title);
        if self.series.len() > 1 {
            for (i, series) in self.series.iter().enumerate().filter(|(_, series)| !series.points.is_empty()) {
                let _ = write!(out, "<span class=\"key k{i}\">{}</span>", series.name);
            }
        }
        let _ = writeln!(
            out,
            "</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}, {}, over steps\">",
            self.title, self.unit
        );
        frame.draw(&mut out, self.unit);
        for (i, series) in self.series.iter().enumerate() {
            line(&mut out, &frame, series, i);
        }
        self.strips(&mut out, &frame);
        out.push_str("</svg>\n</figure>\n");
        Some(out)
    }

    /// What the lines are at where one points.
    fn strips(&self, out: &mut String, frame: &Frame) {
        let width = (WIDTH - LEFT - RIGHT) / STRIPS as f64;
        let strip = |step: f64| (((frame.x(step) - LEFT) / width) as usize).min(STRIPS - 1);
        let mut last: Vec<Vec<Option<(f64, f64)>>> = vec![vec![None; self.series.len()]; STRIPS];
        for (i, series) in self.series.iter().enumerate() {
            series.points.iter().for_each(|&point| last[strip(point.0)][i] = Some(point));
        }
        for (at, values) in last.iter().enumerate() {
            let said = values.iter().zip(&self.series).filter_map(|(point, series)| Some((series.name, (*point)?)));
            let said: Vec<String> = said
                .map(|(name, (step, value))| format!("step {}: {name} {}", thousands(step), number(value)))
                .collect();
            if !said.is_empty() {
                let (x, height) = (LEFT + at as f64 * width, HEIGHT - TOP - BOTTOM);
                let _ = writeln!(
                    out,
                    "<rect class=\"strip\" x=\"{x:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height}\">\
                     <title>{}</title></rect>",
                    said.join("\n")
                );
            }
        }
    }
}

/// From steps and values to pixels.
struct Frame {
    steps: (f64, f64),
    x: Axis,
    y: Axis,
}

impl Frame {
    fn x(&self, step: f64) -> f64 {
        let (first, last) = self.steps;
        let part = if first < last { (step - first) / (last - first) } else { 0.5 };
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let part = (value - self.y.low()) / (self.y.high() - self.y.low());
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    }

    fn draw(&self, out: &mut String, unit: &str) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for &tick in &self.y.ticks {
            let (y, label) = (self.y(tick), self.y.label(tick));
            let _ = write!(out, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>");
            let _ = writeln!(out, "<text class=\"left\" x=\"{}\" y=\"{:.1}\">{label}</text>", LEFT - 7.0, y + 4.0);
        }
        for &tick in &self.x.ticks {
            let (x, label) = (self.x(tick), self.x.label(tick));
            let _ = write!(out, "<path class=\"axis\" d=\"M{x:.1} {bottom}v5\"/>");
            let _ = writeln!(out, "<text class=\"below\" x=\"{x:.1}\" y=\"{}\">{label}</text>", bottom + 19.0);
        }
        let _ = write!(out, "<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>");
        let _ =
            write!(out, "<text class=\"below name\" x=\"{}\" y=\"{}\">step</text>", (LEFT + right) / 2.0, HEIGHT - 6.0);
        let middle = (TOP + bottom) / 2.0;
        let _ =
            writeln!(out, "<text class=\"below name\" transform=\"translate(14 {middle}) rotate(-90)\">{unit}</text>");
    }
}

fn line(out: &mut String, frame: &Frame, series: &Series, i: usize) {
    let points = &series.points;
    let at = |(step, value): (f64, f64)| format!("{:.1} {:.1}", frame.x(step), frame.y(value));
    if points.len() <= STRETCHES {
        let path: Vec<String> = points.iter().map(|&point| at(point)).collect();
        if path.len() > 1 {
            let _ = writeln!(out, "<path class=\"line c{i}\" d=\"M{}\"/>", path.join("L"));
        }
        for &(step, value) in points.iter().filter(|_| points.len() <= MARKED) {
            let _ = writeln!(
                out,
                "<circle class=\"mark c{i}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                frame.x(step),
                frame.y(value)
            );
        }
        return;
    }
    let stretches = stretches(points);
    let edge = |of: fn(&Stretch) -> f64| stretches.iter().map(move |stretch| (stretch.step, of(stretch)));
    let around: Vec<String> = edge(|stretch| stretch.most).chain(edge(|stretch| stretch.least).rev()).map(at).collect();
    let _ = writeln!(out, "<path class=\"band c{i}\" d=\"M{}Z\"/>", around.join("L"));
    let means: Vec<String> = edge(|stretch| stretch.mean).map(at).collect();
    let _ = writeln!(out, "<path class=\"line c{i}\" d=\"M{}\"/>", means.join("L"));
}

/// Steps that are drawn as one.
struct Stretch {
    step: f64,
    least: f64,
    mean: f64,
    most: f64,
}

/// Stretches of about equally many points.
fn stretches(points: &[(f64, f64)]) -> Vec<Stretch> {
    let bounds = (0..=STRETCHES).map(|i| i * points.len() / STRETCHES).collect::<Vec<_>>();
    let stretch = |bounds: &[usize]| {
        let part = &points[bounds[0]..bounds[1]];
        let mean = |of: fn(&(f64, f64)) -> f64| part.iter().map(of).sum::<f64>() / part.len() as f64;
        let values = || part.iter().map(|point| point.1);
        Stretch {
            step: mean(|point| point.0),
            least: values().fold(f64::INFINITY, f64::min),
            mean: mean(|point| point.1),
            most: values().fold(f64::NEG_INFINITY, f64::max),
        }
    };
    bounds.windows(2).map(stretch).collect()
}

/// About five digits: `0.0012346`, `2.3026`, `12,346`
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        small if small < 1e-4 => format!("{value:.3e}"),
        large if large >= 1e4 => thousands(value),
        size => format!("{value:.*}", (4.0 - size.log10().floor()) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(series: Vec<Series>) -> Option<String> {
        Plot { title: "Loss", unit: "loss (nats)", series, from_zero: true }.draw()
    }

    #[test]
    fn lines_are_where_their_values_are() {
        let points = vec![(1.0, 0.0), (3.0, 2.0)];
        let svg =
            plot(vec![Series { name: "training", points }, Series { name: "validation", points: vec![(3.0, 1.0)] }]);
        let svg = svg.unwrap();
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        assert!(
            svg.contains(&format!("<path class=\"line c0\" d=\"M{LEFT:.1} {bottom:.1}L{right:.1} {TOP:.1}\"/>")),
            "{svg}"
        );
        let middle = (TOP + bottom) / 2.0;
        assert!(
            svg.contains(&format!("<circle class=\"mark c1\" cx=\"{right:.1}\" cy=\"{middle:.1}\" r=\"3\"/>")),
            "{svg}"
        );
        assert!(svg.contains("<title>step 3: training 2.0000\nstep 3: validation 1.0000</title>"), "{svg}");
        for part in [">training</span>", ">validation</span>", ">step</text>", ">loss (nats)</text>", ">0.5</text>"] {
            assert!(svg.contains(part), "{part} is missing in\n{svg}");
        }
    }

    #[test]
    fn long_lines_are_means_within_bands() {
        let points: Vec<(f64, f64)> = (0..90_000).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        let svg = plot(vec![Series { name: "a", points }]).unwrap();
        assert!(svg.len() < 40_000, "{}", svg.len());
        let means = svg.split("class=\"line c0\" d=\"M").nth(1).unwrap().split('"').next().unwrap();
        let middle = format!(" {:.1}", (TOP + HEIGHT - BOTTOM) / 2.0);
        assert_eq!(means.matches('L').count() + 1, STRETCHES);
        assert!(means.split('L').all(|point| point.ends_with(&middle)), "{means}");
        assert!(svg.contains("class=\"band c0\"") && !svg.contains("class=\"key"));
    }

    #[test]
    fn nothing_gives_no_picture() {
        assert!(plot(vec![Series { name: "a", points: Vec::new() }]).is_none());
    }

    #[test]
    fn numbers_have_five_digits() {
        let numbers = [0.0, 2.312345, 0.00123456, -0.5, 12345.6, 3e-5].map(number);
        assert_eq!(numbers, ["0", "2.3123", "0.0012346", "-0.50000", "12,346", "3.000e-5"]);
    }
}

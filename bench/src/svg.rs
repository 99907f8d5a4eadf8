//! The picture: hand-over latency against waiters, both on logarithmic scales.

use std::fmt::Write;

use crate::number;
use crate::report::Point;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

const COLOURS: [&str; 7] = [
    "#555555", "#c0392b", "#2471a3", "#1e8449", "#b9770e", "#7d3c98", "#117a65",
];

/// Maps numbers to a stretch of the picture by their logarithms.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn at(&self, number: f64) -> f64 {
        let share = (number.log10() - self.low) / (self.high - self.low);
        self.from + share * (self.to - self.from)
    }
}

pub fn draw(points: &[Point]) -> String {
    let seconds = || points.iter().map(|point| point.seconds.log10());
    let low = seconds().fold(f64::INFINITY, f64::min).floor();
    let high = seconds().fold(f64::NEG_INFINITY, f64::max).ceil();
    let mut waiters: Vec<u32> = points.iter().map(|point| point.waiters).collect();
    waiters.sort_unstable();
    waiters.dedup();
    let ends = [waiters.first(), waiters.last()].map(|end| f64::from(*end.unwrap_or(&1)).log10());
    let across = Scale {
        low: ends[0],
        high: ends[1].max(ends[0] + 0.1),
        from: LEFT + 20.0,
        to: WIDTH - RIGHT,
    };
    let up = Scale {
        low,
        high: high.max(low + 1.0),
        from: HEIGHT - BOTTOM,
        to: TOP,
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let middle = f64::midpoint(across.from, across.to);
    text(
        &mut svg,
        LEFT,
        22.0,
        "start",
        "#222",
        "From a release to the next body, median",
    );
    text(&mut svg, middle, HEIGHT - 12.0, "middle", "#222", "waiters");
    for step in low as i32..=up.high as i32 {
        let value = 10f64.powi(step);
        let y = up.at(value);
        rule(&mut svg, (LEFT, y), (WIDTH - RIGHT, y));
        text(&mut svg, LEFT - 8.0, y + 4.0, "end", "#222", &round(value));
    }
    for count in &waiters {
        let x = across.at(f64::from(*count));
        rule(&mut svg, (x, TOP), (x, HEIGHT - BOTTOM));
        let label = count.to_string();
        text(
            &mut svg,
            x,
            HEIGHT - BOTTOM + 18.0,
            "middle",
            "#222",
            &label,
        );
    }
    let mut labels = Vec::new();
    for (at, name) in names(points).into_iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let own: Vec<&Point> = points.iter().filter(|point| point.name == name).collect();
        let places = own.iter().map(|point| {
            let (x, y) = (across.at(f64::from(point.waiters)), up.at(point.seconds));
            format!("{x:.1},{y:.1}")
        });
        let places = places.collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            svg,
            "<polyline points=\"{places}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
        for point in &own {
            let (x, y) = (across.at(f64::from(point.waiters)), up.at(point.seconds));
            let title = format!("{name}: {}", number::time(point.seconds));
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\">\
                 <title>{title}</title></circle>"
            );
        }
        if let Some(last) = own.last() {
            let label = format!("{name}, {}", number::time(last.seconds));
            labels.push((up.at(last.seconds), label, colour));
        }
    }
    // Labels keep a line's distance.
    labels.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut least = 0.0f64;
    for (y, label, colour) in labels {
        let y = y.max(least);
        least = y + 15.0;
        text(
            &mut svg,
            WIDTH - RIGHT + 10.0,
            y + 4.0,
            "start",
            colour,
            &label,
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn names(points: &[Point]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for point in points {
        if !names.contains(&point.name.as_str()) {
            names.push(&point.name);
        }
    }
    names
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, colour: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
    );
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
        from.0, from.1, to.0, to.1
    );
}

/// A power of ten, without digits that say nothing.
fn round(seconds: f64) -> String {
    match seconds {
        s if s < 0.99e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 0.99 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.0} s"),
    }
}

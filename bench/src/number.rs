//! Medians, and numbers as people read them.

/// The middle of some numbers, and how far they lie apart.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of the rounds that have a result; nothing where none has.
    pub fn of(numbers: &[f64]) -> Option<Self> {
        Some(Self {
            median: quantile(numbers, 0.5)?,
            min: quantile(numbers, 0.0)?,
            max: quantile(numbers, 1.0)?,
        })
    }

    /// `27.9 µs (27.1–29.0)`.
    pub fn time(self) -> String {
        if unit(self.min) != unit(self.max) {
            let [median, min, max] = [self.median, self.min, self.max].map(time);
            return format!("{median} ({min}–{max})");
        }
        let (scale, unit) = unit(self.median);
        let [median, min, max] =
            [self.median, self.min, self.max].map(|seconds| digits(seconds * scale));
        format!("{median} {unit} ({min}–{max})")
    }

    /// The same for a number without a unit.
    pub fn plain(self) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(digits);
        format!("{median} ({min}–{max})")
    }
}

/// The number below which a share of all lie.
pub fn quantile(numbers: &[f64], share: f64) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * share).round() as usize])
}

/// A time in seconds, with the unit that fits.
pub fn time(seconds: f64) -> String {
    let unit = unit(seconds);
    format!("{} {}", digits(seconds * unit.0), unit.1)
}

fn unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s < 1e-6 => (1e9, "ns"),
        s if s < 1e-3 => (1e6, "µs"),
        s if s < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    }
}

/// Three digits that matter, and whole numbers from a hundred on.
pub fn digits(number: f64) -> String {
    match number.abs() {
        size if size >= 1_000.0 => grouped(number.round() as i64),
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// `12,345`.
fn grouped(number: i64) -> String {
    let text = number.unsigned_abs().to_string();
    let mut grouped = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in text.chars().enumerate() {
        if at > 0 && (text.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

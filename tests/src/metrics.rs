//! What was recorded through the facade of the crate `metrics`, by a recorder for the whole process.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// One metric with its labels, as `name{key="value",…}`.
type Series = String;

/// Everything recorded so far.
#[derive(Debug, Default)]
struct Recorded {
    numbers: BTreeMap<Series, f64>,
    samples: BTreeMap<Series, Vec<f64>>,
    described: BTreeMap<String, (String, String)>,
}

static RECORDER: OnceLock<Snapshotter> = OnceLock::new();
static RECORDED: Mutex<Recorded> = Mutex::new(Recorded {
    numbers: BTreeMap::new(),
    samples: BTreeMap::new(),
    described: BTreeMap::new(),
});

/// Records from now on, for the whole process.
pub fn record() {
    RECORDER.get_or_init(|| {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        recorder.install().expect("nobody else records");
        snapshotter
    });
}

/// What was recorded of one function, by its name without the module; of requests by hand, by their
/// template.
#[derive(Clone, Copy, Debug)]
pub struct Of(pub &'static str);

impl Of {
    /// The value of a counter or a gauge; nothing where it was not registered.
    pub fn number(self, name: &str) -> Option<f64> {
        self.number_with(name, "")
    }

    /// The same of one that has a label beside, `cause="expired"`.
    pub fn number_with(self, name: &str, label: &str) -> Option<f64> {
        with_recorded(|recorded| {
            let mut found = self.find(&recorded.numbers, name);
            found.find_map(|(series, value)| series.contains(label).then_some(*value))
        })
    }

    /// The samples of a histogram, in no order.
    pub fn samples(self, name: &str) -> Vec<f64> {
        with_recorded(|recorded| {
            let found = self.find(&recorded.samples, name);
            found.flat_map(|(_, values)| values.clone()).collect()
        })
    }

    fn find<'a, T>(
        self,
        all: &'a BTreeMap<Series, T>,
        name: &str,
    ) -> impl Iterator<Item = (&'a Series, &'a T)> {
        let name = format!("lockattr_{name}{{");
        let function = format!("::{}\"", self.0);
        let template = format!("function=\"\",template=\"{}\"", self.0);
        all.iter().filter(move |(series, _)| {
            let ours = series.contains(&function) || series.contains(&template);
            series.starts_with(&name) && ours
        })
    }
}

/// The sum of a counter over all functions whose names begin so.
pub fn sum(name: &str, functions: &str) -> f64 {
    let (name, functions) = (format!("lockattr_{name}{{"), format!("::{functions}"));
    with_recorded(|recorded| {
        let of = recorded.numbers.iter();
        let of = of.filter(|(series, _)| series.starts_with(&name) && series.contains(&functions));
        of.map(|(_, value)| value).sum()
    })
}

/// Unit and description of each metric, by its name.
pub fn described() -> BTreeMap<String, (String, String)> {
    with_recorded(|recorded| recorded.described.clone())
}

/// Every series there is.
pub fn series() -> Vec<Series> {
    with_recorded(|recorded| {
        let all = recorded.numbers.keys().chain(recorded.samples.keys());
        all.cloned().collect()
    })
}

fn with_recorded<T>(look: impl FnOnce(&Recorded) -> T) -> T {
    let mut recorded = RECORDED.lock().expect("no panic while looking");
    let snapshotter = RECORDER.get().expect("`record` was called");
    // A snapshot takes away what it shows.
    for (key, unit, meaning, value) in snapshotter.snapshot().into_vec() {
        let labels = key.key().labels();
        let labels: Vec<_> = labels
            .map(|label| format!("{}={:?}", label.key(), label.value()))
            .collect();
        let name = key.key().name().to_owned();
        let series = format!("{name}{{{}}}", labels.join(","));
        let unit = unit.map_or("", |unit| unit.as_str()).to_owned();
        let meaning = meaning.unwrap_or_default().to_string();
        let set = name.contains("timestamp");
        recorded.described.insert(name, (unit, meaning));
        match value {
            DebugValue::Counter(more) => {
                let more = u32::try_from(more).expect("tests count less");
                *recorded.numbers.entry(series).or_default() += f64::from(more);
            }
            DebugValue::Gauge(value) if set => {
                let known = recorded.numbers.entry(series).or_default();
                *known = known.max(value.0);
            }
            DebugValue::Gauge(change) => {
                *recorded.numbers.entry(series).or_default() += change.0;
            }
            DebugValue::Histogram(more) => {
                let known = recorded.samples.entry(series).or_default();
                known.extend(more.into_iter().map(|sample| sample.0));
            }
        }
    }
    look(&recorded)
}

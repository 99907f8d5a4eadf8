//! What else the machine is doing.

use std::fs;
use std::thread;
use std::time::Duration;

/// The share of all cores that others use right now.
fn busy() -> Option<f64> {
    let before = times()?;
    thread::sleep(Duration::from_millis(500));
    let after = times()?;
    let (idle, all) = (after.0 - before.0, after.1 - before.1);
    (all > 0.0).then(|| 1.0 - idle / all)
}

/// Idle and all time of all cores, in ticks.
fn times() -> Option<(f64, f64)> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().next()?;
    let ticks = line.split_whitespace().skip(1);
    let ticks: Vec<f64> = ticks.filter_map(|tick| tick.parse().ok()).collect();
    // Waiting for a disk is idle as well.
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((idle, ticks.iter().take(8).sum()))
}

/// A remark where it is enough to spoil the numbers.
pub fn remark() -> Option<String> {
    let busy = busy().filter(|busy| *busy > 0.1)?;
    Some(format!(
        "The machine was not idle: others used {:.0} % of it before this began.",
        busy * 100.0
    ))
}

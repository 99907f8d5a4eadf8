//! The program as people run it, with and without a server.

use tests::printed;

#[test]
fn one_of_four_replicas_runs_each_tick() {
    for lines in printed::everywhere(env!("CARGO_BIN_EXE_with-cron")) {
        let ticks: Vec<_> = lines
            .iter()
            .filter(|line| line.starts_with("tick "))
            .collect();
        assert!(ticks.len() >= 3, "{lines:#?}");
        for line in &ticks {
            let is_one = |replica| line.contains(&format!("[{replica}]"));
            assert!((1..=4).any(is_one), "{lines:#?}");
        }
        assert!(
            ticks.iter().any(|line| line.ends_with("skipped by 3")),
            "{lines:#?}"
        );
    }
}

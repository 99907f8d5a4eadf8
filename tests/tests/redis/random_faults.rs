//! Workers, random faults, and a checker: a short run of what `tests/soak` does for hours.

use std::time::Duration;

use tests::chaos::{self, Plan};

#[test]
fn a_short_run_with_random_faults_breaks_no_rule() {
    let report = chaos::run(&Plan::short());
    println!("{report}");
    report.findings.assert_clean();
    let done = report.findings.outcomes.get("done").copied().unwrap_or(0);
    assert!(done > 50, "{report}");
    assert!(report.findings.within > 5, "{report}");
    assert!(report.left.is_empty(), "{report}");
    assert!(report.faults.values().sum::<usize>() > 3, "{report}");
    assert!(report.took < Duration::from_secs(90), "{report}");
}

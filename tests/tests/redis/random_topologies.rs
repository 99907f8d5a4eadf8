//! Short runs of random faults over every kind of several servers, as `tests/soak` does for hours.

use std::time::Duration;

use tests::chaos::{self, Plan, Report, Topology};

fn run(topology: Topology) -> Report {
    let report = chaos::run(&Plan {
        topology,
        length: Duration::from_secs(7),
        ..Plan::short()
    });
    println!("{report}");
    report.findings.assert_clean();
    assert!(report.findings.bodies > 50, "{report}");
    assert!(report.left.is_empty(), "{report}");
    assert!(report.took < Duration::from_secs(90), "{report}");
    report
}

#[test]
fn failovers_by_sentinels_break_no_rule_outside_of_their_windows() {
    run(Topology::Sentinel);
}

#[test]
fn moved_slots_and_lost_primaries_of_a_cluster_break_no_rule_outside_of_their_windows() {
    run(Topology::Cluster);
}

#[test]
fn a_quorum_breaks_no_rule() {
    let report = run(Topology::Quorum(3));
    assert!(report.findings.windows.overlaps.is_empty(), "{report}");
}

#[test]
fn grants_that_replicas_have_acknowledged_break_no_rule() {
    let report = run(Topology::Replicas);
    assert!(report.findings.windows.overlaps.is_empty(), "{report}");
}

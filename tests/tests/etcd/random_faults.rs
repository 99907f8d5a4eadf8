//! A short run of random faults over a cluster of three, its record checked.

use std::time::Duration;

use tests::chaos::{self, Plan, Topology};

#[test]
fn an_etcd_cluster_breaks_no_rule() {
    let report = chaos::run(&Plan {
        topology: Topology::Etcd,
        length: Duration::from_secs(12),
        ..Plan::short()
    });
    println!("{report}");
    report.findings.assert_clean();
    assert!(report.findings.bodies > 50, "{report}");
    assert!(report.left.is_empty(), "{report}");
    assert!(report.took < Duration::from_secs(90), "{report}");
}

//! What harms locks on the sentinels.

use super::known::KnownSentinels;
use crate::store::inspect::{Finding, Severity};

impl KnownSentinels {
    pub(super) fn findings(&self, service: &str) -> Vec<Finding> {
        let all = self.heard().count();
        let in_trouble: Vec<_> = self
            .heard()
            .filter_map(|(address, trouble)| Some((address, trouble?)))
            .collect();
        let answering = all - in_trouble.len();
        let found = format!("{answering} of {all} sentinels of `{service}` answer");
        let (severity, advice) = if answering * 2 <= all {
            let advice =
                "no majority of them can decide on a failover: have the others answer again";
            (Severity::Warning, advice)
        } else if all < 3 {
            let advice = "run three or more: the failure of one keeps these from a failover";
            (Severity::Advice, advice)
        } else {
            (Severity::Good, "")
        };
        let mut findings = vec![Finding::new("", "sentinels", severity, found, advice)];
        findings.extend(in_trouble.into_iter().map(|(address, trouble)| {
            let advice = "the client goes on with the others";
            Finding::new(
                address.to_string(),
                "sentinels",
                Severity::Warning,
                format!("the sentinel {trouble}"),
                advice,
            )
        }));
        findings
    }
}

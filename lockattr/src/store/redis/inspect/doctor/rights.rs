//! What a client may do, tried step by step as when it connects.

use std::time::Duration;

use super::super::Redis;
use super::told;
use crate::store::Claim;
use crate::store::inspect::{Finding, Severity};

/// Who tries: nobody else has this id.
const OWNER: &str = "00000000000000000000000000000001@diagnosis:0";

/// How long what is tried stays where nothing can be deleted.
const TTL: Duration = Duration::from_secs(10);

impl Redis {
    /// A name of a lock that no other client has.
    pub(in crate::store::redis) fn own_lock(&self) -> String {
        format!("{}:diagnosis", self.names.channel())
    }

    pub(super) async fn tried_rights(&self, part: &str, lock: &str) -> Vec<Finding> {
        let locks = [lock.to_owned()];
        let claim = Claim::new(&locks, OWNER, TTL);
        let mut refused: Vec<(String, String)> = Vec::new();
        for step in self.steps(claim) {
            if let Err(failed) = self.check_step(claim, step).await {
                let told = told(&failed.fault.error);
                // What was refused to be written is not there, which says nothing more.
                let follows = failed.not_kept && !refused.is_empty();
                if !follows && !refused.contains(&told) {
                    refused.push(told);
                }
            }
        }
        let finding = |severity, found: String, advice: &str| {
            Finding::new(part, "rights", severity, found, advice)
        };
        let mut findings: Vec<_> = refused
            .into_iter()
            .map(|(words, advice)| finding(Severity::Fault, words, &advice))
            .collect();
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(self.names.channel()).arg("");
        let published = self.ask_twice(publish).await.map_err(|fault| fault.error);
        for (what, answer) in [
            ("subscribe", self.subscriber.check().await),
            ("publish", published.map(drop)),
        ] {
            if let Err(error) = answer {
                let advice = format!(
                    "grant `+{what}` on the channels under the prefix: callers that wait are not woken without \
                     it, and look again about twice a second"
                );
                findings.push(finding(Severity::Advice, told(&error).0, &advice));
            }
        }
        if findings.is_empty() {
            let found = "every step that a lock takes is allowed";
            findings.push(finding(Severity::Good, found.to_owned(), ""));
        }
        findings
    }
}

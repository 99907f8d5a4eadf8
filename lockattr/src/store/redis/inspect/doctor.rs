//! What harms locks on a server: looked for where it can be found out, and told with what to do.

use std::time::{Instant, SystemTime};

use super::Redis;
use crate::store::inspect::Finding;
use crate::store::redis::fault::Fault;

mod clock;

use clock::TimeAsked;

/// How often the server is asked for its time, one question after the other.
const QUESTIONS: usize = 20;

impl Redis {
    pub(super) async fn diagnosed(&self) -> Result<Vec<Finding>, Fault> {
        let mut asked = Vec::with_capacity(QUESTIONS);
        for _ in 0..QUESTIONS {
            let mut deadline = self.deadline();
            let begun = Instant::now();
            let command = redis::cmd("TIME");
            let answer = self.ask_again(&command, &mut deadline).await?;
            asked.push(TimeAsked {
                answer,
                taken: begun.elapsed(),
                at: SystemTime::now(),
            });
        }
        let part = self.address();
        let findings = [clock::latency(&part, &asked), clock::clock(&part, &asked)];
        Ok(findings.into_iter().flatten().collect())
    }
}

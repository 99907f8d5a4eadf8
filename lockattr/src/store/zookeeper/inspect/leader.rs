//! The time of the leader, which says what remains of marks.

use std::time::{Instant, SystemTime};

use crate::store::zookeeper::fault::Failure;
use crate::store::zookeeper::listing::server_time;
use crate::store::zookeeper::protocol::{Code, NodeKind};
use crate::store::zookeeper::standing::Clock;
use crate::store::zookeeper::step::{ServerTime, Step};

/// Asks for it once.
#[derive(Default)]
pub(super) struct LeadersClock(Option<ServerTime>);

impl Clock for LeadersClock {
    async fn now(&mut self, step: &Step<'_>) -> Result<SystemTime, Failure> {
        let time = match self.0 {
            Some(time) => time,
            None => *self.0.insert(leaders_time(step).await?),
        };
        Ok(time.now())
    }
}

/// The time of the leader, by a node that it makes; this machine's where none may be made.
pub(super) async fn leaders_time(step: &Step<'_>) -> Result<ServerTime, Failure> {
    // No lock has such a name.
    let path = format!("{}/+clock-", step.root);
    let made = step.create(&path, "", NodeKind::EphemeralSequential).await;
    let at = match made {
        Ok((path, stat)) => {
            step.delete(&path).await?;
            server_time(stat.ctime)
        }
        Err(Failure::Refused(Code::NO_AUTH, _)) => SystemTime::now(),
        Err(failure) => return Err(failure),
    };
    let told = Instant::now();
    Ok(ServerTime { at, told })
}

//! What harms locks in a cluster: each member is asked what it says of itself, and what a lock needs is tried.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use super::proto::{MemberList, Status};
use crate::runtime::together::{Boxed, all};
use crate::store::Claim;
use crate::store::etcd::fault::Fault;
use crate::store::etcd::members::{Answer, Found};
use crate::store::etcd::proto::Nothing;
use crate::store::etcd::{Etcd, leases, range};
use crate::store::inspect::{Finding, Severity};

mod of_member;

const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const MEMBER_LIST: &str = "/etcdserverpb.Cluster/MemberList";

/// How often the cluster is asked for a key, one question after the other.
const QUESTIONS: u32 = 20;

/// Slower answers take a part of each lease that matters.
const SLOW: Duration = Duration::from_millis(50);

/// How long what is tried stays where nothing can be deleted.
const TTL: Duration = Duration::from_secs(10);

impl Etcd {
    /// An error where no member answers.
    pub(super) async fn diagnosed(&self) -> Result<Vec<Finding>, Fault> {
        let members = self.0.members.each();
        let asks = members.iter().map(|member| {
            Box::pin(self.status(member.clone())) as Boxed<'_, Result<Status, Fault>>
        });
        let answers = all(asks.collect()).await;
        if let (true, Some(Err(fault))) = (answers.iter().all(Result::is_err), answers.first()) {
            return Err(fault.clone());
        }
        let mut findings = Vec::new();
        let mut leaders = BTreeSet::new();
        for (member, answer) in members.iter().zip(&answers) {
            findings.extend(of_member::findings(&member.name, answer));
            findings.push(of_member::encryption(member));
            leaders.extend(answer.as_ref().map(|status| status.leader));
        }
        findings.push(leader(&leaders));
        findings.push(self.size().await);
        let lock = format!(
            "{}diagnosis:{:x}",
            self.0.names.prefix(),
            leases::new_id().map_err(Fault::last)?
        );
        findings.push(self.latency(&lock).await);
        findings.push(self.rights(lock).await?);
        Ok(findings)
    }

    async fn status(&self, member: Found) -> Result<Status, Fault> {
        let members = self.0.members.clone();
        let patience = members.timeouts().connect + members.timeouts().reply;
        let asking = self.0.members.background().spawn(async move {
            let asking = members.ask_member(&member, STATUS, Nothing {});
            let answer = timeout_at((Instant::now() + patience).into(), asking).await;
            answer.unwrap_or_else(|_| Err(Fault::silent(&member.name, patience)))
        });
        let ended = |_| Fault::nonsense("the client's thread has ended");
        asking.await.map_err(ended)?
    }

    /// How many members there are, and what that means for locks.
    async fn size(&self) -> Finding {
        let members = &self.0.members;
        let asking = members.call(MEMBER_LIST, Nothing {}, members.patience(), drop);
        let list: Result<Answer<MemberList>, Fault> = asking.await;
        let list = match list {
            Ok(answer) => answer.message.members,
            Err(fault) => {
                let found = fault.error.to_string();
                return Finding::new("", "members", Severity::Unknown, found, "");
            }
        };
        size(list.iter().filter(|member| !member.is_learner).count())
    }

    async fn latency(&self, lock: &str) -> Finding {
        let mut taken = Vec::new();
        for _ in 0..QUESTIONS {
            let begun = Instant::now();
            if let Err(fault) = self.read([range(lock.into())]).await {
                let found = fault.error.to_string();
                return Finding::new("", "latency", Severity::Unknown, found, "");
            }
            taken.push(begun.elapsed());
        }
        latency(taken)
    }

    /// Everything that a lock needs, tried as when a client connects.
    async fn rights(&self, lock: String) -> Result<Finding, Fault> {
        let owner = format!(
            "{:032x}@diagnosis:0",
            leases::new_id().map_err(Fault::last)?
        );
        let locks = [lock];
        let checked = self.check_rights(Claim::new(&locks, &owner, TTL)).await;
        let finding =
            |severity, found: &str, advice| Finding::new("", "rights", severity, found, advice);
        Ok(match checked {
            Ok(()) => finding(
                Severity::Good,
                "every step that a lock takes is allowed",
                String::new(),
            ),
            Err(fault) => {
                let told = fault.error.to_string();
                match told.split_once(": the user needs") {
                    Some((words, _)) => finding(
                        Severity::Fault,
                        words,
                        format!(
                            "give the user a role with `etcdctl role grant-permission ROLE readwrite --prefix=true {}`",
                            self.0.names.prefix()
                        ),
                    ),
                    None => finding(
                        Severity::Fault,
                        &told,
                        "no lock can be used without it".to_owned(),
                    ),
                }
            }
        })
    }
}

/// What those members say who leads that have answered.
fn leader(leaders: &BTreeSet<u64>) -> Finding {
    let (severity, found, advice) = if leaders.contains(&0) {
        (
            Severity::Fault,
            "a member has no leader",
            "no lock is granted or renewed by a member that hears of no majority: start the others, or let them reach \
             each other",
        )
    } else if leaders.len() > 1 {
        (
            Severity::Warning,
            "members differ about who leads",
            "ask again: it is so for a moment while one is elected; if it stays so, they are cut off from each other, or \
             the URL names members of two clusters, each of which would grant the same lock",
        )
    } else {
        (Severity::Good, "all that answer follow one leader", "")
    };
    Finding::new("", "leader", severity, found, advice)
}

fn size(voting: usize) -> Finding {
    let may_fail = voting.saturating_sub(1) / 2;
    let found = format!("{voting} vote, of which {may_fail} may be down");
    let (severity, advice) = if may_fail > 0 {
        (Severity::Good, "")
    } else {
        (
            Severity::Advice,
            "use three or more: while one is down no lock is taken, and leases that cannot be renewed are lost at their \
             deadline. A restart loses no lock",
        )
    };
    Finding::new("", "members", severity, found, advice)
}

fn latency(mut taken: Vec<Duration>) -> Finding {
    taken.sort_unstable();
    let median = taken.get(taken.len() / 2).copied().unwrap_or_default();
    let longest = taken.last().copied().unwrap_or_default();
    let found = format!(
        "{} questions were answered in {median:.1?} by the median, in {longest:.1?} at most",
        taken.len()
    );
    let (severity, advice) = if median > SLOW {
        (
            Severity::Advice,
            "each step of a lock takes that long: keep the members near each other, and on fast disks of their own",
        )
    } else {
        (Severity::Good, "")
    };
    Finding::new("", "latency", severity, found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_true_of_all_is_judged() {
        for (leaders, severity) in [
            (vec![7], Severity::Good),
            (vec![7, 8], Severity::Warning),
            (vec![0, 7], Severity::Fault),
        ] {
            assert_eq!(leader(&leaders.into_iter().collect()).severity, severity);
        }
        for (voting, severity) in [
            (1, Severity::Advice),
            (2, Severity::Advice),
            (3, Severity::Good),
        ] {
            assert_eq!(size(voting).severity, severity, "{voting}");
        }
        let of = |millis| latency(vec![Duration::from_millis(millis); 3]).severity;
        assert_eq!((of(1), of(100)), (Severity::Good, Severity::Advice));
    }
}

//! The servers, one by one and as an ensemble.

use crate::store::inspect::{Finding, Severity};

/// So many requests that wait in a server are no more than a moment's.
const MANY_WAITING: u64 = 100;

/// The first version that knows containers.
const OLDEST: [u64; 3] = [3, 5, 3];

/// A server of the URL.
pub(super) struct Member {
    /// Its address.
    pub(super) part: String,
    /// What it has answered to `srvr`, or why it has not.
    pub(super) answer: Result<String, String>,
}

/// All of them.
pub(super) struct Members {
    members: Vec<Member>,
    /// How many vote, as the servers say it; none where there is one server that has no others.
    voters: Option<usize>,
}

impl Members {
    /// `config` is the servers' own list.
    pub(super) fn new(members: Vec<Member>, config: Option<&str>) -> Self {
        let may_vote = |line: &&str| line.starts_with("server.") && !line.contains(":observer");
        let voters = config.map(|config| config.lines().filter(may_vote).count());
        Self { members, voters }
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<_> = self.members.iter().map(server).collect();
        findings.extend(self.members.iter().filter_map(load));
        findings.push(self.ensemble());
        findings
    }

    fn ensemble(&self) -> Finding {
        let named = self.members.len();
        let (severity, found, advice) = match self.voters {
            _ if self.modes().any(|mode| mode == "standalone") => (
                Severity::Advice,
                "there is one server: while it is away no lock is granted, and what is held ends with its session"
                    .to_owned(),
                "use an ensemble of three servers or five",
            ),
            None => (
                Severity::Unknown,
                "the servers do not say how many they are (`/zookeeper/config`)".to_owned(),
                "give the user of the URL the right to read that node",
            ),
            Some(voters) if voters.is_multiple_of(2) => (
                Severity::Advice,
                format!("{voters} servers vote, which survive the loss of no more than one fewer would"),
                "use three servers or five",
            ),
            Some(voters) if named < voters && named <= voters / 2 => (
                Severity::Advice,
                format!("{voters} servers vote, and the URL names {named}: no other is tried where these are away"),
                "name all of them in the URL",
            ),
            Some(voters) => (
                Severity::Good,
                format!(
                    "{voters} servers vote: locks and sessions survive the loss of {}, the leader included",
                    voters.saturating_sub(1) / 2
                ),
                "",
            ),
        };
        Finding::new("", "ensemble", severity, found, advice)
    }

    fn modes(&self) -> impl Iterator<Item = &str> {
        let answers = self
            .members
            .iter()
            .filter_map(|member| member.answer.as_deref().ok());
        answers.filter_map(|answer| value(answer, "Mode"))
    }
}

fn server(member: &Member) -> Finding {
    let (severity, found, advice) = match &member.answer {
        Err(why) => (
            Severity::Warning,
            format!("it does not answer: {why}"),
            "start it: a majority of the servers has to be there, and with each that is away fewer may be lost",
        ),
        Ok(answer) if answer.contains("not in the whitelist") => (
            Severity::Unknown,
            "it does not say how it is".to_owned(),
            "allow `srvr` (`4lw.commands.whitelist=srvr`)",
        ),
        Ok(answer) => match (value(answer, "Zookeeper version"), value(answer, "Mode")) {
            (Some(version), Some(mode)) => {
                let number = version.split('-').next().unwrap_or(version);
                let (severity, advice) = match numbers(number) {
                    Some(numbers) if numbers < OLDEST => {
                        (Severity::Fault, "use 3.5.3 or a later version, which knows containers")
                    }
                    _ => (Severity::Good, ""),
                };
                (severity, format!("ZooKeeper {number}, {mode}"), advice)
            }
            _ => (
                Severity::Warning,
                "it runs, and serves nobody: it sees no majority of the others, or is about to start".to_owned(),
                "look into its log, and whether it reaches the others on their ports for peers and elections",
            ),
        },
    };
    Finding::new(&member.part, "server", severity, found, advice)
}

/// `None` where a server does not say it.
fn load(member: &Member) -> Option<Finding> {
    let answer = member.answer.as_deref().ok()?;
    let waiting: u64 = value(answer, "Outstanding")?.parse().ok()?;
    let connections = value(answer, "Connections")?;
    let found = format!("{waiting} requests wait, {connections} connections");
    let (severity, advice) = if waiting > MANY_WAITING {
        (
            Severity::Advice,
            "look for slow disks, garbage collections and busy clients",
        )
    } else {
        (Severity::Good, "")
    };
    Some(Finding::new(&member.part, "load", severity, found, advice))
}

/// A line of an answer.
fn value<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = answer.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(found, _)| *found == name)?;
    Some(value.trim())
}

fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut numbers = version.split('.').map(|part| part.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(answer: Result<&str, &str>) -> Member {
        let answer = answer.map(str::to_owned).map_err(str::to_owned);
        let part = "zk-1:2181".to_owned();
        Member { part, answer }
    }

    fn srvr(version: &str, mode: &str, waiting: u64) -> String {
        format!(
            "Zookeeper version: {version}-1, built on x\nConnections: 2\nOutstanding: {waiting}\nMode: {mode}\n"
        )
    }

    #[test]
    fn each_server_is_told_by_what_it_says() {
        for (answer, severity) in [
            (Ok(srvr("3.8.0", "follower", 0)), Severity::Good),
            (Ok(srvr("3.4.14", "follower", 0)), Severity::Fault),
            (Ok(srvr("3.5.2", "follower", 0)), Severity::Fault),
            (
                Ok("This ZooKeeper instance is not currently serving requests".to_owned()),
                Severity::Warning,
            ),
            (
                Ok("srvr is not executed because it is not in the whitelist.".to_owned()),
                Severity::Unknown,
            ),
            (Err("refused".to_owned()), Severity::Warning),
        ] {
            let member = member(answer.as_deref().map_err(String::as_str));
            let finding = server(&member);
            assert_eq!(finding.severity, severity, "{finding:?}");
            assert_eq!(finding.advice.is_empty(), severity == Severity::Good);
        }
        let busy = srvr("3.8.0", "leader", 500);
        let load = load(&member(Ok(&busy))).map(|finding| finding.severity);
        assert_eq!(load, Some(Severity::Advice));
    }

    #[test]
    fn an_ensemble_is_told_by_those_who_vote() {
        let line = |id: u32| format!("server.{id}=zk-{id}:2888:3888:participant");
        let config = |voters| (1..=voters).map(line).collect::<Vec<_>>().join("\n");
        let observed = format!("{}\nserver.9=zk-9:2888:3888:observer\nversion=0", config(3));
        for (named, mode, config, severity) in [
            (1, "standalone", Some(String::new()), Severity::Advice),
            (3, "follower", Some(observed), Severity::Good),
            (2, "follower", Some(config(3)), Severity::Good),
            (1, "follower", Some(config(3)), Severity::Advice),
            (4, "follower", Some(config(4)), Severity::Advice),
            (3, "follower", None, Severity::Unknown),
        ] {
            let answer = srvr("3.8.0", mode, 0);
            let members = (0..named).map(|_| member(Ok(&answer))).collect();
            let ensemble = Members::new(members, config.as_deref()).ensemble();
            assert_eq!(ensemble.severity, severity, "{ensemble:?}");
        }
    }
}

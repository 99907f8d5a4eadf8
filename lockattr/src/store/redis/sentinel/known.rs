//! What the sentinels say, and what follows from it: pure, so that it can be tried by tests.
//!
//! Sentinels may disagree: one that was stopped over a failover, or is cut off with the old primary, names
//! the old one. Each failover has a number, the config epoch, and the newest one counts. An older word
//! counts where most sentinels have it, since one that lies cannot outvote the others. Whichever of these
//! is the primary is asked itself, by ROLE, before it is used.

use std::fmt::Write;

use super::suggestion;
use crate::store::redis::addresses::Address;

/// The most sentinels that are asked.
const MOST: usize = 32;

/// The most services, and sentinels with trouble, that an error names.
const MOST_NAMED: usize = 8;

/// The sentinels, and the primary that was found.
#[derive(Debug, Default)]
pub(super) struct KnownSentinels {
    sentinels: Vec<Sentinel>,
    primary: Option<Named>,
}

#[derive(Debug)]
struct Sentinel {
    address: Address,
    /// Whether the URL names it, or it has answered: others may be out of reach for good.
    counts: bool,
    /// The round of its last word, from 1 on.
    round: u64,
    word: Option<Result<Report, Trouble>>,
}

/// A server that is the primary by some failover.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    address: Address,
    epoch: u64,
}

/// What a sentinel says of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) primary: Address,
    /// The number of the failover that made it the primary.
    pub(super) epoch: u64,
    /// How many other sentinels it knows.
    pub(super) others: usize,
}

/// Why a sentinel does not name a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It knows no such service, but these.
    NoSuchService(Vec<String>),
    /// In words that follow "the sentinel at …".
    Other(String),
}

impl KnownSentinels {
    pub(super) fn new(given: &[Address]) -> Self {
        let mut known = Self::default();
        known.add(given, true);
        known
    }

    /// Adds sentinels, and says which are new.
    pub(super) fn add(&mut self, addresses: &[Address], counts: bool) -> Vec<Address> {
        let mut new = Vec::new();
        for address in addresses {
            let is_known = self.sentinels.iter().any(|known| known.address == *address);
            if !is_known && self.sentinels.len() < MOST {
                new.push(address.clone());
                self.sentinels.push(Sentinel {
                    address: address.clone(),
                    counts,
                    round: 0,
                    word: None,
                });
            }
        }
        new
    }

    pub(super) fn addresses(&self) -> Vec<Address> {
        let addresses = self
            .sentinels
            .iter()
            .map(|sentinel| sentinel.address.clone());
        addresses.collect()
    }

    /// All sentinels that count, and what is wrong with each, in words that follow "the sentinel at …".
    #[cfg(feature = "inspect")]
    pub(super) fn heard(&self) -> impl Iterator<Item = (&Address, Option<&str>)> {
        let counting = self.sentinels.iter().filter(|sentinel| sentinel.counts);
        counting.map(|sentinel| {
            let trouble = match &sentinel.word {
                Some(Ok(_)) => None,
                Some(Err(Trouble::Other(why))) => Some(why.as_str()),
                Some(Err(Trouble::NoSuchService(_))) => Some("does not know the service"),
                None => Some("does not answer"),
            };
            (&sentinel.address, trouble)
        })
    }

    /// Whether there are sentinels that are not known yet.
    pub(super) fn lacks(&self, report: &Report) -> bool {
        self.sentinels.len() < MOST.min(report.others + 1)
    }

    pub(super) fn hear(&mut self, from: &Address, round: u64, word: Result<Report, Trouble>) {
        let mut sentinels = self.sentinels.iter_mut();
        if let Some(sentinel) = sentinels.find(|sentinel| sentinel.address == *from) {
            sentinel.counts |= word.is_ok();
            sentinel.round = round;
            sentinel.word = Some(word);
        }
    }

    /// The server at that address was found to be the primary. `None` where it is no candidate any more,
    /// and otherwise whether another was the primary before.
    pub(super) fn found(&mut self, primary: &Address) -> Option<bool> {
        let found = self
            .candidates()
            .into_iter()
            .find(|candidate| candidate.address == *primary)?;
        let before = self.primary.replace(found);
        Some(before.is_some_and(|before| before.address != *primary))
    }

    /// Whether another server than the one that was found may be the primary now.
    pub(super) fn is_in_question(&self) -> bool {
        let best = self.candidates().into_iter().next();
        self.primary
            .as_ref()
            .is_some_and(|primary| best.is_some_and(|best| best.address != primary.address))
    }

    /// Whether that server is the likeliest primary, and was found to be it.
    pub(super) fn is_primary(&self, address: &Address) -> bool {
        let found = self.primary.as_ref();
        found.is_some_and(|found| found.address == *address) && !self.is_in_question()
    }

    pub(super) fn has_primary(&self) -> bool {
        self.primary.is_some()
    }

    /// The servers that may be the primary, the likeliest first.
    pub(super) fn likeliest(&self) -> Vec<Address> {
        let candidates = self.candidates().into_iter();
        candidates.map(|candidate| candidate.address).collect()
    }

    fn candidates(&self) -> Vec<Named> {
        let mut votes: Vec<(Named, usize)> = Vec::new();
        for report in self.reports() {
            let address = &report.primary;
            match votes
                .iter_mut()
                .find(|(named, _)| named.address == *address)
            {
                Some((named, count)) => {
                    named.epoch = named.epoch.max(report.epoch);
                    *count += 1;
                }
                None => votes.push((
                    Named {
                        address: address.clone(),
                        epoch: report.epoch,
                    },
                    1,
                )),
            }
        }
        let outvoted = votes.iter().any(|(_, count)| self.is_majority(*count));
        if let Some(primary) = &self.primary {
            match votes
                .iter_mut()
                .find(|(named, _)| named.address == primary.address)
            {
                Some((named, _)) => named.epoch = named.epoch.max(primary.epoch),
                // Nobody names it any more: it counts while there is no majority for another.
                None if !outvoted => votes.push((primary.clone(), 0)),
                None => {}
            }
        }
        let newest = votes.iter().map(|(named, _)| named.epoch).max();
        votes.retain(|(named, count)| Some(named.epoch) == newest || self.is_majority(*count));
        votes.sort_by_key(|(named, count)| std::cmp::Reverse((named.epoch, *count)));
        votes.into_iter().map(|(named, _)| named).collect()
    }

    /// Whether it is no use to wait for the words of this round that are missing.
    pub(super) fn is_settled(&self, round: u64) -> bool {
        let counting = || self.sentinels.iter().filter(|sentinel| sentinel.counts);
        if counting().all(|sentinel| sentinel.round >= round) {
            return true;
        }
        let candidates = self.candidates();
        let Some(best) = candidates.first() else {
            return false;
        };
        let heard = counting().filter(|sentinel| sentinel.round >= round);
        let reports = heard.filter_map(|sentinel| sentinel.word.as_ref()?.as_ref().ok());
        self.is_majority(
            reports
                .filter(|report| report.primary == best.address)
                .count(),
        )
    }

    fn is_majority(&self, count: usize) -> bool {
        let all = self.sentinels.iter().filter(|sentinel| sentinel.counts);
        count * 2 > all.count()
    }

    fn reports(&self) -> impl Iterator<Item = &Report> {
        let words = self
            .sentinels
            .iter()
            .filter_map(|sentinel| sentinel.word.as_ref());
        words.filter_map(|word| word.as_ref().ok())
    }

    /// Why nobody names a primary, in one line.
    pub(super) fn trouble(&self, service: &str) -> String {
        let mut services: Vec<&str> = Vec::new();
        let mut is_unknown = false;
        let mut told: Vec<(&str, Vec<String>)> = Vec::new();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.counts) {
            match &sentinel.word {
                Some(Err(Trouble::NoSuchService(known))) => {
                    is_unknown = true;
                    services.extend(known.iter().map(String::as_str));
                }
                Some(Ok(_)) => {}
                other => {
                    let why = match other {
                        Some(Err(Trouble::Other(why))) => why,
                        _ => "does not answer",
                    };
                    let at = sentinel.address.to_string();
                    match told.iter_mut().find(|(before, _)| *before == why) {
                        Some((_, addresses)) => addresses.push(at),
                        None => told.push((why, vec![at])),
                    }
                }
            }
        }
        let mut line = String::new();
        if is_unknown {
            services.sort_unstable();
            services.dedup();
            let nearest = suggestion::nearest(service, services.iter().copied());
            services.truncate(MOST_NAMED);
            let _ = write!(
                line,
                "the sentinels know no service `{service}`, but {}",
                suggestion::list(services)
            );
            if let Some(nearest) = nearest {
                let _ = write!(line, ": is `{nearest}` meant?");
            }
        }
        for (why, mut addresses) in told {
            if !line.is_empty() {
                line.push_str("; ");
            }
            addresses.truncate(MOST_NAMED);
            let _ = match addresses.split_first() {
                Some((first, others)) if !others.is_empty() => {
                    let others = others.join(", ");
                    write!(
                        line,
                        "the sentinel at {first}, like that at {others}, {why}"
                    )
                }
                _ => write!(line, "the sentinel at {} {why}", addresses.join(", ")),
            };
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &str) -> Address {
        Address {
            host: name.to_owned(),
            port: 1,
        }
    }

    /// Three sentinels, and what each says in round 1: a primary and an epoch, or nothing yet.
    fn known(words: [Option<(&str, u64)>; 3]) -> KnownSentinels {
        let given = ["s1", "s2", "s3"].map(address);
        let mut known = KnownSentinels::new(&given);
        for (from, word) in given.iter().zip(words) {
            if let Some((primary, epoch)) = word {
                let report = Report {
                    primary: address(primary),
                    epoch,
                    others: 2,
                };
                known.hear(from, 1, Ok(report));
            }
        }
        known
    }

    fn likeliest(known: &KnownSentinels) -> Vec<String> {
        let likeliest = known.likeliest();
        likeliest.into_iter().map(|address| address.host).collect()
    }

    #[test]
    fn the_newest_failover_counts_and_an_older_word_where_most_have_it() {
        let (old, new) = (Some(("old", 1)), Some(("new", 2)));
        for (words, expected) in [
            ([old, new, new], &["new"] as &[_]),
            ([old, new, None], &["new"]),
            ([new, old, old], &["new", "old"]),
            ([old, old, old], &["old"]),
            ([old, None, None], &["old"]),
            ([None, None, None], &[]),
        ] {
            assert_eq!(likeliest(&known(words)), expected, "{words:?}");
        }
    }

    #[test]
    fn nobody_is_waited_for_once_most_agree_on_the_newest() {
        let (old, new) = (Some(("old", 1)), Some(("new", 2)));
        for (words, settled) in [
            ([new, new, None], true),
            ([None, new, new], true),
            ([old, new, None], false),
            ([old, old, None], true),
            ([old, new, new], true),
            ([old, new, old], true),
            ([new, None, None], false),
        ] {
            assert_eq!(known(words).is_settled(1), settled, "{words:?}");
            assert!(!known(words).is_settled(2), "{words:?}");
        }
    }

    #[test]
    fn a_stale_word_does_not_lead_back() {
        let (old, new) = (Some(("old", 1)), Some(("new", 2)));
        let mut found = known([new, new, old]);
        assert_eq!(found.found(&address("new")), Some(false));
        for sentinel in ["s1", "s2"] {
            found.hear(&address(sentinel), 2, Err(Trouble::Other(String::new())));
        }
        // The one that is left has slept.
        assert_eq!(likeliest(&found), ["new"]);
        assert!(!found.is_in_question());
        assert_eq!(found.found(&address("old")), None);
        // The primary of a service that was set up anew has a lower number.
        let anew = Report {
            primary: address("anew"),
            epoch: 0,
            others: 2,
        };
        for sentinel in ["s1", "s2"] {
            found.hear(&address(sentinel), 3, Ok(anew.clone()));
        }
        assert!(found.is_in_question());
        assert!(likeliest(&found).contains(&"anew".to_owned()));
        assert_eq!(found.found(&address("anew")), Some(true));
    }

    #[test]
    fn sentinels_that_are_out_of_reach_do_not_count() {
        let mut one = KnownSentinels::new(&[address("s1")]);
        let report = Report {
            primary: address("main"),
            epoch: 1,
            others: 2,
        };
        assert!(one.lacks(&report));
        let others = [address("s2"), address("s3")];
        assert_eq!(one.add(&others, false), others);
        assert!(one.add(&others, false).is_empty() && !one.lacks(&report));
        one.hear(&address("s1"), 1, Ok(report));
        assert!(one.is_settled(1));
    }

    #[test]
    fn trouble_is_told_in_one_line() {
        let mut one = known([None, None, Some(("main", 1))]);
        let services = ["mymaster", "cache"].map(str::to_owned).to_vec();
        one.hear(&address("s1"), 1, Err(Trouble::NoSuchService(services)));
        assert_eq!(
            one.trouble("mymastr"),
            "the sentinels know no service `mymastr`, but `cache` and `mymaster`: is `mymaster` meant?; \
             the sentinel at s2:1 does not answer"
        );
    }
}

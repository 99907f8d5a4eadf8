//! What one node says of its cluster: which node keeps which hash slots.

use redis::{ConnectionAddr, Value};

use super::slots::SLOTS;
use crate::store::redis::Redis;
use crate::store::redis::addresses::Address;
use crate::store::redis::reply::{integer, text};
use crate::store::redis::target::Target;

/// Where this node is reached.
pub(super) fn address_of(node: &Redis) -> Option<Address> {
    node.connections.server().fixed().map(address_at)
}

/// Where this server is reached.
pub(super) fn address_at(target: &Target) -> Address {
    match target.address() {
        ConnectionAddr::Tcp(host, port) => Address {
            host: host.clone(),
            port: *port,
        },
        // The nodes of a cluster are reached over TCP alone, and TLS is not left to the redis client.
        other => Address {
            host: other.to_string(),
            port: 0,
        },
    }
}

/// What a node has answered to `CLUSTER SLOTS` and `CLUSTER INFO`.
pub(super) struct View {
    pub(super) rank: Rank,
    pub(super) ranges: Vec<Range>,
}

/// Which of two views is to be believed: that of a node which sees the cluster work, and has heard of
/// the latest change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) works: bool,
    pub(super) epoch: u64,
}

/// Hash slots in a row that one node keeps.
pub(super) struct Range {
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) primary: Address,
    pub(super) replicas: Vec<Address>,
}

impl View {
    /// Reads what the node at `from` has answered. Ranges of which it cannot say who keeps them are left
    /// out; `None` where the answer makes no sense.
    pub(super) fn read(
        slots: &Value,
        info: &Value,
        from: &Address,
        mapped: impl Fn(Address) -> Address,
    ) -> Option<Self> {
        let Value::Array(ranges) = slots else {
            return None;
        };
        let at = |node: &Value| address(node, from).map(&mapped);
        let mut known = Vec::with_capacity(ranges.len());
        for range in ranges {
            let Value::Array(parts) = range else {
                return None;
            };
            let [first, last, primary, replicas @ ..] = parts.as_slice() else {
                return None;
            };
            let number = |value| usize::try_from(integer(value)?).ok();
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= SLOTS {
                return None;
            }
            if let Some(primary) = at(primary) {
                known.push(Range {
                    first,
                    last,
                    primary,
                    replicas: replicas.iter().filter_map(at).collect(),
                });
            }
        }
        Some(Self {
            rank: rank(&text(info)?),
            ranges: known,
        })
    }
}

/// Where a node is: at the host that has answered where none is named, and nowhere where it is unknown.
fn address(node: &Value, from: &Address) -> Option<Address> {
    let Value::Array(parts) = node else {
        return None;
    };
    let [host, port, ..] = parts.as_slice() else {
        return None;
    };
    let host = match host {
        Value::Nil => String::new(),
        host => text(host)?,
    };
    let port = u16::try_from(integer(port)?).ok()?;
    located(&host, port, from)
}

/// The address that a node names.
pub(super) fn located(host: &str, port: u16, from: &Address) -> Option<Address> {
    let host = match host {
        "?" => return None,
        "" => &from.host,
        host => host,
    };
    Some(Address {
        host: host.to_owned(),
        port,
    })
}

fn rank(info: &str) -> Rank {
    let value = |name: &str| {
        info.lines()
            .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
    };
    Rank {
        works: value("cluster_state") == Some("ok"),
        epoch: value("cluster_current_epoch")
            .and_then(|epoch| epoch.parse().ok())
            .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, hosts: &[Value]) -> Value {
        let mut parts = vec![Value::Int(first), Value::Int(last)];
        for host in hosts {
            let id = bulk("07c37dfeb235213a872192d90877d0cd55635b91");
            parts.push(Value::Array(vec![host.clone(), Value::Int(7001), id]));
        }
        Value::Array(parts)
    }

    fn view(ranges: Vec<Value>) -> Option<View> {
        let info = bulk("cluster_state:ok\r\ncluster_current_epoch:6\r\n");
        let from = Address {
            host: "seed".to_owned(),
            port: 6379,
        };
        View::read(&Value::Array(ranges), &info, &from, |address| address)
    }

    #[test]
    fn a_node_that_names_no_host_is_where_the_answer_came_from() {
        let ranges = vec![
            range(0, 99, &[bulk(""), bulk("a")]),
            range(100, 199, &[Value::Nil]),
            range(200, 299, &[bulk("?"), bulk("b")]),
            range(300, 16383, &[bulk("c"), bulk("?")]),
        ];
        let view = view(ranges).expect("a view");
        let works = true;
        assert_eq!(view.rank, Rank { works, epoch: 6 });
        let hosts: Vec<_> = view
            .ranges
            .iter()
            .map(|range| {
                (
                    range.first,
                    range.primary.host.as_str(),
                    range.replicas.len(),
                )
            })
            .collect();
        assert_eq!(hosts, [(0, "seed", 1), (100, "seed", 0), (300, "c", 0)]);
    }

    #[test]
    fn what_makes_no_sense_is_no_view() {
        assert!(view(vec![Value::Int(1)]).is_none());
        assert!(view(vec![range(7, 3, &[bulk("a")])]).is_none());
        assert!(view(vec![range(0, 16384, &[bulk("a")])]).is_none());
    }

    #[test]
    fn a_view_of_a_later_epoch_is_believed_unless_the_cluster_is_down_there() {
        let rank = |works, epoch| Rank { works, epoch };
        assert!(rank(true, 3) > rank(true, 2));
        assert!(rank(true, 2) > rank(false, 9));
    }
}

//! What harms locks on a cluster: on each node that keeps hash slots, and among the nodes.

use redis::Value;

use super::super::Cluster;
use super::super::slots::slot_of;
use crate::error::StoreError;
use crate::runtime::together::{Boxed, all};
use crate::store::inspect::{Finding, Severity};
use crate::store::redis::fault::Fault;
use crate::store::redis::reply::text;

impl Cluster {
    /// An error where no node answers.
    pub(super) async fn diagnosed(&self) -> Result<Vec<Finding>, StoreError> {
        let claims = self.slot_claims().await.map_err(|fault| fault.error)?;
        let nodes = self.nodes.primaries();
        let own = nodes
            .first()
            .map(|node| node.own_lock())
            .unwrap_or_default();
        let locks = self.one_for_each_node(&own);
        let answers = nodes.iter().map(|node| {
            let is_there = |lock: &&String| {
                let keeper = self.nodes.of_slot(slot_of(lock));
                keeper.is_some_and(|keeper| keeper.is(node))
            };
            let lock = locks.iter().find(is_there).unwrap_or(&own);
            Box::pin(node.diagnosed(lock)) as Boxed<'_, Result<Vec<Finding>, Fault>>
        });
        let answers = all(answers.collect()).await;
        if let (true, Some(Err(fault))) = (answers.iter().all(Result::is_err), answers.first()) {
            return Err(fault.error.clone());
        }
        let mut findings = Vec::new();
        for (node, answer) in nodes.iter().zip(answers) {
            match answer {
                Ok(of_node) => findings.extend(of_node),
                Err(fault) => findings.push(Finding::new(
                    node.address(),
                    "server",
                    Severity::Fault,
                    fault.error.to_string(),
                    "the locks of its hash slots are unavailable until it, or a replica of it, answers",
                )),
            }
        }
        for (node, _) in claims.nodes.values() {
            let mut command = redis::cmd("CLUSTER");
            command.arg("INFO");
            let mut deadline = node.deadline();
            match node.connections.ask(command, &mut deadline).await {
                Ok((answer, _)) => findings.push(state(&node.address(), &answer)),
                Err(fault) => findings.push(Finding::new(
                    node.address(),
                    "cluster",
                    Severity::Unknown,
                    fault.error.to_string(),
                    "",
                )),
            }
        }
        if !self.nodes.are_all_kept() {
            findings.push(Finding::new(
                "",
                "hash slots",
                Severity::Fault,
                "no node keeps some of the hash slots",
                "give them to a node (`redis-cli --cluster fix`): their locks are unavailable",
            ));
        }
        Ok(findings)
    }
}

/// What a node says of the cluster.
fn state(part: &str, info: &Value) -> Finding {
    let info = text(info).unwrap_or_default();
    let value = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
    };
    let number = |name: &str| value(name).and_then(|value| value.parse::<u32>().ok());
    let failing = number("cluster_slots_fail").unwrap_or(0);
    let doubtful = number("cluster_slots_pfail").unwrap_or(0);
    let (severity, found, advice) = if value("cluster_state") != Some("ok") {
        (
            Severity::Fault,
            "the cluster is down as this node sees it".to_owned(),
            "look at `CLUSTER NODES`: it answers for no lock until its nodes answer one another",
        )
    } else if failing + doubtful > 0 {
        (
            Severity::Warning,
            format!(
                "the nodes of {} hash slots do not answer",
                failing + doubtful
            ),
            "look at `CLUSTER NODES`: the locks of these hash slots are unavailable until a replica takes over",
        )
    } else {
        let size = number("cluster_size").unwrap_or(0);
        let found =
            format!("the cluster works as this node sees it, of {size} nodes with hash slots");
        (Severity::Good, found, "")
    };
    Finding::new(part, "cluster", severity, found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_is_down_or_lacks_a_node_is_told() {
        for (info, severity) in [
            ("cluster_state:ok\r\ncluster_size:3\r\n", Severity::Good),
            (
                "cluster_state:ok\r\ncluster_slots_pfail:7\r\n",
                Severity::Warning,
            ),
            ("cluster_state:fail\r\n", Severity::Fault),
        ] {
            let info = Value::BulkString(info.as_bytes().to_vec());
            assert_eq!(state("", &info).severity, severity);
        }
    }
}

//! What harms locks on a cluster: on each node that keeps hash slots, and among the nodes.

use super::super::Cluster;
use crate::error::StoreError;
use crate::store::inspect::Finding;

impl Cluster {
    pub(super) async fn diagnosed(&self) -> Result<Vec<Finding>, StoreError> {
        let mut findings = Vec::new();
        for node in self.nodes.primaries() {
            findings.extend(node.diagnosed().await.map_err(|fault| fault.error)?);
        }
        Ok(findings)
    }
}

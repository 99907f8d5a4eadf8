//! The promises of the trait, on three and five stores in memory.

use std::sync::Arc;

use super::super::Store;
use super::super::memory::Memory;
use super::Quorum;
use crate::runtime::background::Background;

#[cfg(feature = "conformance")]
#[tokio::test(start_paused = true)]
async fn a_quorum_keeps_the_promises_of_a_store() {
    use crate::store::conformance;

    let background = Background::start().expect("a thread");
    for nodes in [3, 4, 5] {
        let stores = || (0..nodes).map(|_| Arc::new(Memory::new()) as Arc<dyn Store>);
        conformance::check(async || Quorum::new(stores().collect(), &background)).await;
    }
}

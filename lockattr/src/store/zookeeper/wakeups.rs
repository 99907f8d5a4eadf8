//! Wake-ups of one claim: what it waits for was deleted or has changed, and it is to look again.

use std::task::{Context, Poll};

use super::ZooKeeper;
use crate::store::{WakeUp, WakeUps};

pub(super) struct OfOwner<'a> {
    store: &'a ZooKeeper,
    owner: String,
}

impl<'a> OfOwner<'a> {
    pub(super) fn new(store: &'a ZooKeeper, owner: &str) -> Self {
        store.session.claims().listen(owner);
        let owner = owner.to_owned();
        Self { store, owner }
    }
}

impl WakeUps for OfOwner<'_> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WakeUp> {
        self.store.session.claims().next_wakeup(&self.owner, cx)
    }
}

impl Drop for OfOwner<'_> {
    fn drop(&mut self) {
        self.store.session.claims().close_inbox(&self.owner);
    }
}

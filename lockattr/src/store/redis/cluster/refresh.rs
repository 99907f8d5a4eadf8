//! Asking the nodes of a cluster which of them keep which hash slots.
//!
//! One look serves everybody who needs one at the same time. It is made over the connections for
//! renewals, in the background, so that no caller's end breaks it off. All who may know are asked at the
//! same time, and a node that is silent delays nobody: the answers that come soon after the first one
//! are compared, and the latest view is believed.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::nodes::Nodes;
use super::view::View;
use crate::error::StoreError;
use crate::runtime::together::{Boxed, all};
use crate::store::redis::addresses::Address;
use crate::store::redis::fault::Fault;

/// How long further answers are waited for after the first one of a node for which the cluster works.
const GRACE: Duration = Duration::from_millis(30);

/// Where nobody has answered by then, replicas and nodes of the past are asked as well.
const OTHERS_AFTER: Duration = Duration::from_millis(150);

/// How long at least there is between two looks.
const PAUSE: Duration = Duration::from_millis(25);

/// What a server says that is no node of a cluster, and what to do then.
const NO_CLUSTER: &str = "cluster support disabled";
const ADVICE: &str = " (it is a single server: write redis:// in place of redis+cluster://, or rediss:// in place \
                      of rediss+cluster://)";

/// How a look has ended, once it has.
type RefreshOutcome = Option<Result<(), Fault>>;

/// The latest look.
#[derive(Default)]
pub(super) struct Refresh {
    latest: Option<watch::Receiver<RefreshOutcome>>,
}

impl Nodes {
    /// Looks at who keeps what, unless that is being done.
    pub(super) fn refresh(self: &Arc<Self>) -> watch::Receiver<RefreshOutcome> {
        let mut refresh = self.refresh.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(latest) = &refresh.latest
            && latest.borrow().is_none()
            && latest.has_changed().is_ok()
        {
            return latest.clone();
        }
        let (tell, latest) = watch::channel(None);
        let before = refresh.latest.replace(latest.clone());
        drop(refresh);
        let nodes = Arc::downgrade(self);
        self.background.spawn(async move {
            if before.is_some() {
                sleep(PAUSE).await;
            }
            if let Some(nodes) = nodes.upgrade() {
                let outcome = nodes.look().await;
                let _ = tell.send(Some(outcome));
            }
        });
        latest
    }

    async fn look(self: &Arc<Self>) -> Result<(), Fault> {
        let (first, mut others) = self.to_ask();
        let mut asking = JoinSet::new();
        self.ask_for_views(&mut asking, first);
        let mut views: Vec<View> = Vec::new();
        let mut faults = Vec::new();
        let mut last = None;
        loop {
            let patience = match last {
                Some(last) => Instant::now().max(last) - Instant::now(),
                None if !others.is_empty() => OTHERS_AFTER,
                None => Duration::MAX,
            };
            match timeout(patience, asking.join_next()).await {
                Ok(Some(Ok(Ok(view)))) => {
                    if view.rank.works && last.is_none() {
                        last = Some(Instant::now() + GRACE);
                    }
                    views.push(view);
                }
                Ok(Some(Ok(Err(fault)))) => faults.push(fault),
                Ok(Some(Err(_))) => {}
                Ok(None) if others.is_empty() || last.is_some() => break,
                Err(_) if last.is_some() => break,
                Ok(None) | Err(_) => self.ask_for_views(&mut asking, std::mem::take(&mut others)),
            }
        }
        if views.is_empty() {
            // What a server refuses says more than that others cannot be reached.
            faults.sort_by_key(|fault: &Fault| fault.soon);
            let fault = faults.into_iter().next();
            return Err(fault
                .unwrap_or_else(|| Fault::last(StoreError::refused("the cluster has no nodes"))));
        }
        views.sort_by_key(|view| std::cmp::Reverse(view.rank));
        self.believe(&views);
        Ok(())
    }

    fn ask_for_views(
        self: &Arc<Self>,
        asking: &mut JoinSet<Result<View, Fault>>,
        addresses: Vec<Address>,
    ) {
        for address in addresses {
            let nodes = Arc::clone(self);
            asking.spawn(async move { nodes.view(address).await });
        }
    }

    /// What the node at this address says.
    async fn view(&self, address: Address) -> Result<View, Fault> {
        let redis = self.at(&address);
        let ask = |word: &'static str| {
            let mut command = redis::cmd("CLUSTER");
            command.arg(word);
            let answer = redis.watchdog.ask(command, self.reply_timeout());
            Box::pin(async move { answer.await.map(|(answer, _)| answer) })
                as Boxed<'_, Result<Value, Fault>>
        };
        let mut answers = all(vec![ask("SLOTS"), ask("INFO")]).await.into_iter();
        let [Some(slots), Some(info)] = [answers.next(), answers.next()] else {
            unreachable!("two futures have two outputs");
        };
        let told = |fault: Fault| fault.of_node(&redis.address()).advised(NO_CLUSTER, ADVICE);
        let (slots, info) = (slots.map_err(told)?, info.map_err(told)?);
        View::read(&slots, &info, &address, |address| self.mapped(address))
            .ok_or_else(|| Fault::protocol_error(&slots).of_node(&redis.address()))
    }
}

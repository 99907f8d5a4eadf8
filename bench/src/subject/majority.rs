//! The commands of Redlock and nothing around them: every node is asked at once, and a step is over when a
//! majority has answered. Nothing that is asked of that many nodes is faster.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bench_roles::{Calls, nodes};

use super::raw::{Held, Raw};

#[derive(Clone)]
pub struct Majority(Vec<Raw>);

impl Calls for Majority {
    async fn connect(url: &str, ttl: Duration) -> Self {
        let mut raw = Vec::new();
        for node in nodes(url) {
            raw.push(Raw::connect(&node, ttl).await);
        }
        Self(raw)
    }

    async fn pair(&self, key: &str) {
        let held = Held::of(key);
        let granting = self.0.iter().map(|node| node.take(&held));
        self.of_a_majority(granting).await;
        let releasing = self.0.iter().map(|node| node.give_back(&held));
        self.of_a_majority(releasing).await;
    }
}

impl Majority {
    async fn of_a_majority<F: Future<Output = ()>>(&self, steps: impl Iterator<Item = F>) {
        let mut steps: Vec<Option<Pin<Box<F>>>> = steps.map(|step| Some(Box::pin(step))).collect();
        let mut missing = self.0.len() / 2 + 1;
        poll_fn(|cx| {
            for step in &mut steps {
                if step
                    .as_mut()
                    .is_some_and(|step| step.as_mut().poll(cx).is_ready())
                {
                    *step = None;
                    missing -= 1;
                    if missing == 0 {
                        return Poll::Ready(());
                    }
                }
            }
            Poll::Pending
        })
        .await;
    }
}

//! Tokens grow from grant to grant, over every order of failures between the draw and the raise: all of them
//! are tried, on three nodes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::super::{
    Acquired, Attempt, Claim, Found, Held, Release, Renewal, Renewed, Reply, Store, Token,
    relied_on_until,
};
use super::super::Quorum;
use super::{LOCK, TTL};
use crate::error::StoreError;
use crate::runtime::background::Background;

/// A node with one lock, a counter and a clock that stands still.
#[derive(Clone, Debug)]
struct TokenCounter(Arc<Mutex<DrawState>>);

#[derive(Clone, Debug)]
struct DrawState {
    holder: Option<String>,
    last: u64,
    clock: u64,
    /// Whether it can be asked: for the draw, and for the raise.
    draws: bool,
    raises: bool,
}

impl TokenCounter {
    fn with_clock(clock: u64) -> Self {
        Self(Arc::new(Mutex::new(DrawState {
            holder: None,
            last: 0,
            clock,
            draws: true,
            raises: true,
        })))
    }

    fn change<T>(&self, change: impl FnOnce(&mut DrawState) -> T) -> T {
        change(&mut self.0.lock().expect("no panic"))
    }
}

impl Store for TokenCounter {
    fn acquire<'a>(&'a self, claim: Claim<'a>, _: Attempt) -> Reply<'a, Acquired> {
        let answer = self.change(|state| match &state.holder {
            Some(holder) if holder != claim.owner => Acquired::busy(0, holder.clone(), TTL),
            _ => {
                state.holder = Some(claim.owner.to_owned());
                Acquired::granted(0, relied_on_until(Instant::now(), claim.ttl))
            }
        });
        Box::pin(async { Ok(answer) })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], _: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async { Ok(leases.iter().map(|_| Ok(Renewal::Gone)).collect()) })
    }

    fn release<'a>(&'a self, claim: Claim<'a>, _: Release<'a>) -> Reply<'a, Found> {
        let found = self.change(|state| match &state.holder {
            Some(holder) if holder == claim.owner => {
                state.holder = None;
                Found::Ours
            }
            Some(_) => Found::Another,
            None => Found::Nothing,
        });
        Box::pin(async move { Ok(found) })
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        let answer = self.change(|state| {
            let answers = if lease.at_least == 0 {
                state.draws
            } else {
                state.raises
            };
            if !answers {
                return Err(StoreError::refused("away"));
            }
            if state.holder.as_deref() != Some(lease.claim.owner) {
                return Ok(Token::NotHeld(Found::Nothing));
            }
            state.last = state.clock.max(state.last + 1).max(lease.at_least);
            Ok(Token::Drawn(state.last))
        });
        Box::pin(async move { answer })
    }
}

/// Which of three nodes answer.
fn subsets() -> impl Iterator<Item = [bool; 3]> {
    (0..8_u8).map(|bits| [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0])
}

/// One grant after the other, of whatever majority: the lock is held by those who answer the draw. The
/// answer are the tokens that were told.
async fn tokens(
    clocks: [u64; 3],
    grants: &[([bool; 3], [bool; 3])],
    lost: Option<usize>,
) -> Vec<u64> {
    let background = Background::start().expect("a thread");
    let nodes = clocks.map(TokenCounter::with_clock);
    let stores = nodes
        .iter()
        .map(|node| Arc::new(node.clone()) as Arc<dyn Store>);
    let quorum = Quorum::new(stores.collect(), &background);
    let locks = [LOCK.to_owned()];
    let mut told = Vec::new();
    for (number, (draws, raises)) in grants.iter().enumerate() {
        let owner = format!("holder-{number}");
        for (index, node) in nodes.iter().enumerate() {
            node.change(|state| {
                if lost == Some(index) && number == 1 {
                    state.last = 0;
                }
                // Time goes on between two grants.
                state.clock += 10;
                (state.draws, state.raises) = (draws[index], raises[index]);
                state.holder = draws[index].then(|| owner.clone());
            });
        }
        let lease = Claim::new(&locks, &owner, TTL).held(0);
        // An error is a holder that dies before it is told.
        if let Ok(Token::Drawn(token)) = quorum.token(lease).await {
            told.push(token);
        }
    }
    told
}

fn grow(told: &[u64]) -> bool {
    told.windows(2).all(|pair| pair[0] < pair[1])
}

#[tokio::test]
async fn tokens_grow_whichever_majorities_draw_and_raise_them() {
    let steps: Vec<_> = subsets()
        .filter(|draws| draws.iter().filter(|draws| **draws).count() >= 2)
        .flat_map(|draws| subsets().map(move |raises| (draws, raises)))
        .collect();
    let mut most = 0;
    for clocks in [[0, 0, 0], [1_000, 0, 0], [0, 500, 1_000]] {
        for first in &steps {
            for second in &steps {
                for third in steps.iter().filter(|(_, raises)| *raises == [true; 3]) {
                    let grants = [*first, *second, *third];
                    let told = tokens(clocks, &grants, None).await;
                    assert!(grow(&told), "{clocks:?} {grants:?}: {told:?}");
                    most = most.max(told.len());
                }
            }
        }
    }
    assert_eq!(most, 3, "tokens were told");
}

/// A node that forgets its counter has its clock: with clocks that are about right tokens grow.
#[tokio::test]
async fn tokens_grow_where_one_node_has_forgotten_its_counter() {
    let steps: Vec<_> = subsets()
        .filter(|draws| draws.iter().filter(|draws| **draws).count() >= 2)
        .map(|draws| (draws, [true; 3]))
        .collect();
    for lost in 0..3 {
        for first in &steps {
            for second in &steps {
                let told = tokens([0, 3, 6], &[*first, *second], Some(lost)).await;
                assert_eq!(told.len(), 2);
                assert!(grow(&told), "{first:?} {second:?}: {told:?}");
            }
        }
    }
}

//! Fencing tokens: the largest of those that a majority has drawn, once a majority knows it.
//!
//! Whoever draws the next one draws from a majority as well, which has a node in common with the one that
//! knows this token; that node draws a larger one. A token that is known to fewer was given to nobody.
//!
//! Readers draw at the same time, and two may be given one number: it is larger than those of all writers before
//! them, and smaller than that of the next one.

use std::sync::Arc;

use super::super::Token;
use super::Quorum;
use super::owned::OwnedClaim;
use super::requests::{Request, Requests};
use super::votes;
use crate::error::StoreError;

type TokenAnswers = Vec<Option<Result<Token, StoreError>>>;

impl Quorum {
    pub(super) async fn draw_token(
        &self,
        claim: Arc<OwnedClaim>,
        at_least: u64,
    ) -> Result<Token, StoreError> {
        let (drawn, _) = self.ask_for_token(&claim, at_least, self.none()).await;
        let Some(Token::Drawn(largest)) = votes::token(&drawn) else {
            return decided(&drawn);
        };
        // Nodes that have drawn just this one know it.
        let known: TokenAnswers = drawn
            .into_iter()
            .map(|answer| {
                answer.filter(|token| matches!(token, Ok(Token::Drawn(token)) if *token == largest))
            })
            .collect();
        let (raised, pending) = self.ask_for_token(&claim, largest, known).await;
        // The more nodes know it, the more of them may forget it.
        for (_, request) in pending {
            if request.is_sent() {
                self.context
                    .go_on(async move { drop(request.answer.await) });
            }
        }
        match decided(&raised)? {
            Token::Drawn(_) => Ok(Token::Drawn(largest)),
            not_held @ Token::NotHeld(_) => Ok(not_held),
        }
    }

    /// Asks the nodes that have not answered yet, until a majority has.
    async fn ask_for_token(
        &self,
        claim: &Arc<OwnedClaim>,
        at_least: u64,
        mut answers: TokenAnswers,
    ) -> (TokenAnswers, Vec<(usize, Request<Token>)>) {
        let unknown = |index: &usize| answers[*index].is_none();
        let asked: Vec<_> = (0..self.nodes.len()).filter(unknown).collect();
        let asked = asked
            .into_iter()
            .map(|index| (index, self.nodes[index].token(claim, at_least)));
        let mut requests = Requests::new(asked);
        while votes::token(&answers).is_none() {
            let Some((node, answer)) = requests.next().await else {
                break;
            };
            answers[node] = Some(answer);
        }
        for (node, answer) in requests.answered() {
            answers[node] = Some(answer);
        }
        (answers, requests.into_pending())
    }
}

fn decided(answers: &TokenAnswers) -> Result<Token, StoreError> {
    votes::token(answers).ok_or_else(|| votes::unavailable(answers.len(), &votes::errors(answers)))
}

//! A request and its reply.

use std::sync::Arc;

use super::{
    super::{
        Failure, Receiver,
        http::{self as common, Answer, Gate, Refusal},
    },
    Message, Sent, Shared,
};
use crate::{mcp::wire, net::Response};

/// A request that is under way. Whichever way its task ends, its call does not wait on.
pub(super) struct Exchange {
    id: i64,
    receiver: Arc<dyn Receiver>,
    settled: bool,
}

impl Exchange {
    pub(super) fn new(id: i64, receiver: &Arc<dyn Receiver>) -> Self {
        Self { id, receiver: Arc::clone(receiver), settled: false }
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.settled = true;
        self.receiver.fail(self.id, failure);
    }

    pub(super) fn deliver(&self, text: &str) {
        self.receiver.deliver(text, Some(self.id));
    }

    /// The reply, as it must have been, was longer than what is read.
    pub(super) fn too_long(&self) {
        let text = format!("the reply has more than {} bytes", common::MAX_EVENT);
        self.receiver.fail(self.id, Failure::Unreadable(text));
    }

    /// All that the server had to say was delivered. If the reply was not among it, the call ends all the same.
    pub(super) fn over(&mut self) {
        self.fail(Failure::Unreadable("the response held no reply to the request".to_owned()));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.settled {
            self.fail(Failure::Lost("the connection was closed".to_owned()));
        }
    }
}

impl Shared {
    /// Carry a request to its reply or its failure.
    pub(super) async fn exchange(
        self: Arc<Self>,
        mut exchange: Exchange,
        message: Message,
        first: bool,
        gate: Gate,
    ) {
        gate.pass().await;
        let mut unknown = self.attempt(&mut exchange, &message, first).await;
        if let Some((sent, _)) = unknown {
            // The request was not run, since the session it was for is none. Once more, then, in a new one.
            match Arc::clone(&self).renewed(sent.generation).await {
                Ok(()) => unknown = self.attempt(&mut exchange, &message, first).await,
                Err(why) => {
                    let text = format!(
                        "the server no longer knows the session, and initialising again failed: {why}"
                    );
                    exchange.fail(Failure::NotSent(text));
                    unknown = None;
                }
            }
        }
        if let Some((_, refusal)) = unknown {
            exchange.fail(refusal.failure);
        }
        self.state.lock().exchanges.remove(&exchange.id);
    }

    /// Send the request once. Gives back the refusal if the server does not know the session.
    async fn attempt(
        &self,
        exchange: &mut Exchange,
        message: &Message,
        first: bool,
    ) -> Option<(Sent, Refusal)> {
        let (response, sent) = self.post(message).await;
        let mut response = match response {
            Ok(response) => response,
            Err(error) => {
                exchange.fail(common::failure(&error));
                return None;
            }
        };
        if !response.status().is_success() {
            let refusal = Refusal::read(&mut response).await;
            if sent.session && !first && refusal.tells_of_session() {
                return Some((sent, refusal));
            }
            if let Some(text) = refusal.reply() {
                exchange.deliver(&text);
            }
            exchange.fail(refusal.failure);
            return None;
        }
        if first {
            self.begin_session(&response);
        } else {
            self.note_session(&response, &sent);
        }
        self.answered(exchange, response).await;
        None
    }

    async fn answered(&self, exchange: &mut Exchange, mut response: Response) {
        match common::answer(&mut response).await {
            Answer::Events => self.follow(exchange, response).await,
            Answer::Text(body) => {
                exchange.deliver(&wire::text(&body));
                exchange.over();
            }
            Answer::Failure(failure) => exchange.fail(failure),
        }
    }
}

//! A request and its reply.

use std::sync::Arc;

use super::{
    super::{
        Failure,
        http::{self as common, Answer, Exchange, Gate, Refusal},
    },
    Message, Sent, Shared,
};
use crate::{mcp::wire, net::Response};

impl Shared {
    /// Carry a request to its reply or its failure.
    pub(super) async fn exchange(
        self: Arc<Self>,
        exchange: Exchange,
        message: Message,
        first: bool,
        gate: Gate,
    ) {
        gate.pass().await;
        let mut unknown = self.attempt(&exchange, &message, first).await;
        if let Some((sent, refusal)) = unknown {
            // The request was not run, since the session it was for is none. Once more, then, in a new one.
            unknown = match Arc::clone(&self).renewed(sent.generation).await {
                Ok(()) => self.attempt(&exchange, &message, first).await,
                // Then it was about who may ask after all.
                Err(_) if matches!(refusal.status, 401 | 403) => Some((sent, refusal)),
                Err(why) => {
                    let text = format!(
                        "the server no longer knows the session, and initialising again failed: {why}"
                    );
                    exchange.fail(Failure::NotSent(text));
                    None
                }
            };
        }
        if let Some((_, refusal)) = unknown {
            exchange.fail(refusal.failure);
        }
        self.exchanges.ended(exchange.id);
    }

    /// Send the request once. Gives back the refusal if the server does not know the session.
    async fn attempt(&self, exchange: &Exchange, message: &Message, first: bool) -> Option<(Sent, Refusal)> {
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

    async fn answered(&self, exchange: &Exchange, mut response: Response) {
        match common::answer(&mut response).await {
            Answer::Events => self.follow(exchange, response).await,
            Answer::Text(body) => {
                exchange.deliver(&wire::text(&body));
                exchange.fail(Failure::Unreadable("the response holds no reply to the request".to_owned()));
            }
            Answer::Failure(failure) => exchange.fail(failure),
        }
    }
}

//! Results that are questions (2026-07-28): whoever waits goes on waiting while they are answered, and the
//! request is made again with the answers.

use std::{sync::Arc, time::Instant};

use serde_json::{Map, Value};

use super::{
    super::era::{Era, Manner},
    Peer, What,
    waiter::Extra,
};
use crate::Error;

/// Rounds of input that one call may take; the specification's client libraries stop there as well.
const MAX_ROUNDS: u8 = 10;

/// Answers a result that asks for input; see [`Peer::resume`].
pub(in crate::mcp) trait Asker: Send + Sync {
    /// Start answering. The abort handle ends it when the call is cancelled.
    fn ask(&self, key: i64, input: InputRequired) -> tokio::task::AbortHandle;
}

/// A result that is none yet: the server wants input first.
#[derive(Debug, Clone, Default)]
pub(in crate::mcp) struct InputRequired {
    pub(in crate::mcp) requests: Map<String, Value>,
    /// Echoed as it came.
    pub(in crate::mcp) state: Option<Value>,
}

/// Whether a result may be a question, so that there are further rounds.
pub(super) fn may_ask(what: &What, manner: &Manner) -> bool {
    manner.era == Era::Modern && !matches!(what, What::Other(_))
}

impl Peer {
    /// The waiter of a request whose result may be a question.
    pub(super) fn may_ask(&self, wire: i64) -> Option<i64> {
        let waiters = self.waiters.lock();
        let key = waiters.key(wire);
        waiters.map.get(&key).filter(|waiter| waiter.may_ask).map(|_| key)
    }

    /// The server wants input: the waiter stays, without a deadline, until it has been asked for.
    pub(super) fn park(&self, key: i64, input: InputRequired) {
        let Some(asker) = self.asker.get() else {
            return self.fail_round(key, "the server asks for input, which nothing here can give");
        };
        {
            let mut waiters = self.waiters.lock();
            let Some(waiter) = waiters.map.get_mut(&key) else { return };
            let rounds = waiter.again.as_mut().map_or(MAX_ROUNDS, |again| {
                again.rounds += 1;
                again.rounds
            });
            if rounds > MAX_ROUNDS {
                drop(waiters);
                let why = format!("the server asked for input more than {MAX_ROUNDS} times");
                return self.fail_round(key, &why);
            }
            waiter.pause(Instant::now());
        }
        let asking = asker.ask(key, input);
        let mut waiters = self.waiters.lock();
        match waiters.map.get_mut(&key) {
            Some(waiter) if waiter.paused_at.is_some() => waiter.asking = Some(asking),
            // Answered already.
            Some(_) => {}
            None => asking.abort(),
        }
    }

    fn fail_round(&self, key: i64, why: &str) {
        if let Some(waiter) = self.take(key) {
            let text = waiter.what.failed(why);
            waiter.fail(Error::Protocol(text));
        }
    }

    /// Go on with a parked request: with the answers, or with the reason why there are none.
    pub(in crate::mcp) fn resume(
        self: &Arc<Self>,
        key: i64,
        answers: std::result::Result<Map<String, Value>, String>,
        state: Option<Value>,
    ) {
        let answers = match answers {
            Ok(answers) => answers,
            Err(why) => return self.fail_round(key, &why),
        };
        let Some(mut waiter) = self.take(key) else { return };
        waiter.resume(Instant::now());
        let wire = self.traffic.number();
        let manner = self.manner();
        let extra = Extra { answers, state };
        let written =
            waiter.again.as_ref().map(|again| again.write(wire, key, &waiter.what, &manner, &extra));
        match written {
            Some(written) => {
                self.push(key, wire, waiter, written);
            }
            None => waiter.fail(Error::Cancelled),
        }
    }
}

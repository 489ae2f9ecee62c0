//! What a server sends, given to whom it concerns: the [`Peer`], the [`Handler`], or nobody.
//!
//! Every transport delivers here, as text. Replies settle the peer's waiters; requests and
//! notifications of the server's own go to the handler, so that none stays unanswered. What is no
//! message is skipped. Nothing here waits.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    handler::Handler,
    peer::{Peer, Reply},
    transport::{Failure, Receiver},
    wire::{self, Envelope},
};
use crate::Progress;

/// Told once why the connection ended.
type Lost = Box<dyn FnOnce(&str) + Send>;

pub(super) struct Inbox {
    server: Arc<str>,
    /// Weak, because the peer holds the transport, and the transport this.
    peer: Weak<Peer>,
    handler: Arc<Handler>,
    lost: Mutex<Option<Lost>>,
    /// Texts that were no messages.
    noise: AtomicU64,
}

impl Inbox {
    /// `lost` is called once, when the server can no longer be spoken to, before the calls that wait
    /// fail.
    pub(super) fn new(
        peer: &Arc<Peer>,
        handler: &Arc<Handler>,
        lost: impl FnOnce(&str) + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(peer.server()),
            peer: Arc::downgrade(peer),
            handler: Arc::clone(handler),
            lost: Mutex::new(Some(Box::new(lost))),
            noise: AtomicU64::new(0),
        })
    }

    fn batch(&self, peer: &Arc<Peer>, text: &str, answering: Option<i64>) {
        let repaired = wire::repair(text);
        match serde_json::from_str::<Vec<&RawValue>>(repaired.as_deref().unwrap_or(text)) {
            Ok(batch) => {
                for message in batch.iter().filter(|message| message.get().starts_with('{')) {
                    self.message(peer, message.get(), answering);
                }
            }
            Err(error) => {
                let ids = wire::salvage_ids(text);
                if ids.is_empty() {
                    self.noise(text);
                }
                for id in ids {
                    unreadable(peer, id, &error.to_string());
                }
            }
        }
    }

    fn message(&self, peer: &Arc<Peer>, text: &str, answering: Option<i64>) {
        let error = match serde_json::from_str::<Envelope<'_>>(text) {
            Ok(envelope) => return self.envelope(peer, text, &envelope, answering),
            Err(error) => error,
        };
        if let Some(repaired) = wire::repair(text)
            && let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(&repaired)
        {
            return self.envelope(peer, &repaired, &envelope, answering);
        }
        // A cut-off reply may have lost its id; if only one request waits, it was for that one.
        let meant = wire::salvage_id(text).or_else(|| {
            meant(peer, answering).filter(|_| text.contains("\"jsonrpc\"") && !text.contains("\"method\""))
        });
        match meant {
            Some(id) => unreadable(peer, id, &error.to_string()),
            None => self.noise(text),
        }
    }

    fn envelope(&self, peer: &Arc<Peer>, text: &str, envelope: &Envelope<'_>, answering: Option<i64>) {
        if let Some(method) = envelope.method {
            let method = wire::from_str::<String>(method.get()).unwrap_or_default();
            match envelope.id {
                Some(id) => self.handler.request(id, &method, envelope.params),
                None if method == "notifications/progress" => {
                    // One without a token that is known concerns nobody.
                    if let Some((token, progress)) = envelope.params.and_then(|raw| progress(raw.get())) {
                        peer.progress(token, progress);
                    }
                }
                None => self.handler.notification(&method, envelope.params),
            }
            return;
        }
        let own = envelope.id.and_then(|id| wire::sent_id(id.get())).filter(|id| peer.waits(*id));
        match (own, envelope.result, envelope.error) {
            (Some(id), Some(result), None) => peer.settle(id, Reply::Result(result)),
            (Some(id), _, Some(error)) => peer.settle(id, Reply::Error(wire::rpc_error(error.get()))),
            (Some(id), None, None) => unreadable(peer, id, "it has neither a result nor an error"),
            (None, None, None) => self.noise(text),
            // A server that could not read the id answers without one; it was for the request on whose
            // response it came, or for the only one that waits.
            (None, _, Some(error)) if envelope.id.is_none() => match meant(peer, answering) {
                Some(id) => peer.settle(id, Reply::Error(wire::rpc_error(error.get()))),
                None => self.noise(text),
            },
            // Some answer notifications; on the response to one it answers nothing.
            (None, Some(_), None) if envelope.id.is_none() => match meant(peer, answering) {
                Some(id) => unreadable(peer, id, "it has no id"),
                None => self.noise(text),
            },
            // Made-up ids such as "server-error" in answers to a request that was refused as a whole.
            (None, None, Some(error)) => match answering.filter(|id| peer.waits(*id)) {
                Some(id) if wire::sent_id(envelope.id.map_or("", RawValue::get)).is_none() => {
                    peer.settle(id, Reply::Error(wire::rpc_error(error.get())));
                }
                _ => {}
            },
            // Late, or never asked for.
            (None, ..) => {}
        }
    }

    /// Anything that is no message: logged once, with a hint, and skipped.
    fn noise(&self, text: &str) {
        if self.noise.fetch_add(1, Ordering::Relaxed) == 0 {
            let start: String = text.chars().take(200).collect();
            tracing::warn!(
                server = &*self.server,
                line = start,
                "the server sends something else than JSON-RPC, which is skipped; over stdio, servers should log \
                 to stderr"
            );
        }
    }
}

/// The request that a reply without an id belongs to.
fn meant(peer: &Peer, answering: Option<i64>) -> Option<i64> {
    match answering {
        Some(id) => Some(id).filter(|id| peer.waits(*id)),
        None => peer.only(),
    }
}

fn unreadable(peer: &Peer, id: i64, why: &str) {
    peer.settle(id, Reply::Unreadable(why.to_owned()));
}

impl Receiver for Inbox {
    fn deliver(&self, text: &str, answering: Option<i64>) {
        let Some(peer) = self.peer.upgrade() else { return };
        peer.traffic().received(text.len());
        match text.as_bytes().first() {
            Some(b'{') => self.message(&peer, text, answering),
            Some(b'[') => self.batch(&peer, text, answering),
            // A prompt or a colour code may stand before a message.
            Some(_) => match text.find("{\"jsonrpc\"") {
                Some(at) => {
                    self.noise(text);
                    self.message(&peer, &text[at..], answering);
                }
                None => self.noise(text),
            },
            None => {}
        }
    }

    fn fail(&self, id: i64, failure: Failure) {
        if let Some(peer) = self.peer.upgrade() {
            peer.fail(id, failure);
        }
    }

    fn undelivered(&self, id: Option<i64>, why: &str) {
        let Some(peer) = self.peer.upgrade() else { return };
        match id.filter(|id| peer.waits(*id)).or_else(|| peer.only()) {
            Some(id) => unreadable(&peer, id, why),
            None => self.noise(why),
        }
    }

    fn renewed(&self) {
        self.handler.changes.renew();
    }

    fn end(&self, why: &str) {
        let lost = self.lost.lock().take();
        let peer = self.peer.upgrade();
        // The connection's state changes before its calls fail, so that whoever is told sees it.
        if let Some(peer) = &peer {
            peer.refuse(why);
        }
        if let Some(lost) = lost {
            lost(why);
        }
        self.handler.stop();
        if let Some(peer) = &peer {
            peer.end(why);
        }
    }
}

fn progress(params: &str) -> Option<(i64, Progress)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        progress_token: Value,
        #[serde(default)]
        progress: Option<Value>,
        #[serde(default)]
        total: Option<Value>,
        #[serde(default)]
        message: Option<Value>,
    }
    let params: Params = wire::from_str(params).ok()?;
    let token = wire::sent_id(&params.progress_token.to_string())?;
    let number = |value: Option<Value>| value.as_ref().and_then(Value::as_f64);
    let message = match params.message {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    Some((
        token,
        Progress { progress: number(params.progress).unwrap_or(0.0), total: number(params.total), message },
    ))
}

//! What a server sends, given to whom it concerns: the [`Lane`], rmcp, or nobody.
//!
//! Replies to calls settle the lane and never reach rmcp. Replies to rmcp's own requests are
//! decoded by the kind of the request. A request from the server that rmcp cannot decode, or would
//! ignore because the handshake is not over, is answered here, so that none stays unanswered.
//! What is no message is skipped. Nothing here waits.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use rmcp::model::{CustomResult, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerResult};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::mpsc::UnboundedSender;

use super::{
    decode::{self, Incoming},
    frame::{Line, Lines, MAX_LINE},
    outbox::Outbox,
    wire::{self, Envelope},
};
use crate::mcp::lane::{FIRST_ID, Lane, Reply};

/// rmcp's own requests that wait for a reply.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) waiting: Mutex<HashSet<i64>>,
    /// The id of `initialize`, while it waits.
    pub(super) initialize: Mutex<Option<i64>>,
    pub(super) initialized: AtomicBool,
}

pub(super) struct Inbox {
    server: Arc<str>,
    lane: Arc<Lane>,
    outbox: Arc<Outbox>,
    requests: Arc<Requests>,
    to_rmcp: UnboundedSender<Incoming>,
    /// Lines that were no messages.
    noise: u64,
}

impl Inbox {
    pub(super) fn new(
        server: &Arc<str>,
        lane: &Arc<Lane>,
        outbox: &Arc<Outbox>,
        requests: &Arc<Requests>,
        to_rmcp: UnboundedSender<Incoming>,
    ) -> Self {
        Self {
            server: Arc::clone(server),
            lane: Arc::clone(lane),
            outbox: Arc::clone(outbox),
            requests: Arc::clone(requests),
            to_rmcp,
            noise: 0,
        }
    }

    pub(super) fn line(&mut self, lines: &Lines, line: Line) {
        match line {
            Line::Whole(range) => {
                let text = wire::text(lines.bytes(range));
                self.text(&text);
            }
            Line::TooLong { id, length } => {
                let why = format!("it has {length} bytes, more than the {MAX_LINE} that are accepted");
                match id.or_else(|| self.only_waiter()) {
                    Some(id) => self.unreadable(id, &why),
                    None => self.noise(&why),
                }
            }
        }
    }

    fn text(&mut self, text: &str) {
        match text.as_bytes().first() {
            Some(b'{') => self.message(text),
            Some(b'[') => self.batch(text),
            // A prompt or a colour code may stand before a message.
            Some(_) => match text.find("{\"jsonrpc\"") {
                Some(at) => {
                    self.noise(text);
                    self.message(&text[at..]);
                }
                None => self.noise(text),
            },
            None => {}
        }
    }

    fn batch(&mut self, text: &str) {
        let repaired = wire::repair(text);
        match serde_json::from_str::<Vec<&RawValue>>(repaired.as_deref().unwrap_or(text)) {
            Ok(batch) => {
                for message in batch.iter().filter(|message| message.get().starts_with('{')) {
                    self.message(message.get());
                }
            }
            Err(error) => {
                let ids = wire::salvage_ids(text);
                if ids.is_empty() {
                    self.noise(text);
                }
                for id in ids {
                    self.unreadable(id, &error.to_string());
                }
            }
        }
    }

    fn message(&mut self, text: &str) {
        let error = match serde_json::from_str::<Envelope<'_>>(text) {
            Ok(envelope) => return self.envelope(text, &envelope),
            Err(error) => error,
        };
        if let Some(repaired) = wire::repair(text)
            && let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(&repaired)
        {
            return self.envelope(&repaired, &envelope);
        }
        // A cut-off reply may have lost its id; if only one call waits, it was for that one.
        let meant = wire::salvage_id(text).or_else(|| {
            self.only_waiter().filter(|_| text.contains("\"jsonrpc\"") && !text.contains("\"method\""))
        });
        match meant {
            Some(id) => self.unreadable(id, &error.to_string()),
            None => self.noise(text),
        }
    }

    fn envelope(&mut self, text: &str, envelope: &Envelope<'_>) {
        if let Some(method) = envelope.method {
            match envelope.id {
                Some(id) => self.request(text, id, method),
                None => self.notification(text, envelope, method),
            }
            return;
        }
        let own = envelope.id.and_then(|id| wire::sent_id(id.get())).filter(|id| self.waits(*id));
        match (own, envelope.result, envelope.error) {
            (Some(id), Some(result), None) => self.reply(id, Reply::Result(result)),
            (Some(id), _, Some(error)) => self.reply(id, Reply::Error(wire::rpc_error(error.get()))),
            (Some(id), None, None) => self.unreadable(id, "it has neither a result nor an error"),
            (None, None, None) => self.noise(text),
            // A server that could not read the id answers with null; one call waits: that one.
            (None, result, error) if envelope.id.is_none() => match (self.only_waiter(), error) {
                (Some(id), Some(error)) => self.reply(id, Reply::Error(wire::rpc_error(error.get()))),
                (Some(id), None) if result.is_some() => self.unreadable(id, "it has no id"),
                _ => self.noise(text),
            },
            // Late, or never asked for.
            (None, ..) => {}
        }
    }

    /// Whether someone waits for `id`; a late reply must not disturb anyone.
    fn waits(&self, id: i64) -> bool {
        id >= FIRST_ID || self.requests.waiting.lock().contains(&id)
    }

    fn only_waiter(&self) -> Option<i64> {
        let mine: Vec<i64> = self.requests.waiting.lock().iter().take(2).copied().collect();
        match (mine.as_slice(), self.lane.len()) {
            ([], 1) => self.lane.only(),
            ([id], 0) => Some(*id),
            _ => None,
        }
    }

    fn unreadable(&mut self, id: i64, why: &str) {
        self.reply(id, Reply::Unreadable(why.to_owned()));
    }

    fn reply(&mut self, id: i64, reply: Reply<'_>) {
        if id >= FIRST_ID {
            self.lane.settle(id, reply);
            return;
        }
        if !self.requests.waiting.lock().remove(&id) {
            return;
        }
        let initialize = {
            let mut waiting = self.requests.initialize.lock();
            waiting.take_if(|waiting| *waiting == id).is_some()
        };
        let decoded = match reply {
            Reply::Result(result) if initialize => decode::initialize_result(result),
            Reply::Result(result) => decode::by_parts(result)
                .map(|value| ServerResult::CustomResult(CustomResult(value)))
                .map_err(|error| decode::unreadable(&error.to_string())),
            Reply::Error(error) => {
                let code = i32::try_from(error.code).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
                Err(ErrorData::new(ErrorCode(code), error.message, error.data))
            }
            Reply::Unreadable(why) => Err(decode::unreadable(&why)),
        };
        let id = RequestId::Number(id);
        self.forward(match decoded {
            Ok(result) => JsonRpcMessage::response(result, id),
            Err(error) => JsonRpcMessage::error(error, Some(id)),
        });
    }

    fn forward(&self, message: Incoming) {
        // rmcp's loop has ended only if the connection is being closed.
        let _ = self.to_rmcp.send(message);
    }

    fn notification(&mut self, text: &str, envelope: &Envelope<'_>, method: &RawValue) {
        if method.get() == "\"notifications/progress\"" {
            // One without a token that is known concerns nobody.
            if let Some((token, progress)) = envelope.params.and_then(|params| decode::progress(params.get()))
            {
                self.lane.progress(token, progress);
            }
            return;
        }
        if !self.requests.initialized.load(Ordering::Acquire) && method.get() != "\"notifications/message\"" {
            return;
        }
        if let Some(message @ JsonRpcMessage::Notification(_)) = decode::message(text) {
            self.forward(message);
        } else {
            tracing::debug!(server = &*self.server, method = method.get(), "notification ignored");
        }
    }

    fn request(&mut self, text: &str, id: &RawValue, method: &RawValue) {
        let initialized = self.requests.initialized.load(Ordering::Acquire);
        if method.get() == "\"ping\"" {
            self.answer(&json!({"jsonrpc": "2.0", "id": id, "result": {}}));
            return;
        }
        if let Some(message @ JsonRpcMessage::Request(_)) = decode::message(text).filter(|_| initialized) {
            self.forward(message);
            return;
        }
        let (code, message) = if initialized {
            (ErrorCode::INVALID_REQUEST.0, "Invalid request".to_owned())
        } else {
            let method = method.get().trim_matches('"');
            (ErrorCode::METHOD_NOT_FOUND.0, format!("Method not found: {method}"))
        };
        self.answer(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}));
    }

    fn answer(&self, message: &Value) {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        // Refused only when the connection ends.
        let _ = self.outbox.push(&line);
    }

    /// Anything that is no message: logged once, with a hint, and skipped.
    fn noise(&mut self, text: &str) {
        self.noise += 1;
        if self.noise == 1 {
            let start: String = text.chars().take(200).collect();
            tracing::warn!(
                server = &*self.server,
                line = start,
                "stdout carries something else than JSON-RPC, which is skipped; servers should log to stderr"
            );
        }
    }
}

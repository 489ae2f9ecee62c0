//! Who waits for a reply, for how long, and what a reply is turned into.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use tokio::{sync::oneshot, task::AbortHandle};

use super::{
    super::{
        era::ParamHeader,
        transport::Position,
        wire::{self, RpcError},
    },
    InputRequired, Replay, What,
    cache::Key,
};
use crate::{Completion, Error, ProgressSink, Result, ToolOutput, tool::panic_text};

/// How often one request is sent again over other connections.
const MAX_REPLAYS: u8 = 2;

/// Makes of a result what a model is shown.
pub(in crate::mcp) trait Render: Send {
    /// Whether it may write files for this result, so that nobody else should wait for it.
    fn may_block(&self, result: &RawValue) -> bool;
    fn render(self: Box<Self>, result: &RawValue) -> Result<ToolOutput>;
}

/// Who waits for a reply.
pub(in crate::mcp) enum Sink {
    /// A tool, which wants it rendered.
    Tool(Completion, Box<dyn Render>),
    /// Someone who wants the result as the server sent it.
    Raw(oneshot::Sender<Result<Box<RawValue>>>),
}

impl Sink {
    /// End the wait without a result of the server's.
    pub(super) fn settle(self, result: Result<ToolOutput>) {
        match self {
            Self::Tool(done, _) => complete(done, result),
            Self::Raw(sink) => {
                if let Err(error) = result {
                    // Whoever waited may be gone.
                    let _ = sink.send(Err(error));
                }
            }
        }
    }
}

fn complete(done: Completion, result: Result<ToolOutput>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| done.complete(result))) {
        tracing::warn!(panic = panic_text(&*panic), "the receiver of a result panicked");
    }
}

/// What a reply brought.
pub(in crate::mcp) enum Reply<'a> {
    Result(&'a RawValue),
    Error(RpcError),
    /// The reply is there and cannot be read.
    Unreadable(String),
}

/// What it takes to write a request once more.
pub(in crate::mcp) struct Again {
    /// The members of `params` as they were written, without `_meta`.
    pub(super) members: Bytes,
    /// The caller's own `_meta`.
    pub(super) meta: Option<Map<String, Value>>,
    /// The arguments that headers repeat.
    pub(super) annotated: Box<[ParamHeader]>,
    /// Whether reports of progress are wanted.
    pub(super) progress: bool,
    /// How often the server has asked for input.
    pub(super) rounds: u8,
}

/// What a further round of a request adds.
#[derive(Debug, Default)]
pub(super) struct Extra {
    pub(super) answers: Map<String, Value>,
    pub(super) state: Option<Value>,
}

/// A request that waits for its reply: its sink, its deadlines, and what it takes to send it again.
pub(in crate::mcp) struct Waiter {
    pub(super) what: What,
    pub(super) sink: Sink,
    pub(super) begun: Instant,
    /// When the request fails unless a reply came.
    pub(super) deadline: Option<Instant>,
    /// The limit that the deadline came from, unless progress moved it.
    pub(super) limit: Option<Duration>,
    /// How long each progress report keeps the request alive, and until when at most.
    extend: Option<(Duration, Instant)>,
    pub(super) progress: Option<ProgressSink>,
    pub(super) end: Position,
    /// The number that the latest request carried.
    pub(super) wire: i64,
    pub(super) again: Option<Again>,
    /// Whether its result may be a question.
    pub(super) may_ask: bool,
    pub(super) replay: Replay,
    /// How often it was sent again over another connection.
    pub(super) replays: u8,
    /// Whether the server may have seen it.
    pub(in crate::mcp) seen: bool,
    /// Under what the result may be kept.
    pub(super) kept: Option<Key>,
    /// Since when it is parked, because the server wants input.
    pub(super) paused_at: Option<Instant>,
    left: Option<Duration>,
    pub(super) asking: Option<AbortHandle>,
}

impl Waiter {
    pub(super) fn new(
        what: What,
        sink: Sink,
        timeout: Option<Duration>,
        cap: Option<Duration>,
        deadline: Option<Instant>,
        limit: Option<Duration>,
    ) -> Self {
        let begun = Instant::now();
        let own = timeout.and_then(|limit| begun.checked_add(limit));
        let until =
            |cap| begun.checked_add(cap).map(|end| deadline.map_or(end, |deadline| deadline.min(end)));
        let extend = match (timeout, cap) {
            (Some(timeout), Some(cap)) if cap > timeout => until(cap).map(|until| (timeout, until)),
            _ => None,
        };
        let first = [own, deadline].into_iter().flatten().min();
        Self {
            what,
            sink,
            begun,
            deadline: first,
            // The limit as it was given, for the text: what is left of it on the way here is less.
            limit: if first == own { timeout } else { limit },
            extend,
            progress: None,
            end: Position::default(),
            wire: 0,
            again: None,
            may_ask: false,
            replay: Replay::Never,
            replays: 0,
            seen: false,
            kept: None,
            paused_at: None,
            left: None,
            asking: None,
        }
    }

    /// A progress report keeps the request alive, where that is configured.
    pub(super) fn extend(&mut self, now: Instant) {
        if let Some((by, until)) = self.extend {
            self.deadline = now.checked_add(by).map(|deadline| deadline.min(until));
            self.limit = None;
        }
    }

    /// Time that does not count.
    pub(super) fn shift(&mut self, by: Duration) {
        let later = |at: Instant| at.checked_add(by).unwrap_or(at);
        self.deadline = self.deadline.map(later);
        self.extend = self.extend.map(|(each, until)| (each, later(until)));
    }

    /// Stop the clock.
    pub(super) fn pause(&mut self, now: Instant) {
        self.paused_at = Some(now);
        self.left = self.deadline.take().map(|deadline| deadline.saturating_duration_since(now));
    }

    /// Let the clock run on.
    pub(super) fn resume(&mut self, now: Instant) {
        self.asking = None;
        if let Some(since) = self.paused_at.take() {
            self.deadline = self.left.take().and_then(|left| now.checked_add(left));
            let by = now.saturating_duration_since(since);
            self.extend = self.extend.map(|(each, until)| (each, until.checked_add(by).unwrap_or(until)));
        }
    }

    /// When it fails unless a reply came.
    pub(in crate::mcp) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether it may be sent once more, given whether the server may have run it.
    pub(in crate::mcp) fn may_be_replayed(&self, sent: bool) -> bool {
        let allowed = if sent { self.replay == Replay::Anyway } else { self.replay >= Replay::Unsent };
        allowed && self.again.is_some() && self.replays < MAX_REPLAYS
    }

    /// It ends without a reply.
    pub(in crate::mcp) fn fail(self, error: Error) {
        self.sink.settle(Err(error));
    }

    /// It comes to nothing because of its connection.
    pub(in crate::mcp) fn refuse(self, server: &str, why: &str) {
        let error = super::lost(server, &self.what, why, self.seen);
        self.fail(error);
    }

    /// Its time is over.
    pub(in crate::mcp) fn expire(self) {
        let after = self.limit.unwrap_or_else(|| {
            self.deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(self.begun))
        });
        let text = self.what.timed_out(after);
        self.sink.settle(Err(Error::Timeout { after, text }));
    }

    /// The server's result, as whoever waits wants it.
    pub(super) fn settle_with(self, result: &RawValue) {
        match self.sink {
            Sink::Raw(sink) => {
                let _ = sink.send(Ok(result.to_owned()));
            }
            Sink::Tool(done, render) if render.may_block(result) => {
                let (what, result) = (self.what, result.to_owned());
                crate::spawn_blocking(move || finish(&what, done, render, &result));
            }
            Sink::Tool(done, render) => finish(&self.what, done, render, result),
        }
    }
}

fn finish(what: &What, done: Completion, render: Box<dyn Render>, result: &RawValue) {
    let rendered = catch_unwind(AssertUnwindSafe(|| render.render(result)))
        .unwrap_or_else(|panic| Err(Error::Panic(panic_text(&*panic))))
        .map_err(|error| match error {
            Error::Protocol(why) => what.unreadable(&why),
            other => other,
        });
    complete(done, rendered);
}

/// The questions of a result that is none yet.
pub(super) fn input_required(result: &RawValue) -> Option<InputRequired> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Parts<'a> {
        #[serde(borrow, default)]
        result_type: Option<&'a RawValue>,
        #[serde(borrow, default)]
        input_requests: Option<&'a RawValue>,
        #[serde(borrow, default)]
        request_state: Option<&'a RawValue>,
    }
    // Looked for first, because results may be large and hardly any asks.
    memchr::memmem::find(result.get().as_bytes(), b"input_required")?;
    let parts: Parts<'_> = serde_json::from_str(result.get()).ok()?;
    if parts.result_type?.get() != "\"input_required\"" {
        return None;
    }
    let requests = parts.input_requests.and_then(|raw| wire::from_str::<Map<String, Value>>(raw.get()).ok());
    let state = parts.request_state.and_then(|raw| wire::from_str::<Value>(raw.get()).ok());
    Some(InputRequired {
        requests: requests.unwrap_or_default(),
        state: state.filter(|state| !state.is_null()),
    })
}

//! The fast lane: calls beside rmcp's service loop, in the same transport.
//!
//! A call has an id of a range that rmcp never reaches, a waiter in a map, and no task of its own:
//! the calling thread writes the request, the transport's reader settles the waiter. One sweeper
//! per connection keeps all deadlines. Every waiter ends exactly once: with its reply, its
//! deadline, its cancellation or the end of the connection. No lock is held while a waiter is
//! settled or told of progress, since both are foreign code.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::{
    render,
    transport::{Outbox, Position, Refused, wire::RpcError},
};
use crate::{
    Arguments, Completion, Error, Progress, ProgressSink, Result,
    tool::{panic_text, seconds},
};

/// The first id of the lane; rmcp counts from 0 in 32 bits.
pub(super) const FIRST_ID: i64 = 1 << 40;

/// Who waits for a reply.
pub(super) enum Sink {
    /// A tool call, which wants it rendered.
    Tool(Completion),
    /// Someone who wants the result as the server sent it.
    Raw(tokio::sync::oneshot::Sender<Result<Box<RawValue>>>),
}

/// What a reply brought.
pub(super) enum Reply<'a> {
    Result(&'a RawValue),
    Error(RpcError),
    /// The reply is there and cannot be read.
    Unreadable(String),
}

/// One call, ready to go.
pub(super) struct Call<'a> {
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Arguments,
    /// The tool's own limit.
    pub(super) timeout: Option<Duration>,
    /// How far progress may extend `timeout`.
    pub(super) cap: Option<Duration>,
    /// The caller's deadline, which nothing extends.
    pub(super) deadline: Option<Instant>,
    /// The time limit that the caller's deadline came from.
    pub(super) limit: Option<Duration>,
    pub(super) progress: Option<ProgressSink>,
    pub(super) sink: Sink,
}

struct Waiter {
    sink: Sink,
    begun: Instant,
    /// When the call fails unless a reply came.
    deadline: Option<Instant>,
    /// The limit that the deadline came from, unless progress moved it.
    limit: Option<Duration>,
    /// How long each progress report keeps the call alive, and until when at most.
    extend: Option<(Duration, Instant)>,
    progress: Option<ProgressSink>,
    end: Position,
}

#[derive(Default)]
struct Waiters {
    map: HashMap<i64, Waiter>,
    /// When the sweeper looks next; `None` while it sleeps without a date.
    sweep_at: Option<Instant>,
}

pub(super) struct Lane {
    server: Arc<str>,
    outbox: Arc<Outbox>,
    waiters: Mutex<Waiters>,
    next: AtomicI64,
    /// Why no call can be made any more.
    ended: OnceLock<String>,
    sweep: Notify,
    owner: u32,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane")
            .field("server", &self.server)
            .field("waiting", &self.len())
            .finish_non_exhaustive()
    }
}

impl Lane {
    pub(super) fn new(server: Arc<str>, outbox: Arc<Outbox>) -> Arc<Self> {
        Arc::new(Self {
            server,
            outbox,
            waiters: Mutex::default(),
            next: AtomicI64::new(FIRST_ID),
            ended: OnceLock::new(),
            sweep: Notify::new(),
            owner: std::process::id(),
        })
    }

    /// Whether this process opened the connection, rather than one that it was forked from.
    pub(super) fn is_ours(&self) -> bool {
        std::process::id() == self.owner
    }

    /// How many calls wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.lock().map.len()
    }

    /// The only call that waits, if there is exactly one.
    pub(super) fn only(&self) -> Option<i64> {
        let waiters = self.waiters.lock();
        let mut ids = waiters.map.keys();
        ids.next().copied().filter(|_| ids.next().is_none())
    }

    /// Send a call; its sink is settled later, or at once if it cannot be sent. Returns its id.
    pub(super) fn submit(&self, call: Call<'_>) -> Option<i64> {
        if let Some(why) = self.ended.get() {
            settle(call.sink, Err(self.not_sent(why)));
            return None;
        }
        if !self.is_ours() {
            // Its lines would mix with the parent's, and the replies would go there.
            let why = "it was started by the process that this one was forked from";
            settle(call.sink, Err(self.not_sent(why)));
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let wants_progress = call.progress.is_some() || call.cap.is_some();
        let mut line = Vec::with_capacity(256);
        if let Err(error) = write_call(&mut line, id, call.tool, call.arguments, wants_progress) {
            settle(call.sink, Err(error));
            return None;
        }
        let begun = Instant::now();
        let own = call.timeout.and_then(|limit| begun.checked_add(limit));
        let deadline = [own, call.deadline].into_iter().flatten().min();
        // The limit as it was given, for the text: what is left of it on the way here is a little less.
        let limit = if deadline == own { call.timeout } else { call.limit };
        let extend = match (call.timeout, call.cap) {
            (Some(limit), Some(cap)) if cap > limit => begun
                .checked_add(cap)
                .map(|until| (limit, call.deadline.map_or(until, |deadline| deadline.min(until)))),
            _ => None,
        };
        let waiter = Waiter {
            sink: call.sink,
            begun,
            deadline,
            limit,
            extend,
            progress: call.progress,
            end: Position::default(),
        };
        // In the map before the request leaves, since the reply may come before `push` returns.
        self.add(id, waiter);
        match self.outbox.push(&line) {
            Ok(end) => {
                let mut waiters = self.waiters.lock();
                if let Some(waiter) = waiters.map.get_mut(&id) {
                    waiter.end = end;
                }
            }
            Err(refused) => {
                let why = match refused {
                    Refused::Closed => self.ended.get().map_or("its input is closed", String::as_str),
                    Refused::Full => "it does not read its input",
                };
                if let Some(waiter) = self.take(id) {
                    settle(waiter.sink, Err(self.not_sent(why)));
                }
                return None;
            }
        }
        // The connection may have ended between the check above and the entry in the map.
        if let Some(why) = self.ended.get() {
            self.fail_all(why);
            return None;
        }
        Some(id)
    }

    fn add(&self, id: i64, waiter: Waiter) {
        let mut waiters = self.waiters.lock();
        let deadline = waiter.deadline;
        waiters.map.insert(id, waiter);
        if let Some(deadline) = deadline
            && waiters.sweep_at.is_none_or(|at| deadline < at)
        {
            waiters.sweep_at = Some(deadline);
            drop(waiters);
            self.sweep.notify_one();
        }
    }

    fn take(&self, id: i64) -> Option<Waiter> {
        self.waiters.lock().map.remove(&id)
    }

    /// The caller has lost interest: the server is told, a late reply is ignored.
    pub(super) fn cancel(&self, id: i64) {
        if let Some(waiter) = self.take(id) {
            self.tell_cancelled(id, "the caller cancelled the call");
            settle(waiter.sink, Err(Error::Cancelled));
        }
    }

    /// A reply arrived; one that nobody waits for (any more) is ignored.
    pub(super) fn settle(&self, id: i64, reply: Reply<'_>) {
        let Some(waiter) = self.take(id) else { return };
        match (waiter.sink, reply) {
            (sink, Reply::Error(error)) => settle(sink, Err(remote(error))),
            (sink, Reply::Unreadable(why)) => settle(sink, Err(unreadable(&why))),
            (Sink::Raw(sink), Reply::Result(result)) => {
                // Whoever waited may be gone.
                let _ = sink.send(Ok(result.to_owned()));
            }
            (sink @ Sink::Tool(_), Reply::Result(result)) => {
                let rendered = catch_unwind(AssertUnwindSafe(|| {
                    // The lane knows neither the tool nor a store: data is only marked.
                    let options = render::RenderOptions::new(Arc::clone(&self.server), "");
                    render::call_result(result, &options, &|_| None)
                }))
                .unwrap_or_else(|panic| Err(Error::Panic(panic_text(&*panic))))
                .map_err(|error| match error {
                    Error::Protocol(why) => unreadable(&why),
                    other => other,
                });
                settle(sink, rendered);
            }
        }
    }

    /// A progress report arrived.
    pub(super) fn progress(&self, id: i64, progress: Progress) {
        let sink = {
            let mut waiters = self.waiters.lock();
            let Some(waiter) = waiters.map.get_mut(&id) else { return };
            if let Some((by, until)) = waiter.extend {
                // The sweeper looks at the old date, finds the new one and sleeps again.
                waiter.deadline = Instant::now().checked_add(by).map(|deadline| deadline.min(until));
                waiter.limit = None;
            }
            waiter.progress.clone()
        };
        if let Some(sink) = sink
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| sink(progress)))
        {
            tracing::warn!(
                server = &*self.server,
                panic = panic_text(&*panic),
                "a progress callback panicked"
            );
        }
    }

    /// Why calls fail, once they do.
    pub(super) fn why_ended(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }

    /// Take no more calls; those that wait go on waiting. The first reason stands.
    pub(super) fn refuse(&self, why: &str) {
        let _ = self.ended.set(why.to_owned());
    }

    /// The connection has ended: every call that waits fails, and every later one.
    pub(super) fn end(&self, why: &str) {
        self.refuse(why);
        self.fail_all(self.ended.get().map_or(why, String::as_str));
        self.sweep.notify_one();
    }

    fn fail_all(&self, why: &str) {
        let waiters = std::mem::take(&mut self.waiters.lock().map);
        for waiter in waiters.into_values() {
            let sent = self.outbox.has_left(waiter.end);
            let error = if sent { self.unknown_outcome(why) } else { self.not_sent(why) };
            settle(waiter.sink, Err(error));
        }
    }

    fn not_sent(&self, why: &str) -> Error {
        Error::Connection {
            server: self.server.to_string(),
            text: format!(
                "(MCP tool call failed: MCP server '{}': {why}; the call was not sent)",
                self.server
            ),
            sent: false,
        }
    }

    fn unknown_outcome(&self, why: &str) -> Error {
        Error::Connection {
            server: self.server.to_string(),
            text: format!(
                "(MCP tool call failed: MCP server '{}': {why}; it had received the call, so that the outcome is \
                 unknown)",
                self.server
            ),
            sent: true,
        }
    }

    fn tell_cancelled(&self, id: i64, reason: &str) {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\
             \"reason\":\"{reason}\"}}}}\n"
        );
        // A server that cannot be told any more is about to be noticed as dead.
        let _ = self.outbox.push(line.as_bytes());
    }

    /// The sweeper: fails calls at their deadlines, until the connection ends.
    pub(super) async fn sweep(self: Arc<Self>) {
        loop {
            if self.ended.get().is_some() {
                return;
            }
            let next = self.expire();
            match next {
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at.into()) => {}
                        () = self.sweep.notified() => {}
                    }
                }
                None => self.sweep.notified().await,
            }
        }
    }

    /// Fail what is overdue; the next date.
    fn expire(&self) -> Option<Instant> {
        let now = Instant::now();
        let (overdue, next) = {
            let mut waiters = self.waiters.lock();
            let ids: Vec<i64> = waiters
                .map
                .iter()
                .filter(|(_, waiter)| waiter.deadline.is_some_and(|deadline| deadline <= now))
                .map(|(id, _)| *id)
                .collect();
            let overdue: Vec<(i64, Waiter)> =
                ids.into_iter().filter_map(|id| waiters.map.remove(&id).map(|waiter| (id, waiter))).collect();
            let next = waiters.map.values().filter_map(|waiter| waiter.deadline).min();
            waiters.sweep_at = next;
            (overdue, next)
        };
        for (id, waiter) in overdue {
            self.tell_cancelled(id, "the call timed out");
            let took =
                || waiter.deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(waiter.begun));
            let after = waiter.limit.unwrap_or_else(took);
            let text = format!("(MCP tool call timed out after {}s)", seconds(after));
            settle(waiter.sink, Err(Error::Timeout { after, text }));
        }
        next
    }
}

/// A result that the server sent and nobody can read.
fn unreadable(why: &str) -> Error {
    Error::Protocol(format!("(MCP tool call failed: the server's reply could not be read: {why})"))
}

fn remote(error: RpcError) -> Error {
    let RpcError { code, message, .. } = error;
    let text = format!("(MCP tool call failed: {message} [code {code}])");
    Error::Remote { rpc_code: code, message, text }
}

fn settle(sink: Sink, result: Result<crate::ToolOutput>) {
    match sink {
        Sink::Tool(done) => {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| done.complete(result))) {
                tracing::warn!(panic = panic_text(&*panic), "the receiver of a result panicked");
            }
        }
        Sink::Raw(sink) => {
            if let Err(error) = result {
                let _ = sink.send(Err(error));
            }
        }
    }
}

fn write_call(out: &mut Vec<u8>, id: i64, tool: &str, arguments: &Arguments, progress: bool) -> Result<()> {
    use std::io::Write as _;

    // Writing to a Vec cannot fail.
    let _ = write!(out, r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"#);
    if progress {
        let _ = write!(out, r#""_meta":{{"progressToken":{id}}},"#);
    }
    out.extend_from_slice(br#""name":"#);
    serde_json::to_writer(&mut *out, tool).map_err(|error| Error::Protocol(error.to_string()))?;
    out.extend_from_slice(br#","arguments":"#);
    let start = out.len();
    arguments.write_json(out)?;
    // JSON that came with line breaks between its tokens must still be one line.
    if memchr::memchr2(b'\n', b'\r', &out[start..]).is_some() {
        for byte in &mut out[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
    out.extend_from_slice(b"}}\n");
    Ok(())
}

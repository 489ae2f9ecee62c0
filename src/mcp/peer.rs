//! The client's side of JSON-RPC with one server: every request, over any transport.
//!
//! A request has a number, a waiter in a map, and no task of its own: the calling thread hands it to
//! the transport, whoever reads the reply settles the waiter. One sweeper per connection keeps all
//! deadlines. Every waiter ends exactly once: with its reply, its failure, its deadline, its
//! cancellation or the end of the connection. A reply that asks for input (2026-07-28) leads to
//! another round under a new number; to its caller it stays one call. No lock is held while a waiter
//! is settled or told of progress, since both are foreign code.

mod cache;
mod clock;
mod request;
mod rounds;
#[cfg(test)]
mod tests;
mod traffic;
mod waiter;

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value, value::RawValue};
use tokio::sync::Notify;

use self::{cache::Cache, request::Written, rounds::may_ask, waiter::Extra};
pub(super) use self::{
    request::{Params, Replay, Request, What},
    rounds::{Asker, InputRequired},
    traffic::Traffic,
    waiter::{Render, Reply, Sink, Waiter},
};
use super::{
    delegate::ListKind,
    era::Manner,
    transport::{Carrier, Failure, Kind, Refused},
};
use crate::{CallContext, Error, Progress, Result, tool::panic_text};

#[derive(Default)]
struct Waiters {
    map: HashMap<i64, Waiter>,
    /// The waiters of requests that were sent again, by their newer numbers.
    renamed: HashMap<i64, i64>,
    /// When the sweeper looks next; `None` while it sleeps without a date.
    sweep_at: Option<Instant>,
    /// How many questions the user is being asked, and since when.
    asking: usize,
    asked_at: Option<Instant>,
}

impl Waiters {
    /// The waiter's own number, from the one that its latest request carried.
    fn key(&self, wire: i64) -> i64 {
        self.renamed.get(&wire).copied().unwrap_or(wire)
    }

    fn remove(&mut self, key: i64) -> Option<Waiter> {
        let waiter = self.map.remove(&key)?;
        if waiter.wire != key {
            self.renamed.remove(&waiter.wire);
        }
        Some(waiter)
    }
}

pub(super) struct Peer {
    server: Arc<str>,
    carrier: OnceLock<Arc<dyn Carrier>>,
    manner: RwLock<Arc<Manner>>,
    /// What answers questions inside results.
    asker: OnceLock<Arc<dyn Asker>>,
    waiters: Mutex<Waiters>,
    cache: Cache,
    traffic: Arc<Traffic>,
    /// Who takes over what this connection cannot carry to its end.
    rescuer: Option<Weak<dyn Rescuer>>,
    /// Why no request can be made any more.
    ended: OnceLock<String>,
    sweep: Notify,
    owner: u32,
    /// Whether any request was answered.
    heard: AtomicBool,
    /// Whether HTTP said that it wants to know who asks.
    unauthorised: AtomicBool,
}

/// Why a request came to nothing on its connection.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) why: String,
    /// Whether the server may have seen the request.
    pub(super) sent: bool,
}

/// Takes over the requests of a connection that is in trouble. The methods must not wait.
pub(super) trait Rescuer: Send + Sync {
    /// A request got no reply, and ends only if the rescuer ends it.
    fn rescue(&self, key: i64, waiter: Waiter, loss: Loss, from: &Arc<Peer>);

    /// The server did not answer in time.
    fn suspect(&self);
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer")
            .field("server", &self.server)
            .field("waiting", &self.len())
            .finish_non_exhaustive()
    }
}

impl Peer {
    /// A peer of its own, of which nobody takes anything over.
    pub(super) fn new(server: Arc<str>) -> Arc<Self> {
        Self::with(server, Arc::default(), None)
    }

    /// A peer whose numbers and counts are those of `traffic`.
    pub(super) fn with(
        server: Arc<str>,
        traffic: Arc<Traffic>,
        rescuer: Option<Weak<dyn Rescuer>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            server,
            carrier: OnceLock::new(),
            manner: RwLock::new(Arc::new(Manner::legacy(super::era::NEWEST_LEGACY.as_str()))),
            asker: OnceLock::new(),
            waiters: Mutex::default(),
            cache: Cache::default(),
            traffic,
            rescuer,
            ended: OnceLock::new(),
            sweep: Notify::new(),
            owner: std::process::id(),
            heard: AtomicBool::new(false),
            unauthorised: AtomicBool::new(false),
        })
    }

    /// What carries the messages; before, nothing can be sent.
    pub(super) fn carry_by(&self, carrier: Arc<dyn Carrier>) {
        // Once per peer: a new connection is a new peer.
        let _ = self.carrier.set(carrier);
    }

    /// What answers questions inside results.
    pub(super) fn answer_by(&self, asker: Arc<dyn Asker>) {
        let _ = self.asker.set(asker);
    }

    pub(super) fn carrier(&self) -> Option<&Arc<dyn Carrier>> {
        self.carrier.get()
    }

    pub(super) fn server(&self) -> &Arc<str> {
        &self.server
    }

    pub(super) fn manner(&self) -> Arc<Manner> {
        Arc::clone(&self.manner.read())
    }

    pub(super) fn set_manner(&self, manner: Manner) {
        *self.manner.write() = Arc::new(manner);
    }

    /// Whether this process opened the connection, rather than one that it was forked from.
    pub(super) fn is_ours(&self) -> bool {
        std::process::id() == self.owner
    }

    /// Whether any request was ever answered.
    pub(super) fn was_answered(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// Whether the server wanted to know who asks (HTTP status 401).
    pub(super) fn is_unauthorised(&self) -> bool {
        self.unauthorised.load(Ordering::Relaxed)
    }

    /// What went over all connections of this server.
    pub(super) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// How many requests wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.lock().map.len()
    }

    /// The only request that waits, if there is exactly one.
    pub(super) fn only(&self) -> Option<i64> {
        let waiters = self.waiters.lock();
        let mut all = waiters.map.values();
        let wire = all.next()?.wire;
        all.next().is_none().then_some(wire)
    }

    /// Whether someone waits for the reply to this number; a late reply must not disturb anyone.
    pub(super) fn waits(&self, wire: i64) -> bool {
        let waiters = self.waiters.lock();
        waiters.map.contains_key(&waiters.key(wire))
    }

    /// Make a request and wait for what the server sends as its result.
    ///
    /// Dropping the future cancels the request.
    pub(super) async fn request(
        self: &Arc<Self>,
        what: What,
        params: Params<'_>,
        context: CallContext,
        dressed: Option<Arc<Manner>>,
    ) -> Result<Box<RawValue>> {
        let (send, receive) = tokio::sync::oneshot::channel();
        let key = self.submit(Request {
            what,
            params,
            timeout: None,
            cap: None,
            deadline: context.deadline,
            limit: context.limit,
            progress: context.progress,
            sink: Sink::Raw(send),
            dressed,
            replay: Replay::Never,
        });
        let guard = key.map(|key| Cancel { peer: Arc::clone(self), key });
        let result = receive.await;
        // What is settled already knows no such number.
        drop(guard);
        result.unwrap_or(Err(Error::Cancelled))
    }

    /// Send a request; its sink is settled later, or at once if it cannot be sent. Returns its number.
    pub(super) fn submit(self: &Arc<Self>, request: Request<'_>) -> Option<i64> {
        if !self.is_ours() {
            // Its lines would mix with the parent's, and the replies would go there.
            let why = "it was started by the process that this one was forked from";
            request.sink.settle(Err(self.not_sent(&request.what, why)));
            return None;
        }
        let manner = request.dressed.clone().unwrap_or_else(|| self.manner());
        let (key, mut waiter, written) = hold(request, &manner, &self.traffic)?;
        let kept = written.cache_key(&waiter.what, &manner);
        if let Some(result) = kept.as_ref().and_then(|kept| self.cache.get(kept)) {
            waiter.settle_with(&result);
            return None;
        }
        waiter.kept = kept;
        self.enter(key, key, waiter, written)
    }

    /// Take over a request from another connection, or one that was made when there was none.
    pub(super) fn adopt(self: &Arc<Self>, key: i64, mut waiter: Waiter) {
        let wire = self.traffic.number();
        let manner = self.manner();
        waiter.replays += 1;
        waiter.may_ask = may_ask(&waiter.what, &manner);
        let written = waiter
            .again
            .as_ref()
            .map(|again| again.write(wire, key, &waiter.what, &manner, &Extra::default()));
        match written {
            Some(written) => {
                self.enter(key, wire, waiter, written);
            }
            None => waiter.fail(Error::Cancelled),
        }
    }

    /// Enter the waiter and send its request, unless the connection has ended.
    fn enter(self: &Arc<Self>, key: i64, wire: i64, waiter: Waiter, written: Written) -> Option<i64> {
        if let Some(why) = self.ended.get() {
            let rescued = self.rescuer.is_some();
            self.lose(key, waiter, why, false);
            // It may live on elsewhere, under its number.
            return rescued.then_some(key);
        }
        self.push(key, wire, waiter, written)
    }

    /// A request came to nothing here: whoever rescues decides what becomes of it.
    fn lose(self: &Arc<Self>, key: i64, waiter: Waiter, why: &str, sent: bool) {
        if let Some(rescuer) = self.rescuer.as_ref().and_then(Weak::upgrade) {
            return rescuer.rescue(key, waiter, Loss { why: why.to_owned(), sent }, self);
        }
        let error = lost(&self.server, &waiter.what, why, sent);
        waiter.fail(error);
    }

    /// Enter the waiter, and send its request under the number `wire`.
    fn push(self: &Arc<Self>, key: i64, wire: i64, mut waiter: Waiter, written: Written) -> Option<i64> {
        waiter.wire = wire;
        let method = waiter.what.method().to_owned();
        // In the map before the request leaves, since the reply may come before `send` returns.
        self.add(key, waiter);
        let kind = Kind::Request { id: wire, method: &method, headers: written.headers };
        match self.carrier.get().map_or(Err(Refused::Closed), |carrier| carrier.send(&written.line, kind)) {
            Ok(end) => {
                self.traffic.sent(written.line.len());
                if let Some(waiter) = self.waiters.lock().map.get_mut(&key) {
                    waiter.end = end;
                }
            }
            Err(Refused::Closed) => {
                let why = self.ended.get().map_or("its input is closed", String::as_str);
                if let Some(waiter) = self.take(key) {
                    self.lose(key, waiter, why, false);
                }
            }
            Err(Refused::Full) => {
                if let Some(waiter) = self.take(key) {
                    let error = self.not_sent(&waiter.what, "it does not read its input");
                    waiter.fail(error);
                }
                return None;
            }
        }
        // The connection may have ended between the check and the entry in the map.
        if let Some(why) = self.ended.get() {
            self.fail_all(why);
        }
        Some(key)
    }

    /// Send a notification; whether it was taken.
    pub(super) fn notify(&self, method: &str, params: Option<&Map<String, Value>>) -> bool {
        let manner = self.manner();
        let params = params.map_or(Params::None, Params::Object);
        // Parameters that are JSON already can be written.
        let Ok(line) = request::write_notification(method, &params, &manner) else { return false };
        let headers = manner.headers(method, None);
        self.send(&line, Kind::Notification { method, headers })
    }

    /// Answer a request of the server's; whether the answer was taken.
    pub(super) fn answer(&self, message: &Value) -> bool {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        self.send(&line, Kind::Reply)
    }

    fn send(&self, line: &[u8], kind: Kind<'_>) -> bool {
        self.is_ours() && self.carrier.get().is_some_and(|carrier| carrier.send(line, kind).is_ok())
    }

    fn add(&self, key: i64, waiter: Waiter) {
        let mut waiters = self.waiters.lock();
        let deadline = waiter.deadline;
        if waiter.wire != key {
            waiters.renamed.insert(waiter.wire, key);
        }
        waiters.map.insert(key, waiter);
        if let Some(deadline) = deadline
            && waiters.sweep_at.is_none_or(|at| deadline < at)
        {
            waiters.sweep_at = Some(deadline);
            drop(waiters);
            self.sweep.notify_one();
        }
    }

    fn take(&self, key: i64) -> Option<Waiter> {
        self.waiters.lock().remove(key)
    }

    /// The caller has lost interest: the server is told, a late reply is ignored.
    pub(super) fn cancel(&self, key: i64) {
        if let Some(waiter) = self.take(key) {
            self.abandon(&waiter, "the caller cancelled the call");
            waiter.fail(Error::Cancelled);
        }
    }

    /// A reply arrived; one that nobody waits for (any more) is ignored.
    pub(super) fn settle(&self, wire: i64, reply: Reply<'_>) {
        if let Reply::Result(result) = &reply
            && let Some(key) = self.may_ask(wire)
            && let Some(input) = waiter::input_required(result)
        {
            return self.park(key, input);
        }
        let waiter = {
            let mut waiters = self.waiters.lock();
            let key = waiters.key(wire);
            waiters.remove(key)
        };
        let Some(mut waiter) = waiter else { return };
        self.heard.store(true, Ordering::Relaxed);
        match reply {
            Reply::Result(result) => {
                if let Some(kept) = waiter.kept.take() {
                    self.cache.put(kept, result);
                }
                waiter.settle_with(result);
            }
            Reply::Error(error) => {
                let error = waiter.what.remote(error);
                waiter.fail(error);
            }
            Reply::Unreadable(why) => {
                let error = waiter.what.unreadable(&why);
                waiter.fail(error);
            }
        }
    }

    /// A request gets no reply.
    pub(super) fn fail(self: &Arc<Self>, wire: i64, failure: Failure) {
        let (key, waiter) = {
            let mut waiters = self.waiters.lock();
            let key = waiters.key(wire);
            // A parked request has had its reply, and its next round has another number.
            let waits = |waiter: &Waiter| waiter.wire == wire && waiter.paused_at.is_none();
            let waits = waiters.map.get(&key).is_some_and(waits);
            (key, if waits { waiters.remove(key) } else { None })
        };
        let Some(waiter) = waiter else { return };
        let error = match failure {
            Failure::NotSent(why) => return self.lose(key, waiter, &why, false),
            Failure::Lost(why) => return self.lose(key, waiter, &why, true),
            Failure::Unreadable(why) => waiter.what.unreadable(&why),
            Failure::Http { status, text, challenge } => {
                if status == 401 {
                    self.unauthorised.store(true, Ordering::Relaxed);
                }
                let text = waiter.what.failed(&text);
                Error::Http { server: self.server.to_string(), status, text, challenge }
            }
        };
        waiter.fail(error);
    }

    /// A progress report arrived.
    pub(super) fn progress(&self, token: i64, progress: Progress) {
        let sink = {
            let mut waiters = self.waiters.lock();
            let Some(waiter) = waiters.map.get_mut(&token) else { return };
            // The sweeper looks at the old date, finds the new one and sleeps again.
            waiter.extend(Instant::now());
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

    /// What was kept of these lists, or of this resource, holds no more.
    pub(super) fn forget_kept(&self, kind: ListKind, uri: Option<&str>) {
        self.cache.drop_if(|method, params| match uri {
            None => method.starts_with(kind.as_str()) && method != "resources/read",
            Some(uri) => {
                method == "resources/read"
                    && memchr::memmem::find(params, Value::from(uri).to_string().as_bytes()).is_some()
            }
        });
    }

    /// Why requests fail, once they do.
    pub(super) fn why_ended(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }

    /// Take no more requests; those that wait go on waiting. The first reason stands.
    pub(super) fn refuse(&self, why: &str) {
        let _ = self.ended.set(why.to_owned());
    }

    /// The connection has ended: every request that waits fails, and every later one.
    pub(super) fn end(self: &Arc<Self>, why: &str) {
        self.refuse(why);
        self.fail_all(self.ended.get().map_or(why, String::as_str));
        self.sweep.notify_one();
    }

    fn fail_all(self: &Arc<Self>, why: &str) {
        let waiters = {
            let mut waiters = self.waiters.lock();
            waiters.renamed.clear();
            std::mem::take(&mut waiters.map)
        };
        for (key, mut waiter) in waiters {
            if let Some(asking) = waiter.asking.take() {
                asking.abort();
            }
            waiter.resume(Instant::now());
            let sent = self.carrier.get().is_some_and(|carrier| carrier.has_left(waiter.end));
            self.lose(key, waiter, why, sent);
        }
    }

    fn not_sent(&self, what: &What, why: &str) -> Error {
        lost(&self.server, what, why, false)
    }

    /// Let the server know that nobody waits any more.
    fn abandon(&self, waiter: &Waiter, reason: &str) {
        if let Some(asking) = &waiter.asking {
            asking.abort();
        }
        let manner = self.manner();
        // Over HTTP the newer era's way to cancel is to drop the exchange. `initialize` must not be
        // cancelled.
        if !manner.headers && waiter.what.method() != "initialize" {
            let mut params = Map::new();
            params.insert("requestId".to_owned(), waiter.wire.into());
            params.insert("reason".to_owned(), reason.into());
            // A server that cannot be told any more is about to be noticed as dead.
            let _ = self.notify("notifications/cancelled", Some(&params));
        }
        if let Some(carrier) = self.carrier.get() {
            carrier.forget(waiter.wire);
        }
    }
}

/// The error of a request that came to nothing because of its connection.
pub(super) fn lost(server: &str, what: &What, why: &str, sent: bool) -> Error {
    let end = if sent {
        "it had received the call, so that the outcome is unknown"
    } else {
        "the call was not sent"
    };
    let text = what.failed(&format!("MCP server '{server}': {why}; {end}"));
    Error::Connection { server: server.to_owned(), text, sent }
}

/// Number a request and write it in this manner; `None` if it cannot be written, which its sink is told.
fn hold(request: Request<'_>, manner: &Manner, traffic: &Traffic) -> Option<(i64, Waiter, Written)> {
    let Request { what, params, timeout, cap, deadline, limit, progress, sink, dressed: _, replay } = request;
    let key = traffic.number();
    let reports = progress.is_some() || cap.is_some();
    let written = match request::write(key, &what, &params, manner, reports.then_some(key)) {
        Ok(written) => written,
        Err(error) => {
            sink.settle(Err(error));
            return None;
        }
    };
    let mut waiter = Waiter::new(what, sink, timeout, cap, deadline, limit);
    waiter.progress = progress;
    waiter.may_ask = may_ask(&waiter.what, manner);
    waiter.replay = replay;
    if waiter.may_ask || replay != Replay::Never {
        waiter.again = Some(written.again(&params, reports));
    }
    Some((key, waiter, written))
}

/// A request that waits for a connection to send it over; as [`Peer::adopt`] takes it.
pub(super) fn without_connection(request: Request<'_>, traffic: &Traffic) -> Option<(i64, Waiter)> {
    let manner = Manner::legacy(super::era::NEWEST_LEGACY.as_str());
    hold(request, &manner, traffic).map(|(key, waiter, _)| (key, waiter))
}

/// Cancels a request whose caller stops waiting.
struct Cancel {
    peer: Arc<Peer>,
    key: i64,
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.peer.cancel(self.key);
    }
}

//! One server of a configuration, kept connected.
//!
//! A [`Server`] lives as long as its entry does: it reaches the server, notices when it is gone, and
//! reaches it again, for ever. Its tools stay the same objects meanwhile, and calls go through its link,
//! which knows what becomes of them while there is no connection. One task per server does the keeping
//! (`keeper`); nothing here waits for another server.

mod backoff;
mod keeper;

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::{Duration, Instant, SystemTime},
};

use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value, value::RawValue};
use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    config::{Lazy, ServerConfig},
    connection::{self, Connection},
    delegate::{Delegate, Event, NoDelegate, Offered, RequestError},
    link::{JOIN, Link},
    offering::Offering,
    session::{About, List},
    shelf::Shelf,
    state::ConnectionState,
    wrap::McpTool,
};
use crate::{
    Arguments, BoxFuture, CallContext, Stats,
    error::{Error, Result},
};

/// How long a close waits for the server's end, beyond what is granted to running calls.
const CLOSE: Duration = Duration::from_secs(4);
/// How often a close looks whether calls still run.
const DRAIN: Duration = Duration::from_millis(10);

/// How a server is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Status {
    /// Where it is in its life.
    pub state: ConnectionState,
    /// Since when it is there.
    pub since: SystemTime,
    /// Why the last attempt or connection failed; `None` while it is ready.
    pub failure: Option<Error>,
    /// When it is tried again, if nobody asks for it before.
    pub next_attempt: Option<Instant>,
    /// Attempts that failed since the last that did not.
    pub attempts: u32,
    /// Connections that were made after the first.
    pub reconnects: u64,
    /// Whether its tools are offered from the cache, and the server has not confirmed them yet.
    pub cached: bool,
}

impl Status {
    fn new(state: ConnectionState) -> Self {
        Self {
            state,
            since: SystemTime::now(),
            failure: None,
            next_attempt: None,
            attempts: 0,
            reconnects: 0,
            cached: false,
        }
    }

    /// Whether there is nothing that a start should wait for.
    fn is_settled(&self) -> bool {
        self.cached
            || !matches!(
                self.state,
                ConnectionState::Recipe | ConnectionState::Connecting | ConnectionState::Reconnecting
            )
    }
}

/// What went to a server and came back, over all of its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Calls and other requests that were made of it.
    pub calls: u64,
    /// Bytes of requests.
    pub bytes_sent: u64,
    /// Bytes of messages.
    pub bytes_received: u64,
}

/// One server of a configuration, kept connected until it is closed or dropped.
pub struct Server {
    shared: Arc<Shared>,
    /// Ends with this.
    _keeper: Option<AbortOnDropHandle<()>>,
}

/// What the server and its keeper share.
struct Shared {
    offering: Arc<Offering>,
    delegate: Arc<dyn Delegate>,
    /// Where what it offers is kept.
    shelf: Option<Shelf>,
    /// What the server said about itself when it was last there.
    about: RwLock<Option<Arc<About>>>,
    /// The latest connection, which may be lost.
    latest: RwLock<Option<Arc<Connection>>>,
    status: watch::Sender<Status>,
    /// Somebody wants the next attempt now.
    again: Notify,
    stop: CancellationToken,
    /// Held while a change of state is told, so that they are told in their order.
    telling: Mutex<()>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Keep a server connected from now on. What came of the first attempt, [`settled`](Self::settled)
    /// tells; a disabled one is never started.
    ///
    /// With a shelf, what the server offered last is offered at once (unless its entry says `lazy: false`),
    /// and what it offers is kept. That file is read here and now.
    pub fn open(
        name: &str,
        config: ServerConfig,
        delegate: Arc<dyn Delegate>,
        shelf: Option<Shelf>,
    ) -> Arc<Self> {
        let name: Arc<str> = name.into();
        let disabled = config.disabled;
        let state = if disabled { ConnectionState::Disabled } else { ConnectionState::Recipe };
        let mut status = Status::new(state);
        let kept = match &shelf {
            Some(shelf) if !disabled && config.lazy != Lazy::No => {
                shelf.load(&name, &config, delegate.offered())
            }
            _ => None,
        };
        let link = Link::new(Arc::clone(&name));
        let offering = Offering::new(Arc::clone(&name), link, config);
        let mut about = None;
        let mut asleep = false;
        if let Some(kept) = kept {
            asleep = offering.config().lazy == Lazy::Yes && kept.is_fresh();
            offering.put(Arc::new(kept.offer), Vec::new());
            about = Some(Arc::new(kept.about));
            status.cached = true;
        }
        let shared = Arc::new(Shared {
            offering: Arc::new(offering),
            delegate,
            shelf,
            about: RwLock::new(about),
            latest: RwLock::default(),
            status: watch::Sender::new(status),
            again: Notify::new(),
            stop: CancellationToken::new(),
            telling: Mutex::default(),
        });
        let keeper = if disabled {
            shared.link().close("it is disabled");
            None
        } else {
            Some(AbortOnDropHandle::new(crate::spawn(keeper::keep(Arc::clone(&shared), asleep))))
        };
        Arc::new(Self { shared, _keeper: keeper })
    }

    /// The server's name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.offering.server()
    }

    /// The entry as it is now.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.shared.offering.config()
    }

    /// Where the server is in its life.
    pub fn state(&self) -> ConnectionState {
        self.shared.status.borrow().state
    }

    /// How it is.
    pub fn status(&self) -> Status {
        self.shared.status.borrow().clone()
    }

    /// What went to it and came back.
    pub fn counts(&self) -> Counts {
        let traffic = self.shared.link().traffic();
        let (bytes_sent, bytes_received) = traffic.bytes();
        Counts { calls: traffic.calls(), bytes_sent, bytes_received }
    }

    /// What came of the requests that the host made of it.
    pub fn stats(&self) -> Stats {
        self.shared.link().meter.read()
    }

    /// The latest connection, which may be lost; `None` before there was any.
    pub fn latest(&self) -> Option<Arc<Connection>> {
        self.shared.latest.read().clone()
    }

    /// What the server says about how to use it, as far as that is known.
    pub fn instructions(&self) -> Option<String> {
        self.shared.about.read().as_ref()?.instructions.clone()
    }

    /// The server's own name and version, once they are known.
    pub fn server_info(&self) -> Option<(String, String)> {
        self.shared.about.read().as_ref().map(|about| (about.name.clone(), about.version.clone()))
    }

    /// The protocol version that was agreed on last.
    pub fn protocol_version(&self) -> Option<String> {
        self.shared.about.read().as_ref().map(|about| about.protocol.clone())
    }

    /// What the server announced that it can do, as far as that is known.
    pub fn capabilities(&self) -> Value {
        let capabilities = self.shared.about.read().as_ref().map(|about| about.capabilities.clone());
        Value::Object(capabilities.unwrap_or_default())
    }

    /// Wait until the first attempt is over, or what the server offers is known from the cache, but no
    /// longer than `limit`; how it is then.
    pub async fn settled(&self, limit: Duration) -> Status {
        let mut status = self.shared.status.subscribe();
        match tokio::time::timeout(limit, status.wait_for(Status::is_settled)).await {
            Ok(Ok(status)) => status.clone(),
            Ok(Err(_)) | Err(_) => self.status(),
        }
    }

    /// The server's tools that its entry admits, in the server's order.
    pub fn tools(&self) -> Vec<Arc<McpTool>> {
        self.shared.offering.tools(true)
    }

    /// The server's resources and prompts as tools, if its entry admits everything.
    pub fn extras(&self) -> Vec<Arc<McpTool>> {
        self.shared.offering.tools(false)
    }

    /// How many of all kinds it offers.
    pub fn offers(&self) -> usize {
        self.shared.offering.len()
    }

    /// What was odd about the entry or the server without being fatal.
    pub fn warnings(&self) -> Vec<String> {
        self.shared.offering.warnings()
    }

    /// As [`Connection::claim_names`].
    pub fn claim_names(&self, taken: &mut HashSet<String>) -> Vec<String> {
        self.shared.offering.claim_names(taken)
    }

    /// Take a changed entry without a restart; false if it means another server, or the same one reached in
    /// another way, so that it has to be opened anew.
    pub fn update(&self, config: ServerConfig) -> bool {
        let now = self.config();
        if now.disabled != config.disabled || !now.is_same_server(&config) {
            return false;
        }
        if self.shared.offering.reconfigure(config) {
            self.shared.tell(Event::Offering);
        }
        // Its keeper may have to wait for something else now.
        self.shared.link().hints.nudge();
        true
    }

    /// Start the next attempt now, or have the connection checked.
    pub fn reconnect(&self) {
        self.shared.again.notify_one();
    }

    /// Start the next attempt now unless the server is there, and wait until it is over, but no longer than
    /// `limit`; how it is then.
    pub async fn retry(&self, limit: Duration) -> Status {
        let mut status = self.shared.status.subscribe();
        let before = self.status();
        if matches!(before.state, ConnectionState::Lost | ConnectionState::NeedsAuthorisation) {
            self.reconnect();
        }
        let over = |now: &Status| {
            now.is_settled() && (now.attempts != before.attempts || now.state != before.state)
                || matches!(now.state, ConnectionState::Ready | ConnectionState::Closed)
                || now.state == ConnectionState::Cached
                || now.state == ConnectionState::Disabled
        };
        match tokio::time::timeout(limit, status.wait_for(over)).await {
            Ok(Ok(status)) => status.clone(),
            Ok(Err(_)) | Err(_) => self.status(),
        }
    }

    /// Call a tool by its raw name; the result is the JSON that the server sent.
    ///
    /// The call keeps the tool's limit and the context's deadline, which hold for reconnecting as well.
    /// Dropping the future cancels it.
    pub fn call_tool(
        &self,
        tool: &str,
        arguments: Arguments,
        context: CallContext,
    ) -> BoxFuture<Result<Box<RawValue>>> {
        connection::call_tool(&self.shared.offering, tool, arguments, context)
    }

    /// Make any request; the result is the JSON that the server sent.
    ///
    /// It keeps the entry's `toolTimeout` and the context's deadline. Dropping the future cancels it.
    pub fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
        context: CallContext,
    ) -> BoxFuture<Result<Box<RawValue>>> {
        connection::request(&self.shared.offering, method, params, context)
    }

    /// Send a notification.
    ///
    /// # Errors
    /// [`Error::Connection`] when there is no connection.
    pub fn notify(&self, method: &str, params: Option<&Map<String, Value>>) -> Result<()> {
        match self.latest() {
            Some(connection) => connection.notify(method, params),
            None => Err(self.away()),
        }
    }

    /// Read a whole list: all pages, each item as the server sent it.
    ///
    /// # Errors
    /// The server's, or [`Error::Connection`] when it is not there.
    pub async fn list(&self, list: List) -> Result<Vec<Value>> {
        self.live().await?.list(list).await
    }

    /// Ask the server for log messages of this level and above; connections to come ask as well.
    ///
    /// # Errors
    /// As [`Connection::set_logging_level`].
    pub async fn set_logging_level(&self, level: &str) -> Result<()> {
        self.live().await?.set_logging_level(level).await
    }

    /// Be told when a resource changes; connections to come ask as well.
    ///
    /// # Errors
    /// The server's.
    pub async fn subscribe(&self, uri: &str) -> Result<()> {
        self.live().await?.subscribe(uri).await
    }

    /// Be told no longer.
    ///
    /// # Errors
    /// The server's.
    pub async fn unsubscribe(&self, uri: &str) -> Result<()> {
        self.live().await?.unsubscribe(uri).await
    }

    /// The connection, which is waited for as a call would.
    async fn live(&self) -> Result<Arc<Connection>> {
        let mut status = self.shared.status.subscribe();
        let limit = match status.borrow().state {
            ConnectionState::Ready => None,
            ConnectionState::Reconnecting => Some(JOIN),
            ConnectionState::Recipe | ConnectionState::Connecting | ConnectionState::Cached => {
                self.shared.link().want();
                Some(self.config().tool_timeout)
            }
            _ => return Err(self.away()),
        };
        if let Some(limit) = limit {
            let waits =
                |status: &Status| !matches!(status.state, ConnectionState::Cached) && status.is_settled();
            // What came of it, the state says.
            let _ = tokio::time::timeout(limit, status.wait_for(waits)).await;
        }
        let ready = self.state() == ConnectionState::Ready;
        self.latest().filter(|_| ready).ok_or_else(|| self.away())
    }

    fn away(&self) -> Error {
        let name = self.name();
        Error::Connection {
            server: name.to_owned(),
            text: match self.status().failure {
                Some(failure) => failure.to_string(),
                None => format!("MCP server '{name}' is not connected ({})", self.state().as_str()),
            },
            sent: false,
        }
    }

    /// Kill the server's process group at once, without waiting; for the end of the process.
    pub fn kill(&self) {
        self.shared.link().close("the connection is closed");
        self.shared.stop.cancel();
        if let Some(connection) = self.latest() {
            connection.kill();
        }
    }

    /// End it: no new calls; those that run get up to `drain`. Then what waits fails, the server's input
    /// is closed or its session ended, and what is left of its process group after 2 s is killed. May be
    /// called any number of times; returns when the group is gone.
    pub async fn close(&self, drain: Duration) {
        self.shared.link().close("the connection is closed");
        let limit = Instant::now() + drain;
        if let Some(connection) = self.latest() {
            while connection.is_busy() && Instant::now() < limit {
                tokio::time::sleep(DRAIN).await;
            }
        }
        self.shared.stop.cancel();
        let mut status = self.shared.status.subscribe();
        let over =
            |status: &Status| matches!(status.state, ConnectionState::Closed | ConnectionState::Disabled);
        if tokio::time::timeout(CLOSE, status.wait_for(over)).await.is_err() {
            tracing::warn!(server = self.name(), "closing takes long; it goes on in the background");
        }
    }
}

/// Speaks for the host, and keeps what changes.
struct Relay(Weak<Shared>);

impl Delegate for Relay {
    fn offered(&self) -> Offered {
        self.0.upgrade().map(|shared| shared.delegate.offered()).unwrap_or_default()
    }

    fn request(
        &self,
        server: &str,
        method: &str,
        params: Value,
    ) -> BoxFuture<std::result::Result<Value, RequestError>> {
        match self.0.upgrade() {
            Some(shared) => shared.delegate.request(server, method, params),
            None => NoDelegate.request(server, method, params),
        }
    }

    fn event(&self, server: &str, event: Event) {
        let Some(shared) = self.0.upgrade() else { return };
        if matches!(event, Event::ListChanged(_)) {
            shared.keep();
        }
        shared.delegate.event(server, event);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Shared {
    fn link(&self) -> &Arc<Link> {
        self.offering.link()
    }

    fn tell(&self, event: Event) {
        self.delegate.event(self.offering.server(), event);
    }

    /// Keep what the server offers for the next start, in the background.
    fn keep(&self) {
        let Some(cache) = self.shelf.clone() else { return };
        let about = self.about.read().clone();
        let Some(about) = about else { return };
        let (offering, offered) = (Arc::clone(&self.offering), self.delegate.offered());
        crate::spawn_blocking(move || {
            cache.store(offering.server(), &offering.config(), offered, &about, &offering.offer());
        });
    }

    /// Enter a state, and say so.
    fn enter(&self, state: ConnectionState, change: impl FnOnce(&mut Status)) {
        let order = self.telling.lock();
        let mut failure = None;
        self.status.send_modify(|status| {
            if status.state != state {
                status.since = SystemTime::now();
            }
            status.state = state;
            status.next_attempt = None;
            change(status);
            failure = status.failure.as_ref().map(ToString::to_string);
        });
        self.tell(Event::State { state, failure });
        drop(order);
    }
}

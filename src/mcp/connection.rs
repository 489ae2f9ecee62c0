//! A connection to one server: its start, its state, what it offers and its end.
//!
//! [`connect`] holds one deadline over start, handshake and lists. Whichever way a connection
//! ends (closed, dropped, failed or cancelled while it was being made, server gone), the server's
//! whole process group goes with it, and every call that waits fails at once. There is no
//! reconnecting yet: a lost connection stays lost. Its place is prepared: tools hold a link whose
//! peer can be exchanged, and a connection keeps the recipe it was made from.

mod upkeep;

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use indexmap::IndexMap;
use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value, value::RawValue};
use tokio::{runtime::Handle, sync::watch};
use tokio_util::task::AbortOnDropHandle;

use super::{
    artifacts::Store,
    catalog,
    config::{ServerConfig, TransportKind},
    delegate::{Delegate, Event, ListKind, NoDelegate},
    era::{self, Era},
    handler::{self, Handler},
    inbox::Inbox,
    peer::{Peer, What},
    session::{self, About, List, Terms},
    transport::{Carrier, process::Process, sse, stdio, streamable_http},
    wrap::{self, Capability, Limits, Link, McpTool, Offer, Wrapper},
};
use crate::{
    Arguments, BoxFuture, CallContext,
    error::{Error, Result},
    net::{HttpClient, Policy},
    tool::seconds,
};

/// How long a server may take to end after its input is closed, before it is asked to.
const GRACE: Duration = Duration::from_secs(1);
/// How long after that, before it is killed.
const LAST_GRACE: Duration = Duration::from_secs(1);
/// How long a failed connect waits for the killed server's end and its last words.
const REAP: Duration = Duration::from_secs(1);

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Configured, not started.
    Recipe,
    /// Starting, shaking hands or listing.
    Connecting,
    /// Calls go through.
    Ready,
    /// The server is gone; calls fail at once.
    Lost,
    /// Closed by its owner.
    Closed,
}

impl ConnectionState {
    /// The state in lower case, for users.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recipe => "recipe",
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Lost => "lost",
            Self::Closed => "closed",
        }
    }
}

/// A live server with what it offers.
#[derive(Debug)]
pub struct Connection {
    name: Arc<str>,
    config: ServerConfig,
    about: About,
    capabilities: Value,
    leash: Option<Leash>,
    peer: Arc<Peer>,
    handler: Arc<Handler>,
    wrapper: Wrapper,
    /// What was last read of each list.
    offer: Mutex<Offer>,
    tools: RwLock<Vec<Arc<McpTool>>>,
    warnings: RwLock<Vec<String>>,
    state: Arc<watch::Sender<ConnectionState>>,
    /// The resources that are subscribed to, and who listens on their behalf.
    subscriptions: upkeep::Subscriptions,
    runtime: Handle,
}

/// Kills the process group when dropped.
#[derive(Debug)]
struct Leash(Arc<Process>);

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Start or reach a server, shake hands and read its lists, within its `connectTimeout`.
///
/// Nothing that the server may ask of a client is offered to it. Dropping the future ends what was
/// started.
///
/// # Errors
/// [`Error::Config`] for an entry that is disabled or cannot be used;
/// [`Error::Connect`] with the exit status and the tail of stderr where there are any.
pub async fn connect(name: &str, config: ServerConfig) -> Result<Arc<Connection>> {
    connect_with(name, config, Arc::new(NoDelegate)).await
}

/// As [`connect`], with someone who answers what the server asks.
///
/// # Errors
/// As [`connect`].
pub async fn connect_with(
    name: &str,
    config: ServerConfig,
    delegate: Arc<dyn Delegate>,
) -> Result<Arc<Connection>> {
    if config.disabled {
        return Err(Error::Config(format!("MCP server '{name}' is disabled")));
    }
    // On the runtime in any case: the caller may poll this future on an executor of its own.
    let opening = AbortOnDropHandle::new(crate::spawn(open(name.into(), config, delegate)));
    opening.await.unwrap_or_else(|error| Err(Error::Panic(error.to_string())))
}

/// What came of one attempt to reach a server.
struct Attempt {
    peer: Arc<Peer>,
    handler: Arc<Handler>,
    leash: Option<Leash>,
    /// Its own, because what is left of a former attempt may still end.
    state: Arc<watch::Sender<ConnectionState>>,
    about: About,
    offer: Offer,
    notes: Vec<String>,
}

/// Why an attempt failed.
struct Failed {
    error: Error,
    /// The server went away before it had answered anything.
    unanswered: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, unanswered: false }
    }
}

async fn open(name: Arc<str>, config: ServerConfig, delegate: Arc<dyn Delegate>) -> Result<Arc<Connection>> {
    let client = match config.transport {
        TransportKind::Stdio => None,
        TransportKind::Sse | TransportKind::StreamableHttp => {
            let policy = Policy { allow_private: config.allow_private.clone() };
            Some(HttpClient::new(&name, policy, &config.headers)?)
        }
    };
    let limit = tokio::time::Instant::now() + config.connect_timeout;
    let automatic = config.protocol.is_none();
    let mut era = era::remembered(&config).filter(|_| automatic);
    let mut first = None;
    let attempt = loop {
        let attempt = attempt(&name, &config, client.as_ref(), Arc::clone(&delegate), era, limit);
        match attempt.await {
            Ok(attempt) => break attempt,
            // Some old servers end when the first request is not `initialize`.
            Err(Failed { error, unanswered: true }) if automatic && era.is_none() && first.is_none() => {
                first = Some(error);
                era = Some(Era::Legacy);
            }
            // A server that was exchanged may speak another era than it did.
            Err(Failed { error, .. }) if automatic && era.is_some() && first.is_none() => {
                first = Some(error);
                era::remember(&config, None);
                era = None;
            }
            Err(Failed { error, .. }) => return Err(first.unwrap_or(error)),
        }
    };
    let Attempt { peer, handler, leash, state, about, offer, mut notes } = attempt;
    if automatic {
        era::remember(&config, Some(Era::of(&about.protocol)));
    }

    let link = Link::new(Arc::clone(&peer));
    let store = config.artifacts.clone().or_else(Store::default_root).map(|root| Arc::new(Store::new(root)));
    let wrapper = Wrapper { server: Arc::clone(&name), link, store };
    let tools = wrapper.wrap(&config, offer.clone(), &[], &mut notes);
    if !notes.is_empty() {
        tracing::warn!(server = &*name, notes = notes.join("; "), "the server or its entry is odd");
    }
    let warnings = config.warnings.iter().cloned().chain(notes).collect();
    let ready = state.send_if_modified(|state| {
        let connecting = *state == ConnectionState::Connecting;
        if connecting {
            *state = ConnectionState::Ready;
        }
        connecting
    });
    let connection = Arc::new(Connection {
        name,
        config,
        capabilities: Value::Object(about.capabilities.clone()),
        about,
        leash,
        peer,
        handler,
        wrapper,
        offer: Mutex::new(offer),
        tools: RwLock::new(tools),
        warnings: RwLock::new(warnings),
        state,
        subscriptions: upkeep::Subscriptions::default(),
        runtime: Handle::current(),
    });
    if ready {
        connection.handler.tell(Event::State(ConnectionState::Ready));
    }
    upkeep::start(&connection);
    Ok(connection)
}

/// Reach the server once.
async fn attempt(
    name: &Arc<str>,
    config: &ServerConfig,
    client: Option<&HttpClient>,
    delegate: Arc<dyn Delegate>,
    remembered: Option<Era>,
    limit: tokio::time::Instant,
) -> std::result::Result<Attempt, Failed> {
    let failed = |why: String| Error::Connect {
        server: name.to_string(),
        text: format!("MCP server '{name}': {why}"),
    };
    let state = Arc::new(watch::Sender::new(ConnectionState::Connecting));
    let peer = Peer::new(Arc::clone(name));
    let capabilities = handler::capabilities(&*delegate);
    let handler = Handler::new(&peer, delegate);
    let lost = {
        let (state, name, handler) = (Arc::clone(&state), Arc::clone(name), Arc::clone(&handler));
        move |why: &str| {
            let mut was_ready = false;
            state.send_if_modified(|state| match state {
                ConnectionState::Closed | ConnectionState::Lost => false,
                state => {
                    was_ready = *state == ConnectionState::Ready;
                    *state = ConnectionState::Lost;
                    true
                }
            });
            if was_ready {
                tracing::warn!(server = &*name, why, "connection lost");
                handler.tell(Event::State(ConnectionState::Lost));
            }
        }
    };
    let inbox = Inbox::new(&peer, &handler, lost);
    let mut leash = None;
    match (config.transport, client) {
        (TransportKind::Stdio, _) | (_, None) => {
            let started = stdio::start(config)
                .map_err(|error| failed(format!("'{}' could not be started: {error}", config.command)))?;
            peer.carry_by(Arc::clone(&started.carrier) as Arc<dyn Carrier>);
            leash = Some(Leash(started.listen(inbox)));
        }
        (TransportKind::StreamableHttp, Some(client)) => {
            peer.carry_by(streamable_http::open(name, &config.url, client.clone(), inbox)?);
        }
        (TransportKind::Sse, Some(client)) => {
            peer.carry_by(sse::open(name, &config.url, client.clone(), inbox)?);
        }
    }
    crate::spawn(Arc::clone(&peer).sweep());
    let ending = EndOnDrop(Some(Arc::clone(&peer)));

    let terms = Terms {
        capabilities,
        http: config.transport != TransportKind::Stdio,
        may_be_modern: config.transport != TransportKind::Sse,
        pinned: config.protocol.clone(),
        remembered,
    };
    let mut watched = state.subscribe();
    let outcome = tokio::select! {
        // First, because it tells the exit status where the session only notices an end.
        biased;
        _ = watched.wait_for(|state| *state == ConnectionState::Lost) => {
            Err(peer.why_ended().unwrap_or("the server is gone").to_owned())
        }
        outcome = handshake(&peer, &terms) => outcome,
        () = tokio::time::sleep_until(limit) => {
            Err(format!("no handshake and lists within {}s", seconds(config.connect_timeout)))
        }
    };
    match outcome {
        Ok((about, offer, notes)) => {
            ending.keep();
            Ok(Attempt { peer, handler, leash, state, about, offer, notes })
        }
        Err(why) => {
            let unanswered = peer.heard_nothing() && peer.why_ended().is_some();
            let why = match &leash {
                Some(leash) => give_up(&leash.0, &peer, why).await,
                None => why,
            };
            Err(Failed { error: failed(why), unanswered })
        }
    }
}

/// Ends a peer that came to nothing, also when the attempt is dropped half-way.
struct EndOnDrop(Option<Arc<Peer>>);

impl EndOnDrop {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if let Some(peer) = &self.0 {
            peer.end("the connection was given up");
            if let Some(carrier) = peer.carrier() {
                carrier.close();
            }
        }
    }
}

type Parts = (About, Offer, Vec<String>);

async fn handshake(peer: &Arc<Peer>, terms: &Terms) -> std::result::Result<Parts, String> {
    let about = session::open(peer, terms).await?;
    let mut notes = Vec::new();
    let mut offer = Offer::default();
    let strict = peer.manner().headers;
    for kind in ListKind::ALL {
        // Tools are asked for in any case: there are servers that have some without saying so.
        if kind == ListKind::Tools || about.has(kind) {
            read_list(peer, &about, kind, strict, &mut offer, &mut notes).await?;
        }
    }
    Ok((about, offer, notes))
}

/// Read one kind of what the server offers. A list beside the tools that cannot be read costs itself.
async fn read_list(
    peer: &Arc<Peer>,
    about: &About,
    kind: ListKind,
    strict: bool,
    offer: &mut Offer,
    notes: &mut Vec<String>,
) -> std::result::Result<(), String> {
    let list = match kind {
        ListKind::Tools => List::Tools,
        ListKind::Resources => List::Resources,
        ListKind::Prompts => List::Prompts,
    };
    let listed = match session::list(peer, list, about.has(kind)).await {
        Ok(listed) => listed,
        Err(error @ Error::Connection { .. }) => return Err(error.to_string()),
        Err(error) if kind == ListKind::Tools => return Err(error.to_string()),
        Err(error) => {
            notes.push(format!("its {} are left out: {error}", kind.as_str()));
            return Ok(());
        }
    };
    notes.extend(listed.notes);
    match listed.fresh_for {
        Some(time) => offer.fresh.insert(kind, time),
        None => offer.fresh.remove(&kind),
    };
    match kind {
        ListKind::Tools => offer.tools = catalog::tools(&listed.items, strict, notes),
        ListKind::Resources => offer.resources = catalog::resources(&listed.items, notes),
        ListKind::Prompts => offer.prompts = catalog::prompts(&listed.items, notes),
    }
    Ok(())
}

/// End a server that was started in vain; the text of the error.
async fn give_up(process: &Process, peer: &Peer, why: String) -> String {
    // A server that is about to exit by itself has a status worth telling.
    let known = peer.why_ended().map(str::to_owned);
    process.kill();
    let _ = tokio::time::timeout(REAP, process.exited()).await;
    if let Some(known) = known {
        return if why == known { why } else { format!("{why}; {known}") };
    }
    stdio::with_stderr(why, process)
}

impl Connection {
    /// The server's name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The entry that the connection was made from.
    #[must_use]
    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// The server's tools that its entry admits, in the server's order.
    pub fn tools(&self) -> Vec<Arc<McpTool>> {
        self.offered(true)
    }

    /// The server's resources and prompts as tools, if its entry admits everything.
    pub fn extras(&self) -> Vec<Arc<McpTool>> {
        self.offered(false)
    }

    fn offered(&self, tools: bool) -> Vec<Arc<McpTool>> {
        let all = self.tools.read();
        all.iter().filter(|tool| (tool.capability() == Capability::Tool) == tools).cloned().collect()
    }

    /// Where the connection is in its life.
    pub fn state(&self) -> ConnectionState {
        *self.state.borrow()
    }

    /// Wait until the connection is lost or closed.
    pub async fn ended(&self) -> ConnectionState {
        let mut state = self.state.subscribe();
        let over = |state: &ConnectionState| matches!(state, ConnectionState::Lost | ConnectionState::Closed);
        // The sender lives as long as `self`.
        state.wait_for(over).await.map_or(ConnectionState::Closed, |state| *state)
    }

    /// Why calls fail, once they do: exit status and tail of stderr, or that it was closed.
    pub fn why_ended(&self) -> Option<String> {
        self.peer.why_ended().map(str::to_owned)
    }

    /// The id of the server's process, which leads its process group; `None` over HTTP.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.leash.as_ref().map(|leash| leash.0.pid())
    }

    /// What the server says about how to use it.
    #[must_use]
    pub fn instructions(&self) -> Option<&str> {
        self.about.instructions.as_deref()
    }

    /// The server's own name and version.
    #[must_use]
    pub fn server_info(&self) -> (&str, &str) {
        (&self.about.name, &self.about.version)
    }

    /// The protocol version that was agreed on.
    #[must_use]
    pub fn protocol_version(&self) -> &str {
        &self.about.protocol
    }

    /// What the server announces that it can do: an object of capabilities, as it sent it.
    #[must_use]
    pub const fn capabilities(&self) -> &Value {
        &self.capabilities
    }

    /// What was odd about the entry or the server without being fatal.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.read().clone()
    }

    /// The last lines that the server wrote to stderr.
    pub fn stderr_tail(&self) -> String {
        self.leash.as_ref().map(|leash| leash.0.stderr_tail()).unwrap_or_default()
    }

    /// Call a tool by its raw name; the result is the JSON that the server sent.
    ///
    /// The call keeps the tool's limit and the context's deadline. Dropping the future cancels it.
    pub fn call_tool(
        &self,
        tool: &str,
        arguments: Arguments,
        context: CallContext,
    ) -> BoxFuture<Result<Box<RawValue>>> {
        let limits = Limits::of(&self.config, tool);
        let offer = self.offer.lock();
        let headers = offer.tools.iter().find(|known| known.name == tool).map(|known| known.headers.clone());
        let headers = headers.unwrap_or_default().into();
        wrap::call_raw(Arc::clone(&self.wrapper.link), tool.to_owned(), headers, arguments, limits, context)
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
        let limits = Limits { timeout: self.config.tool_timeout, cap: None };
        wrap::request(Arc::clone(&self.wrapper.link), What::of(method), params, limits, context)
    }

    /// Send a notification.
    ///
    /// # Errors
    /// [`Error::Connection`] when it cannot be sent.
    pub fn notify(&self, method: &str, params: Option<&Map<String, Value>>) -> Result<()> {
        if self.peer.why_ended().is_none() && self.peer.notify(method, params) {
            return Ok(());
        }
        let why = self.peer.why_ended().unwrap_or("its input is closed");
        Err(Error::Connection {
            server: self.name.to_string(),
            text: format!("MCP server '{}': {why}; {method} was not sent", self.name),
            sent: false,
        })
    }

    /// Read a whole list: all pages, each item as the server sent it.
    ///
    /// # Errors
    /// The server's, unless it announces no such list.
    pub async fn list(&self, list: List) -> Result<Vec<Value>> {
        let announced = self.about.has(match list {
            List::Tools => ListKind::Tools,
            List::Resources | List::Templates => ListKind::Resources,
            List::Prompts => ListKind::Prompts,
        });
        let reading = session::list(&self.peer, list, announced);
        match tokio::time::timeout(self.config.tool_timeout, reading).await {
            Ok(listed) => listed.map(|listed| listed.items),
            Err(_) => Err(crate::tool::timed_out(self.config.tool_timeout)),
        }
    }

    /// Ask the server for log messages of this level and above.
    ///
    /// # Errors
    /// The server's; in the newer era, where every request says it, there is none.
    pub async fn set_logging_level(&self, level: &str) -> Result<()> {
        upkeep::set_logging_level(self, level).await
    }

    /// Be told when a resource changes ([`Event::ResourceUpdated`]).
    ///
    /// # Errors
    /// The server's.
    pub async fn subscribe(self: &Arc<Self>, uri: &str) -> Result<()> {
        upkeep::subscribe(self, uri, true).await
    }

    /// Be told no longer.
    ///
    /// # Errors
    /// The server's.
    pub async fn unsubscribe(self: &Arc<Self>, uri: &str) -> Result<()> {
        upkeep::subscribe(self, uri, false).await
    }

    /// Rename those of the tools whose names are in `taken`, and add all names to it.
    ///
    /// Returns a line for each renaming.
    pub fn claim_names(&self, taken: &mut HashSet<String>) -> Vec<String> {
        let mut notes = Vec::new();
        let mut tools = self.tools.write();
        for tool in tools.iter_mut() {
            let name = crate::Tool::spec(&**tool).name.clone();
            let claimed = wrap::claim(&self.name, tool.raw_name(), &name, taken, &mut notes);
            if claimed != name {
                *tool = Arc::new(tool.renamed(claimed));
            }
        }
        notes
    }

    /// Kill the server's process group at once, without waiting; for the end of the process.
    pub fn kill(&self) {
        if let Some(leash) = &self.leash {
            leash.0.kill();
        }
    }

    /// End the connection: calls that wait fail, the server's input is closed or its session ended,
    /// and what is left of its process group after 2 s is killed. May be called from anywhere, any
    /// number of times; returns when the group is gone.
    pub async fn close(&self) {
        let first = self.closed("the connection is closed");
        if !self.peer.is_ours() {
            return;
        }
        let Some(leash) = &self.leash else { return };
        let process = Arc::clone(&leash.0);
        if first {
            // Not part of this future, which may be dropped.
            self.runtime.spawn(end_process(Arc::clone(&process)));
        }
        process.exited().await;
    }

    /// Note that the connection is closed, fail what waits and close the transport; whether it was
    /// open.
    fn closed(&self, why: &str) -> bool {
        let first = self.state.send_if_modified(|state| {
            let open = *state != ConnectionState::Closed;
            *state = ConnectionState::Closed;
            open
        });
        if first && self.peer.is_ours() {
            self.peer.end(why);
            self.handler.stop();
            if let Some(carrier) = self.peer.carrier() {
                carrier.close();
            }
        }
        first
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.closed("the connection was dropped");
    }
}

async fn end_process(process: Arc<Process>) {
    if tokio::time::timeout(GRACE, process.exited()).await.is_ok() {
        return;
    }
    process.terminate();
    if tokio::time::timeout(LAST_GRACE, process.exited()).await.is_err() {
        process.kill();
    }
}

/// What came of connecting several servers.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ConnectAll {
    /// The servers that are ready, in the order of the configuration.
    pub connections: IndexMap<String, Arc<Connection>>,
    /// The servers that are not, each with its reason.
    pub failed: IndexMap<String, Error>,
}

/// Connect several servers at once. Disabled entries are skipped; a faulty one costs itself.
///
/// Tool names are unique over all of them: of two that collide, the one later in the
/// configuration gets a hash suffix.
pub async fn connect_all(servers: impl IntoIterator<Item = (String, Result<ServerConfig>)>) -> ConnectAll {
    let attempts = servers.into_iter().map(|(name, config)| async move {
        let result = match config {
            Ok(config) if config.disabled => None,
            Ok(config) => Some(connect(&name, config).await),
            Err(error) => Some(Err(error)),
        };
        (name, result)
    });
    let mut all = ConnectAll::default();
    let mut taken = HashSet::new();
    for (name, result) in join_all(attempts).await {
        match result {
            None => {}
            Some(Ok(connection)) => {
                for note in connection.claim_names(&mut taken) {
                    tracing::warn!(server = name, note);
                }
                all.connections.insert(name, connection);
            }
            Some(Err(error)) => {
                tracing::warn!(server = name, %error, "server left out");
                all.failed.insert(name, error);
            }
        }
    }
    all
}

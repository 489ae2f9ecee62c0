//! A connection to one server: its start, its state, its tools and its end.
//!
//! [`connect`] holds one deadline over start, handshake and lists. Whichever way a connection
//! ends (closed, dropped, failed or cancelled while it was being made, server gone), the server's
//! whole process group goes with it, and every call that waits fails at once. There is no
//! reconnecting yet: a lost connection stays lost. Its place is prepared: tools hold a link whose
//! lane can be exchanged, and a connection keeps the recipe it was made from.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use indexmap::IndexMap;
use parking_lot::{Mutex, RwLock};
use serde_json::value::RawValue;
use tokio::{runtime::Handle, sync::watch};
use tokio_util::task::AbortOnDropHandle;

use super::{
    config::{ServerConfig, TransportKind},
    lane::Lane,
    session::{About, Session},
    transport::{
        Outbox,
        process::Process,
        stdio::{self, Started},
    },
    wrap::{self, Limits, Link, McpTool},
};
use crate::{
    Arguments, BoxFuture, CallContext,
    error::{Error, Result},
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

/// A live server with its tools.
#[derive(Debug)]
pub struct Connection {
    name: Arc<str>,
    config: ServerConfig,
    about: About,
    leash: Leash,
    outbox: Arc<Outbox>,
    link: Arc<Link>,
    session: Mutex<Option<Session>>,
    tools: RwLock<Vec<Arc<McpTool>>>,
    warnings: Vec<String>,
    state: Arc<watch::Sender<ConnectionState>>,
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

/// Start a server, shake hands and list its tools, within its `connectTimeout`.
///
/// Dropping the future ends what was started.
///
/// # Errors
/// [`Error::Config`] for an entry that is disabled or whose transport is not supported;
/// [`Error::Connect`] with the exit status and the tail of stderr where there are any.
pub async fn connect(name: &str, config: ServerConfig) -> Result<Arc<Connection>> {
    if config.disabled {
        return Err(Error::Config(format!("MCP server '{name}' is disabled")));
    }
    if config.transport != TransportKind::Stdio {
        return Err(Error::Config(format!(
            "MCP server '{name}': the transport {} is not supported yet; only stdio is",
            config.transport.as_str()
        )));
    }
    // On the runtime in any case: the caller may poll this future on an executor of its own.
    let opening = AbortOnDropHandle::new(crate::spawn(open(name.into(), config)));
    opening.await.unwrap_or_else(|error| Err(Error::Panic(error.to_string())))
}

async fn open(name: Arc<str>, config: ServerConfig) -> Result<Arc<Connection>> {
    let state = Arc::new(watch::Sender::new(ConnectionState::Connecting));
    let lost = {
        let state = Arc::clone(&state);
        let name = Arc::clone(&name);
        move |why: &str| {
            let changed = state.send_if_modified(|state| match state {
                ConnectionState::Closed | ConnectionState::Lost => false,
                state => {
                    *state = ConnectionState::Lost;
                    true
                }
            });
            if changed {
                tracing::warn!(server = &*name, why, "connection lost");
            }
        }
    };
    let failed = |text: String| Error::Connect {
        server: name.to_string(),
        text: format!("MCP server '{name}': {text}"),
    };
    let Started { transport, process, outbox, lane } = stdio::start(&name, &config, lost)
        .map_err(|error| failed(format!("'{}' could not be started: {error}", config.command)))?;
    let leash = Leash(process);

    let mut watched = state.subscribe();
    let outcome = tokio::select! {
        // First, because it tells the exit status where the session only notices an end.
        biased;
        _ = watched.wait_for(|state| *state == ConnectionState::Lost) => {
            Err(lane.why_ended().unwrap_or("the server is gone").to_owned())
        }
        outcome = handshake(transport) => outcome,
        () = tokio::time::sleep(config.connect_timeout) => {
            Err(format!("no handshake and tool list within {}s", seconds(config.connect_timeout)))
        }
    };
    let (session, about, raw, mut notes) = match outcome {
        Ok(parts) => parts,
        Err(why) => return Err(failed(give_up(&leash.0, &lane, why).await)),
    };

    let link = Link::new(lane);
    let tools = wrap::wrap_all(&name, &config, &link, raw, &mut notes);
    if !notes.is_empty() {
        tracing::warn!(server = &*name, notes = notes.join("; "), "the server or its entry is odd");
    }
    let warnings = config.warnings.iter().cloned().chain(notes).collect();
    state.send_if_modified(|state| {
        let connecting = *state == ConnectionState::Connecting;
        if connecting {
            *state = ConnectionState::Ready;
        }
        connecting
    });
    Ok(Arc::new(Connection {
        name,
        config,
        about,
        leash,
        outbox,
        link,
        session: Mutex::new(Some(session)),
        tools: RwLock::new(tools),
        warnings,
        state,
        runtime: Handle::current(),
    }))
}

type Parts = (Session, About, Vec<super::catalog::RawTool>, Vec<String>);

async fn handshake(transport: stdio::StdioTransport) -> std::result::Result<Parts, String> {
    let (session, about) = Session::open(transport).await?;
    let mut notes = Vec::new();
    let tools = session.list_tools(&about, &mut notes).await?;
    Ok((session, about, tools, notes))
}

/// End a server that was started in vain; the text of the error.
async fn give_up(process: &Process, lane: &Lane, why: String) -> String {
    // A server that is about to exit by itself has a status worth telling.
    let known = lane.why_ended().map(str::to_owned);
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
        self.tools.read().clone()
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
        self.link.lane().why_ended().map(str::to_owned)
    }

    /// The id of the server's process, which leads its process group.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        Some(self.leash.0.pid())
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

    /// What was odd about the entry or the server without being fatal.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The last lines that the server wrote to stderr.
    pub fn stderr_tail(&self) -> String {
        self.leash.0.stderr_tail()
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
        wrap::call_raw(Arc::clone(&self.link), tool.to_owned(), arguments, limits, context)
    }

    /// Rename those of the tools whose names are in `taken`, and add all names to it.
    ///
    /// Returns a line for each renaming.
    pub fn claim_names(&self, taken: &mut HashSet<String>) -> Vec<String> {
        let mut notes = Vec::new();
        let mut tools = self.tools.write();
        for tool in tools.iter_mut() {
            let name = crate::Tool::spec(&**tool).name.clone();
            let claimed = wrap::claim(&self.name, tool.raw_name(), name.clone(), taken, &mut notes);
            if claimed != name {
                *tool = Arc::new(tool.renamed(claimed));
            }
        }
        notes
    }

    /// Kill the server's process group at once, without waiting; for the end of the process.
    pub fn kill(&self) {
        self.leash.0.kill();
    }

    /// End the connection: calls that wait fail, the server's input is closed, and what is left
    /// of its process group after 2 s is killed. May be called from anywhere, any number of
    /// times; returns when the group is gone.
    pub async fn close(&self) {
        let first = self.state.send_if_modified(|state| {
            let open = *state != ConnectionState::Closed;
            *state = ConnectionState::Closed;
            open
        });
        if !self.link.lane().is_ours() {
            return;
        }
        let process = Arc::clone(&self.leash.0);
        if first {
            self.link.lane().end("the connection is closed");
            self.outbox.close();
            drop(self.session.lock().take());
            // Not part of this future, which may be dropped.
            self.runtime.spawn(end_process(Arc::clone(&process)));
        }
        process.exited().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.state.send_if_modified(|state| {
            let open = *state != ConnectionState::Closed;
            *state = ConnectionState::Closed;
            open
        });
        let lane = self.link.lane();
        if lane.is_ours() {
            lane.end("the connection was dropped");
        }
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

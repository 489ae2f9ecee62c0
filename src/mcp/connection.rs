//! A connection to one server: its start, its state, what it offers and its end.
//!
//! [`connect`] holds one deadline over start, handshake and lists (`opening`); `upkeep` follows the
//! lists as they change; `all` is for several servers at once. Whichever way a connection
//! ends (closed, dropped, failed or cancelled while it was being made, server gone), the server's
//! whole process group goes with it, and every call that waits ends or goes to whoever rescues it. A
//! lost connection stays lost: [`Server`](super::Server) makes new ones.

mod all;
mod opening;
mod upkeep;

pub use self::all::{ConnectAll, connect_all};
pub(super) use self::opening::{Failed, Supervision, open};

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Map, Value, value::RawValue};
use tokio::{runtime::Handle, sync::watch};
use tokio_util::task::AbortOnDropHandle;

use super::{
    config::ServerConfig,
    delegate::{Delegate, ListKind, NoDelegate},
    era::Era,
    handler::Handler,
    link::Link,
    offering::Offering,
    peer::{Params, Peer, What},
    session::{self, About, List},
    state::ConnectionState,
    transport::process::Process,
    wrap::{self, McpTool, Terms},
};
use crate::{
    Arguments, BoxFuture, CallContext,
    error::{Error, Result},
};

/// How long a server may take to end after its input is closed, before it is asked to.
const GRACE: Duration = Duration::from_secs(1);
/// How long after that, before it is killed.
const LAST_GRACE: Duration = Duration::from_secs(1);

/// A live server with what it offers.
#[derive(Debug)]
pub struct Connection {
    offering: Arc<Offering>,
    about: About,
    capabilities: Value,
    leash: Option<Leash>,
    peer: Arc<Peer>,
    handler: Arc<Handler>,
    state: Arc<watch::Sender<ConnectionState>>,
    /// Whoever listens for what the server tells, in the newer era.
    listener: Mutex<Option<AbortOnDropHandle<()>>>,
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
    let name: Arc<str> = name.into();
    let link = Link::new(Arc::clone(&name));
    let offering = Arc::new(Offering::new(name, Arc::clone(&link), config));
    // On the runtime in any case: the caller may poll this future on an executor of its own.
    let opening = AbortOnDropHandle::new(crate::spawn(async move {
        let connection = open(&offering, delegate, None).await.map_err(|failed| failed.error)?;
        link.open(&connection.peer);
        Ok(connection)
    }));
    opening.await.unwrap_or_else(|error| Err(Error::Panic(error.to_string())))
}

impl Connection {
    /// The server's name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        self.offering.server()
    }

    /// The entry that the connection was made from, as it is now.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.offering.config()
    }

    /// The server's tools that its entry admits, in the server's order.
    pub fn tools(&self) -> Vec<Arc<McpTool>> {
        self.offering.tools(true)
    }

    /// The server's resources and prompts as tools, if its entry admits everything.
    pub fn extras(&self) -> Vec<Arc<McpTool>> {
        self.offering.tools(false)
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
        self.offering.warnings()
    }

    /// The last lines that the server wrote to stderr.
    pub fn stderr_tail(&self) -> String {
        self.leash.as_ref().map(|leash| leash.0.stderr_tail()).unwrap_or_default()
    }

    /// All that is remembered of what the server wrote to stderr: its last 64 KiB.
    pub fn stderr(&self) -> String {
        self.leash.as_ref().map(|leash| leash.0.stderr(usize::MAX)).unwrap_or_default()
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
        call_tool(&self.offering, tool, arguments, context)
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
        request(&self.offering, method, params, context)
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
            server: self.name().to_owned(),
            text: format!("MCP server '{}': {why}; {method} was not sent", self.name()),
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
        let limit = self.config().tool_timeout;
        match tokio::time::timeout(limit, reading).await {
            Ok(listed) => listed.map(|listed| listed.items),
            Err(_) => Err(crate::tool::timed_out(limit)),
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
        self.offering.claim_names(taken)
    }

    pub(super) const fn about(&self) -> &About {
        &self.about
    }

    pub(super) const fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Whether a request waits for its reply.
    pub(super) fn is_busy(&self) -> bool {
        self.peer.len() > 0
    }

    /// How long ago the server was heard.
    pub(super) fn quiet(&self) -> Duration {
        self.peer.traffic().quiet()
    }

    /// Ask the server for the least that it must answer.
    pub(super) async fn probe(&self, context: CallContext) -> Result<()> {
        let method = if self.peer.manner().era == Era::Modern { "server/discover" } else { "ping" };
        self.peer.request(What::of(method), Params::None, context, None).await.map(drop)
    }

    /// Count the server as gone, although nothing says that it is.
    pub(super) fn lose(&self, why: &str) {
        self.state.send_if_modified(|state| {
            let ready = *state == ConnectionState::Ready;
            if ready {
                *state = ConnectionState::Lost;
            }
            ready
        });
        self.peer.end(why);
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

/// Call a tool by its raw name, over whatever connection there is.
pub(super) fn call_tool(
    offering: &Offering,
    tool: &str,
    arguments: Arguments,
    context: CallContext,
) -> BoxFuture<Result<Box<RawValue>>> {
    wrap::call_raw(Arc::clone(offering.link()), tool.to_owned(), arguments, offering.terms(tool), context)
}

/// Make any request, over whatever connection there is.
pub(super) fn request(
    offering: &Offering,
    method: &str,
    params: Map<String, Value>,
    context: CallContext,
) -> BoxFuture<Result<Box<RawValue>>> {
    let terms = Terms::of_request(&offering.config(), method);
    wrap::request(Arc::clone(offering.link()), What::of(method), params, terms, context)
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

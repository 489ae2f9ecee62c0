//! How a connection comes to be: attempts at reaching the server, the handshake, the first lists.
//!
//! An attempt has everything of its own, so that what is left of one that failed concerns nobody. One
//! that fails may be followed by a second in the other era of the protocol, within the same limit of
//! time. Whichever way an attempt ends without a connection, its server goes with it.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::{runtime::Handle, sync::watch};
use tokio_util::sync::CancellationToken;

use super::{Connection, Leash, upkeep};
use crate::{
    error::Error,
    mcp::{
        catalog,
        config::{ServerConfig, TransportKind},
        delegate::{Delegate, ListKind},
        era::{self, Era},
        handler::{self, Handler},
        inbox::Inbox,
        offering::Offering,
        peer::{Peer, Rescuer},
        session::{self, About, List, Terms},
        state::ConnectionState,
        transport::{Carrier, process::Process, sse, stdio, streamable_http},
        wrap::Offer,
    },
    net::{HttpClient, Policy},
    tool::seconds,
};

/// How long a failed connect waits for the killed server's end and its last words.
const REAP: Duration = Duration::from_secs(1);

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
#[derive(Debug)]
pub(in crate::mcp) struct Failed {
    pub(in crate::mcp) error: Error,
    /// Whether the server wants to know who asks.
    pub(in crate::mcp) unauthorised: bool,
    /// Whether the server answered anything.
    answered: bool,
    /// Whether it went away.
    ended: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, unauthorised: false, answered: false, ended: false }
    }
}

/// What a connection gets from whoever makes one after the other.
#[derive(Debug, Clone)]
pub(in crate::mcp) struct Supervision {
    pub(in crate::mcp) rescuer: Weak<dyn Rescuer>,
    /// Gives the attempt up. The server's process is gone when the attempt has failed.
    pub(in crate::mcp) stop: CancellationToken,
}

/// Connect, and put what the server offers in place. Calls do not go over the connection yet.
pub(in crate::mcp) async fn open(
    offering: &Arc<Offering>,
    delegate: Arc<dyn Delegate>,
    supervision: Option<&Supervision>,
) -> std::result::Result<Arc<Connection>, Failed> {
    let (name, config) = (Arc::clone(offering.server()), offering.config());
    let client = match config.transport {
        TransportKind::Stdio => None,
        TransportKind::Sse | TransportKind::StreamableHttp => {
            let policy = Policy { allow_private: config.allow_private.clone() };
            Some(HttpClient::new(&name, policy, &config.headers)?)
        }
    };
    let reach = Reach { offering, config: &config, client: client.as_ref(), delegate, supervision };
    let limit = tokio::time::Instant::now() + config.connect_timeout;
    let automatic = config.protocol.is_none();
    let mut era = era::remembered(&config).filter(|_| automatic);
    let mut first = None;
    let attempt = loop {
        match attempt(&reach, era, limit).await {
            Ok(attempt) => break attempt,
            // Some old servers end when the first request is not `initialize`.
            Err(Failed { error, answered: false, ended: true, .. })
                if automatic && era.is_none() && first.is_none() =>
            {
                first = Some(error);
                era = Some(Era::Legacy);
            }
            // A server that was exchanged may speak another era than it did.
            Err(Failed { error, answered: true, .. }) if automatic && era.is_some() && first.is_none() => {
                first = Some(error);
                era::remember(&config, None);
                era = None;
            }
            Err(failed) => {
                return Err(match first {
                    Some(error) => Failed { error, ..failed },
                    None => failed,
                });
            }
        }
    };
    let Attempt { peer, handler, leash, state, about, offer, notes } = attempt;
    if automatic {
        era::remember(&config, Some(Era::of(&about.protocol)));
    }

    offering.put(Arc::new(offer), notes);
    state.send_if_modified(|state| {
        let connecting = *state == ConnectionState::Connecting;
        if connecting {
            *state = ConnectionState::Ready;
        }
        connecting
    });
    let connection = Arc::new(Connection {
        offering: Arc::clone(offering),
        capabilities: Value::Object(about.capabilities.clone()),
        about,
        leash,
        peer,
        handler,
        state,
        listener: Mutex::default(),
        runtime: Handle::current(),
    });
    upkeep::start(&connection);
    Ok(connection)
}

/// What every attempt to reach a server needs.
struct Reach<'a> {
    offering: &'a Offering,
    config: &'a ServerConfig,
    client: Option<&'a HttpClient>,
    delegate: Arc<dyn Delegate>,
    supervision: Option<&'a Supervision>,
}

/// Reach the server once.
async fn attempt(
    reach: &Reach<'_>,
    remembered: Option<Era>,
    limit: tokio::time::Instant,
) -> std::result::Result<Attempt, Failed> {
    let Reach { offering, config, client, delegate, supervision } = reach;
    let name = offering.server();
    let failed = |why: String| Error::Connect {
        server: name.to_string(),
        text: format!("MCP server '{name}': {why}"),
    };
    let state = Arc::new(watch::Sender::new(ConnectionState::Connecting));
    let traffic = Arc::clone(offering.link().traffic());
    let rescuer = supervision.map(|supervision| Weak::clone(&supervision.rescuer));
    let peer = Peer::with(Arc::clone(name), traffic, rescuer);
    let capabilities = handler::capabilities(&**delegate);
    let handler = Handler::new(&peer, Arc::clone(delegate));
    let lost = {
        let (state, name) = (Arc::clone(&state), Arc::clone(name));
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
            }
        }
    };
    let inbox = Inbox::new(&peer, &handler, lost);
    let mut leash = None;
    match (config.transport, *client) {
        (TransportKind::Stdio, _) | (_, None) => {
            let started = stdio::start(config).map_err(|error| failed(not_started(config, &error)))?;
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
    let stopped = async {
        match supervision {
            Some(supervision) => supervision.stop.cancelled().await,
            None => std::future::pending().await,
        }
    };
    let outcome = tokio::select! {
        // First, because it tells the exit status where the session only notices an end.
        biased;
        _ = watched.wait_for(|state| *state == ConnectionState::Lost) => {
            Err(peer.why_ended().unwrap_or("the server is gone").to_owned())
        }
        outcome = handshake(&peer, &terms) => outcome,
        () = stopped => Err("the connection is closed".to_owned()),
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
            let (answered, ended) = (peer.was_answered(), peer.why_ended().is_some());
            let mut why = match &leash {
                Some(leash) => give_up(&leash.0, &peer, why).await,
                None => why,
            };
            // There are old servers that end when the first request is one that they do not know.
            if let Some(version) = config.protocol.as_ref().filter(|version| !why.contains(*version)) {
                why = format!("{why}; its entry asks for the protocol {version}");
            }
            Err(Failed { error: failed(why), unauthorised: peer.is_unauthorised(), answered, ended })
        }
    }
}

/// Why a program did not start, and what to do about it.
fn not_started(config: &ServerConfig, error: &std::io::Error) -> String {
    let command = &config.command;
    let mut text = format!("'{command}' could not be started: {error}");
    let program = std::path::Path::new(command).file_stem().unwrap_or_default().to_string_lossy();
    let advice = match (error.kind(), &*program) {
        // It is the folder that there is not, which the error says.
        _ if config.cwd.as_ref().is_some_and(|cwd| !cwd.is_dir()) => "",
        (std::io::ErrorKind::NotFound, "npx" | "npm" | "node") => {
            "is Node.js installed, and on the PATH of this process?"
        }
        (std::io::ErrorKind::NotFound, "uvx" | "uv") => "is uv installed, and on the PATH of this process?",
        (std::io::ErrorKind::NotFound, "docker") => "is Docker installed, and on the PATH of this process?",
        (std::io::ErrorKind::NotFound, _) => {
            "install it, put it on the PATH of this process, or give its whole path"
        }
        (std::io::ErrorKind::PermissionDenied, _) => "it is no program, or may not be executed",
        _ => "",
    };
    if !advice.is_empty() {
        text.push_str("; ");
        text.push_str(advice);
    }
    text
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
pub(super) async fn read_list(
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

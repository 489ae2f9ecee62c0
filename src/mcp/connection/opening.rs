//! How a connection comes to be: attempts at reaching the server, the handshake, the first lists.
//!
//! An attempt has everything of its own, so that what is left of one that failed concerns nobody. One
//! that fails may be followed by a second in the other era of the protocol, within the same limit of
//! time. Whichever way an attempt ends without a connection, its server goes with it.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::{runtime::Handle, sync::watch};

use super::{Connection, Leash, upkeep};
use crate::{
    error::{Error, Result},
    mcp::{
        artifacts::Store,
        catalog,
        config::{ServerConfig, TransportKind},
        delegate::{Delegate, Event, ListKind},
        era::{self, Era},
        handler::{self, Handler},
        inbox::Inbox,
        peer::Peer,
        session::{self, About, List, Terms},
        state::ConnectionState,
        transport::{Carrier, process::Process, sse, stdio, streamable_http},
        wrap::{Link, Offer, Wrapper},
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
struct Failed {
    error: Error,
    /// Whether the server answered anything.
    answered: bool,
    /// Whether it went away.
    ended: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, answered: false, ended: false }
    }
}

pub(super) async fn open(
    name: Arc<str>,
    config: ServerConfig,
    delegate: Arc<dyn Delegate>,
) -> Result<Arc<Connection>> {
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
            Err(Failed { error, answered: false, ended: true })
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
            let (answered, ended) = (peer.was_answered(), peer.why_ended().is_some());
            let why = match &leash {
                Some(leash) => give_up(&leash.0, &peer, why).await,
                None => why,
            };
            Err(Failed { error: failed(why), answered, ended })
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

//! Keeping what a connection offers up to date: lists that change, and subscriptions.
//!
//! A server that says a list has changed is believed once it has been quiet for [`QUIET`], so that a
//! burst leads to one reading; nothing waits longer than [`AT_MOST`]. In the newer era changes are
//! told on a stream that is asked for (`subscriptions/listen`), which is opened again when it breaks.
//! None of these tasks keeps a connection alive.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{Connection, opening::read_list};
use crate::{
    CallContext,
    error::{Error, Result},
    mcp::{
        delegate::{Event, ListKind},
        era::Era,
        peer::{Params, What},
        session,
        state::ConnectionState,
        wrap::Offer,
    },
};

/// How long a server must be quiet before a changed list is read.
const QUIET: Duration = Duration::from_millis(100);
/// How long a reading is put off by further changes.
const AT_MOST: Duration = Duration::from_secs(1);
/// Between attempts to listen again, at first; doubled up to [`SELDOM`].
const SOON: Duration = Duration::from_millis(500);
const SELDOM: Duration = Duration::from_secs(60);

/// A list that the server says holds for a time is not read more often than this.
const SELDOM_READ: Duration = Duration::from_secs(30);

/// Start what keeps a new connection up to date.
pub(super) fn start(connection: &Arc<Connection>) {
    let runtime = &connection.runtime;
    let modern = connection.peer.manner().era == Era::Modern;
    if let Some(level) = connection.offering.wishes.level.lock().as_ref().filter(|_| modern) {
        connection.peer.set_manner(connection.peer.manner().with_log_level(level));
    }
    if !modern && connection.wishes() {
        // They were told to an earlier connection.
        connection.handler.changes.ask_again();
    }
    runtime.spawn(refresh(Arc::downgrade(connection)));
    listen_anew(connection);
}

/// Read lists again as they change, until the connection is gone or has ended.
async fn refresh(connection: Weak<Connection>) {
    let mut read = Instant::now();
    loop {
        let Some(strong) = connection.upgrade() else { return };
        let changes = Arc::clone(&strong.handler.changes);
        let mut ended = strong.state.subscribe();
        let stale = strong.stale();
        drop(strong);
        let expired = async {
            match stale {
                Some((_, after)) => tokio::time::sleep_until(read + after).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changes.wait() => {}
            () = expired => {
                for kind in stale.iter().flat_map(|(kinds, _)| kinds) {
                    changes.mark(*kind);
                }
            }
            _ = ended.wait_for(|state| *state != ConnectionState::Ready) => return,
        }
        let latest = Instant::now() + AT_MOST;
        while Instant::now() < latest && tokio::time::timeout(QUIET, changes.wait()).await.is_ok() {}
        let Some(connection) = connection.upgrade() else { return };
        if changes.take_renewed() {
            connection.ask_again().await;
        }
        for kind in ListKind::ALL {
            if changes.take(kind) && (kind == ListKind::Tools || connection.about.has(kind)) {
                connection.read_again(kind).await;
            }
        }
        read = Instant::now();
    }
}

impl Connection {
    /// Whether the server was asked to tell anything.
    fn wishes(&self) -> bool {
        let wishes = &self.offering.wishes;
        wishes.level.lock().is_some() || !wishes.uris.lock().is_empty()
    }

    /// The lists of whose changes nobody tells, and after what time they hold no more.
    fn stale(&self) -> Option<(Vec<ListKind>, Duration)> {
        let offer = self.offering.offer();
        let untold = |kind: &ListKind| !self.about.flag(kind.as_str(), "listChanged");
        let timed: Vec<(ListKind, Duration)> =
            offer.fresh.iter().filter(|(kind, _)| untold(kind)).map(|(kind, time)| (*kind, *time)).collect();
        let after = timed.iter().map(|(_, time)| *time).min()?;
        Some((timed.into_iter().map(|(kind, _)| kind).collect(), after.max(SELDOM_READ)))
    }

    /// Ask for everything again that a server was asked for once, since it has forgotten.
    async fn ask_again(&self) {
        let wishes = &self.offering.wishes;
        let level = wishes.level.lock().clone();
        let uris: Vec<String> = wishes.uris.lock().iter().cloned().collect();
        let level = level.map(|level| ("logging/setLevel", "level", level));
        let uris = uris.into_iter().map(|uri| ("resources/subscribe", "uri", uri));
        for (method, key, value) in level.into_iter().chain(uris) {
            let params = Map::from_iter([(key.to_owned(), Value::from(value))]);
            if let Err(error) = self.request(method, params, CallContext::default()).await {
                tracing::warn!(server = self.name(), method, %error, "asking again in a new session failed");
            }
        }
    }

    /// Read one list again, and put what it holds in place.
    async fn read_again(&self, kind: ListKind) {
        let mut notes = Vec::new();
        let mut offer = Offer::clone(&self.offering.offer());
        let strict = self.peer.manner().headers;
        let reading = read_list(&self.peer, &self.about, kind, strict, &mut offer, &mut notes);
        match tokio::time::timeout(self.config().connect_timeout, reading).await {
            Ok(Ok(())) => {}
            // The next connection reads all lists anyway; and one that is closed has none to read.
            _ if self.peer.why_ended().is_some() => return,
            Ok(Err(why)) => {
                tracing::warn!(
                    server = self.name(),
                    list = kind.as_str(),
                    why,
                    "a changed list cannot be read"
                );
                return;
            }
            Err(_) => {
                tracing::warn!(server = self.name(), list = kind.as_str(), "a changed list is not answered");
                return;
            }
        }
        self.offering.put(Arc::new(offer), notes);
        self.handler.tell(Event::ListChanged(kind));
    }
}

/// Ask for log messages of this level and above.
pub(super) async fn set_logging_level(connection: &Connection, level: &str) -> Result<()> {
    if connection.peer.manner().era == Era::Modern {
        connection.peer.set_manner(connection.peer.manner().with_log_level(level));
        *connection.offering.wishes.level.lock() = Some(level.to_owned());
        return Ok(());
    }
    let params = Map::from_iter([("level".to_owned(), Value::from(level))]);
    connection.request("logging/setLevel", params, CallContext::default()).await?;
    *connection.offering.wishes.level.lock() = Some(level.to_owned());
    Ok(())
}

/// Subscribe to a resource, or no longer.
pub(super) async fn subscribe(connection: &Arc<Connection>, uri: &str, on: bool) -> Result<()> {
    let modern = connection.peer.manner().era == Era::Modern;
    if !modern {
        let method = if on { "resources/subscribe" } else { "resources/unsubscribe" };
        let params = Map::from_iter([("uri".to_owned(), Value::from(uri))]);
        connection.request(method, params, CallContext::default()).await?;
    }
    let changed = {
        let mut uris = connection.offering.wishes.uris.lock();
        if on { uris.insert(uri.to_owned()) } else { uris.remove(uri) }
    };
    if modern && changed {
        listen_anew(connection);
    }
    Ok(())
}

/// Listen for what the server announces and for the resources that are subscribed to now; whoever
/// listened before stops.
fn listen_anew(connection: &Arc<Connection>) {
    if connection.peer.manner().era != Era::Modern {
        return;
    }
    let uris: Vec<String> = connection.offering.wishes.uris.lock().iter().cloned().collect();
    let listener = session::subscriptions(&connection.about, &uris).map(|params| {
        AbortOnDropHandle::new(connection.runtime.spawn(listen(Arc::downgrade(connection), params)))
    });
    *connection.listener.lock() = listener;
}

async fn listen(connection: Weak<Connection>, params: Map<String, Value>) {
    let mut pause = SOON;
    loop {
        let Some(peer) = connection.upgrade().map(|connection| Arc::clone(&connection.peer)) else { return };
        let begun = Instant::now();
        let what = What::of("subscriptions/listen");
        let ended = peer.request(what, Params::Object(&params), CallContext::default(), None).await;
        match ended {
            // Over at once: the server has no such stream, whatever it announces.
            Ok(_) if begun.elapsed() < SOON => return,
            Ok(_) | Err(Error::Connection { .. }) if peer.why_ended().is_none() => {}
            Err(error) => {
                tracing::debug!(server = &**peer.server(), %error, "the server does not tell of changes");
                return;
            }
            Ok(_) => return,
        }
        drop(peer);
        if begun.elapsed() > SELDOM {
            pause = SOON;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(SELDOM);
        // What changed meanwhile was not told.
        let Some(connection) = connection.upgrade() else { return };
        for kind in ListKind::ALL {
            if connection.about.flag(kind.as_str(), "listChanged") {
                connection.handler.changes.mark(kind);
            }
        }
    }
}

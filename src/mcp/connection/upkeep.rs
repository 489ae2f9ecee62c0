//! Keeping what a connection offers up to date: lists that change, and subscriptions.
//!
//! A server that says a list has changed is believed once it has been quiet for [`QUIET`], so that a
//! burst leads to one reading; nothing waits longer than [`AT_MOST`]. In the newer era changes are
//! told on a stream that is asked for (`subscriptions/listen`), which is opened again when it breaks.
//! None of these tasks keeps a connection alive.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio_util::task::AbortOnDropHandle;

use super::{Connection, ConnectionState, read_list};
use crate::{
    CallContext,
    error::{Error, Result},
    mcp::{
        delegate::{Event, ListKind},
        era::Era,
        peer::{Params, What},
        session,
    },
};

/// How long a server must be quiet before a changed list is read.
const QUIET: Duration = Duration::from_millis(100);
/// How long a reading is put off by further changes.
const AT_MOST: Duration = Duration::from_secs(1);
/// Between attempts to listen again, at first; doubled up to [`SELDOM`].
const SOON: Duration = Duration::from_millis(500);
const SELDOM: Duration = Duration::from_secs(60);

/// The resources that are subscribed to.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    uris: Mutex<BTreeSet<String>>,
    listener: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// Start what keeps a new connection up to date.
pub(super) fn start(connection: &Arc<Connection>) {
    let runtime = &connection.runtime;
    runtime.spawn(refresh(Arc::downgrade(connection)));
    listen_anew(connection);
}

/// Read lists again as they change, until the connection is gone or has ended.
async fn refresh(connection: Weak<Connection>) {
    loop {
        let Some(changes) = connection.upgrade().map(|c| Arc::clone(&c.handler.changes)) else { return };
        let mut ended = match connection.upgrade() {
            Some(connection) => connection.state.subscribe(),
            None => return,
        };
        tokio::select! {
            () = changes.wait() => {}
            _ = ended.wait_for(|state| *state != ConnectionState::Ready) => return,
        }
        let latest = tokio::time::Instant::now() + AT_MOST;
        while tokio::time::Instant::now() < latest
            && tokio::time::timeout(QUIET, changes.wait()).await.is_ok()
        {}
        let Some(connection) = connection.upgrade() else { return };
        for kind in [ListKind::Tools, ListKind::Resources, ListKind::Prompts] {
            if changes.take(kind) {
                connection.read_again(kind).await;
            }
        }
    }
}

impl Connection {
    /// Read one list again, and put what it holds in place.
    async fn read_again(&self, kind: ListKind) {
        let mut notes = Vec::new();
        let mut offer = self.offer.lock().clone();
        let strict = self.peer.manner().headers;
        let reading = read_list(&self.peer, &self.about, kind, strict, &mut offer, &mut notes);
        match tokio::time::timeout(self.config.connect_timeout, reading).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => {
                tracing::warn!(
                    server = &*self.name,
                    list = kind.as_str(),
                    why,
                    "a changed list cannot be read"
                );
                return;
            }
            Err(_) => {
                tracing::warn!(server = &*self.name, list = kind.as_str(), "a changed list is not answered");
                return;
            }
        }
        let former = self.tools.read().clone();
        let tools = self.wrapper.wrap(&self.config, offer.clone(), &former, &mut notes);
        *self.offer.lock() = offer;
        *self.tools.write() = tools;
        if !notes.is_empty() {
            tracing::warn!(server = &*self.name, notes = notes.join("; "), "a changed list is odd");
        }
        self.handler.tell(Event::ListChanged(kind));
    }
}

/// Subscribe to a resource, or no longer.
pub(super) async fn subscribe(connection: &Arc<Connection>, uri: &str, on: bool) -> Result<()> {
    if connection.peer.manner().era == Era::Modern {
        let changed = {
            let mut uris = connection.subscriptions.uris.lock();
            if on { uris.insert(uri.to_owned()) } else { uris.remove(uri) }
        };
        if changed {
            listen_anew(connection);
        }
        return Ok(());
    }
    let method = if on { "resources/subscribe" } else { "resources/unsubscribe" };
    let mut params = Map::new();
    params.insert("uri".to_owned(), uri.into());
    connection.request(method, params, CallContext::default()).await.map(drop)
}

/// Listen for what the server announces and for the resources that are subscribed to now; whoever
/// listened before stops.
fn listen_anew(connection: &Arc<Connection>) {
    if connection.peer.manner().era != Era::Modern {
        return;
    }
    let uris: Vec<String> = connection.subscriptions.uris.lock().iter().cloned().collect();
    let listener = session::subscriptions(&connection.about, &uris).map(|params| {
        AbortOnDropHandle::new(connection.runtime.spawn(listen(Arc::downgrade(connection), params)))
    });
    *connection.subscriptions.listener.lock() = listener;
}

async fn listen(connection: Weak<Connection>, params: Map<String, Value>) {
    let mut pause = SOON;
    loop {
        let Some(peer) = connection.upgrade().map(|connection| Arc::clone(&connection.peer)) else { return };
        let begun = tokio::time::Instant::now();
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
        for kind in [ListKind::Tools, ListKind::Resources, ListKind::Prompts] {
            if connection.about.flag(kind.as_str(), "listChanged") {
                connection.handler.changes.mark(kind);
            }
        }
    }
}

//! Streamable HTTP (2025-03-26 and later): each message is a POST of its own.
//!
//! `exchange` carries a request to its reply, `stream` reads replies that come as events and takes up
//! those that broke off, `listen` holds the GET stream for messages of the server's own, and `renew` initialises
//! again when the server no longer knows the session. This file holds what they share, and its end.
//!
//! Every request ends: with what the server answered, or with a [`Failure`]. Only three
//! things are kept of the protocol: the session id, the version agreed on, and the bytes of
//! `initialize`, to be able to say them again. What is in messages is the receiver's business.

mod exchange;
mod listen;
mod renew;
mod stream;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{ACCEPT, CONTENT_TYPE},
};
use parking_lot::Mutex;
use reqwest::Url;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

#[cfg(doc)]
use super::Failure;
use super::{
    Carrier, Kind, Position, Receiver, Refused,
    http::{self as common, Exchange, Exchanges, Gate},
};
use crate::net::{HttpClient, NetError, Request, Response};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How long the farewell to a session may take.
const DELETE: Duration = Duration::from_secs(2);

/// A transport to the server at `url`. Nothing is sent before the first message.
///
/// # Errors
/// [`Error::Config`](crate::Error::Config) when the address is faulty.
pub(in crate::mcp) fn open(
    server: &Arc<str>,
    url: &str,
    client: HttpClient,
    receiver: Arc<dyn Receiver>,
) -> crate::Result<Arc<dyn Carrier>> {
    let url = common::address(server, url)?;
    let state = State {
        target: Target { url: url.clone(), own_origin: true },
        session: None,
        generation: 0,
        version: None,
        initialize: None,
        gate: Gate::default(),
        listen: false,
        initialized: false,
        listener: None,
        renewal: None,
        closed: false,
    };
    let shared = Arc::new(Shared {
        server: Arc::clone(server),
        url,
        client,
        receiver,
        state: Mutex::new(state),
        exchanges: Exchanges::default(),
        answered: AtomicU64::new(0),
        stop: CancellationToken::new(),
    });
    Ok(Arc::new(StreamableHttp(shared)))
}

/// The transport. Dropping it ends its tasks.
struct StreamableHttp(Arc<Shared>);

impl fmt::Debug for StreamableHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamableHttp").field("server", &self.0.server).finish_non_exhaustive()
    }
}

struct Shared {
    server: Arc<str>,
    /// As the entry has it.
    url: Url,
    client: HttpClient,
    receiver: Arc<dyn Receiver>,
    /// Held for moments only, never while anything waits.
    state: Mutex<State>,
    exchanges: Exchanges,
    /// Responses to messages so far: while they come, the server is there.
    answered: AtomicU64,
    stop: CancellationToken,
}

struct State {
    target: Target,
    session: Option<HeaderValue>,
    /// Counts the sessions, so that it can be told which one a request was refused in.
    generation: u64,
    version: Option<HeaderValue>,
    initialize: Option<Bytes>,
    gate: Gate,
    /// Whether the server's own messages are wanted, and whether the handshake is over on the wire as well.
    listen: bool,
    initialized: bool,
    listener: Option<AbortHandle>,
    renewal: Option<renew::Renewal>,
    closed: bool,
}

/// Where messages go: the entry's address, or where `initialize` was redirected to.
#[derive(Clone)]
struct Target {
    url: Url,
    own_origin: bool,
}

/// A message on its way.
#[derive(Clone)]
struct Message {
    body: Bytes,
    headers: HeaderMap,
}

/// What held when a request was sent.
#[derive(Clone)]
struct Sent {
    session: bool,
    generation: u64,
}

impl Carrier for StreamableHttp {
    fn send(&self, line: &[u8], kind: Kind<'_>) -> Result<Position, Refused> {
        let shared = &self.0;
        let mut message = Message { body: common::body(line), headers: HeaderMap::new() };
        let mut state = shared.state.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        let gate = state.gate.clone();
        match kind {
            Kind::Request { id, method, headers } => {
                common::add_headers(&mut message.headers, &headers);
                let first = method == "initialize";
                if first {
                    state.initialize = Some(message.body.clone());
                    (state.session, state.version) = (None, None);
                }
                drop(state);
                let exchange = Exchange::new(id, &shared.receiver);
                shared.exchanges.spawn(id, Arc::clone(shared).exchange(exchange, message, first, gate));
            }
            Kind::Notification { method, headers } => {
                common::add_headers(&mut message.headers, &headers);
                let over = method == "notifications/initialized";
                let shut = over.then(|| state.gate.shut());
                crate::spawn(Arc::clone(shared).tell(message, gate, shut));
                if over {
                    state.initialized = true;
                    shared.start_listening(&mut state);
                }
            }
            Kind::Reply => {
                crate::spawn(Arc::clone(shared).tell(message, gate, None));
            }
        }
        Ok(Position::default())
    }

    fn has_left(&self, _position: Position) -> bool {
        true
    }

    fn forget(&self, id: i64) {
        self.0.exchanges.forget(id);
    }

    fn agreed(&self, version: &str, listen: bool) {
        let mut state = self.0.state.lock();
        state.version = HeaderValue::from_str(version).ok();
        state.listen = listen;
        self.0.start_listening(&mut state);
    }

    fn close(&self) {
        let Some(farewell) = self.0.shut_down() else { return };
        let client = self.0.client.clone();
        crate::spawn(async move {
            // The server may not allow it, or be gone: the session ends for us in any case.
            let _ = tokio::time::timeout(DELETE, client.send(farewell)).await;
        });
    }
}

impl Drop for StreamableHttp {
    fn drop(&mut self) {
        let _ = self.0.shut_down();
    }
}

impl State {
    /// A request as things stand, and how they stand.
    fn request(&self, method: Method, message: Option<&Message>) -> (Request, Sent) {
        let Target { url, own_origin } = self.target.clone();
        let mut headers = HeaderMap::with_capacity(16);
        if message.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        } else if method == Method::GET {
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        }
        headers.extend(self.session.clone().map(|session| (SESSION, session)));
        headers.extend(self.version.clone().map(|version| (VERSION, version)));
        if let Some(message) = message {
            for (name, value) in &message.headers {
                headers.insert(name, value.clone());
            }
        }
        let body = message.map(|message| message.body.clone());
        let sent = Sent { session: self.session.is_some(), generation: self.generation };
        (Request { method, url, headers, own_origin, body }, sent)
    }
}

impl Shared {
    /// End all tasks. What is left to send, if there is a session.
    fn shut_down(&self) -> Option<Request> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.closed, true) {
            return None;
        }
        let farewell = state.session.is_some().then(|| state.request(Method::DELETE, None).0);
        drop(state);
        self.stop.cancel();
        self.exchanges.close();
        farewell
    }

    /// Send a message as things stand.
    async fn post(&self, message: &Message) -> (Result<Response, NetError>, Sent) {
        let (request, sent) = self.state.lock().request(Method::POST, Some(message));
        let response = self.client.send(request).await;
        if response.is_ok() {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        (response, sent)
    }

    /// Open a stream of events, after the last event that came on the one before.
    async fn get(&self, last_id: Option<&str>) -> (Result<Response, NetError>, Sent) {
        let (mut request, sent) = self.state.lock().request(Method::GET, None);
        headers_with_id(&mut request.headers, last_id);
        (self.client.send(request).await, sent)
    }

    /// Begin a session as a response to `initialize` has it.
    fn begin_session(&self, response: &Response) {
        let mut state = self.state.lock();
        state.session = response.header(&SESSION).cloned();
        state.generation += 1;
        // A session lives where it was begun. What is secret in the entry does not go there with it.
        state.target = Target { url: response.url().clone(), own_origin: response.own_origin() };
    }

    /// Servers tell the session id late as well: on the response to another message.
    fn note_session(&self, response: &Response, sent: &Sent) {
        let Some(session) = response.header(&SESSION) else { return };
        let mut state = self.state.lock();
        if !sent.session
            && state.session.is_none()
            && state.generation == sent.generation
            && state.initialize.is_some()
        {
            state.session = Some(session.clone());
        }
    }

    /// Whether a stream that broke off can be taken up: not in the era without `initialize`.
    fn resumes(&self) -> bool {
        self.state.lock().initialize.is_some()
    }

    /// A message that no reply is awaited to. What becomes of it is seen at the next request.
    async fn tell(self: Arc<Self>, message: Message, gate: Gate, shut: Option<tokio_util::sync::DropGuard>) {
        let telling = async {
            gate.pass().await;
            let (response, sent) = self.post(&message).await;
            drop(shut);
            match response {
                Ok(response) if response.status().is_success() => {
                    self.note_session(&response, &sent);
                    response.finish().await;
                }
                Ok(mut response) => {
                    let refusal = common::Refusal::read(&mut response).await;
                    tracing::debug!(server = %self.server, failure = ?refusal.failure, "a notification was refused");
                }
                Err(error) => tracing::debug!(server = %self.server, %error, "a notification was lost"),
            }
        };
        self.stop.run_until_cancelled(telling).await;
    }
}

fn headers_with_id(headers: &mut HeaderMap, last_id: Option<&str>) {
    if let Some(id) = last_id.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok()) {
        headers.insert(LAST_EVENT_ID, id);
    }
}

//! HTTP+SSE, the transport of 2024-11-05: one stream of events for all that the server says.
//!
//! The stream is opened at once. Its first event names the endpoint that messages are posted to; until then they
//! wait. Replies come on the stream, so a response to a POST says only whether the message was taken. The end of
//! the stream is the end of the connection: the server forgets the session with it.

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method,
    header::{ACCEPT, CONTENT_TYPE},
};
use parking_lot::Mutex;
use reqwest::Url;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Carrier, Failure, Kind, MAX_MESSAGE, Position, Receiver, Refused,
    http::{self as common, Exchange, Exchanges, Gate, Refusal, carries_message},
};
use crate::{
    mcp::wire,
    net::{
        HttpClient, NetError, Request, Response, excerpt, redacted, same_origin,
        sse::{Event, Parser},
    },
};

/// How much of a response to a POST is read for a reply that stands in the wrong place.
const MISPLACED: usize = 8 << 20;

/// A transport to the server whose stream is at `url`. It connects in the background: what fails there fails
/// the requests that wait, and ends the connection.
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
    let shared = Arc::new(Shared {
        server: Arc::clone(server),
        client,
        receiver,
        state: Mutex::default(),
        exchanges: Exchanges::default(),
        stop: CancellationToken::new(),
    });
    let reader = Arc::clone(&shared);
    crate::spawn(async move {
        let stop = reader.stop.clone();
        if let Some(lost) = stop.run_until_cancelled(reader.read(url)).await {
            reader.lost(&lost);
        }
    });
    Ok(Arc::new(Sse(shared)))
}

/// The transport. Dropping it ends its tasks.
struct Sse(Arc<Shared>);

impl fmt::Debug for Sse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sse").field("server", &self.0.server).finish_non_exhaustive()
    }
}

struct Shared {
    server: Arc<str>,
    client: HttpClient,
    receiver: Arc<dyn Receiver>,
    /// Held for moments only, never while anything waits.
    state: Mutex<State>,
    exchanges: Exchanges,
    stop: CancellationToken,
}

#[derive(Default)]
struct State {
    endpoint: Option<Endpoint>,
    /// What waits for the endpoint.
    queue: Vec<Outgoing>,
    gate: Gate,
    closed: bool,
}

#[derive(Clone)]
struct Endpoint {
    url: Url,
    own_origin: bool,
}

/// A message on its way, and what goes with it.
struct Outgoing {
    body: Bytes,
    headers: HeaderMap,
    gate: Gate,
    /// For a request.
    exchange: Option<Exchange>,
    /// For the message that shuts the gate.
    shut: Option<DropGuard>,
}

impl Carrier for Sse {
    fn send(&self, line: &[u8], kind: Kind<'_>) -> Result<Position, Refused> {
        let shared = &self.0;
        let mut state = shared.state.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        let gate = state.gate.clone();
        let (exchange, extra, shut) = match kind {
            Kind::Request { id, headers, .. } => (Some(Exchange::new(id, &shared.receiver)), headers, None),
            Kind::Notification { method, headers } => {
                let over = method == "notifications/initialized";
                (None, headers, over.then(|| state.gate.shut()))
            }
            Kind::Reply => (None, Vec::new(), None),
        };
        let mut headers = HeaderMap::with_capacity(2 + extra.len());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        common::add_headers(&mut headers, &extra);
        let outgoing = Outgoing { body: common::body(line), headers, gate, exchange, shut };
        match state.endpoint.clone() {
            None => state.queue.push(outgoing),
            Some(endpoint) => {
                drop(state);
                shared.start(outgoing, endpoint);
            }
        }
        Ok(Position::default())
    }

    fn has_left(&self, _position: Position) -> bool {
        true
    }

    fn forget(&self, id: i64) {
        let mut state = self.0.state.lock();
        let waits =
            |outgoing: &Outgoing| outgoing.exchange.as_ref().is_some_and(|exchange| exchange.id == id);
        let queued = state.queue.iter().position(waits).map(|at| state.queue.remove(at));
        drop(state);
        // It reports its end, which must not happen under the lock.
        drop(queued);
        self.0.exchanges.forget(id);
    }

    fn agreed(&self, _version: &str, _listen: bool) {}

    fn close(&self) {
        self.0.shut_down();
    }
}

impl Drop for Sse {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

/// Why the stream is over, for those that wait for the endpoint and for all the others.
struct Lost {
    failure: Failure,
    why: String,
}

impl Lost {
    fn new(failure: Failure) -> Self {
        let why = match &failure {
            Failure::NotSent(text)
            | Failure::Lost(text)
            | Failure::Unreadable(text)
            | Failure::Http { text, .. } => text.clone(),
        };
        Self { failure, why }
    }

    /// Messages that wait were not sent; the others are the receiver's.
    fn ended(why: impl Into<String>) -> Self {
        Self::new(Failure::NotSent(why.into()))
    }
}

impl Shared {
    fn shut_down(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        self.stop.cancel();
        self.exchanges.close();
        drop(queue);
    }

    fn lost(&self, lost: &Lost) {
        let mut state = self.state.lock();
        state.closed = true;
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        for outgoing in queue {
            if let Some(exchange) = &outgoing.exchange {
                exchange.fail(lost.failure.clone());
            }
        }
        // First the reason, then the end of what is under way, which knows none.
        self.receiver.end(&lost.why);
        self.exchanges.close();
    }

    /// The stream, from its opening to its end.
    async fn read(self: &Arc<Self>, url: Url) -> Lost {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/event-stream"))]);
        let request = Request { method: Method::GET, url, headers, own_origin: true, body: None };
        let mut response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => return Lost::new(Failure::NotSent(error.to_string())),
        };
        if !response.status().is_success() {
            return Lost::new(Refusal::read(&mut response).await.failure);
        }
        if response.media_type() != "text/event-stream" {
            return Lost::new(match common::answer(&mut response).await {
                common::Answer::Failure(failure) => failure,
                common::Answer::Text(_) | common::Answer::Events => {
                    let kind = excerpt(response.media_type().as_bytes(), 80);
                    Failure::Unreadable(format!("the server answers with {kind} instead of an event stream"))
                }
            });
        }
        let mut parser = Parser::new(MAX_MESSAGE);
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Lost::ended("the server has closed the event stream"),
                Err(error) => return Lost::ended(error.to_string()),
            };
            for event in parser.feed(&chunk) {
                if let Err(why) = self.event(event, &response) {
                    return Lost::ended(why);
                }
            }
        }
    }

    /// Take an event in.
    ///
    /// # Errors
    /// Why the stream is of no use any more.
    fn event(self: &Arc<Self>, event: Event, response: &Response) -> Result<(), String> {
        match event {
            Event::Message { kind, data } if kind == "endpoint" => self.endpoint(&data, response)?,
            Event::Message { kind, data } if carries_message(&kind, &data) => {
                self.receiver.deliver(&data, None);
            }
            Event::Message { .. } => {}
            Event::TooLong { beginning } => {
                let why = format!("it has more than the {MAX_MESSAGE} bytes that are accepted");
                self.receiver.undelivered(wire::salvage_id(&beginning), &why);
            }
        }
        Ok(())
    }

    fn endpoint(self: &Arc<Self>, data: &str, response: &Response) -> Result<(), String> {
        let base = response.url();
        let url = base.join(data.trim()).map_err(|error| format!("the endpoint is no address: {error}"))?;
        if !same_origin(&url, base) {
            return Err(format!(
                "the server names an endpoint of another origin: {} instead of {}",
                redacted(&url),
                redacted(base)
            ));
        }
        let endpoint = Endpoint { url, own_origin: response.own_origin() };
        let queue = {
            let mut state = self.state.lock();
            state.endpoint = Some(endpoint.clone());
            std::mem::take(&mut state.queue)
        };
        for outgoing in queue {
            self.start(outgoing, endpoint.clone());
        }
        Ok(())
    }

    fn start(self: &Arc<Self>, mut outgoing: Outgoing, endpoint: Endpoint) {
        let shared = Arc::clone(self);
        match outgoing.exchange.take() {
            Some(exchange) => {
                let id = exchange.id;
                self.exchanges.spawn(id, async move {
                    shared.ask(exchange, outgoing, endpoint).await;
                    shared.exchanges.ended(id);
                });
            }
            None => {
                crate::spawn(async move {
                    let stop = shared.stop.clone();
                    stop.run_until_cancelled(shared.tell(outgoing, endpoint)).await;
                });
            }
        }
    }

    async fn post(&self, outgoing: Outgoing, endpoint: Endpoint) -> Result<Response, NetError> {
        let Outgoing { body, headers, gate, shut, .. } = outgoing;
        let Endpoint { url, own_origin } = endpoint;
        gate.pass().await;
        let request = Request { method: Method::POST, url, headers, own_origin, body: Some(body) };
        let response = self.client.send(request).await;
        drop(shut);
        response
    }

    /// Post a request. Its reply comes on the stream, unless the server refuses it here.
    async fn ask(&self, exchange: Exchange, outgoing: Outgoing, endpoint: Endpoint) {
        let mut response = match self.post(outgoing, endpoint).await {
            Ok(response) => response,
            Err(error) => return exchange.fail(common::failure(&error)),
        };
        if !response.status().is_success() {
            let refusal = Refusal::read(&mut response).await;
            if let Some(text) = refusal.reply() {
                exchange.deliver(&text);
            }
            return exchange.fail(refusal.failure);
        }
        exchange.leave();
        if response.media_type() != "application/json" {
            return response.finish().await;
        }
        // Some servers put the reply here.
        if let Ok(body) = response.collect(MISPLACED).await {
            let text = wire::text(&body);
            if common::is_reply(&text) {
                exchange.deliver(&text);
            }
        }
    }

    /// Post a message that no reply is awaited to. What becomes of it is seen at the next request.
    async fn tell(&self, outgoing: Outgoing, endpoint: Endpoint) {
        match self.post(outgoing, endpoint).await {
            Ok(response) if response.status().is_success() => response.finish().await,
            Ok(mut response) => {
                let failure = Refusal::read(&mut response).await.failure;
                tracing::debug!(server = %self.server, ?failure, "a notification was refused");
            }
            Err(error) => tracing::debug!(server = %self.server, %error, "a notification was lost"),
        }
    }
}

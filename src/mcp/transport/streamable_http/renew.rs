//! A new session in place of one that the server no longer knows.
//!
//! `initialize` is said again in the words of the peer, under an id of our own, whose reply the peer
//! never sees; then `notifications/initialized`. However many requests were refused, it is done once, and all
//! of them wait for it.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{FutureExt, Shared as SharedFuture};
use http::{HeaderMap, HeaderValue, Method};
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    super::{
        Failure,
        http::{self as common, Answer, Refusal, carries_message},
    },
    Message, Shared, Target,
    stream::Stream,
};
use crate::{
    mcp::wire,
    net::{Response, sse::Event},
};

pub(super) type Renewal = SharedFuture<Pin<Box<dyn Future<Output = Result<(), Arc<str>>> + Send>>>;

/// How long it may take. The calls that wait have limits of their own.
const LIMIT: Duration = Duration::from_secs(30);

/// Ids that no peer counts up to, within what every language's integers hold.
static NEXT_ID: AtomicI64 = AtomicI64::new(2_000_000_000);

impl Shared {
    /// Wait for a session after the one numbered `refused`.
    pub(super) async fn renewed(self: Arc<Self>, refused: u64) -> Result<(), Arc<str>> {
        let renewal = {
            let mut state = self.state.lock();
            if state.generation != refused {
                return Ok(());
            }
            if state.closed {
                return Err("the connection was closed".into());
            }
            let start = || -> Renewal {
                let shared = Arc::clone(&self);
                // A task of its own: it goes on when the call that began it is cancelled.
                let task = crate::spawn(async move {
                    let stop = shared.stop.clone();
                    let limited = tokio::time::timeout(LIMIT, shared.renew());
                    let renewed = match stop.run_until_cancelled(limited).await {
                        Some(Ok(renewed)) => renewed,
                        Some(Err(_)) => Err(format!("no reply within {} s", LIMIT.as_secs())),
                        None => Err("the connection was closed".to_owned()),
                    };
                    shared.state.lock().renewal = None;
                    renewed.map_err(Arc::from)
                });
                let ended: Pin<Box<dyn Future<Output = _> + Send>> =
                    Box::pin(
                        async move { task.await.unwrap_or_else(|_| Err("the runtime has ended".into())) },
                    );
                ended.shared()
            };
            state.renewal.get_or_insert_with(start).clone()
        };
        renewal.await
    }

    async fn renew(self: &Arc<Self>) -> Result<(), String> {
        let request = {
            let mut state = self.state.lock();
            let Some(first) = &state.initialize else { return Err("there was no handshake".to_owned()) };
            let mut again: Value = serde_json::from_slice(first).map_err(|error| error.to_string())?;
            again["id"] = NEXT_ID.fetch_add(1, Ordering::Relaxed).into();
            let message = Message { body: Bytes::from(again.to_string()), headers: HeaderMap::new() };
            state.target = Target { url: self.url.clone(), own_origin: true };
            let (session, version) = (state.session.take(), state.version.take());
            let (request, _) = state.request(Method::POST, Some(&message));
            // Until the new one is known, requests are refused in the old one and wait.
            (state.session, state.version) = (session, version);
            request
        };
        let mut response = self.client.send(request).await.map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(text_of(Refusal::read(&mut response).await.failure));
        }
        let reply = self.reply(&mut response).await?;
        if let Some(error) = reply.get("error") {
            return Err(wire::rpc_error(&error.to_string()).message);
        }
        if !reply["result"].is_object() {
            return Err("the reply has no result".to_owned());
        }
        // What the peer sends from now on waits until the server knows that the handshake is over.
        let shut = self.state.lock().gate.shut();
        self.begin_session(&response);
        if let Some(version) = reply["result"]["protocolVersion"].as_str() {
            self.state.lock().version = HeaderValue::from_str(version).ok();
        }
        let body = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        let (told, _) = self.post(&Message { body, headers: HeaderMap::new() }).await;
        let mut told = told.map_err(|error| error.to_string())?;
        if !told.status().is_success() {
            return Err(text_of(Refusal::read(&mut told).await.failure));
        }
        told.finish().await;
        drop(shut);
        self.start_listening(&mut self.state.lock());
        self.receiver.renewed();
        Ok(())
    }

    /// The reply to our own `initialize`. Whatever else comes is the receiver's.
    async fn reply(&self, response: &mut Response) -> Result<Value, String> {
        let found = Mutex::new(None);
        let take = |text: &str| {
            if common::is_reply(text) {
                let message = wire::from_str::<Value>(text).ok();
                *found.lock() = match message {
                    Some(Value::Array(batch)) => batch.into_iter().find(|one| one.get("method").is_none()),
                    message => message,
                };
                return true;
            }
            self.receiver.deliver(text, None);
            false
        };
        match common::answer(response).await {
            Answer::Text(body) => {
                take(&wire::text(&body));
            }
            Answer::Events => {
                let deliver = |event| {
                    matches!(event, Event::Message { kind, data }
                    if carries_message(&kind, &data) && take(&data))
                };
                Stream::default().read(response, deliver).await;
            }
            Answer::Failure(failure) => return Err(text_of(failure)),
        }
        found.into_inner().ok_or_else(|| "the response held no reply".to_owned())
    }
}

fn text_of(failure: Failure) -> String {
    match failure {
        Failure::NotSent(text)
        | Failure::Lost(text)
        | Failure::Unreadable(text)
        | Failure::Http { text, .. } => text,
    }
}

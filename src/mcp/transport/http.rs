//! What both HTTP transports have in common: messages as bodies, responses as replies or failures.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_ENCODING, WWW_AUTHENTICATE},
};
use parking_lot::Mutex;
use reqwest::Url;
use serde::{
    Deserializer as _,
    de::{self, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::{Failure, MAX_MESSAGE, Receiver};
use crate::{
    Error,
    mcp::wire,
    net::{NetError, NetErrorKind, Response, excerpt, redacted},
};

/// How much of a body that is no reply is shown.
const EXCERPT: usize = 300;
/// How much of it is read, and how long it is waited for.
const REFUSAL: usize = 1 << 20;
const REFUSAL_PATIENCE: Duration = Duration::from_secs(1);
/// How long other messages wait for `notifications/initialized` to be taken.
const GATE: Duration = Duration::from_secs(5);

/// Read the address of a server's entry.
///
/// # Errors
/// [`Error::Config`] without the address in it.
pub(super) fn address(server: &str, url: &str) -> crate::Result<Url> {
    let faulty = |why: &str| Error::Config(format!("MCP server '{server}': the 'url' {why}"));
    let mut url = Url::parse(url.trim()).map_err(|error| faulty(&format!("is no address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(faulty("must begin with http:// or https://"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// A message as a body: JSON without the LF that ends its line.
pub(super) fn body(line: &[u8]) -> Bytes {
    Bytes::copy_from_slice(line.trim_ascii_end())
}

/// What the protocol's era wants in headers. What HTTP cannot carry is left to the server to miss.
pub(super) fn add_headers(headers: &mut HeaderMap, extra: &[(String, String)]) {
    for (name, value) in extra {
        let (known, sent) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()));
        if let (Ok(known), Ok(sent)) = (known, sent) {
            headers.insert(known, sent);
        } else {
            tracing::debug!(header = name, "a header cannot be sent");
        }
    }
}

/// Messages overtake each other, each being a request of its own, and servers refuse whatever comes before
/// `notifications/initialized`. So the others wait until it was taken.
#[derive(Debug, Default, Clone)]
pub(super) struct Gate(Option<CancellationToken>);

impl Gate {
    /// Shut the gate until what is returned is dropped.
    pub(super) fn shut(&mut self) -> tokio_util::sync::DropGuard {
        let token = CancellationToken::new();
        self.0 = Some(token.clone());
        token.drop_guard()
    }

    pub(super) async fn pass(self) {
        if let Some(token) = self.0 {
            // A server that is slow to take it may be quicker with the rest.
            let _ = tokio::time::timeout(GATE, token.cancelled()).await;
        }
    }
}

/// A request that is under way. Whichever way its task ends, its call does not wait on.
pub(super) struct Exchange {
    pub(super) id: i64,
    receiver: Arc<dyn Receiver>,
    settled: AtomicBool,
}

impl Exchange {
    pub(super) fn new(id: i64, receiver: &Arc<dyn Receiver>) -> Self {
        Self { id, receiver: Arc::clone(receiver), settled: AtomicBool::new(false) }
    }

    /// The request has its outcome, or gets it elsewhere.
    pub(super) fn leave(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    /// No reply comes, unless it has come.
    pub(super) fn fail(&self, failure: Failure) {
        if !self.settled.swap(true, Ordering::Relaxed) {
            self.receiver.fail(self.id, failure);
        }
    }

    /// Give on what came on the response. Whether it was the reply: from then on the number is the receiver's, who
    /// may be asking the user something under it.
    pub(super) fn deliver(&self, text: &str) -> bool {
        let reply = answers(text, self.id);
        if reply {
            self.leave();
        }
        self.receiver.deliver(text, Some(self.id));
        reply
    }

    /// The reply, as it must have been, was longer than what is read.
    pub(super) fn too_long(&self) {
        self.fail(Failure::Unreadable(format!("it has more than the {MAX_MESSAGE} bytes that are accepted")));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.fail(Failure::Lost("the connection was closed".to_owned()));
    }
}

/// The tasks of requests that are under way.
#[derive(Default)]
pub(super) struct Exchanges(Mutex<Tasks>);

#[derive(Default)]
struct Tasks {
    /// Without a handle as long as the task is being started.
    by_id: HashMap<i64, Option<AbortHandle>>,
    closed: bool,
}

impl Exchanges {
    /// Run a request's task, which must say [`ended`](Self::ended).
    pub(super) fn spawn(&self, id: i64, exchange: impl Future<Output = ()> + Send + 'static) {
        let closed = {
            let mut tasks = self.0.lock();
            tasks.by_id.insert(id, None);
            tasks.closed
        };
        let task = crate::spawn(exchange);
        match self.0.lock().by_id.get_mut(&id) {
            Some(slot) if !closed => *slot = Some(task.abort_handle()),
            // It has ended already, or nobody waits any more.
            _ => task.abort(),
        }
    }

    pub(super) fn ended(&self, id: i64) {
        self.0.lock().by_id.remove(&id);
    }

    /// Nobody waits for the request any more.
    pub(super) fn forget(&self, id: i64) {
        let task = self.0.lock().by_id.remove(&id);
        if let Some(Some(task)) = task {
            task.abort();
        }
    }

    /// End all of them, and those to come.
    pub(super) fn close(&self) {
        let tasks = {
            let mut tasks = self.0.lock();
            tasks.closed = true;
            std::mem::take(&mut tasks.by_id)
        };
        for task in tasks.into_values().flatten() {
            task.abort();
        }
    }
}

/// What becomes of a request that has no response.
pub(super) fn failure(error: &NetError) -> Failure {
    let text = error.to_string();
    match error.kind {
        // It came, and would come again.
        NetErrorKind::TooLarge => Failure::Unreadable(text),
        _ if error.sent => Failure::Lost(text),
        _ => Failure::NotSent(text),
    }
}

/// A response that is no success: its body as far as it came, and what it means.
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) failure: Failure,
    body: Vec<u8>,
}

impl Refusal {
    pub(super) async fn read(response: &mut Response) -> Self {
        let body = response.beginning(REFUSAL, REFUSAL_PATIENCE).await;
        let challenge = response.header(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let failure = Failure::Http {
            status: response.status().as_u16(),
            text: status_text(response, &body),
            challenge: challenge.map(str::to_owned),
        };
        Self { status: response.status().as_u16(), failure, body: body.into() }
    }

    /// The JSON-RPC reply in the body, if there is one. What asks for credentials is none.
    pub(super) fn reply(&self) -> Option<Cow<'_, str>> {
        if matches!(&self.failure, Failure::Http { status: 401, challenge: Some(_), .. }) {
            return None;
        }
        let text = wire::text(&self.body);
        (text.contains("\"jsonrpc\"") && is_reply(&text) && is_whole(&text)).then_some(text)
    }

    /// Whether the server does not know the session (any more), going by the status or, where servers answer
    /// with another, by what the body says.
    pub(super) fn tells_of_session(&self) -> bool {
        let text = || wire::text(&self.body).to_ascii_lowercase();
        match self.status {
            // 2026-07-28 and some servers say so of a method.
            404 => !text().contains("-32601"),
            400..=499 => {
                const SIGNS: [&str; 9] = [
                    "not found",
                    "no valid",
                    "expired",
                    "unknown",
                    "invalid",
                    "does not exist",
                    "terminated",
                    "not exist",
                    "closed",
                ];
                let text = text();
                text.contains("session") && SIGNS.iter().any(|sign| text.contains(sign))
            }
            _ => false,
        }
    }
}

/// The status with the beginning of the body.
fn status_text(response: &Response, body: &[u8]) -> String {
    let status = response.status();
    let mut text = format!("HTTP {}", status.as_u16());
    if let Some(reason) = status.canonical_reason() {
        text.push(' ');
        text.push_str(reason);
    }
    let shown = excerpt(body, EXCERPT);
    if !shown.is_empty() {
        text.push_str(": ");
        text.push_str(&shown);
    }
    if !response.own_origin() && matches!(status.as_u16(), 401 | 403) {
        text.push_str(" (after a redirect to ");
        text.push_str(&redacted(response.url()));
        text.push_str(", where the entry's headers do not go)");
    }
    text
}

/// What a success holds.
pub(super) enum Answer {
    Events,
    /// The text of a reply, or what looks like one.
    Text(Bytes),
    Failure(Failure),
}

/// Understand a success to a request.
pub(super) async fn answer(response: &mut Response) -> Answer {
    let media = response.media_type();
    let encoding = response.header(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    if let Some(encoding) = encoding.filter(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
        let shown = excerpt(encoding.as_bytes(), 40);
        let text = format!("the response is encoded as {shown}, which was not asked for");
        return Answer::Failure(Failure::Unreadable(text));
    }
    if media == "text/event-stream" {
        return Answer::Events;
    }
    let status = response.status().as_u16();
    if media == "application/json" || media.ends_with("+json") {
        return match response.collect(MAX_MESSAGE).await {
            Ok(body) if body.trim_ascii().is_empty() => Answer::Failure(Failure::Unreadable(format!(
                "HTTP {status} with an empty body instead of a reply"
            ))),
            Ok(body) => Answer::Text(body),
            Err(error) => Answer::Failure(failure(&error)),
        };
    }
    if matches!(status, 202 | 204) {
        let text = format!("the server accepted the request (HTTP {status}) and sends no reply");
        return Answer::Failure(Failure::Unreadable(text));
    }
    let body = response.beginning(REFUSAL, REFUSAL_PATIENCE).await;
    let text = wire::text(&body);
    if text.contains("\"jsonrpc\"") && is_reply(&text) && is_whole(&text) {
        drop(text);
        return Answer::Text(body.freeze());
    }
    let kind = if media.is_empty() { "no content type" } else { &media };
    let mut text =
        format!("HTTP {status} with {} instead of JSON or an event stream", excerpt(kind.as_bytes(), 80));
    let shown = excerpt(&body, EXCERPT);
    if !shown.is_empty() {
        text.push_str(": ");
        text.push_str(&shown);
    }
    Answer::Failure(Failure::Unreadable(text))
}

/// Whether an event holds a message: by its type, or, where servers invent types, by what it looks like.
pub(super) fn carries_message(kind: &str, data: &str) -> bool {
    let data = data.trim_start();
    !data.is_empty() && (kind.is_empty() || kind == "message" || data.starts_with(['{', '[']))
}

/// Whether a text is JSON to its end.
pub(super) fn is_whole(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Whether a message is a reply, or a batch with one.
pub(super) fn is_reply(text: &str) -> bool {
    any(text, |about| about.reply.is_some())
}

/// Whether a message settles the request `id` that it came on the response to: as its reply, or as one that has lost
/// its id.
fn answers(text: &str, id: i64) -> bool {
    any(text, |about| match (about.reply, about.id.as_deref().unwrap_or("null")) {
        (None, _) => false,
        (Some(_), "null") => about.id.is_some() || about.whole,
        (Some(kind), raw) => wire::sent_id(raw).map_or(kind == Reply::Error, |sent| sent == id),
    })
}

fn any(text: &str, mut wanted: impl FnMut(&About) -> bool) -> bool {
    if !text.trim_start().starts_with('[') {
        return wanted(&About::read(text));
    }
    let batch: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    batch.iter().any(|message| message.get().starts_with('{') && wanted(&About::read(message.get())))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    Result,
    Error,
}

/// What a message is.
#[derive(Debug, Default)]
struct About {
    reply: Option<Reply>,
    id: Option<String>,
    /// It was read to its end, or so far that no id is expected from the rest.
    whole: bool,
    large: bool,
}

impl About {
    /// Reads no further than it must: replies can be large, and most say what they are at their beginning.
    fn read(text: &str) -> Self {
        let mut about = Self { large: text.len() > 64 << 10, ..Self::default() };
        // The visitor ends reading with an error once it knows.
        let read = serde_json::Deserializer::from_str(text).deserialize_any(&mut about);
        about.whole |= read.is_ok();
        about
    }
}

impl<'de> Visitor<'de> for &mut About {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match key.as_ref() {
                "id" => self.id = Some(map.next_value::<&'de RawValue>()?.get().to_owned()),
                "method" => {
                    self.reply = None;
                    return Err(de::Error::custom("no reply"));
                }
                key @ ("result" | "error") => {
                    self.reply = Some(if key == "error" { Reply::Error } else { Reply::Result });
                    if self.large {
                        // That its id comes later, and is right, is taken on trust.
                        self.whole = true;
                        return Err(de::Error::custom("known"));
                    }
                    map.next_value::<IgnoredAny>()?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            if self.reply.is_some() && self.id.is_some() {
                return Err(de::Error::custom("known"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_known_by_its_keys_and_its_id() {
        let large = format!("{{\"result\":\"{}\",\"id\":7}}", "x".repeat(1 << 20));
        for (text, reply, answer) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"method":"x"}}"#, true, true),
            (r#"{"result":{},"jsonrpc":"2.0","id":"7"}"#, true, true),
            (r#"{"result":{},"jsonrpc":"2.0","id":8}"#, true, false),
            (r#"{"id":"server-error","error":{}}"#, true, true),
            (r#"{"id":"server-error","result":{}}"#, true, false),
            (r#"{"id":null,"error":{}}"#, true, true),
            (r#"{"error":"plain"}"#, true, true),
            (r#"{"id":7,"result": cut off"#, true, true),
            (r#"{"result": cut off"#, true, false),
            (&large, true, true),
            (r#"{"params":{"result":1},"method":"notifications/x"}"#, false, false),
            (r#"{"id":7,"method":"x"}"#, false, false),
            (r#"[{"method":"x"},{"id":7,"result":{}}]"#, true, true),
            (r#"[{"method":"x"},{"id":8,"result":{}}]"#, true, false),
            (r#"[{"method":"x"},[{"result":1}]]"#, false, false),
            ("{}", false, false),
            ("3", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_reply(text), reply, "{text}");
            assert_eq!(answers(text, 7), answer, "{text}");
        }
    }

    #[test]
    fn a_faulty_address_is_refused_without_being_shown() {
        for url in ["hush", "ftp://hush/", "http://", "http://hush:99999/", "//hush"] {
            let error = address("srv", url).unwrap_err();
            assert_eq!(error.code(), "config");
            let text = error.to_string();
            assert!(text.contains("'srv'") && !text.contains("hush"), "{text}");
        }
        assert_eq!(address("s", " http://h.example#x").unwrap().as_str(), "http://h.example/");
    }
}

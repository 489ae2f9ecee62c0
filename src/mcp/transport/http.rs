//! What both HTTP transports have in common: messages as bodies, responses as replies or failures.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_ENCODING, WWW_AUTHENTICATE},
};
use reqwest::Url;
use serde::{
    Deserializer as _,
    de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::Failure;
use crate::mcp::wire;
use crate::{
    Error,
    net::{NetError, Response, excerpt, redacted},
};

/// Longest body of a reply that is read, and longest event.
pub(super) const MAX_BODY: usize = 256 << 20;
pub(super) const MAX_EVENT: usize = 64 << 20;
/// How much of a body that is no reply is shown.
const EXCERPT: usize = 300;
/// How much of it is read, and how long it is waited for.
const REFUSAL: usize = 1 << 20;
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);
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
        match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes())) {
            (Ok(name), Ok(value)) => {
                headers.insert(name, value);
            }
            _ => tracing::debug!(header = name, "a header cannot be sent"),
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

/// What becomes of a request that has no response.
pub(super) fn failure(error: &NetError) -> Failure {
    if error.sent { Failure::Lost(error.to_string()) } else { Failure::NotSent(error.to_string()) }
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
        return match response.collect(MAX_BODY).await {
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

/// Whether a text is JSON to its end.
pub(super) fn is_whole(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Whether a message is a reply, or a batch with one. Reads no further than it must: replies can be large, and say
/// what they are at their beginning.
pub(super) fn is_reply(text: &str) -> bool {
    let mut found = false;
    // The probe ends reading with an error once it knows.
    let _ = serde_json::Deserializer::from_str(text).deserialize_any(Probe(&mut found));
    found
}

struct Probe<'f>(&'f mut bool);

impl<'de> Visitor<'de> for Probe<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match key.as_ref() {
                "result" | "error" => {
                    *self.0 = true;
                    return Err(de::Error::custom("a reply"));
                }
                "method" => return Err(de::Error::custom("no reply")),
                _ => map.next_value::<IgnoredAny>()?,
            };
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut batch: A) -> Result<(), A::Error> {
        while let Some(message) = batch.next_element::<&'de RawValue>()? {
            if message.get().starts_with('{') && is_reply(message.get()) {
                *self.0 = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_known_by_its_first_keys() {
        for (text, reply) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{"method":"x"}}"#, true),
            (r#"{"error":"plain"}"#, true),
            (r#"{"result": cut off"#, true),
            (r#"{"params":{"result":1},"method":"notifications/x"}"#, false),
            (r#"{"method":"x","result":1}"#, false),
            (r#"[{"method":"x"},{"id":1,"result":{}}]"#, true),
            (r#"[{"method":"x"},[{"result":1}]]"#, false),
            ("{}", false),
            ("3", false),
            ("", false),
        ] {
            assert_eq!(is_reply(text), reply, "{text}");
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

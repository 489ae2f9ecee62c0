//! What went wrong on the way to a server and back, in texts that hold no secrets.

use std::{error::Error as StdError, fmt, io};

use super::guard::Refusal;

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetErrorKind {
    /// No connection came about: the name is unknown, the port is closed, nobody answers.
    Unreachable,
    /// The policy refuses an address or a redirect.
    Blocked,
    /// No trust or no common ground over TLS.
    Tls,
    /// The proxy refuses or cannot be reached.
    Proxy,
    /// The connection broke, or what came was not HTTP.
    Broken,
    /// Redirects without an end or a sense.
    Redirect,
    /// The body is larger than what is accepted.
    TooLarge,
}

/// A request that has no response, or a response that broke off.
#[derive(Debug, Clone)]
pub(crate) struct NetError {
    pub(crate) kind: NetErrorKind,
    /// Whether the server may have begun to work on the request.
    pub(crate) sent: bool,
    pub(super) text: String,
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for NetError {}

impl NetError {
    pub(super) fn new(kind: NetErrorKind, sent: bool, text: impl Into<String>) -> Self {
        Self { kind, sent, text: text.into() }
    }

    pub(super) fn refused(refusal: &Refusal) -> Self {
        Self::new(NetErrorKind::Blocked, false, refusal.0.clone())
    }

    /// Understand the error of a request to `target`, which is redacted, `proxied` or not.
    pub(super) fn of_request(error: &reqwest::Error, target: &str, proxied: Option<&str>) -> Self {
        if let Some(refusal) = find::<Refusal>(error) {
            return Self::refused(refusal);
        }
        let canceled = find::<hyper::Error>(error).is_some_and(hyper::Error::is_canceled);
        let connecting = error.is_connect();
        let sent = !(connecting || canceled || error.is_builder());
        let reason = reason(error);
        if let Some(proxy) = proxied.filter(|_| connecting) {
            return Self::new(
                NetErrorKind::Proxy,
                sent,
                format!("the proxy {proxy} gives no way to {target}: {reason}"),
            );
        }
        if find::<rustls::Error>(error).is_some() {
            return Self::new(NetErrorKind::Tls, sent, format!("TLS with {target} failed: {reason}"));
        }
        if connecting {
            return Self::new(NetErrorKind::Unreachable, sent, format!("{target} is unreachable: {reason}"));
        }
        Self::new(NetErrorKind::Broken, sent, format!("the connection to {target} broke: {reason}"))
    }

    /// Understand the error of a response's body.
    pub(super) fn of_body(error: &reqwest::Error, target: &str) -> Self {
        let text = format!("the response from {target} broke off: {}", reason(error));
        Self::new(NetErrorKind::Broken, true, text)
    }
}

/// The first error of a type in the chain; `io::Error` hides its own behind `get_ref`.
fn find<'e, T: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e T> {
    chain(error).find_map(<dyn StdError>::downcast_ref)
}

fn chain<'e>(error: &'e (dyn StdError + 'static)) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    let next = |error: &&'e (dyn StdError + 'static)| -> Option<&'e (dyn StdError + 'static)> {
        let error: &'e (dyn StdError + 'static) = *error;
        match error.downcast_ref::<io::Error>() {
            Some(io) => io.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
            None => error.source(),
        }
    };
    // A chain that long is a loop.
    std::iter::successors(Some(error), next).take(32)
}

/// The innermost text: what the outer ones add is where in the client it happened, or the address.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() && error.is_connect() {
        return format!("no connection within {} s", super::client::CONNECT_TIMEOUT.as_secs());
    }
    // The texts of reqwest itself name the address.
    let inner = chain(error).filter(|error| !error.is::<reqwest::Error>()).last();
    inner.map_or_else(|| "the request is faulty".to_owned(), ToString::to_string)
}

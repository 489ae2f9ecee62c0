//! Transports: how messages reach a server and come back.
//!
//! A [`Carrier`] takes whole JSON-RPC messages as text and knows nothing of calls; what arrives goes
//! to a [`Receiver`] as text, or as the [`Failure`] of one request. One peer of our own speaks over
//! all of them: replies must be read leniently from their text in any case, and calls settle where
//! they are read.
//!
//! `process` starts and ends a child with everything it started, `outbox` writes to it, `frame` cuts
//! bytes into lines, `stdio` puts them together. `streamable_http` and `sse` share `http`.

mod frame;
pub(super) mod fuzzing;
mod http;
#[cfg(any(windows, test))]
mod launcher;
mod outbox;
pub(super) mod process;
pub(super) mod sse;
pub(super) mod stdio;
pub(super) mod streamable_http;
#[cfg(test)]
mod testing;
#[cfg(unix)]
mod watchdog;

pub use outbox::{Held, burst, hold};

/// To be called in a process that was forked from one that has servers: it lets go of what the parent's
/// servers depend on.
pub fn forked() {
    #[cfg(unix)]
    watchdog::forget();
}

/// The longest message that is taken from a server: a line, a body or an event. The reference's own limit is
/// what memory allows; 17 MiB occur.
const MAX_MESSAGE: usize = 64 << 20;

/// What a transport is told of a message beside its bytes.
#[derive(Debug, Clone)]
pub(in crate::mcp) enum Kind<'a> {
    /// It awaits a reply.
    Request {
        /// The number that the reply will carry.
        id: i64,
        /// The method.
        method: &'a str,
        /// What the era wants said outside of the body as well; empty but for HTTP.
        headers: Vec<(String, String)>,
    },
    /// Nothing answers it.
    Notification {
        /// The method.
        method: &'a str,
        /// As for a request.
        headers: Vec<(String, String)>,
    },
    /// It answers a request of the server's.
    Reply,
}

/// Where a message ends in the stream of all bytes to one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(in crate::mcp) struct Position(pub(in crate::mcp) u64);

/// Why a message was not accepted. The connection's end, if there is one, tells more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mcp) enum Refused {
    /// Nothing can be sent any more.
    Closed,
    /// The server does not read, and too much waits already.
    Full,
}

/// Carries messages to one server.
pub(in crate::mcp) trait Carrier: std::fmt::Debug + Send + Sync {
    /// Send one message: one line of JSON that ends with LF. From any thread; never waits.
    fn send(&self, line: &[u8], kind: Kind<'_>) -> Result<Position, Refused>;

    /// Whether everything up to `position` has been handed over. A transport that reports through
    /// [`Receiver::fail`] what became of each request says yes.
    fn has_left(&self, position: Position) -> bool;

    /// Nobody waits for the reply to `id` any more.
    fn forget(&self, id: i64);

    /// The handshake is over, and `version` agreed on; with `listen`, the server may have messages of
    /// its own that want a stream.
    fn agreed(&self, version: &str, listen: bool);

    /// Send nothing more, and let the server know where the transport has a way to.
    fn close(&self);
}

/// Where a transport delivers. The methods neither wait nor panic.
pub(in crate::mcp) trait Receiver: Send + Sync {
    /// A message or a batch of them. `answering` is the request on whose response it came, so that a
    /// reply that lost its id finds its call.
    fn deliver(&self, text: &str, answering: Option<i64>);

    /// The request gets no reply; its call fails now.
    fn fail(&self, id: i64, failure: Failure);

    /// Something arrived that cannot be delivered (too large, say). It concerns the request `id`, or
    /// if that is unknown the only one that waits.
    fn undelivered(&self, id: Option<i64>, why: &str) {
        if let Some(id) = id {
            self.fail(id, Failure::Unreadable(why.to_owned()));
        }
    }

    /// The server had forgotten the session, and there is a new one: it knows nothing of what was
    /// asked of it once.
    fn renewed(&self) {}

    /// The connection is over: everything that waits fails.
    fn end(&self, why: &str);
}

/// Why a request gets no reply. The texts are free of secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mcp) enum Failure {
    /// It never reached the server, so that sending it again is safe.
    NotSent(String),
    /// It was sent, and the reply is lost.
    Lost(String),
    /// HTTP answered with a status that is no reply.
    Http {
        /// The status.
        status: u16,
        /// The status and a short excerpt of the body, in plain text.
        text: String,
        /// `WWW-Authenticate`.
        challenge: Option<String>,
    },
    /// There is a reply and it cannot be read.
    Unreadable(String),
}

//! Transports: how lines reach a server and come back.
//!
//! Each file has one duty: `process` starts and ends the child with everything it started,
//! `outbox` writes, `frame` cuts bytes into lines, `wire` understands a line as JSON-RPC, `inbox`
//! gives it to whom it concerns, `decode` makes rmcp's types of it, `stdio` puts them together
//! under rmcp's `Transport` trait.

mod decode;
mod frame;
mod http;
mod inbox;
#[cfg(any(windows, test))]
mod launcher;
mod outbox;
pub(super) mod process;
pub(super) mod sse;
pub(super) mod stdio;
pub(super) mod streamable_http;
#[cfg(test)]
mod testing;
pub(super) mod wire;

pub use outbox::{Held, burst, hold};
pub(super) use outbox::{Outbox, Position, Refused};

/// What a transport is told of a message beside its bytes.
#[derive(Debug, Clone)]
pub(in crate::mcp) enum Kind<'a> {
    /// Awaits a reply. `headers`: what the era wants beside the body (HTTP only).
    Request { id: i64, method: &'a str, headers: Vec<(String, String)> },
    /// Awaits nothing.
    Notification { method: &'a str, headers: Vec<(String, String)> },
    /// An answer to a request of the server's.
    Reply,
}

/// Carries messages to one server.
pub(in crate::mcp) trait Carrier: std::fmt::Debug + Send + Sync {
    /// Send one JSON-RPC message: one line, ending with LF. Called from any thread; never blocks.
    fn send(&self, line: &[u8], kind: Kind<'_>) -> Result<Position, Refused>;
    /// Whether what ends at `position` has been handed over (stdio); HTTP reports through
    /// [`Receiver::fail`] instead and says true.
    fn has_left(&self, position: Position) -> bool;
    /// Nobody waits for the reply to `id` any more: HTTP drops the exchange and its stream.
    fn forget(&self, id: i64);
    /// The handshake is over: the version agreed on, and whether messages of the server's own are wanted.
    fn agreed(&self, version: &str, listen: bool);
    /// End: no more messages.
    fn close(&self);
}

/// Where a transport delivers. The methods never block and never panic.
pub(in crate::mcp) trait Receiver: Send + Sync {
    /// One JSON-RPC message or a batch as text. `answering`: the request on whose response it came.
    fn deliver(&self, text: &str, answering: Option<i64>);
    /// The request gets no reply; its call fails now.
    fn fail(&self, id: i64, failure: Failure);
    /// The connection is over: everything that waits fails.
    fn end(&self, why: &str);
}

/// Why a request gets no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mcp) enum Failure {
    /// It never left: replay is safe. Text without secrets.
    NotSent(String),
    /// It left, and the reply is lost.
    Lost(String),
    /// HTTP answered with a status that is no reply.
    Http { status: u16, text: String, challenge: Option<String> },
    /// There is a reply and it cannot be read.
    Unreadable(String),
}

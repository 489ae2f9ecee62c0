//! What all connections to one server have in common: the numbers of requests, and counts.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Numbers and counts of one server, over all of its connections.
///
/// Numbers are unique over the connections, so that a request keeps its own when it moves.
#[derive(Debug)]
pub(in crate::mcp) struct Traffic {
    next: AtomicI64,
    calls: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    /// Milliseconds from `since` to when the server was last heard.
    heard: AtomicU64,
    /// The same for when a call was last made.
    called: AtomicU64,
    since: Instant,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            next: AtomicI64::new(1),
            calls: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            called: AtomicU64::new(0),
            since: Instant::now(),
        }
    }
}

impl Traffic {
    /// A number that no other request to the server has.
    pub(super) fn number(&self) -> i64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.bytes_sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A call is made.
    pub(in crate::mcp) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.called.store(self.now(), Ordering::Relaxed);
    }

    /// The server was heard.
    pub(in crate::mcp) fn received(&self, bytes: usize) {
        self.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.heard.store(self.now(), Ordering::Relaxed);
    }

    /// Calls that were made.
    pub(in crate::mcp) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Bytes sent in requests, and received in messages.
    pub(in crate::mcp) fn bytes(&self) -> (u64, u64) {
        (self.bytes_sent.load(Ordering::Relaxed), self.bytes_received.load(Ordering::Relaxed))
    }

    /// How long ago the server was heard.
    pub(in crate::mcp) fn quiet(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.heard.load(Ordering::Relaxed)))
    }

    /// How long ago a call was made.
    pub(in crate::mcp) fn idle(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.called.load(Ordering::Relaxed)))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

//! Where a connection is in its life.

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Configured, not started.
    Recipe,
    /// Starting, shaking hands or listing.
    Connecting,
    /// Calls go through.
    Ready,
    /// The server is gone; calls fail at once.
    Lost,
    /// Closed by its owner.
    Closed,
}

impl ConnectionState {
    /// The state in lower case, for users.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recipe => "recipe",
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Lost => "lost",
            Self::Closed => "closed",
        }
    }
}

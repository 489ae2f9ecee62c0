//! Where a server is in its life.

/// Where a server, or one connection to it, is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Configured, not started.
    Recipe,
    /// Switched off in its entry.
    Disabled,
    /// Not started; its tools are known, and the first call starts it.
    Cached,
    /// Starting, shaking hands or listing for the first time.
    Connecting,
    /// Calls go through.
    Ready,
    /// The server is gone, or was never reached; it is tried again later.
    Lost,
    /// The server wants to know who asks (HTTP status 401); it is tried again later.
    NeedsAuthorisation,
    /// An attempt to reach a server again is under way.
    Reconnecting,
    /// Closed by its owner.
    Closed,
}

impl ConnectionState {
    /// The state in lower case, for users.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recipe => "recipe",
            Self::Disabled => "disabled",
            Self::Cached => "cached",
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Lost => "lost",
            Self::NeedsAuthorisation => "needs-authorisation",
            Self::Reconnecting => "reconnecting",
            Self::Closed => "closed",
        }
    }
}

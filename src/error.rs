//! The one error type of the core.
//!
//! Every variant has a stable [`code`](Error::code), which the Python side shows as
//! `ToolOutcome.error_kind` and as the attribute `code` of its exceptions. The `Display` text is
//! what a model reads: it says what happened and, where there is one, what to do.

use std::time::Duration;

use crate::validate::Failure;

/// Result with the core's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong between a call and its result.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No tool of that name is registered.
    #[error("{text}")]
    NotFound {
        /// The name that was asked for.
        name: String,
        /// Text for the model, with near names.
        text: String,
    },
    /// The arguments do not fit the tool's schema.
    #[error("{text}")]
    InvalidArguments {
        /// The tool that was called.
        tool: String,
        /// Text for the model.
        text: String,
        /// The failures one by one; empty when the arguments are not even an object.
        failures: Vec<Failure>,
    },
    /// The call did not end before its deadline.
    #[error("{text}")]
    Timeout {
        /// The limit that applied.
        after: Duration,
        /// Text for the model.
        text: String,
    },
    /// The call was cancelled by its caller.
    #[error("the call was cancelled")]
    Cancelled,
    /// A hook or a guard refused the call.
    #[error("{0}")]
    Refused(String),
    /// The tool ran and failed; the text is the tool's own.
    #[error("{0}")]
    Tool(String),
    /// Code of this package or of a native tool panicked; only this call is lost.
    #[error("internal error: {0}")]
    Panic(String),
    /// A server could not be started or did not finish its handshake.
    #[error("{text}")]
    Connect {
        /// The server's name in the configuration.
        server: String,
        /// What happened, with exit status and the tail of stderr where there is one.
        text: String,
    },
    /// The connection to a server ended while the call waited, or before it could be sent.
    #[error("{text}")]
    Connection {
        /// The server's name in the configuration.
        server: String,
        /// What happened.
        text: String,
        /// Whether the request had already been handed to the server, so that it may have run.
        sent: bool,
    },
    /// The server answered with a JSON-RPC error.
    #[error("{text}")]
    Remote {
        /// JSON-RPC error code.
        rpc_code: i64,
        /// The server's message.
        message: String,
        /// Text for the model.
        text: String,
        /// What the server added.
        data: Option<Box<serde_json::Value>>,
    },
    /// The server answered over HTTP with a status that is no reply.
    #[error("{text}")]
    Http {
        /// The server's name in the configuration.
        server: String,
        /// The HTTP status.
        status: u16,
        /// Text for the model.
        text: String,
        /// The header `WWW-Authenticate`.
        challenge: Option<String>,
    },
    /// The server's reply could not be understood.
    #[error("{0}")]
    Protocol(String),
    /// A configuration entry is faulty; the text names it.
    #[error("{0}")]
    Config(String),
    /// The file system refused something.
    #[error("{0}")]
    Io(String),
}

impl Error {
    /// A stable, machine-readable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::InvalidArguments { .. } => "invalid_arguments",
            Self::Timeout { .. } => "timeout",
            Self::Cancelled => "cancelled",
            Self::Refused(_) => "refused",
            Self::Tool(_) => "tool_error",
            Self::Panic(_) => "internal",
            Self::Connect { .. } => "connect",
            Self::Connection { .. } => "connection",
            Self::Remote { .. } => "remote",
            Self::Http { .. } => "http",
            Self::Protocol(_) => "protocol",
            Self::Config(_) => "config",
            Self::Io(_) => "io",
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

//! What the client may be asked by servers, and who answers.

use serde_json::{Map, Value, json};

use super::state::ConnectionState;
use crate::BoxFuture;

/// Which requests of servers are answered; what is not offered is not announced either.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one for each capability of the specification")]
pub struct Offered {
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// `elicitation/create` with a form.
    pub elicitation_form: bool,
    /// `elicitation/create` with an address to open.
    pub elicitation_url: bool,
    /// `roots/list`.
    pub roots: bool,
}

/// Why a request of a server is not answered with a result.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestError {
    /// JSON-RPC error code.
    pub code: i32,
    /// What the server is told.
    pub message: String,
    /// Anything more.
    pub data: Option<Value>,
}

impl RequestError {
    /// An error without data.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(super) fn to_json(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".to_owned(), json!(self.code));
        error.insert("message".to_owned(), json!(self.message));
        if let Some(data) = &self.data {
            error.insert("data".to_owned(), data.clone());
        }
        Value::Object(error)
    }
}

/// One of the lists that a server keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListKind {
    /// Tools.
    Tools,
    /// Resources, and templates of resources.
    Resources,
    /// Prompts.
    Prompts,
}

impl ListKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Resources, Self::Prompts];

    /// The kind as configurations and callbacks name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Prompts => "prompts",
        }
    }
}

/// Something that a server tells, or that happens to its connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A log message (`notifications/message`).
    Log {
        /// One of the eight levels of RFC 5424, as the server wrote it.
        level: String,
        /// The part of the server that logs.
        logger: Option<String>,
        /// Any JSON.
        data: Value,
    },
    /// A resource that was subscribed to has changed.
    ResourceUpdated {
        /// Its address.
        uri: String,
    },
    /// The tools have changed: the server was reached, or its entry is another.
    Offering,
    /// A list was read again and is in place.
    ListChanged(ListKind),
    /// What a URL was opened for is done.
    ElicitationComplete {
        /// The server's id of it.
        id: String,
    },
    /// The server has entered another state.
    State {
        /// Which.
        state: ConnectionState,
        /// Why it is not ready, if it failed.
        failure: Option<String>,
    },
}

/// Speaks for the user and the host with servers. The methods are called on the runtime's threads.
pub trait Delegate: Send + Sync {
    /// What is offered; asked at each handshake and request.
    fn offered(&self) -> Offered {
        Offered::default()
    }

    /// Answer a request that is offered. Dropping the future means that nobody wants it any more.
    fn request(
        &self,
        server: &str,
        method: &str,
        params: Value,
    ) -> BoxFuture<std::result::Result<Value, RequestError>>;

    /// Something happened. Must not wait.
    fn event(&self, server: &str, event: Event);
}

/// Offers nothing and hears nothing but what servers log.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDelegate;

impl Delegate for NoDelegate {
    fn request(
        &self,
        _server: &str,
        method: &str,
        _params: Value,
    ) -> BoxFuture<std::result::Result<Value, RequestError>> {
        let error = RequestError::new(-32601, format!("Method not found: {method}"));
        Box::pin(std::future::ready(Err(error)))
    }

    fn event(&self, server: &str, event: Event) {
        if let Event::Log { level, logger, data } = event {
            tracing::debug!(server, level, logger, %data, "message of the server");
        }
    }
}

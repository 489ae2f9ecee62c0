//! What the client tells a server about itself, and its answers to a server's requests.
//!
//! No capability is announced yet, so that requests for sampling and elicitation are refused and
//! the list of roots is empty; rmcp's defaults do that. Every request is answered.

use rmcp::{
    ClientHandler,
    model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion},
};

#[derive(Debug, Clone, Default)]
pub(super) struct Handler;

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        // Not rmcp's default, which offers 2026-07-28 inside `initialize`, a version without one.
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

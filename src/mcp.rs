//! The MCP client.
//!
//! [`connect`] turns a [`ServerConfig`] into a [`Connection`]: it starts the server, shakes hands
//! through rmcp, reads the tool list item by item and wraps each tool as an [`McpTool`], which the
//! registry cannot tell from any other. Calls take a lane of their own beside rmcp's service loop
//! (see `lane`), so that the calling thread writes the request and the reader settles it.
//!
//! Boundaries: a transport (`transport`) moves lines and owns the process; `session` speaks the
//! handshake and the lists; `catalog` and `render` decode what servers send; `connection` owns
//! all of it and its end. Nothing here knows the registry, Python or another server, but for
//! [`connect_all`], which keeps names unique among the servers that it connects.

pub mod artifacts;
mod catalog;
pub mod config;
mod connection;
mod expand;
pub(crate) mod fuzzing;
mod handler;
mod lane;
pub mod output_schema;
pub mod render;
mod session;
mod transport;
mod wrap;

pub use config::{ServerConfig, TransportKind};
pub use connection::{ConnectAll, Connection, ConnectionState, connect, connect_all};
pub use transport::{Held, burst, hold};
pub use wrap::McpTool;

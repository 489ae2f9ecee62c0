//! The MCP client.
//!
//! A [`Server`] is one entry of a configuration, kept connected: its keeper makes one [`Connection`] after
//! the other. A connection starts or reaches the server, shakes hands in the era that the server speaks,
//! reads its lists item by item and has each tool, resource and prompt wrapped as an [`McpTool`], which
//! the registry cannot tell from any other. [`connect`] makes a single connection that nobody keeps.
//!
//! Boundaries: a transport (`transport`) carries texts, and owns the process if there is one; the
//! `peer` makes requests and settles who waits, the `inbox` understands what arrives, the `handler`
//! answers what servers ask, through a [`Delegate`]; `session` and `era` know the handshake and the
//! lists; `catalog` and `render` decode what servers send; `connection` owns all of it and its end.
//! What outlives a connection is the `link`, through which calls go, and the `offering`, which is what
//! the server offers as tools. Nothing here knows the registry, Python or another server, but for
//! [`connect_all`], which keeps names unique among the servers that it connects.

pub mod artifacts;
mod catalog;
pub mod config;
mod connection;
mod delegate;
mod era;
mod expand;
pub(crate) mod fuzzing;
mod handler;
mod inbox;
mod link;
mod offering;
pub mod output_schema;
mod peer;
pub mod render;
pub mod server;
mod session;
mod shelf;
mod state;
mod transport;
mod wire;
mod wrap;

pub use config::{Lazy, ResourceMode, Retry, ServerConfig, TransportKind};
pub use connection::{ConnectAll, Connection, connect, connect_all, connect_with};
pub use delegate::{Delegate, Event, ListKind, NoDelegate, Offered, RequestError};
pub use server::Server;
pub use session::List;
pub use shelf::{Shelf, ShelfEntry};
pub use state::ConnectionState;
pub use transport::{Held, burst, forked, hold};
pub use wrap::{Capability, McpTool};

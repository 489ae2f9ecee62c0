//! Transports: how lines reach a server and come back.
//!
//! Each file has one duty: `process` starts and ends the child with everything it started,
//! `outbox` writes, `frame` cuts bytes into lines, `wire` understands a line as JSON-RPC, `inbox`
//! gives it to whom it concerns, `decode` makes rmcp's types of it, `stdio` puts them together
//! under rmcp's `Transport` trait.

mod decode;
mod frame;
pub(super) mod fuzzing;
mod inbox;
#[cfg(any(windows, test))]
mod launcher;
mod outbox;
pub(super) mod process;
pub(super) mod stdio;
pub(super) mod wire;

pub use outbox::{Held, burst, hold};
pub(super) use outbox::{Outbox, Position, Refused};

//! HTTP as the servers' transports need it.
//!
//! `guard` judges addresses, `resolve` asks for them and hands on only those that were judged,
//! `proxy` knows the environment's proxies, `client` sends one request and follows its redirects,
//! `tls` holds what is trusted, `redact` makes texts that may be shown, `error` says what went wrong and whether the
//! request had left, and `sse` cuts a body into events.
//!
//! Boundaries: nothing here knows MCP or JSON-RPC, and there is no state that two servers share
//! but for the certificates that are trusted.

mod client;
mod error;
mod guard;
mod proxy;
mod redact;
mod resolve;
pub mod sse;
#[cfg(test)]
pub(crate) mod testing;
mod tls;

pub use client::HttpClient;
pub(crate) use client::{Request, Response, same_origin};
pub(crate) use error::{NetError, NetErrorKind};
pub use guard::{AllowPrivate, Policy};
pub(crate) use redact::{excerpt, redacted};

//! What the fuzz targets reach in the core, and the test that replays their corpora. Not part of
//! the interface: it may change with every release.
//!
//! A plain hidden module rather than one behind `cfg(fuzzing)`, so that `cargo test` replays the
//! corpora on a stable toolchain, against the code that is shipped.

pub use crate::mcp::fuzzing::{Line, deliver, lines};

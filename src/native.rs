//! Tools written in Rust.

//! What [`crate::fuzzing`] offers of the MCP client.

pub use super::transport::fuzzing::{Line, deliver, lines};

//! The tool runtime for Python agents.
//!
//! The core knows no Python: tools of every kind (Python, MCP, Rust) meet in the object-safe
//! [`Tool`] trait, and the registry and the executor cannot tell them apart. Python bindings live
//! in `py` alone, behind the feature `python`.

mod cancel;
mod error;
pub mod executor;
#[doc(hidden)]
pub mod fuzzing;
pub mod mcp;
mod meter;
pub mod native;
pub mod net;
mod registry;
mod runtime;
pub mod schema;
mod tool;
pub mod validate;

#[cfg(feature = "python")]
mod py;

pub use cancel::Running;
pub use error::{Error, Result};
pub use meter::{Latency, Meter, Stats, Tally};
pub use registry::{Definition, Registry, Snapshot};
pub use runtime::{handle as runtime_handle, spawn, spawn_blocking};
pub use tool::{
    Arguments, BoxFuture, CallContext, Completion, Foreign, ForeignPayload, FunctionTool, Payload, Progress,
    ProgressSink, Tool, ToolCall, ToolOutput, ToolSpec,
};

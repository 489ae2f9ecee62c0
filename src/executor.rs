//! The batch executor: which calls run together, how many at once, and what became of them.
//!
//! The parts are free of I/O and of any runtime, so that two drivers share them: [`Executor`] here
//! runs batches on tokio, for Rust programs; the Python binding runs them on an asyncio loop, where
//! coroutines have to live.
//!
//! - [`plan`]: the calls of one model response -> batches
//! - [`Limiter`]: slots overall, per tool and per server, shared by all runs of an executor
//! - [`Schedule`]: the next call to start, in order, as slots allow
//! - [`RepeatGuard`]: refuses the same call over and over
//! - [`Executor`]: the tokio driver, and [`Outcome`]

mod guard;
mod limits;
mod plan;
mod run;
mod schedule;

pub use guard::RepeatGuard;
pub use limits::{Limit, Limiter, Limits, Permit, Waker};
pub use plan::plan;
pub use run::{Executor, Outcome};
pub use schedule::{CallKey, Schedule, Turn};

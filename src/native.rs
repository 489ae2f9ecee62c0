//! Tools written in Rust: `grep` and `find_files`.
//!
//! They show the same names, schemas and texts as the tools that nanobot users know, and they
//! implement the same [`Tool`](crate::Tool) trait as every other tool. Both read only. They run on
//! the pool for blocking work, look at their cancel flag and deadline between files, and treat
//! whatever a tree may hold (odd names, loops, pipes, vanished files) as something to skip.
//!
//! Where paths may lead is decided in `workspace`; how names and patterns are understood, in
//! `glob` and `dialect`. Nothing here writes, and no PDF or Office file is parsed.

mod args;
mod dialect;
mod failure;
mod find_files;
mod glob;
mod grep;
mod ordered;
mod paths;
mod pattern;
mod render;
mod stop;
mod text;
mod walk;
mod workspace;

pub use find_files::{FindFilesTool, ScanBudget};
pub use grep::GrepTool;
pub use workspace::Workspace;

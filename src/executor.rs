//! The batch executor.

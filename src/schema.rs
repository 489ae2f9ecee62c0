//! JSON Schemas and names as providers need them.

pub mod names;
pub mod normalise;

//! Why a search has no result.

use super::paths::PathError;
use crate::{
    error::{Error, Result},
    tool::ToolOutput,
};

#[derive(Debug)]
pub(super) enum Failure {
    /// A result that is an error.
    Text(String),
    /// The same, for a path that cannot be used.
    Path(PathError),
    /// The call was cancelled or is over its deadline.
    Stopped(Error),
}

impl Failure {
    /// What the call gives; `prefix` is how the tool's other errors begin.
    pub(super) fn into_output(self, prefix: &str) -> Result<ToolOutput> {
        match self {
            Self::Text(text) => Ok(ToolOutput::error(text)),
            Self::Path(error) => Ok(ToolOutput::error(error.result_text(prefix))),
            Self::Stopped(error) => Err(error),
        }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self::Path(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Stopped(error)
    }
}

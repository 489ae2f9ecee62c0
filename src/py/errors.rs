//! Core errors as Python exceptions, and Python exceptions as kinds of error.
//!
//! The classes are written in Python (`nanobot_tools.errors`), since the stable ABI cannot subclass
//! exceptions natively.

use pyo3::{
    PyErrArguments, exceptions::PyTimeoutError, import_exception, intern, prelude::*, sync::PyOnceLock,
    types::PyType,
};
use serde_json::Value;

use super::convert;
use crate::Error;

import_exception!(nanobot_tools.errors, NanobotToolsError);
import_exception!(nanobot_tools.errors, ToolNotFoundError);
import_exception!(nanobot_tools.errors, InvalidArgumentsError);
import_exception!(nanobot_tools.errors, ToolTimeoutError);
import_exception!(nanobot_tools.errors, ToolCancelledError);
import_exception!(nanobot_tools.errors, ToolRefusedError);
import_exception!(nanobot_tools.errors, ToolError);
import_exception!(nanobot_tools.errors, InternalError);
import_exception!(nanobot_tools.errors, MCPError);
import_exception!(nanobot_tools.errors, MCPConnectionError);
import_exception!(nanobot_tools.errors, ConfigError);

/// The exception for a core error.
pub(crate) fn to_py(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::NotFound { .. } => ToolNotFoundError::new_err(text),
        Error::InvalidArguments { .. } => InvalidArgumentsError::new_err(text),
        Error::Timeout { .. } => ToolTimeoutError::new_err(text),
        Error::Cancelled => ToolCancelledError::new_err(text),
        Error::Refused(_) => ToolRefusedError::new_err(text),
        Error::Tool(_) => ToolError::new_err(text),
        Error::Connect { .. } | Error::Connection { .. } | Error::Http { .. } => {
            MCPConnectionError::new_err(text)
        }
        Error::Remote { rpc_code, message, data, .. } => {
            MCPError::new_err(Remote { rpc_code, message, data })
        }
        Error::Protocol(_) => MCPError::new_err((-32603, text)),
        Error::Config(_) => ConfigError::new_err(text),
        Error::Io(_) => pyo3::exceptions::PyOSError::new_err(text),
        _ => InternalError::new_err(text),
    }
}

/// The arguments of an `MCPError`, made when it is raised.
struct Remote {
    rpc_code: i64,
    message: String,
    data: Option<Box<Value>>,
}

impl PyErrArguments for Remote {
    fn arguments(self, py: Python<'_>) -> Py<PyAny> {
        // What has no form in Python is as good as absent.
        let data = self.data.and_then(|data| convert::to_python(py, &data).ok());
        (self.rpc_code, self.message, data)
            .into_pyobject(py)
            .map_or_else(|_| py.None(), |arguments| arguments.into_any().unbind())
    }
}

/// Kinds of error that an exception of ours may name in its attribute `code`.
const KINDS: [&str; 14] = [
    "not_found",
    "invalid_arguments",
    "timeout",
    "cancelled",
    "refused",
    "tool_error",
    "internal",
    "connect",
    "connection",
    "remote",
    "http",
    "protocol",
    "config",
    "io",
];

/// The stable kind of one of our own exceptions or of a time-out, or `None` for others.
pub(crate) fn kind_of(exception: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
    static ROOT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = exception.py();
    if exception.is_instance(ROOT.import(py, "nanobot_tools.errors", "NanobotToolsError")?)? {
        let kind: String = exception.get_type().getattr(intern!(py, "code"))?.extract().unwrap_or_default();
        return Ok(KINDS.into_iter().find(|known| *known == kind));
    }
    Ok(exception.is_instance_of::<PyTimeoutError>().then_some("timeout"))
}

//! Connections to MCP servers, as Python sees them.

use std::{collections::HashSet, sync::Arc};

use pyo3::prelude::*;
use serde_json::Value;

use super::{bridge, convert, errors, native::NativeTool, registry::native_arguments};
use crate::{
    CallContext, Tool,
    mcp::{Connection, ConnectionState, ServerConfig, connect},
};

/// A connection to one MCP server; made by `connect_server`.
#[pyclass(frozen, module = "nanobot_tools._native")]
pub(crate) struct NativeConnection(Arc<Connection>);

#[pymethods]
impl NativeConnection {
    /// The server's name in the configuration.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// `recipe`, `connecting`, `ready`, `lost` or `closed`.
    #[getter]
    fn state(&self) -> &'static str {
        match self.0.state() {
            ConnectionState::Recipe => "recipe",
            ConnectionState::Connecting => "connecting",
            ConnectionState::Ready => "ready",
            ConnectionState::Lost => "lost",
            _ => "closed",
        }
    }

    /// The process that was started, or `None` for a server that is no process.
    #[getter]
    fn pid(&self) -> Option<u32> {
        self.0.pid()
    }

    /// The server's own instructions for the model, or `None`.
    #[getter]
    fn instructions(&self) -> Option<&str> {
        self.0.instructions()
    }

    /// Name and version that the server gave of itself.
    #[getter]
    fn server_info(&self) -> (&str, &str) {
        self.0.server_info()
    }

    /// The protocol version that was agreed on.
    #[getter]
    fn protocol_version(&self) -> &str {
        self.0.protocol_version()
    }

    /// What was odd about the entry or the server without being fatal.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.0.warnings().to_vec()
    }

    /// The last lines that the server wrote to stderr.
    #[getter]
    fn stderr_tail(&self) -> String {
        self.0.stderr_tail()
    }

    /// Rename the tools whose names are taken; a line for each.
    fn claim_names(&self, taken: HashSet<String>) -> Vec<String> {
        let mut taken = taken;
        self.0.claim_names(&mut taken)
    }

    /// The wrapped tools: `(raw name, tool)` each.
    #[getter]
    fn tools(&self) -> Vec<(String, NativeTool)> {
        self.0
            .tools()
            .into_iter()
            .map(|tool| (tool.raw_name().to_owned(), NativeTool::new(tool as Arc<dyn Tool>)))
            .collect()
    }

    /// Call a tool by its raw name; a future of the server's whole result as objects.
    #[pyo3(signature = (name, arguments, timeout))]
    fn call_tool<'py>(
        &self,
        py: Python<'py>,
        name: String,
        arguments: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = native_arguments(arguments)?;
        let timeout = super::executor::duration(timeout, "timeout")?;
        let connection = Arc::clone(&self.0);
        bridge::spawn(
            py,
            async move { connection.call_tool(&name, arguments, CallContext::within(timeout)).await },
            |py, raw| Ok(convert::loads(py, raw.get())?.unbind()),
        )
    }

    /// Close the connection and end the server; a future. Closing twice does nothing more.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let connection = Arc::clone(&self.0);
        bridge::spawn(
            py,
            async move {
                connection.close().await;
                Ok(())
            },
            |py, ()| Ok(py.None()),
        )
    }

    /// End the server at once, without waiting; for the end of the process.
    fn kill(&self) {
        self.0.kill();
    }
}

/// Read a server entry: whether it is disabled, and what is odd about it.
///
/// Raises `ConfigError` that names the entry and what is wrong with it.
#[pyfunction]
pub(crate) fn check_server(name: &str, config: &Bound<'_, PyAny>) -> PyResult<(bool, Vec<String>)> {
    let config = ServerConfig::from_json(name, &convert::to_value(config)?).map_err(errors::to_py)?;
    Ok((config.disabled, config.warnings.clone()))
}

/// Start a server, shake hands and list its tools; a future of a `NativeConnection`.
#[pyfunction]
pub(crate) fn connect_server<'py>(
    py: Python<'py>,
    name: String,
    config: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let value: Value = convert::to_value(config)?;
    bridge::spawn(
        py,
        async move {
            let config = ServerConfig::from_json(&name, &value)?;
            connect(&name, config).await
        },
        |py, connection| Ok(Bound::new(py, NativeConnection(connection))?.into_any().unbind()),
    )
}

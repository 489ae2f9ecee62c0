//! Python bindings: the only place that names `pyo3`.
//!
//! Each class is a thin frozen shell over a core type. The public API is the Python package around
//! this module; names here are private to it.

#![allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "signatures of functions that Python calls are given by pyo3"
)]

mod bridge;
mod call;
mod convert;
mod current;
mod errors;
mod executor;
mod job;
mod log;
mod mcp;
mod mcp_render;
mod meta;
mod native;
mod outcome;
mod pytool;
mod registry;
mod run;
mod schema;
mod validate;

use pyo3::prelude::*;

/// The native half of `nanobot_tools`; private, wrapped by the Python modules beside it.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::{
        bridge::{Cancel, LoopBridge},
        call::ToolCall,
        convert::to_json,
        current::{CurrentCall, current_call},
        executor::NativeExecutor,
        job::Job,
        log::flush_logs,
        mcp::{Answer, NativeConnection, check_server, default_shelf, forked, open_server},
        mcp_render::{MCPRenderer, mcp_name},
        meta::set_call_meta,
        native::{NativeTool, find_files_tool, grep_tool},
        outcome::ToolOutcome,
        registry::{CountedCall, NativeRegistry, RegistrySnapshot, Subscription},
        run::PyRun,
        schema::normalize_schema,
        validate::PyCompiledSchema,
    };

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// What the model is shown for what a Python tool returned.
    #[pyfunction]
    fn returned(result: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        Ok(super::outcome::returned(result)?.result)
    }

    /// What the model is shown for what a Python tool raised.
    #[pyfunction]
    fn raised(py: Python<'_>, name: &Bound<'_, PyAny>, exception: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let name = super::registry::name_text(name)?;
        Ok(super::outcome::raised(py, &name, exception)?.result)
    }

    /// Start a native tool on the running loop; a future of what it returns, as `Tool.execute` would: an
    /// error without the retry hint.
    #[pyfunction]
    fn call_native<'py>(
        py: Python<'py>,
        tool: &Bound<'py, super::native::NativeTool>,
        arguments: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let tool = tool.get().tool();
        let name = tool.spec().name.clone();
        super::registry::start_native(py, tool, &name, arguments, None, false, None)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::log::install();
        module.add("CURRENT_CALL", super::current::variable(module.py())?)
    }
}

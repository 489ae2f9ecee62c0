//! Native tools as Python objects: a thin shell over `Arc<dyn Tool>`.
//!
//! The registry and the executor take the tool out of the shell and run it without Python; the
//! shell itself only describes it, and runs it for scripts that have no event loop.

use std::{path::PathBuf, sync::Arc};

use pyo3::{exceptions::PyValueError, prelude::*};
use pythonize::pythonize;

use crate::{
    Arguments, CallContext, Payload, Tool, ToolSpec,
    native::{FindFilesTool, GrepTool, Workspace},
};

/// A tool that is written in Rust.
#[pyclass(frozen, module = "nanobot_tools._native")]
pub(crate) struct NativeTool {
    tool: Arc<dyn Tool>,
    spec: Arc<ToolSpec>,
}

impl NativeTool {
    pub(crate) fn new(tool: Arc<dyn Tool>) -> Self {
        Self { spec: tool.spec(), tool }
    }

    /// The tool inside.
    pub(crate) fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }
}

#[pymethods]
impl NativeTool {
    /// The name that the model uses.
    #[getter]
    fn name(&self) -> &str {
        &self.spec.name
    }

    /// What the model is told about the tool.
    #[getter]
    fn description(&self) -> &str {
        &self.spec.description
    }

    /// The JSON Schema of the arguments; a new dict each time.
    #[getter]
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pythonize(py, &self.spec.parameters)?)
    }

    /// Whether a call has no side effect.
    #[getter]
    fn read_only(&self) -> bool {
        self.spec.read_only
    }

    /// Whether a call must run alone.
    #[getter]
    fn exclusive(&self) -> bool {
        self.spec.exclusive
    }

    /// Whether calls may run beside other safe calls.
    #[getter]
    fn concurrency_safe(&self) -> bool {
        self.spec.concurrency_safe()
    }

    /// Whether this is the very same tool: a server that lists a tool again unchanged has not made a new one.
    fn is_same(&self, other: &Bound<'_, Self>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.tool), Arc::as_ptr(&other.get().tool))
    }

    /// Seconds that one call may take, or `None`.
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.spec.timeout.map(|limit| limit.as_secs_f64())
    }

    /// Run the tool and wait for it, for scripts without an event loop.
    ///
    /// The arguments are a JSON object and are not validated. Returns the text and whether it is an
    /// error. The GIL is released meanwhile. Raises `ValueError` when the arguments are no JSON
    /// object, and `RuntimeError` when the tool could not run.
    fn run_blocking(&self, py: Python<'_>, arguments_json: &str) -> PyResult<(String, bool)> {
        let arguments = serde_json::from_str(arguments_json)
            .map_err(|e| PyValueError::new_err(format!("arguments_json: {e}")))?;
        let call = Arc::clone(&self.tool).call(Arguments::Json(arguments), CallContext::default());
        let output = py
            .detach(|| crate::runtime_handle().block_on(call))
            .map_err(|e| pyo3::exceptions::PyRuntimeError::new_err(e.to_string()))?;
        match output.payload {
            Payload::Text(text) => Ok((text, output.is_error)),
            Payload::Foreign(_) => Err(PyValueError::new_err("the tool's result is no text")),
        }
    }

    fn __repr__(&self) -> String {
        format!("<NativeTool {}>", self.spec.name)
    }
}

fn workspace(
    workspace: Option<PathBuf>,
    allowed_dir: Option<PathBuf>,
    extra_dirs: Vec<PathBuf>,
    extra_files: Vec<PathBuf>,
    restrict: Option<bool>,
) -> Workspace {
    let restrict = restrict.unwrap_or(allowed_dir.is_some());
    Workspace { workspace, allowed_dir, restrict, extra_dirs, extra_files }
}

/// The tool `grep`.
///
/// `allowed_dir` bounds what may be read, and `restrict_to_workspace` (default: whether there is an
/// `allowed_dir`) makes the workspace a boundary; the extra directories and files may be read in any case.
#[pyfunction]
#[pyo3(signature = (workspace=None, allowed_dir=None, extra_allowed_dirs=vec![], extra_allowed_files=vec![], *, restrict_to_workspace=None))]
pub(crate) fn grep_tool(
    workspace: Option<PathBuf>,
    allowed_dir: Option<PathBuf>,
    extra_allowed_dirs: Vec<PathBuf>,
    extra_allowed_files: Vec<PathBuf>,
    restrict_to_workspace: Option<bool>,
) -> NativeTool {
    let policy = self::workspace(
        workspace,
        allowed_dir,
        extra_allowed_dirs,
        extra_allowed_files,
        restrict_to_workspace,
    );
    NativeTool::new(Arc::new(GrepTool::new(policy)))
}

/// The tool `find_files`; parameters as for `grep_tool`.
#[pyfunction]
#[pyo3(signature = (workspace=None, allowed_dir=None, extra_allowed_dirs=vec![], extra_allowed_files=vec![], *, restrict_to_workspace=None))]
pub(crate) fn find_files_tool(
    workspace: Option<PathBuf>,
    allowed_dir: Option<PathBuf>,
    extra_allowed_dirs: Vec<PathBuf>,
    extra_allowed_files: Vec<PathBuf>,
    restrict_to_workspace: Option<bool>,
) -> NativeTool {
    let policy = self::workspace(
        workspace,
        allowed_dir,
        extra_allowed_dirs,
        extra_allowed_files,
        restrict_to_workspace,
    );
    NativeTool::new(Arc::new(FindFilesTool::new(policy)))
}

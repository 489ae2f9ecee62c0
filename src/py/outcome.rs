//! What became of a call, as Python sees it.
//!
//! One place decides what is an error, which text the model reads, and that the retry hint stands at
//! the end of an error exactly once (reference: `ToolRegistry.execute` and `execute_tool_calls`).

use pyo3::{
    exceptions::PyException,
    gc::{PyTraverseError, PyVisit},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBool, PyBoolMethods, PyString, PyType},
};

use super::errors;
use crate::{Error, Payload, Result, ToolOutput};

/// Appended to every error that a model reads.
const HINT: &str = "\n\n[Analyze the error above and try a different approach.]";

/// A result ready for the model.
pub(crate) struct Shown {
    pub(crate) result: Py<PyAny>,
    pub(crate) kind: Option<&'static str>,
    pub(crate) exception: Option<Py<PyAny>>,
    pub(crate) structured: Option<Box<str>>,
}

impl Shown {
    /// The result as a tool's own `execute` returns it: the hint is added by whoever shows it to a model.
    pub(crate) fn without_hint(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.kind.is_none() {
            return Ok(self.result);
        }
        let text = text_of(self.result.bind(py))?;
        Ok(plain_error(py, text.strip_suffix(HINT).unwrap_or(&text))?.unbind())
    }
}

fn tool_result(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "nanobot_tools.base", "ToolResult")
}

/// `ToolResult.error(text + hint)`, the hint once, of this kind of error.
pub(crate) fn error_result(py: Python<'_>, text: &str, kind: &str) -> PyResult<Py<PyAny>> {
    let error = tool_result(py)?.getattr(intern!(py, "error"))?;
    let result =
        if text.ends_with(HINT) { error.call1((text,))? } else { error.call1((format!("{text}{HINT}"),))? };
    result.setattr(intern!(py, "error_kind"), kind)?;
    Ok(result.unbind())
}

/// `ToolResult.error(text)` as it is, for `prepare_call`.
pub(crate) fn plain_error<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    tool_result(py)?.call_method1(intern!(py, "error"), (text,))
}

/// Whether an object is an error result: ours or nanobot's own `ToolResult` with `is_error`.
pub(crate) fn is_error_result(result: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = result.py();
    if result.is_exact_instance_of::<PyString>() || !result.is_instance_of::<PyString>() {
        return Ok(false);
    }
    match result.getattr_opt(intern!(py, "is_error"))? {
        Some(flag) => Ok(flag.cast::<PyBool>().is_ok_and(PyBoolMethods::is_true)),
        None => Ok(false),
    }
}

/// What a Python tool returned.
pub(crate) fn returned(result: &Bound<'_, PyAny>) -> PyResult<Shown> {
    let py = result.py();
    if is_error_result(result)? {
        let kind = "tool_error";
        let result = error_result(py, &text_of(result)?, kind)?;
        return Ok(Shown { result, kind: Some(kind), exception: None, structured: None });
    }
    Ok(Shown { result: result.clone().unbind(), kind: None, exception: None, structured: None })
}

/// What a Python tool raised; the exception itself is kept.
pub(crate) fn raised(py: Python<'_>, name: &str, exception: &Bound<'_, PyAny>) -> PyResult<Shown> {
    let (text, kind) = match errors::kind_of(exception)? {
        // `ToolError` is a tool's own way to fail: the text is exactly the tool's.
        Some("tool_error") => (text_of(exception)?, "tool_error"),
        Some(kind) => (format!("Error executing {name}: {}", text_of(exception)?), kind),
        None => (format!("Error executing {name}: {}", text_of(exception)?), "exception"),
    };
    Ok(Shown {
        result: error_result(py, &text, kind)?,
        kind: Some(kind),
        exception: Some(exception.clone().unbind()),
        structured: None,
    })
}

/// What a native tool gave.
pub(crate) fn native(py: Python<'_>, name: &str, result: Result<ToolOutput>) -> PyResult<Shown> {
    match result {
        Ok(output) => {
            let structured = output.structured.map(|raw| raw.get().into());
            let kind = output.is_error.then_some("tool_error");
            let result = match output.payload {
                Payload::Text(text) if output.is_error => error_result(py, &text, "tool_error")?,
                Payload::Text(text) => PyString::new(py, &text).into_any().unbind(),
                Payload::Foreign(object) => match object.downcast::<Py<PyAny>>() {
                    Ok(object) => *object,
                    Err(_) => py.None(),
                },
            };
            Ok(Shown { result, kind, exception: None, structured })
        }
        Err(error) => failed(py, name, &error),
    }
}

/// An error of the runtime itself.
pub(crate) fn failed(py: Python<'_>, name: &str, error: &Error) -> PyResult<Shown> {
    let text = match error {
        // These say whom they are about; so do texts in the reference's parentheses.
        Error::NotFound { text, .. } | Error::InvalidArguments { text, .. } => text.clone(),
        other => {
            let text = other.to_string();
            if text.starts_with('(') || text.starts_with("Error") {
                text
            } else {
                format!("Error executing {name}: {text}")
            }
        }
    };
    Ok(Shown {
        result: error_result(py, &text, error.code())?,
        kind: Some(error.code()),
        exception: None,
        structured: None,
    })
}

/// `str(object)`; an object that cannot say what it is shows as its type.
pub(crate) fn text_of(object: &Bound<'_, PyAny>) -> PyResult<String> {
    match object.str() {
        Ok(text) => Ok(text.to_string_lossy().into_owned()),
        // KeyboardInterrupt and the like are not for us to keep.
        Err(error) if !error.is_instance_of::<PyException>(object.py()) => Err(error),
        Err(_) => Ok(object.get_type().name()?.to_string()),
    }
}

/// What became of one call.
///
/// Read-only. `result` is what `ToolRegistry.execute` would have returned: the tool's own object,
/// or an error result whose text ends with the retry hint.
#[pyclass(frozen, module = "nanobot_tools")]
pub(crate) struct ToolOutcome {
    /// The provider's id of the call.
    #[pyo3(get)]
    id: Py<PyAny>,
    /// The tool's name.
    #[pyo3(get)]
    name: Py<PyAny>,
    /// What the model is shown.
    #[pyo3(get)]
    result: Py<PyAny>,
    /// `None`, or a stable name of the kind of error.
    #[pyo3(get)]
    error_kind: Option<&'static str>,
    /// The exception that the tool raised, itself.
    #[pyo3(get)]
    exception: Option<Py<PyAny>>,
    /// When the call was started, in seconds since the epoch; 0.0 if it never was.
    #[pyo3(get)]
    started: f64,
    /// Seconds from start to end.
    #[pyo3(get)]
    duration: f64,
    /// How often the tool was started for this call.
    #[pyo3(get)]
    attempts: u32,
    structured: Option<Box<str>>,
}

impl ToolOutcome {
    pub(crate) fn new(id: Py<PyAny>, name: Py<PyAny>, shown: Shown, started: f64, duration: f64) -> Self {
        Self {
            id,
            name,
            result: shown.result,
            error_kind: shown.kind,
            exception: shown.exception,
            started,
            duration,
            attempts: u32::from(started > 0.0),
            structured: shown.structured,
        }
    }

    pub(crate) const fn failed(&self) -> bool {
        self.error_kind.is_some()
    }

    pub(crate) const fn kind(&self) -> Option<&'static str> {
        self.error_kind
    }
}

#[pymethods]
impl ToolOutcome {
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        visit.call(&self.id)?;
        visit.call(&self.name)?;
        visit.call(&self.result)?;
        visit.call(&self.exception)
    }

    /// Whether the call failed, for whatever reason.
    #[getter]
    fn is_error(&self) -> bool {
        self.failed()
    }

    /// The server's `structuredContent` as Python objects, or `None`.
    #[getter]
    fn structured(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let Some(text) = &self.structured else { return Ok(None) };
        Ok(Some(LOADS.import(py, "json", "loads")?.call1((&**text,))?.unbind()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let status = self.error_kind.unwrap_or("ok");
        Ok(format!(
            "ToolOutcome(id={}, name={}, {status}, {:.3} s)",
            self.id.bind(py).repr()?,
            self.name.bind(py).repr()?,
            self.duration
        ))
    }
}

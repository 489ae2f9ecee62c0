//! A call as a model asks for it, in whichever shape the host has it.

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};

/// One call of a tool.
///
/// `arguments` is a dict, JSON text, or whatever a model made of it; it is checked when the call is
/// made. Without an `id` the executor gives one.
#[pyclass(frozen, module = "nanobot_tools")]
pub(crate) struct ToolCall {
    /// The tool's name.
    #[pyo3(get)]
    name: Py<PyAny>,
    /// The arguments.
    #[pyo3(get)]
    arguments: Py<PyAny>,
    /// The provider's id of the call, or `None`.
    #[pyo3(get)]
    id: Option<Py<PyAny>>,
}

#[pymethods]
impl ToolCall {
    #[classattr]
    #[allow(non_snake_case)]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("name", "arguments", "id")
    }

    #[new]
    #[pyo3(signature = (name, arguments=None, id=None))]
    fn new(name: Py<PyAny>, arguments: Option<Py<PyAny>>, id: Option<Py<PyAny>>, py: Python<'_>) -> Self {
        let arguments = arguments.unwrap_or_else(|| PyDict::new(py).into_any().unbind());
        Self { name, arguments, id }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let id = match &self.id {
            Some(id) => id.bind(py).repr()?.to_string(),
            None => "None".to_owned(),
        };
        Ok(format!("ToolCall({}, {}, id={id})", self.name.bind(py).repr()?, self.arguments.bind(py).repr()?))
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        let other = other.get();
        let same = |a: &Py<PyAny>, b: &Py<PyAny>| a.bind(py).eq(b.bind(py));
        Ok(same(&self.name, &other.name)?
            && same(&self.arguments, &other.arguments)?
            && match (&self.id, &other.id) {
                (Some(a), Some(b)) => same(a, b)?,
                (None, None) => true,
                _ => false,
            })
    }
}

/// Name, arguments and id of a call in any shape.
pub(crate) struct Parts<'py> {
    pub(crate) name: Bound<'py, PyAny>,
    pub(crate) arguments: Bound<'py, PyAny>,
    pub(crate) id: Option<Bound<'py, PyAny>>,
}

/// Read a call: [`ToolCall`], nanobot's `ToolCallRequest` or anything with `name` and `arguments`, the
/// `OpenAI` (chat and responses) and Anthropic shapes as dicts or objects, or a dict with `name`,
/// `arguments` and `id`.
///
/// # Errors
/// `TypeError` that says what was given.
pub(crate) fn read<'py>(call: &Bound<'py, PyAny>) -> PyResult<Parts<'py>> {
    let py = call.py();
    if let Ok(own) = call.cast::<ToolCall>() {
        let own = own.get();
        return Ok(Parts {
            name: own.name.bind(py).clone(),
            arguments: own.arguments.bind(py).clone(),
            id: own.id.as_ref().map(|id| id.bind(py).clone()),
        });
    }
    let dict = call.cast::<PyDict>().ok();
    let field = |name: &str| -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = match dict {
            Some(dict) => dict.get_item(name)?,
            None => call.getattr_opt(name)?,
        };
        Ok(value.filter(|value| !value.is_none()))
    };
    // A responses call has both: `call_id` is the one to answer to.
    let id = match field("call_id")? {
        Some(id) => Some(id),
        None => field("id")?,
    };
    if let Some(function) = field("function")? {
        let inner = read(&function)?;
        return Ok(Parts { name: inner.name, arguments: inner.arguments, id: id.or(inner.id) });
    }
    let Some(name) = field("name")? else {
        let what = if dict.is_some() {
            "dict without a name".to_owned()
        } else {
            call.get_type().name()?.to_string()
        };
        return Err(PyTypeError::new_err(format!(
            "not a tool call: {what}; expected ToolCall, an object or dict with name, arguments and id, or a \
             provider's tool call"
        )));
    };
    let arguments = match field("arguments")? {
        Some(arguments) => Some(arguments),
        None => field("input")?,
    };
    Ok(Parts { name, arguments: arguments.unwrap_or_else(|| py.None().into_bound(py)), id })
}

//! `CompiledSchema` for Python, and the way of a call's arguments for the registry.
//!
//! Values are read in place; what is not changed by a cast is handed on as the same object.
//! Nothing here raises because of a schema or an argument.

mod rebuild;

use jsonschema::json::Pyo3;
use pyo3::prelude::*;
use serde_json::Value;

use crate::{
    error::Error,
    py::convert,
    validate::{CompiledSchema, Failure},
};

/// A schema compiled for Python objects.
pub(crate) type PySchema = CompiledSchema<Pyo3>;

/// Compile a schema that is a Python object of whatever shape; and what is wrong with it, for the log.
pub(crate) fn compile(schema: &Bound<'_, PyAny>) -> (PySchema, Option<String>) {
    match convert::to_value_leniently(schema) {
        // No schema at all admits everything, as in the reference.
        Ok(Value::Null) if schema.is_none() => (PySchema::compile(&Value::Bool(true)), None),
        Ok(value) => {
            let compiled = PySchema::compile(&value);
            let warning = compiled.warning().map(str::to_owned);
            (compiled, warning)
        }
        Err(why) => {
            let warning = format!("the schema cannot be read, arguments pass unvalidated: {why}");
            (PySchema::compile(&Value::Bool(true)), Some(warning))
        }
    }
}

/// Make a call's arguments ready: the same object when nothing changes, and what is wrong with them.
pub(crate) fn prepare<'py>(
    compiled: &PySchema,
    tool: &str,
    params: &Bound<'py, PyAny>,
) -> (Bound<'py, PyAny>, Option<Error>) {
    let prepared = compiled.prepare_node(tool, &params.as_borrowed());
    let arguments = prepared.arguments.map(|owned| owned.into_bound(params.py()));
    (arguments.unwrap_or_else(|| params.clone()), prepared.error)
}

/// As [`prepare`], but only unwrap: for tools that cast or validate in their own way.
pub(crate) fn unwrap<'py>(
    compiled: &PySchema,
    tool: &str,
    params: &Bound<'py, PyAny>,
) -> (Bound<'py, PyAny>, Option<Error>) {
    let unwrapped = compiled.unwrap_node(tool, &params.as_borrowed());
    let arguments = unwrapped.arguments.map(|owned| owned.into_bound(params.py()));
    (arguments.unwrap_or_else(|| params.clone()), unwrapped.error)
}

/// The schema's casts; the same object when nothing changes.
pub(crate) fn cast<'py>(compiled: &PySchema, params: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    if !compiled.takes_object() {
        return params.clone();
    }
    match compiled.cast(&params.as_borrowed()) {
        Some(owned) => owned.into_bound(params.py()),
        None => params.clone(),
    }
}

type Triple = (String, String, String);

fn triples(failures: Vec<Failure>) -> Vec<Triple> {
    failures.into_iter().map(|failure| (failure.pointer, failure.keyword, failure.message)).collect()
}

/// A JSON Schema made ready for casting and validating arguments.
#[pyclass(frozen, name = "CompiledSchema", module = "nanobot_tools._native")]
pub(crate) struct PyCompiledSchema {
    inner: PySchema,
    warning: Option<String>,
}

#[pymethods]
impl PyCompiledSchema {
    /// Compile `schema`; odd schemas are repaired, `warning` says how.
    #[new]
    fn new(schema: &Bound<'_, PyAny>) -> Self {
        let (inner, warning) = compile(schema);
        Self { inner, warning }
    }

    /// What is wrong with the schema itself, or None.
    #[getter]
    fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// The schema as it is checked, after repairs; a fresh copy.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_python(py, self.inner.schema())
    }

    /// `params` with the schema's casts applied; the same object when nothing changes.
    fn cast<'py>(&self, params: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
        cast(&self.inner, params)
    }

    /// The failures of `value` as texts; empty when it is valid.
    #[pyo3(signature = (value, path = ""))]
    fn validate(&self, value: &Bound<'_, PyAny>, path: &str) -> Vec<String> {
        let failures = self.inner.validate(&value.as_borrowed(), path);
        failures.into_iter().map(|failure| failure.message).collect()
    }

    /// The failures of `value` as (JSON Pointer, keyword, message).
    fn failures(&self, value: &Bound<'_, PyAny>) -> Vec<Triple> {
        triples(self.inner.validate(&value.as_borrowed(), ""))
    }

    /// Unwrap, cast and validate the arguments of a call of `tool_name`.
    ///
    /// Returns the arguments, the error's text or None, and the failures.
    fn prepare<'py>(
        &self,
        tool_name: &str,
        params: &Bound<'py, PyAny>,
    ) -> (Bound<'py, PyAny>, Option<String>, Vec<Triple>) {
        let (arguments, error) = prepare(&self.inner, tool_name, params);
        match error {
            None => (arguments, None, Vec::new()),
            Some(Error::InvalidArguments { text, failures, .. }) => {
                (arguments, Some(text), triples(failures))
            }
            Some(other) => (arguments, Some(other.to_string()), Vec::new()),
        }
    }
}

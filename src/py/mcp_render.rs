//! Results of MCP sessions that are not ours, rendered as our own are; and how wrappers are described.
//!
//! The Python side brings whatever it was given into the protocol's form; what a model is shown is
//! decided in the core.

use std::sync::{Arc, OnceLock};

use pyo3::{exceptions::PyValueError, prelude::*};
use serde_json::{Value, value::RawValue};

use super::{convert, errors};
use crate::{
    Payload,
    mcp::{
        artifacts::Store,
        render::{self, RenderOptions},
    },
    schema::{names, normalise::normalise_openai as normalise},
};

/// The result of a call, of reading a resource or of getting a prompt as the model is shown it, and
/// whether it is an error.
///
/// `kind` is `tool`, `resource` or `prompt`; `name` is what the model calls it. Data is stored in this
/// package's own folder, an image together with `prompt` and `model`. What has no JSON form is taken
/// for null.
#[pyfunction]
#[pyo3(signature = (kind, result, server, name, prompt=None, model=None))]
pub(crate) fn render_mcp_result(
    py: Python<'_>,
    kind: &str,
    result: &Bound<'_, PyAny>,
    server: &str,
    name: &str,
    prompt: Option<String>,
    model: Option<String>,
) -> PyResult<(String, bool)> {
    let mut json = Vec::with_capacity(256);
    convert::write_json_leniently(result, &mut json)?;
    let json = String::from_utf8(json).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let raw = RawValue::from_string(json).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let options = RenderOptions { artifacts: store(), ..RenderOptions::new(server, name) };
    let output = py.detach(|| match kind {
        "tool" => render::call_result(&raw, &options, &|key| match key {
            "prompt" => prompt.clone(),
            "model" => model.clone(),
            _ => None,
        }),
        "resource" => render::resource_result(&raw, &options),
        _ => render::prompt_result(&raw, &options),
    });
    let output = output.map_err(errors::to_py)?;
    match output.payload {
        Payload::Text(text) => Ok((text, output.is_error)),
        Payload::Foreign(_) => Err(PyValueError::new_err("the result is no text")),
    }
}

/// Where data of sessions without an entry goes.
fn store() -> Option<Arc<Store>> {
    static STORE: OnceLock<Option<Arc<Store>>> = OnceLock::new();
    STORE.get_or_init(|| Store::default_root().map(|root| Arc::new(Store::new(root)))).clone()
}

/// The name under which a tool, a resource or a prompt of a server is registered.
#[pyfunction]
pub(crate) fn mcp_name(kind: &str, server: &str, name: &str) -> String {
    match kind {
        "resource" => names::mcp_resource_name(server, name),
        "prompt" => names::mcp_prompt_name(server, name),
        _ => names::mcp_tool_name(server, name),
    }
}

/// A schema as `OpenAI` accepts it, as a new dict; never raises for odd schemas.
#[pyfunction]
pub(crate) fn normalise_openai<'py>(schema: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // A schema that contains itself says nothing that could be shown.
    let value = convert::to_value_leniently(schema).unwrap_or(Value::Null);
    convert::to_python(schema.py(), &normalise(&value))
}

//! Results of MCP sessions that are not ours, rendered as our own are; and how wrappers are described.
//!
//! The Python side brings whatever it was given into the protocol's form; what a model is shown is
//! decided in the core.

use pyo3::{exceptions::PyValueError, prelude::*};
use serde_json::{Value, json, value::RawValue};

use super::{convert, errors};
use crate::{
    Payload,
    mcp::render,
    schema::{names, normalise::normalise_openai as normalise},
};

/// The result of a call, of reading a resource or of getting a prompt as the model is shown it, and
/// whether it is an error.
///
/// `kind` is `tool`, `resource` or `prompt`. What has no JSON form is taken for null.
#[pyfunction]
pub(crate) fn render_mcp_result(
    py: Python<'_>,
    kind: &str,
    result: &Bound<'_, PyAny>,
) -> PyResult<(String, bool)> {
    let invalid = |error: serde_json::Error| PyValueError::new_err(error.to_string());
    let mut json = Vec::with_capacity(256);
    convert::write_json_leniently(result, &mut json)?;
    let json = String::from_utf8(json).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let raw = match kind {
        "tool" => RawValue::from_string(json),
        "resource" => serde_json::from_str(&json).and_then(|value| contents(&value)),
        _ => serde_json::from_str(&json).and_then(|value| messages(&value)),
    };
    let raw = raw.map_err(invalid)?;
    let output = py.detach(|| render::call_result(&raw)).map_err(errors::to_py)?;
    match output.payload {
        Payload::Text(text) => Ok((text, output.is_error)),
        Payload::Foreign(_) => Err(PyValueError::new_err("the result is no text")),
    }
}

fn items<'a>(result: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    result.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// The contents of a resource as the result of a call.
fn contents(result: &Value) -> serde_json::Result<Box<RawValue>> {
    let blocks: Vec<Value> = items(result, "contents")
        .map(|item| match (item.get("text"), item.get("blob").and_then(Value::as_str)) {
            (None | Some(Value::Null), Some(blob)) => {
                let length = blob.bytes().filter(|b| !b.is_ascii_whitespace() && *b != b'=').count() * 3 / 4;
                json!(format!("[Binary resource: {length} bytes]"))
            }
            _ => json!({"type": "resource", "resource": item}),
        })
        .collect();
    serde_json::value::to_raw_value(&json!({ "content": blocks }))
}

/// The messages of a prompt as the result of a call.
fn messages(result: &Value) -> serde_json::Result<Box<RawValue>> {
    let blocks: Vec<&Value> =
        items(result, "messages").flat_map(|message| items(message, "content")).collect();
    serde_json::value::to_raw_value(&json!({ "content": blocks }))
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

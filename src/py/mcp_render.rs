//! Results of MCP sessions that are not ours, rendered as our own are; and the names of wrappers.
//!
//! The Python side brings whatever it was given into the protocol's form; what a model is shown is
//! decided in the core.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use pyo3::{
    exceptions::PyValueError,
    intern,
    prelude::*,
    types::{PyDict, PyString},
};
use serde_json::value::RawValue;

use super::{bridge, convert, errors, outcome};
use crate::{
    Error, Payload, Result, ToolOutput,
    mcp::{artifacts::Store, render},
    schema::names,
};

/// Renders the results of one tool, resource or prompt.
///
/// `kind` is `tool`, `resource` or `prompt`. `artifacts` is the folder for data; by default images
/// and other data of calls go to the user's, and of resources and prompts only the size is shown, as
/// in the reference. `max_result_bytes` is the length from which a text is shown as a preview, by
/// default none.
#[pyclass(frozen, module = "nanobot_tools._native")]
pub(crate) struct MCPRenderer {
    kind: Kind,
    options: Arc<render::RenderOptions>,
}

#[derive(Clone, Copy)]
enum Kind {
    Tool,
    Resource,
    Prompt,
}

/// The folder for data of those who name none; one store, so that its limits hold for all.
fn default_store() -> Option<Arc<Store>> {
    static STORE: OnceLock<Option<Arc<Store>>> = OnceLock::new();
    STORE.get_or_init(|| Store::default_root().map(|root| Arc::new(Store::new(root)))).clone()
}

#[pymethods]
impl MCPRenderer {
    #[new]
    #[pyo3(signature = (kind, server, tool, artifacts = None, max_result_bytes = None))]
    fn new(
        kind: &str,
        server: &str,
        tool: &str,
        artifacts: Option<PathBuf>,
        max_result_bytes: Option<usize>,
    ) -> PyResult<Self> {
        let kind = match kind {
            "tool" => Kind::Tool,
            "resource" => Kind::Resource,
            "prompt" => Kind::Prompt,
            other => return Err(PyValueError::new_err(format!("unknown kind {other:?}"))),
        };
        let artifacts = match (artifacts, kind) {
            (Some(root), _) => Some(Arc::new(Store::new(root))),
            (None, Kind::Tool) => default_store(),
            (None, _) => None,
        };
        let options =
            render::RenderOptions { artifacts, max_result_bytes, ..render::RenderOptions::new(server, tool) };
        Ok(Self { kind, options: Arc::new(options) })
    }

    /// The text for the model and whether it is an error; or a future of both where files may have
    /// to be written.
    ///
    /// What has no JSON form in the result is taken for null. `arguments` are those of the call.
    fn render<'py>(
        &self,
        py: Python<'py>,
        result: &Bound<'py, PyAny>,
        arguments: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut json = Vec::with_capacity(256);
        convert::write_json_leniently(result, &mut json)?;
        let invalid = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
        let json = String::from_utf8(json).map_err(|error| invalid(&error))?;
        let raw = RawValue::from_string(json).map_err(|error| invalid(&error))?;
        let (kind, options) = (self.kind, Arc::clone(&self.options));
        if !render::may_block(&raw, &options) {
            let shown = py.detach(|| shown(kind, &raw, &options, &Given::default()));
            return Ok(shown.map_err(errors::to_py)?.into_pyobject(py)?.into_any());
        }
        let given = Given {
            prompt: text_argument(arguments, intern!(py, "prompt"))?,
            model: text_argument(arguments, intern!(py, "model"))?,
        };
        bridge::spawn(
            py,
            async move {
                let work = crate::spawn_blocking(move || shown(kind, &raw, &options, &given));
                work.await.unwrap_or_else(|error| Err(Error::Panic(error.to_string())))
            },
            |py, shown| Ok(shown.into_pyobject(py)?.into_any().unbind()),
        )
    }
}

/// What is recorded with an image.
#[derive(Default)]
struct Given {
    prompt: Option<String>,
    model: Option<String>,
}

fn text_argument(arguments: &Bound<'_, PyDict>, name: &Bound<'_, PyString>) -> PyResult<Option<String>> {
    match arguments.get_item(name)? {
        Some(value) if value.is_truthy().unwrap_or(true) => outcome::text_of(&value).map(Some),
        _ => Ok(None),
    }
}

fn shown(
    kind: Kind,
    raw: &RawValue,
    options: &render::RenderOptions,
    given: &Given,
) -> Result<(String, bool)> {
    let output: ToolOutput = match kind {
        Kind::Tool => render::call_result(raw, options, &|name| match name {
            "prompt" => given.prompt.clone(),
            "model" => given.model.clone(),
            _ => None,
        }),
        Kind::Resource => render::resource_result(raw, options),
        Kind::Prompt => render::prompt_result(raw, options),
    }?;
    match output.payload {
        Payload::Text(text) => Ok((text, output.is_error)),
        Payload::Foreign(_) => Err(Error::Protocol("the result is no text".to_owned())),
    }
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

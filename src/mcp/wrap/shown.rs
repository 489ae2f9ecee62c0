//! How the result of one tool, resource or prompt becomes what a model is shown.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{
    super::{
        artifacts::Store,
        output_schema::OutputSchema,
        peer::Render,
        render::{self, RenderOptions},
    },
    Capability,
};
use crate::{Arguments, Result, ToolOutput};

/// What is constant about it.
#[derive(Debug)]
pub(super) struct Settings {
    capability: Capability,
    options: RenderOptions,
    /// What `structuredContent` is checked against.
    pub(super) output: Option<OutputSchema>,
    /// Whether the arguments `prompt` and `model` are of interest to whoever stores an image.
    pub(super) records: bool,
}

impl Settings {
    pub(super) fn new(
        server: &Arc<str>,
        tool: &str,
        capability: Capability,
        artifacts: Option<Arc<Store>>,
        max_result_bytes: Option<usize>,
    ) -> Self {
        let options =
            RenderOptions { artifacts, max_result_bytes, ..RenderOptions::new(Arc::clone(server), tool) };
        Self { capability, options, output: None, records: false }
    }

    /// Whether results are treated the same.
    pub(super) fn same(&self, other: &Self) -> bool {
        self.output.as_ref().map(OutputSchema::schema) == other.output.as_ref().map(OutputSchema::schema)
            && self.options.max_result_bytes == other.options.max_result_bytes
    }
}

/// Renders the result of one call.
pub(super) struct Shown {
    settings: Arc<Settings>,
    prompt: Option<String>,
    model: Option<String>,
}

impl Shown {
    pub(super) fn new(settings: &Arc<Settings>, arguments: &Arguments) -> Self {
        let given = settings.records.then(|| arguments.to_json().ok()).flatten();
        let text = |key: &str| given.as_ref()?.get(key)?.as_str().map(str::to_owned);
        Self { settings: Arc::clone(settings), prompt: text("prompt"), model: text("model") }
    }
}

impl Render for Shown {
    fn may_block(&self, result: &RawValue) -> bool {
        render::may_block(result, &self.settings.options)
    }

    fn render(self: Box<Self>, result: &RawValue) -> Result<ToolOutput> {
        let Settings { capability, options, output, .. } = &*self.settings;
        let rendered = match capability {
            Capability::Tool => render::call_result(result, options, &|key| match key {
                "prompt" => self.prompt.clone(),
                "model" => self.model.clone(),
                _ => None,
            })?,
            Capability::Resource => render::resource_result(result, options)?,
            Capability::Prompt => render::prompt_result(result, options)?,
        };
        if let Some(why) =
            output.as_ref().and_then(|schema| schema.check(rendered.structured.as_deref(), rendered.is_error))
        {
            tracing::warn!(
                server = &*options.server,
                tool = &*options.tool,
                why,
                "result does not fit outputSchema"
            );
        }
        Ok(rendered)
    }
}

//! What servers offer, as tools of the registry.
//!
//! An [`McpTool`] is a tool, a resource or a prompt of a server. It holds no connection, only the
//! [`Link`], so that it outlives a reconnect and does not keep a server alive. Which of them are offered, and under which names, is decided here for one server;
//! [`connect_all`](super::connect_all) keeps the names of several apart.

mod shown;

use std::{
    any::Any,
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use globset::GlobBuilder;
use serde_json::{Map, Value, json};

use self::shown::{Settings, Shown};
use super::{
    artifacts::Store,
    catalog::{RawPrompt, RawResource, RawTool},
    config::{ResourceMode, Retry, ServerConfig},
    delegate::ListKind,
    era::ParamHeader,
    link::Link,
    output_schema::OutputSchema,
    peer::{Params, Replay, Request, Sink, What},
};
use crate::{
    Arguments, BoxFuture, CallContext, Completion, Error, Result, Running, Tool, ToolOutput, ToolSpec,
    schema::{names, normalise::normalise_openai},
};

/// What a tool of the registry is on its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// A tool.
    Tool,
    /// A resource, or all of them.
    Resource,
    /// A prompt.
    Prompt,
}

/// A tool, a resource or a prompt of an MCP server, as a tool.
#[derive(Debug, Clone)]
pub struct McpTool {
    spec: Arc<ToolSpec>,
    /// The name on the server; the address of a resource, or empty for one tool that reads them all.
    raw_name: Arc<str>,
    capability: Capability,
    link: Arc<Link>,
    terms: Terms,
    settings: Arc<Settings>,
}

/// What holds for every call of one tool, or for a request of another kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Terms {
    limits: Limits,
    replay: Replay,
    /// The arguments that headers repeat.
    headers: Arc<[ParamHeader]>,
}

impl Terms {
    /// For a tool; one that the server does not list might do anything.
    pub(super) fn of_tool(config: &ServerConfig, raw_name: &str, tool: Option<&RawTool>) -> Self {
        let harmless = tool.is_some_and(|tool| tool.idempotent || tool.read_only);
        Self {
            limits: Limits::of(config, raw_name),
            replay: replay(config, harmless),
            headers: tool.map_or_else(|| Arc::new([]) as Arc<[_]>, |tool| tool.headers.clone().into()),
        }
    }

    /// For what is no tool and only reads.
    fn of_reading(config: &ServerConfig) -> Self {
        Self::of(config, true)
    }

    /// For a request of this method.
    pub(super) fn of_request(config: &ServerConfig, method: &str) -> Self {
        let reads = ["/list", "/read", "/get", "completion/complete", "ping", "server/discover"];
        Self::of(config, reads.iter().any(|end| method.ends_with(end)))
    }

    /// With the entry's limit.
    fn of(config: &ServerConfig, harmless: bool) -> Self {
        let limits = Limits { timeout: config.tool_timeout, cap: None };
        Self { limits, replay: replay(config, harmless), headers: Arc::new([]) }
    }
}

/// How long calls of one tool may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    timeout: Duration,
    cap: Option<Duration>,
}

impl Limits {
    fn of(config: &ServerConfig, raw_name: &str) -> Self {
        let timeout = config
            .tool_timeouts
            .get(raw_name)
            .or_else(|| {
                config.tool_timeouts.iter().find(|(p, _)| matches(p, raw_name, raw_name)).map(|(_, t)| t)
            })
            .copied()
            .unwrap_or(config.tool_timeout);
        Self { timeout, cap: config.progress_cap.filter(|cap| *cap > timeout) }
    }

    /// The limit that a caller may rely on: progress cannot extend a call beyond it.
    fn hard(self) -> Duration {
        self.cap.unwrap_or(self.timeout)
    }
}

impl McpTool {
    /// The tool's name on its server; for a resource its address, which is empty for the one tool
    /// that reads all of them.
    #[must_use]
    pub fn raw_name(&self) -> &str {
        &self.raw_name
    }

    /// What it is on its server.
    #[must_use]
    pub const fn capability(&self) -> Capability {
        self.capability
    }

    /// The same tool under another name.
    #[must_use]
    pub(super) fn renamed(&self, name: String) -> Self {
        let spec = ToolSpec { name, ..(*self.spec).clone() };
        Self { spec: Arc::new(spec), ..self.clone() }
    }

    /// Whether the model sees the same and calls go the same way.
    fn same(&self, other: &Self) -> bool {
        let (a, b) = (&self.spec, &other.spec);
        a.name == b.name
            && a.description == b.description
            && a.parameters == b.parameters
            && a.original == b.original
            && a.read_only == b.read_only
            && self.capability == other.capability
            && self.terms == other.terms
            && self.settings.same(&other.settings)
    }
}

impl Tool for McpTool {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    fn call(self: Arc<Self>, arguments: Arguments, context: CallContext) -> BoxFuture<Result<ToolOutput>> {
        Box::pin(async move {
            let (send, receive) = tokio::sync::oneshot::channel();
            let done = Completion::new(move |result| {
                let _ = send.send(result);
            });
            waited(self.submit(arguments, context, done), receive).await
        })
    }

    fn submit(self: Arc<Self>, arguments: Arguments, mut context: CallContext, done: Completion) -> Running {
        let map;
        let meta = context.meta.take();
        let (what, params) = match self.capability {
            Capability::Tool => {
                let (name, headers) = (&*self.raw_name, &*self.terms.headers);
                (What::Tool, Params::Tool { name, arguments: &arguments, headers, meta: meta.as_ref() })
            }
            Capability::Resource | Capability::Prompt => match self.params(&arguments) {
                Ok(params) => {
                    map = with_meta(params, meta);
                    let what = match self.capability {
                        Capability::Prompt => What::Prompt,
                        _ => What::Resource,
                    };
                    (what, Params::Object(&map))
                }
                Err(error) => {
                    done.complete(Err(error));
                    return Running::finished();
                }
            },
        };
        let shown = Shown::new(&self.settings, &arguments);
        let tally = self.link.meter.begin();
        let done = Completion::new(move |result| {
            tally.end_with(&result);
            done.complete(result);
        });
        let sink = Sink::Tool(done, Box::new(shown));
        submit(&self.link, what, params, &self.terms, context, sink)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl McpTool {
    /// The parameters of `resources/read` or `prompts/get`.
    fn params(&self, arguments: &Arguments) -> Result<Map<String, Value>> {
        let mut params = Map::new();
        if self.capability == Capability::Prompt {
            params.insert("name".to_owned(), (&*self.raw_name).into());
            params.insert("arguments".to_owned(), Value::Object(arguments.to_json()?.into_owned()));
        } else if self.raw_name.is_empty() {
            let uri = arguments.to_json()?.get("uri").cloned().unwrap_or_default();
            params.insert("uri".to_owned(), uri);
        } else {
            params.insert("uri".to_owned(), (&*self.raw_name).into());
        }
        Ok(params)
    }
}

/// Cancels a call whose caller stops waiting.
struct CancelOnDrop(Option<Running>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.cancel();
        }
    }
}

/// Wait for what was submitted; dropping the future cancels it.
async fn waited<T>(running: Running, receive: tokio::sync::oneshot::Receiver<Result<T>>) -> Result<T> {
    let mut guard = CancelOnDrop(Some(running));
    let result = receive.await;
    guard.0 = None;
    result.unwrap_or(Err(Error::Cancelled))
}

fn submit(
    link: &Link,
    what: What,
    params: Params<'_>,
    terms: &Terms,
    context: CallContext,
    sink: Sink,
) -> Running {
    link.submit(Request {
        what,
        params,
        timeout: Some(terms.limits.timeout),
        cap: terms.limits.cap,
        deadline: context.deadline,
        limit: context.limit,
        progress: context.progress,
        sink,
        dressed: None,
        replay: terms.replay,
    })
}

/// Make a request, and get the result as the server sent it.
pub(super) fn request(
    link: Arc<Link>,
    what: What,
    params: Map<String, Value>,
    terms: Terms,
    mut context: CallContext,
) -> BoxFuture<Result<Box<serde_json::value::RawValue>>> {
    Box::pin(async move {
        let (send, receive) = tokio::sync::oneshot::channel();
        let params = with_meta(params, context.meta.take());
        let tally = link.meter.begin();
        let running = submit(&link, what, Params::Object(&params), &terms, context, Sink::Raw(send));
        let result = waited(running, receive).await;
        tally.end(result.as_ref().err().map(Error::code));
        result
    })
}

/// Call a tool by its raw name, and get the result as the server sent it.
pub(super) fn call_raw(
    link: Arc<Link>,
    tool: String,
    arguments: Arguments,
    terms: Terms,
    mut context: CallContext,
) -> BoxFuture<Result<Box<serde_json::value::RawValue>>> {
    Box::pin(async move {
        let (send, receive) = tokio::sync::oneshot::channel();
        let (meta, tally) = (context.meta.take(), link.meter.begin());
        let headers = &terms.headers;
        let params = Params::Tool { name: &tool, arguments: &arguments, headers, meta: meta.as_ref() };
        let running = submit(&link, What::Tool, params, &terms, context, Sink::Raw(send));
        let result = waited(running, receive).await;
        tally.end(match &result {
            Ok(raw) => says_error(raw).then_some("tool_error"),
            Err(error) => Some(error.code()),
        });
        result
    })
}

/// Parameters with what the caller says in `_meta`; their own counts where both say something.
fn with_meta(mut params: Map<String, Value>, meta: Option<Map<String, Value>>) -> Map<String, Value> {
    if let Some(mut meta) = meta.filter(|meta| !meta.is_empty()) {
        if let Some(Value::Object(own)) = params.remove("_meta") {
            meta.extend(own);
        }
        params.insert("_meta".to_owned(), Value::Object(meta));
    }
    params
}

/// Whether the result of a call says that the tool failed.
fn says_error(result: &serde_json::value::RawValue) -> bool {
    #[derive(serde::Deserialize)]
    struct Said {
        #[serde(default, rename = "isError")]
        is_error: Value,
    }
    let raw = result.get();
    raw.contains("\"isError\"") && serde_json::from_str::<Said>(raw).is_ok_and(|said| said.is_error == true)
}

/// When a request may be sent again: `harmless` says that running it twice is.
const fn replay(config: &ServerConfig, harmless: bool) -> Replay {
    match (config.retry, harmless) {
        (Retry::Never, _) => Replay::Never,
        (Retry::Safe, false) => Replay::Unsent,
        (Retry::Safe, true) | (Retry::Always, _) => Replay::Anyway,
    }
}

/// What a server offers, as it was listed.
#[derive(Debug, Clone, Default)]
pub(super) struct Offer {
    pub(super) tools: Vec<RawTool>,
    pub(super) resources: Vec<RawResource>,
    pub(super) prompts: Vec<RawPrompt>,
    /// How long the server says that each of the lists holds, where it does.
    pub(super) fresh: HashMap<ListKind, Duration>,
}

/// Makes tools of what one server offers.
#[derive(Debug)]
pub(super) struct Wrapper {
    pub(super) server: Arc<str>,
    pub(super) link: Arc<Link>,
    pub(super) store: Option<Arc<Store>>,
}

/// The longest list of resources in the description of the tool that reads them all.
const LISTED_RESOURCES: usize = 50;

impl Wrapper {
    pub(super) fn new(server: Arc<str>, link: Arc<Link>, config: &ServerConfig) -> Self {
        let root = config.artifacts.clone().or_else(Store::default_root);
        Self { server, link, store: root.map(|root| Arc::new(Store::new(root))) }
    }

    /// The tools that the entry admits; oddities are appended to `notes`.
    ///
    /// What was offered before (`former`) keeps its name, and is the same object if nothing about it
    /// has changed.
    pub(super) fn wrap(
        &self,
        config: &ServerConfig,
        offer: &Offer,
        former: &[Arc<McpTool>],
        notes: &mut Vec<String>,
    ) -> Vec<Arc<McpTool>> {
        let known: HashMap<(Capability, &str), &Arc<McpTool>> =
            former.iter().map(|tool| ((tool.capability, tool.raw_name()), tool)).collect();
        let mut taken: HashSet<String> = HashSet::with_capacity(offer.tools.len());
        let mut claim_for =
            |capability: Capability, raw: &str, name: &str, notes: &mut Vec<String>| match known
                .get(&(capability, raw))
            {
                Some(known) if taken.insert(known.spec.name.clone()) => known.spec.name.clone(),
                _ => claim(&self.server, raw, name, &mut taken, notes),
            };
        // Names are given to all tools, also to those left out, so that they do not depend on what
        // the entry admits.
        let named: Vec<(String, &RawTool)> = offer
            .tools
            .iter()
            .map(|tool| {
                let name = names::mcp_tool_name(&self.server, &tool.name);
                (claim_for(Capability::Tool, &tool.name, &name, notes), tool)
            })
            .collect();
        unmatched(config, &named, notes);
        let any = |patterns: &[String], raw: &str, name: &str| patterns.iter().any(|p| matches(p, raw, name));
        let mut wrapped: Vec<McpTool> = named
            .into_iter()
            .filter(|(name, tool)| {
                any(&config.enabled_tools, &tool.name, name) && !any(&config.disabled_tools, &tool.name, name)
            })
            .map(|(name, tool)| self.tool(config, name, tool))
            .collect();
        // An allow-list names tools; nothing in it could admit a resource or a prompt.
        if config.enabled_tools.iter().any(|pattern| pattern == "*") {
            let mut extras = Vec::with_capacity(offer.resources.len() + offer.prompts.len());
            match config.resources {
                ResourceMode::One if !offer.resources.is_empty() => {
                    let name = names::mcp_tool_name(&self.server, "read_resource");
                    let name = claim_for(Capability::Resource, "", &name, notes);
                    extras.push(self.reader(config, name, &offer.resources));
                }
                ResourceMode::One => {}
                ResourceMode::Each => {
                    for resource in &offer.resources {
                        let name = names::mcp_resource_name(&self.server, &resource.name);
                        let name = claim_for(Capability::Resource, &resource.uri, &name, notes);
                        extras.push(self.resource(config, name, resource));
                    }
                }
            }
            for prompt in &offer.prompts {
                let name = names::mcp_prompt_name(&self.server, &prompt.name);
                let name = claim_for(Capability::Prompt, &prompt.name, &name, notes);
                extras.push(self.prompt(config, name, prompt));
            }
            wrapped.extend(
                extras
                    .into_iter()
                    .filter(|tool| !any(&config.disabled_tools, &tool.raw_name, &tool.spec.name)),
            );
        }
        wrapped
            .into_iter()
            .map(|tool| match known.get(&(tool.capability, tool.raw_name())) {
                Some(known) if known.same(&tool) => Arc::clone(known),
                _ => Arc::new(tool),
            })
            .collect()
    }

    fn settings(&self, config: &ServerConfig, name: &str, capability: Capability) -> Settings {
        Settings::new(&self.server, name, capability, self.store.clone(), config.max_result_bytes)
    }

    fn tool(&self, config: &ServerConfig, name: String, tool: &RawTool) -> McpTool {
        let mut settings = self.settings(config, &name, Capability::Tool);
        settings.output = tool.output_schema.as_ref().and_then(OutputSchema::new);
        settings.records = ["prompt", "model"]
            .iter()
            .any(|key| tool.input_schema.get("properties").is_some_and(|p| p.get(key).is_some()));
        let description = tool.description.clone().unwrap_or_else(|| tool.name.clone());
        let mut spec = ToolSpec::new(name, description, normalise_openai(&tool.input_schema));
        spec.original = Some(tool.input_schema.clone());
        spec.read_only = tool.read_only && config.trust_read_only;
        let terms = Terms::of_tool(config, &tool.name, Some(tool));
        self.make(spec, &tool.name, Capability::Tool, terms, settings)
    }

    fn resource(&self, config: &ServerConfig, name: String, resource: &RawResource) -> McpTool {
        let RawResource { uri, name: title, description } = resource;
        let description = description.as_ref().unwrap_or(title);
        let description = format!("[MCP Resource] {description}\nURI: {uri}");
        let settings = self.settings(config, &name, Capability::Resource);
        let parameters = json!({"type": "object", "properties": {}, "required": []});
        let spec = ToolSpec::new(name, description, parameters).read_only();
        self.make(spec, uri, Capability::Resource, Terms::of_reading(config), settings)
    }

    /// One tool that reads any resource.
    fn reader(&self, config: &ServerConfig, name: String, resources: &[RawResource]) -> McpTool {
        let mut description =
            format!("[MCP Resources] Reads a resource of the server {}. It has:", self.server);
        for resource in resources.iter().take(LISTED_RESOURCES) {
            // Writing to a String cannot fail.
            let _ = write!(description, "\n- {}: {}", resource.uri, resource.name);
        }
        if resources.len() > LISTED_RESOURCES {
            let _ = write!(description, "\n- and {} more", resources.len() - LISTED_RESOURCES);
        }
        let settings = self.settings(config, &name, Capability::Resource);
        let parameters = json!({
            "type": "object",
            "properties": {"uri": {"type": "string", "description": "The address (URI) of the resource"}},
            "required": ["uri"],
        });
        let spec = ToolSpec::new(name, description, parameters).read_only();
        self.make(spec, "", Capability::Resource, Terms::of_reading(config), settings)
    }

    fn prompt(&self, config: &ServerConfig, name: String, prompt: &RawPrompt) -> McpTool {
        let description = format!(
            "[MCP Prompt] {}\nReturns a filled prompt template that can be used as a workflow guide.",
            prompt.description.as_deref().unwrap_or(&prompt.name)
        );
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (argument, about, needed) in &prompt.arguments {
            let mut property = json!({"type": "string"});
            if let Some(about) = about {
                property["description"] = about.as_str().into();
            }
            if *needed {
                required.push(Value::from(argument.as_str()));
            }
            properties.insert(argument.clone(), property);
        }
        let settings = self.settings(config, &name, Capability::Prompt);
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        let spec = ToolSpec::new(name, description, parameters).read_only();
        self.make(spec, &prompt.name, Capability::Prompt, Terms::of_reading(config), settings)
    }

    fn make(
        &self,
        mut spec: ToolSpec,
        raw_name: &str,
        capability: Capability,
        terms: Terms,
        settings: Settings,
    ) -> McpTool {
        spec.server = Some(Arc::clone(&self.server));
        spec.timeout = Some(terms.limits.hard());
        McpTool {
            spec: Arc::new(spec),
            raw_name: raw_name.into(),
            capability,
            link: Arc::clone(&self.link),
            terms,
            settings: Arc::new(settings),
        }
    }
}

/// Take `name`, or the name with a hash of its origin if another tool has it.
pub(super) fn claim(
    server: &str,
    raw_name: &str,
    name: &str,
    taken: &mut HashSet<String>,
    notes: &mut Vec<String>,
) -> String {
    let unique = names::unique(name, server, raw_name, |name| taken.contains(name));
    if unique != name {
        notes.push(format!("'{raw_name}': the name '{name}' is taken; it is called '{unique}'"));
    }
    taken.insert(unique.clone());
    unique
}

/// Whether a pattern of the configuration means a tool: by its raw or its wrapped name.
fn matches(pattern: &str, raw: &str, wrapped: &str) -> bool {
    if pattern == "*" || pattern == raw || pattern == wrapped {
        return true;
    }
    if !pattern.contains(['*', '?', '[', '{']) {
        return false;
    }
    GlobBuilder::new(pattern).literal_separator(false).build().is_ok_and(|glob| {
        let glob = glob.compile_matcher();
        glob.is_match(raw) || glob.is_match(wrapped)
    })
}

fn unmatched(config: &ServerConfig, named: &[(String, &RawTool)], notes: &mut Vec<String>) {
    let missing: Vec<&str> = config
        .enabled_tools
        .iter()
        .filter(|p| *p != "*" && !named.iter().any(|(name, tool)| matches(p, &tool.name, name)))
        .map(String::as_str)
        .collect();
    if missing.is_empty() {
        return;
    }
    let available: Vec<String> =
        named.iter().take(30).map(|(name, tool)| format!("{} ({name})", tool.name)).collect();
    notes.push(format!(
        "enabledTools names what the server does not have: {}. Its tools: {}{}",
        missing.join(", "),
        if available.is_empty() { "(none)".to_owned() } else { available.join(", ") },
        if named.len() > available.len() { ", ..." } else { "" },
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_raw_and_wrapped_names() {
        assert!(matches("*", "a", "mcp_s_a"));
        assert!(matches("read_*", "read_file", "mcp_s_read_file"));
        assert!(matches("mcp_s_read_*", "read_file", "mcp_s_read_file"));
        assert!(matches("{a,b}", "b", "mcp_s_b"));
        assert!(!matches("read", "read_file", "mcp_s_read_file"));
        // An exact name wins over its meaning as a pattern, and a broken pattern is a name.
        assert!(matches("x[", "x[", "mcp_s_x_") && !matches("x[", "x", "mcp_s_x"));
    }

    #[test]
    fn a_tools_own_limit_wins_and_the_cap_only_extends() {
        let mut config = ServerConfig::stdio("c", Vec::<String>::new());
        let limit = Duration::from_secs;
        config.tool_timeouts = [("slow_*".to_owned(), limit(90)), ("slow_x".to_owned(), limit(5))].into();
        config.progress_cap = Some(limit(60));
        assert_eq!(Limits::of(&config, "slow_x").hard(), limit(60));
        assert_eq!(Limits::of(&config, "slow_x").timeout, limit(5));
        assert_eq!(Limits::of(&config, "slow_y").hard(), limit(90));
        assert_eq!(Limits::of(&config, "other").timeout, limit(30));
    }

    #[test]
    fn a_taken_name_gets_a_hash_that_depends_on_the_origin_alone() {
        let (mut taken, mut notes) = (HashSet::new(), Vec::new());
        let first = claim("a", "b_c", &names::mcp_tool_name("a", "b_c"), &mut taken, &mut notes);
        let second = claim("a_b", "c", &names::mcp_tool_name("a_b", "c"), &mut taken, &mut notes);
        assert_eq!(first, "mcp_a_b_c");
        assert!(second.starts_with("mcp_a_b_c_") && second.len() == "mcp_a_b_c_".len() + 8);
        assert_eq!(notes.len(), 1);
    }
}

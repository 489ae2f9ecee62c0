//! MCP tools as tools of the registry.
//!
//! An [`McpTool`] holds no connection, only the link to the lane that is current, so that it
//! outlives a reconnect and does not keep a server alive. Which tools are offered, and under
//! which names, is decided here for one server; [`connect_all`](super::connect_all) keeps the
//! names of several apart.

use std::{
    any::Any,
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use globset::GlobBuilder;
use parking_lot::RwLock;

use super::{
    catalog::RawTool,
    config::ServerConfig,
    lane::{Call, Lane, Sink},
};
use crate::{
    Arguments, BoxFuture, CallContext, Completion, Error, Result, Running, Tool, ToolOutput, ToolSpec,
    schema::{names, normalise::normalise_openai},
};

/// The lane that calls to one server take now; it is exchanged when the server is reconnected.
#[derive(Debug)]
pub(super) struct Link {
    lane: RwLock<Arc<Lane>>,
}

impl Link {
    pub(super) fn new(lane: Arc<Lane>) -> Arc<Self> {
        Arc::new(Self { lane: RwLock::new(lane) })
    }

    pub(super) fn lane(&self) -> Arc<Lane> {
        Arc::clone(&self.lane.read())
    }
}

/// A tool of an MCP server.
#[derive(Debug, Clone)]
pub struct McpTool {
    spec: Arc<ToolSpec>,
    raw_name: Arc<str>,
    link: Arc<Link>,
    limits: Limits,
}

/// How long calls of one tool may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) timeout: Duration,
    pub(super) cap: Option<Duration>,
}

impl Limits {
    pub(super) fn of(config: &ServerConfig, raw_name: &str) -> Self {
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
    /// The tool's name on its server.
    #[must_use]
    pub fn raw_name(&self) -> &str {
        &self.raw_name
    }

    /// The same tool under another name.
    #[must_use]
    pub(super) fn renamed(&self, name: String) -> Self {
        let spec = ToolSpec { name, ..(*self.spec).clone() };
        Self { spec: Arc::new(spec), ..self.clone() }
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
            let mut guard = CancelOnDrop(Some(self.submit(arguments, context, done)));
            let result = receive.await;
            guard.0 = None;
            result.unwrap_or(Err(Error::Cancelled))
        })
    }

    fn submit(self: Arc<Self>, arguments: Arguments, context: CallContext, done: Completion) -> Running {
        submit(&self.link, &self.raw_name, &arguments, self.limits, context, Sink::Tool(done))
    }

    fn as_any(&self) -> &dyn Any {
        self
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

fn submit(
    link: &Link,
    tool: &str,
    arguments: &Arguments,
    limits: Limits,
    context: CallContext,
    sink: Sink,
) -> Running {
    let lane = link.lane();
    let id = lane.submit(Call {
        tool,
        arguments,
        timeout: Some(limits.timeout),
        cap: limits.cap,
        deadline: context.deadline,
        limit: context.limit,
        progress: context.progress,
        sink,
    });
    let Some(id) = id else { return Running::finished() };
    let lane: Weak<Lane> = Arc::downgrade(&lane);
    Running::new(move || {
        if let Some(lane) = lane.upgrade() {
            lane.cancel(id);
        }
    })
}

/// Call a tool by its raw name, and get the result as the server sent it.
pub(super) fn call_raw(
    link: Arc<Link>,
    tool: String,
    arguments: Arguments,
    limits: Limits,
    context: CallContext,
) -> BoxFuture<Result<Box<serde_json::value::RawValue>>> {
    Box::pin(async move {
        let (send, receive) = tokio::sync::oneshot::channel();
        let mut guard =
            CancelOnDrop(Some(submit(&link, &tool, &arguments, limits, context, Sink::Raw(send))));
        let result = receive.await;
        guard.0 = None;
        result.unwrap_or(Err(Error::Cancelled))
    })
}

/// Wrap the tools of one server that its entry admits; oddities are appended to `notes`.
pub(super) fn wrap_all(
    server: &Arc<str>,
    config: &ServerConfig,
    link: &Arc<Link>,
    raw: Vec<RawTool>,
    notes: &mut Vec<String>,
) -> Vec<Arc<McpTool>> {
    // Names are given to all tools, also to those left out, so that they do not depend on what
    // the entry admits.
    let mut taken = HashSet::with_capacity(raw.len());
    let named: Vec<(String, RawTool)> = raw
        .into_iter()
        .map(|tool| {
            let name = names::mcp_tool_name(server, &tool.name);
            (claim(server, &tool.name, name, &mut taken, notes), tool)
        })
        .collect();
    unmatched(config, &named, notes);
    named
        .into_iter()
        .filter(|(name, tool)| {
            let any = |patterns: &[String]| patterns.iter().any(|p| matches(p, &tool.name, name));
            any(&config.enabled_tools) && !any(&config.disabled_tools)
        })
        .map(|(name, tool)| Arc::new(wrap(server, config, link, name, tool)))
        .collect()
}

/// Take `name`, or the name with a hash of its origin if another tool has it.
pub(super) fn claim(
    server: &str,
    raw_name: &str,
    name: String,
    taken: &mut HashSet<String>,
    notes: &mut Vec<String>,
) -> String {
    if taken.insert(name.clone()) {
        return name;
    }
    let unique = names::with_hash(&name, server, raw_name);
    notes.push(format!("tool '{raw_name}': the name '{name}' is taken; it is called '{unique}'"));
    taken.insert(unique.clone());
    unique
}

fn wrap(server: &Arc<str>, config: &ServerConfig, link: &Arc<Link>, name: String, tool: RawTool) -> McpTool {
    let limits = Limits::of(config, &tool.name);
    let description = tool.description.unwrap_or_else(|| tool.name.clone());
    let mut spec = ToolSpec::new(name, description, normalise_openai(&tool.input_schema));
    spec.original = Some(tool.input_schema);
    spec.read_only = tool.read_only && config.trust_read_only;
    spec.server = Some(Arc::clone(server));
    spec.timeout = Some(limits.hard());
    McpTool { spec: Arc::new(spec), raw_name: tool.name.into(), link: Arc::clone(link), limits }
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

fn unmatched(config: &ServerConfig, named: &[(String, RawTool)], notes: &mut Vec<String>) {
    let missing: Vec<&str> = config
        .enabled_tools
        .iter()
        .filter(|p| *p != "*" && !named.iter().any(|(name, tool)| matches(p, &tool.name, name)))
        .map(String::as_str)
        .collect();
    if missing.is_empty() {
        return;
    }
    let available: Vec<&str> = named.iter().take(30).map(|(_, tool)| tool.name.as_str()).collect();
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
        let first = claim("a", "b_c", names::mcp_tool_name("a", "b_c"), &mut taken, &mut notes);
        let second = claim("a_b", "c", names::mcp_tool_name("a_b", "c"), &mut taken, &mut notes);
        assert_eq!(first, "mcp_a_b_c");
        assert!(second.starts_with("mcp_a_b_c_") && second.len() == "mcp_a_b_c_".len() + 8);
        assert_eq!(notes.len(), 1);
    }
}

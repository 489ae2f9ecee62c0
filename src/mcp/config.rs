//! A server entry of the configuration.
//!
//! Keys are taken in camelCase and `snake_case`. Unknown ones become warnings; a faulty one is an
//! error that names the entry and the key, and costs that entry alone. `${VAR}` is replaced in
//! every string. Whether a transport is implemented is for [`connect`](super::connect) to say.

use std::{fmt, path::PathBuf, time::Duration};

use indexmap::IndexMap;
use ipnet::IpNet;
use rmcp::model::ProtocolVersion;
use serde_json::{Map, Value};

use super::expand;
use crate::{
    error::{Error, Result},
    net::AllowPrivate,
};

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportKind {
    /// A child process that speaks over stdin and stdout.
    Stdio,
    /// The HTTP+SSE transport of 2024-11-05.
    Sse,
    /// Streamable HTTP.
    StreamableHttp,
}

impl TransportKind {
    /// The name in configurations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Sse => "sse",
            Self::StreamableHttp => "streamableHttp",
        }
    }
}

/// How the resources of a server are offered to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResourceMode {
    /// A tool for each.
    #[default]
    Each,
    /// One tool that reads any of them.
    One,
}

/// Whether a call is sent again when its connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retry {
    /// If the server cannot have seen it, or running it twice does no harm (read-only or idempotent).
    #[default]
    Safe,
    /// In any case, as the reference does: a side effect may happen twice.
    Always,
    /// Never.
    Never,
}

/// When a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lazy {
    /// At once; if it is known from the cache what it offers, nobody waits for it.
    #[default]
    Auto,
    /// At the first call, if it is known from the cache what it offers.
    Yes,
    /// At once, and what it offers is not taken from the cache.
    No,
}

/// One server entry, checked and with its defaults filled in.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct ServerConfig {
    /// How the server is reached.
    pub transport: TransportKind,
    /// The program (stdio).
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables beside those of the allow-list.
    pub env: IndexMap<String, String>,
    /// Where the program starts; the host's directory by default.
    pub cwd: Option<PathBuf>,
    /// The address (HTTP).
    pub url: String,
    /// Headers that every request carries (HTTP).
    pub headers: IndexMap<String, String>,
    /// Which private addresses may be spoken to (HTTP); `allowPrivate` and `ssrfWhitelist` together.
    pub allow_private: AllowPrivate,
    /// The protocol version to speak; by default the best that both sides know.
    pub protocol: Option<String>,
    /// Limit of one call; 30 s.
    pub tool_timeout: Duration,
    /// Limits of single tools, by their raw name or pattern.
    pub tool_timeouts: IndexMap<String, Duration>,
    /// How far progress may extend a call's limit; by default not at all.
    pub progress_cap: Option<Duration>,
    /// Raw or wrapped names or patterns of the tools that are offered; `["*"]`.
    pub enabled_tools: Vec<String>,
    /// Raw or wrapped names or patterns of tools that are not offered.
    pub disabled_tools: Vec<String>,
    /// Whether the entry is switched off.
    pub disabled: bool,
    /// Limit of start, handshake and lists together; 120 s.
    pub connect_timeout: Duration,
    /// How long a start waits for the server before it goes on without it; 10 s.
    pub startup_wait: Duration,
    /// When calls are sent again.
    pub retry: Retry,
    /// When the server is started.
    pub lazy: Lazy,
    /// A server that was not called for so long is stopped until the next call; by default never.
    pub idle_timeout: Option<Duration>,
    /// How the client proves who it is: `oauth`, or nothing.
    pub auth: Option<String>,
    /// Whether `readOnlyHint` is believed, so that such tools may run in parallel; true.
    pub trust_read_only: bool,
    /// How resources are offered.
    pub resources: ResourceMode,
    /// Where images, audio and other data of results are stored; a folder of this package's by default.
    pub artifacts: Option<PathBuf>,
    /// Results of more bytes are shown in part, and stored; by default whole.
    pub max_result_bytes: Option<usize>,
    /// What was odd about the entry without making it faulty.
    pub warnings: Vec<String>,
}

impl fmt::Debug for ServerConfig {
    /// Without arguments, values of variables and the address: they carry secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("transport", &self.transport)
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("tool_timeout", &self.tool_timeout)
            .field("enabled_tools", &self.enabled_tools)
            .field("disabled", &self.disabled)
            .finish_non_exhaustive()
    }
}

impl ServerConfig {
    /// An entry that starts `command` and speaks over its stdin and stdout.
    #[must_use]
    pub fn stdio<S: Into<String>>(command: impl Into<String>, args: impl IntoIterator<Item = S>) -> Self {
        Self {
            transport: TransportKind::Stdio,
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: IndexMap::new(),
            cwd: None,
            url: String::new(),
            headers: IndexMap::new(),
            allow_private: AllowPrivate::No,
            protocol: None,
            tool_timeout: Duration::from_secs(30),
            tool_timeouts: IndexMap::new(),
            progress_cap: None,
            enabled_tools: vec!["*".to_owned()],
            disabled_tools: Vec::new(),
            disabled: false,
            connect_timeout: Duration::from_secs(120),
            startup_wait: Duration::from_secs(10),
            retry: Retry::Safe,
            lazy: Lazy::Auto,
            idle_timeout: None,
            auth: None,
            trust_read_only: true,
            resources: ResourceMode::Each,
            artifacts: None,
            max_result_bytes: None,
            warnings: Vec::new(),
        }
    }

    /// Whether a server of the entry `other` would be the same server, reached in the same way: what
    /// differs can be changed while it runs.
    #[must_use]
    pub fn is_same_server(&self, other: &Self) -> bool {
        let mut alike = other.clone();
        alike.tool_timeout = self.tool_timeout;
        alike.tool_timeouts.clone_from(&self.tool_timeouts);
        alike.progress_cap = self.progress_cap;
        alike.enabled_tools.clone_from(&self.enabled_tools);
        alike.disabled_tools.clone_from(&self.disabled_tools);
        alike.connect_timeout = self.connect_timeout;
        alike.startup_wait = self.startup_wait;
        alike.retry = self.retry;
        alike.lazy = self.lazy;
        alike.idle_timeout = self.idle_timeout;
        alike.trust_read_only = self.trust_read_only;
        alike.resources = self.resources;
        alike.max_result_bytes = self.max_result_bytes;
        alike.warnings.clone_from(&self.warnings);
        *self == alike
    }

    /// Read an entry, with `${VAR}` taken from this process's environment.
    ///
    /// # Errors
    /// [`Error::Config`], naming the entry and the key or the variable.
    pub fn from_json(name: &str, entry: &Value) -> Result<Self> {
        Self::from_json_with(name, entry, &|variable| std::env::var(variable).ok())
    }

    /// As [`from_json`](Self::from_json), with `${VAR}` taken from `lookup`.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json).
    pub fn from_json_with(
        name: &str,
        entry: &Value,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let Value::Object(_) = entry else {
            return Err(Error::Config(format!("MCP server '{name}': the entry must be an object")));
        };
        let mut entry = entry.clone();
        let disabled = entry.get("disabled") == Some(&Value::Bool(true));
        match expand::expand(&mut entry, lookup) {
            // An entry that is switched off needs no variables.
            Err(_) if disabled => {}
            Err(variable) => {
                return Err(Error::Config(format!(
                    "MCP server '{name}': the environment variable {variable} is not set"
                )));
            }
            Ok(()) => {}
        }
        let Value::Object(map) = entry else { unreachable!("checked above") };
        Reader { name, map: snake_keys(map) }.read()
    }
}

fn snake_keys(map: Map<String, Value>) -> Map<String, Value> {
    map.into_iter()
        .map(|(key, value)| {
            let mut snake = String::with_capacity(key.len() + 4);
            for c in key.chars() {
                if c.is_ascii_uppercase() {
                    snake.push('_');
                }
                snake.push(c.to_ascii_lowercase());
            }
            (snake, value)
        })
        .collect()
}

struct Reader<'a> {
    name: &'a str,
    map: Map<String, Value>,
}

impl Reader<'_> {
    fn read(mut self) -> Result<ServerConfig> {
        let command = self.text("command")?.unwrap_or_default();
        let url = self.text("url")?.unwrap_or_default();
        let transport = self.transport(&command, &url)?;
        let mut config = ServerConfig { transport, url, ..ServerConfig::stdio(command, self.list("args")?) };
        config.env = self.texts("env")?;
        config.cwd = self.text("cwd")?.filter(|cwd| !cwd.is_empty()).map(PathBuf::from);
        if let Some(limit) = self.seconds("tool_timeout")? {
            config.tool_timeout = limit;
        }
        config.tool_timeouts = self.timeouts()?;
        config.progress_cap = self.seconds("progress_cap")?;
        if let Some(enabled) = self.optional_list("enabled_tools")? {
            config.enabled_tools = enabled;
        }
        config.disabled_tools = self.list("disabled_tools")?;
        config.disabled = self.flag("disabled", false)?;
        if let Some(limit) = self.seconds("connect_timeout")? {
            config.connect_timeout = limit;
        }
        if let Some(limit) = self.seconds("startup_wait")? {
            config.startup_wait = limit;
        }
        config.retry = match self.text("retry")?.as_deref() {
            None | Some("safe") => Retry::Safe,
            Some("always") => Retry::Always,
            Some("never") => Retry::Never,
            Some(_) => return Err(self.fault("retry", "\"safe\", \"always\" or \"never\"")),
        };
        config.lazy = match self.take("lazy") {
            None => Lazy::Auto,
            Some(Value::String(text)) if text == "auto" => Lazy::Auto,
            Some(Value::Bool(true)) => Lazy::Yes,
            Some(Value::Bool(false)) => Lazy::No,
            Some(_) => return Err(self.fault("lazy", "true, false or \"auto\"")),
        };
        config.idle_timeout = self.seconds("idle_timeout")?;
        config.auth = self.text("auth")?.filter(|auth| !auth.is_empty());
        config.trust_read_only = self.flag("trust_read_only", true)?;
        config.headers = self.texts("headers")?;
        config.allow_private = self.allow_private()?;
        config.protocol = self.protocol()?;
        config.resources = match self.text("resources")?.as_deref() {
            None | Some("each") => ResourceMode::Each,
            Some("one") => ResourceMode::One,
            Some(_) => return Err(self.fault("resources", "\"each\" or \"one\"")),
        };
        config.artifacts = self.text("artifacts")?.filter(|folder| !folder.is_empty()).map(PathBuf::from);
        config.max_result_bytes = match self.take("max_result_bytes") {
            None => None,
            Some(value) => match value.as_u64().and_then(|bytes| usize::try_from(bytes).ok()) {
                Some(bytes) if bytes > 0 => Some(bytes),
                _ => return Err(self.fault("max_result_bytes", "a positive number of bytes")),
            },
        };
        config.warnings = self
            .map
            .keys()
            .map(|key| format!("MCP server '{}': unknown field '{key}' is ignored", self.name))
            .collect();
        Ok(config)
    }

    fn fault(&self, key: &str, want: &str) -> Error {
        Error::Config(format!("MCP server '{}': '{key}' must be {want}", self.name))
    }

    /// The value of a key; null counts as absent.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.map.shift_remove(key).filter(|value| !value.is_null())
    }

    fn transport(&mut self, command: &str, url: &str) -> Result<TransportKind> {
        let kind = self.text("type")?.filter(|kind| !kind.is_empty());
        let transport = match kind.as_deref() {
            Some("stdio") => TransportKind::Stdio,
            Some("sse") => TransportKind::Sse,
            Some("streamableHttp" | "streamable-http" | "streamable_http" | "http") => {
                TransportKind::StreamableHttp
            }
            Some(other) => {
                return Err(Error::Config(format!(
                    "MCP server '{}': unknown transport type '{other}'",
                    self.name
                )));
            }
            None if !command.is_empty() => TransportKind::Stdio,
            // The reference's rule: an address that ends in /sse is the old transport.
            None if !url.is_empty() => {
                let path = url.split(['?', '#']).next().unwrap_or_default();
                if path.trim_end_matches('/').ends_with("/sse") {
                    TransportKind::Sse
                } else {
                    TransportKind::StreamableHttp
                }
            }
            None => {
                return Err(Error::Config(format!(
                    "MCP server '{}': the entry needs a 'command' or a 'url'",
                    self.name
                )));
            }
        };
        let (needed, given) = match transport {
            TransportKind::Stdio => ("command", command),
            TransportKind::Sse | TransportKind::StreamableHttp => ("url", url),
        };
        if given.is_empty() {
            return Err(Error::Config(format!(
                "MCP server '{}': the transport {} needs a '{needed}'",
                self.name,
                transport.as_str()
            )));
        }
        Ok(transport)
    }

    fn text(&mut self, key: &str) -> Result<Option<String>> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.fault(key, "a string")),
        }
    }

    fn flag(&mut self, key: &str, default: bool) -> Result<bool> {
        match self.take(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(self.fault(key, "true or false")),
        }
    }

    fn seconds(&mut self, key: &str) -> Result<Option<Duration>> {
        match self.take(key) {
            None => Ok(None),
            Some(value) => {
                duration(&value).map(Some).ok_or_else(|| self.fault(key, "a positive number of seconds"))
            }
        }
    }

    fn list(&mut self, key: &str) -> Result<Vec<String>> {
        Ok(self.optional_list(key)?.unwrap_or_default())
    }

    fn optional_list(&mut self, key: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let Value::Array(items) = value else { return Err(self.fault(key, "a list of strings")) };
        let texts: Option<Vec<String>> = items.into_iter().map(scalar).collect();
        texts.map(Some).ok_or_else(|| self.fault(key, "a list of strings"))
    }

    /// Names with texts: variables of the environment, or headers.
    fn texts(&mut self, key: &str) -> Result<IndexMap<String, String>> {
        let Some(value) = self.take(key) else { return Ok(IndexMap::new()) };
        let Value::Object(map) = value else { return Err(self.fault(key, "an object")) };
        let mut texts = IndexMap::with_capacity(map.len());
        for (name, value) in map {
            let usable = !name.is_empty() && !name.contains(['=', '\0']);
            match scalar(value).filter(|text| usable && !text.contains('\0')) {
                Some(text) => texts.insert(name, text),
                None => return Err(self.fault(&format!("{key}.{name}"), "a string or a number")),
            };
        }
        Ok(texts)
    }

    fn allow_private(&mut self) -> Result<AllowPrivate> {
        let listed = match self.take("allow_private") {
            None | Some(Value::Bool(false)) => Vec::new(),
            Some(Value::Bool(true)) => {
                self.take("ssrf_whitelist");
                return Ok(AllowPrivate::All);
            }
            Some(Value::Array(items)) => items,
            Some(_) => return Err(self.fault("allow_private", "true, false or a list of networks (CIDR)")),
        };
        let more = match self.take("ssrf_whitelist") {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(self.fault("ssrf_whitelist", "a list of networks (CIDR)")),
        };
        let mut networks = Vec::with_capacity(listed.len() + more.len());
        for (key, items) in [("allow_private", listed), ("ssrf_whitelist", more)] {
            for item in items {
                let network = item.as_str().and_then(network);
                networks.push(network.ok_or_else(|| self.fault(key, "a list of networks (CIDR)"))?);
            }
        }
        Ok(if networks.is_empty() { AllowPrivate::No } else { AllowPrivate::Cidrs(networks) })
    }

    fn protocol(&mut self) -> Result<Option<String>> {
        let Some(version) = self.text("protocol")?.filter(|version| !version.is_empty()) else {
            return Ok(None);
        };
        let known = ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| known.as_str() == version);
        if known {
            Ok(Some(version))
        } else {
            Err(self.fault("protocol", "a version of the protocol, such as 2025-11-25"))
        }
    }

    fn timeouts(&mut self) -> Result<IndexMap<String, Duration>> {
        let Some(value) = self.take("tool_timeouts") else { return Ok(IndexMap::new()) };
        let Value::Object(map) = value else { return Err(self.fault("tool_timeouts", "an object")) };
        let mut limits = IndexMap::with_capacity(map.len());
        for (tool, value) in map {
            let limit = duration(&value).ok_or_else(|| {
                self.fault(&format!("tool_timeouts.{tool}"), "a positive number of seconds")
            })?;
            limits.insert(tool, limit);
        }
        Ok(limits)
    }
}

/// A network, or a single address.
fn network(text: &str) -> Option<IpNet> {
    let text = text.trim();
    text.parse().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from))
}

fn duration(value: &Value) -> Option<Duration> {
    let seconds = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    // A year is as good as no limit, and keeps `Instant + Duration` from overflowing.
    (seconds > 0.0).then(|| Duration::from_secs_f64(seconds.min(3.2e7)))
}

/// A string, or a number or flag as a shell would write it.
fn scalar(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(entry: &Value) -> Result<ServerConfig> {
        ServerConfig::from_json_with("s", entry, &|name| (name == "KEY").then(|| "k".to_owned()))
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let config = read(&json!({"command": "run"})).unwrap();
        assert_eq!(config, ServerConfig::stdio("run", Vec::<String>::new()));
        assert_eq!(config.tool_timeout.as_secs(), 30);
        assert_eq!(config.connect_timeout.as_secs(), 120);
    }

    #[test]
    fn both_spellings_of_keys_are_read() {
        for entry in [
            json!({"command": "c", "toolTimeout": 0.5, "enabledTools": [], "trustReadOnly": false}),
            json!({"command": "c", "tool_timeout": 0.5, "enabled_tools": [], "trust_read_only": false}),
        ] {
            let config = read(&entry).unwrap();
            assert_eq!(config.tool_timeout, Duration::from_millis(500));
            assert!(config.enabled_tools.is_empty() && !config.trust_read_only);
        }
    }

    #[test]
    fn numeric_env_values_and_variables_are_accepted() {
        let config = read(&json!({"command": "c", "env": {"PORT": 8080, "T": "${KEY}", "B": true}})).unwrap();
        let env: Vec<_> = config.env.values().map(String::as_str).collect();
        assert_eq!(env, ["8080", "k", "true"]);
    }

    #[test]
    fn type_aliases_are_known_and_a_missing_type_is_guessed() {
        for (entry, kind) in [
            (json!({"type": "http", "url": "http://h"}), TransportKind::StreamableHttp),
            (json!({"type": "streamable-http", "url": "http://h"}), TransportKind::StreamableHttp),
            (json!({"url": "http://h/sse?key=1"}), TransportKind::Sse),
            (json!({"url": "http://h/mcp/"}), TransportKind::StreamableHttp),
            (json!({"command": "c"}), TransportKind::Stdio),
        ] {
            assert_eq!(read(&entry).unwrap().transport, kind);
        }
    }

    #[test]
    fn exemptions_of_the_guard_are_networks_or_single_addresses() {
        let of = |more: Value| {
            let mut entry = json!({"url": "http://h"});
            entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(&entry).map(|config| config.allow_private)
        };
        assert_eq!(of(json!({})).unwrap(), AllowPrivate::No);
        assert_eq!(
            of(json!({"allowPrivate": true, "ssrfWhitelist": ["10.0.0.0/8"]})).unwrap(),
            AllowPrivate::All
        );
        let both = of(json!({"allowPrivate": ["127.0.0.1"], "ssrfWhitelist": ["10.0.0.0/8"]})).unwrap();
        assert_eq!(
            both,
            AllowPrivate::Cidrs(vec!["127.0.0.1/32".parse().unwrap(), "10.0.0.0/8".parse().unwrap()])
        );
        assert!(of(json!({"allowPrivate": ["home"]})).unwrap_err().to_string().contains("allow_private"));
    }

    #[test]
    fn a_pinned_version_must_be_known() {
        let entry = |version| json!({"url": "http://h", "protocol": version});
        assert_eq!(read(&entry("2025-06-18")).unwrap().protocol.as_deref(), Some("2025-06-18"));
        assert!(read(&entry("2030-01-01")).unwrap_err().to_string().contains("'protocol'"));
    }

    #[test]
    fn unknown_fields_are_warned_about_and_never_fatal() {
        let config = read(&json!({"command": "c", "colour": 1, "headers": {}})).unwrap();
        assert_eq!(config.warnings, ["MCP server 's': unknown field 'colour' is ignored"]);
    }

    #[test]
    fn a_faulty_entry_is_named_with_its_key() {
        for (entry, part) in [
            (json!(3), "object"),
            (json!({}), "'command' or a 'url'"),
            (json!({"command": 1}), "'command'"),
            (json!({"command": "c", "args": "x"}), "'args'"),
            (json!({"command": "c", "env": {"A": []}}), "'env.A'"),
            (json!({"command": "c", "toolTimeout": 0}), "'tool_timeout'"),
            (json!({"command": "c", "toolTimeouts": {"x": -1}}), "'tool_timeouts.x'"),
            (json!({"command": "c", "args": ["${GONE}"]}), "GONE"),
            (json!({"type": "carrier-pigeon", "url": "u"}), "carrier-pigeon"),
            (json!({"type": "stdio", "url": "u"}), "'command'"),
        ] {
            let text = read(&entry).unwrap_err().to_string();
            assert!(text.contains("'s'") && text.contains(part), "{text}");
        }
    }

    #[test]
    fn secrets_stay_out_of_the_debug_form() {
        let entry =
            json!({"command": "c", "args": ["--key=hush"], "env": {"TOKEN": "hush"}, "url": "http://hush"});
        let text = format!("{:?}", read(&entry).unwrap());
        assert!(text.contains("TOKEN") && !text.contains("hush"), "{text}");
    }

    #[test]
    fn a_switched_off_entry_needs_no_variables() {
        assert!(read(&json!({"command": "${GONE}", "disabled": true})).unwrap().disabled);
    }
}

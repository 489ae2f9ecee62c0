//! The two eras of the protocol, and how a request is dressed in each.
//!
//! Up to 2025-11-25 a connection begins with `initialize`, and requests are bare. From 2026-07-28 on
//! every request is complete in itself: `_meta` names version, client and capabilities, and over
//! HTTP headers repeat what a middle box may want to know (SEP-2243). What was found out about a
//! server is remembered for as long as the process lives, so that the next connection does not ask
//! again. The wire names are the specification's; the types that have them are rmcp's.

use std::{collections::HashMap, hash::BuildHasher};

use base64::{Engine, prelude::BASE64_STANDARD};
use parking_lot::Mutex;
use rmcp::model::{ClientCapabilities, Implementation, ProtocolVersion};
use serde_json::{Map, Value, json};

use super::config::ServerConfig;

/// The newest version that begins with `initialize`.
pub(super) const NEWEST_LEGACY: ProtocolVersion = ProtocolVersion::LATEST_WITH_INITIALIZE;

/// The versions without `initialize` that are spoken here, best first.
pub(super) const MODERN: [ProtocolVersion; 1] = [ProtocolVersion::V_2026_07_28];

/// Which of the eras a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Legacy,
    Modern,
}

impl Era {
    pub(super) fn of(version: &str) -> Self {
        if version >= ProtocolVersion::NO_INITIALIZE.as_str() { Self::Modern } else { Self::Legacy }
    }
}

/// How requests to one server are dressed; decided by the handshake.
#[derive(Debug, Clone)]
pub(super) struct Manner {
    pub(super) era: Era,
    pub(super) version: String,
    /// The members of `_meta` that every request carries, without braces; empty in the old era.
    pub(super) meta: String,
    /// Whether headers repeat parts of the body.
    pub(super) headers: bool,
}

impl Manner {
    /// Bare requests, as before and in the old era.
    pub(super) fn legacy(version: &str) -> Self {
        Self { era: Era::Legacy, version: version.to_owned(), meta: String::new(), headers: false }
    }

    /// Complete requests.
    pub(super) fn modern(version: &str, capabilities: &ClientCapabilities, http: bool) -> Self {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": client_info(),
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        })
        .to_string();
        let meta = meta[1..meta.len() - 1].to_owned();
        Self { era: Era::Modern, version: version.to_owned(), meta, headers: http }
    }

    /// The same, asking for log messages of this level and above with every request.
    pub(super) fn with_log_level(&self, level: &str) -> Self {
        let mut manner = self.clone();
        if self.era == Era::Modern {
            // One level holds; a later one replaces it.
            const KEY: &str = ",\"io.modelcontextprotocol/logLevel\":";
            if let Some(at) = manner.meta.rfind(KEY) {
                manner.meta.truncate(at);
            }
            manner.meta.push_str(KEY);
            manner.meta.push_str(&Value::from(level).to_string());
        }
        manner
    }

    /// The headers of a request.
    pub(super) fn headers(&self, method: &str, name: Option<&str>) -> Vec<(String, String)> {
        if !self.headers {
            return Vec::new();
        }
        let mut headers = vec![
            ("MCP-Protocol-Version".to_owned(), self.version.clone()),
            ("Mcp-Method".to_owned(), method.to_owned()),
        ];
        if let Some(name) = name {
            headers.push(("Mcp-Name".to_owned(), header_value(name)));
        }
        headers
    }
}

/// What this client says it is.
pub(super) fn client_info() -> Implementation {
    Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
}

/// The member of `params` that `Mcp-Name` repeats.
pub(super) fn name_of<'a>(method: &str, params: &'a Map<String, Value>) -> Option<&'a str> {
    let key = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        _ => return None,
    };
    params.get(key)?.as_str()
}

/// An argument of a tool that a header repeats (`x-mcp-header` in its schema).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct ParamHeader {
    /// Names of properties, from the root.
    path: Vec<String>,
    header: String,
}

/// Longest chain of `properties` that is followed.
const MAX_DEPTH: usize = 64;

/// The headers that a tool's schema asks for.
///
/// # Errors
/// What is wrong with the annotations; such a tool must not be called in the era that has them.
pub(super) fn param_headers(schema: &Value) -> Result<Vec<ParamHeader>, String> {
    let mut found = Vec::new();
    let mut expected = 0;
    chain(schema, &mut Vec::new(), &mut found, &mut expected)?;
    if annotations(schema, 0) > expected {
        return Err("x-mcp-header stands where no argument can be reached by `properties` alone".to_owned());
    }
    let mut seen = std::collections::HashSet::new();
    for ParamHeader { path, header } in &found {
        if !seen.insert(header.to_ascii_lowercase()) {
            return Err(format!("property '{}': the header '{header}' is named twice", path.join(".")));
        }
    }
    Ok(found)
}

fn chain(
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<ParamHeader>,
    expected: &mut usize,
) -> Result<(), String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    if path.len() >= MAX_DEPTH {
        return Ok(());
    }
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(header) = property.get("x-mcp-header") {
            *expected += 1;
            let at = path.join(".");
            let header = header.as_str().filter(|header| !header.is_empty() && header.bytes().all(is_token));
            let Some(header) = header else {
                return Err(format!("property '{at}': x-mcp-header is no name of a header"));
            };
            if !matches!(property.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean"))
            {
                return Err(format!("property '{at}': x-mcp-header needs a string, integer or boolean"));
            }
            found.push(ParamHeader { path: path.clone(), header: header.to_owned() });
        }
        chain(property, path, found, expected)?;
        path.pop();
    }
    Ok(())
}

/// How often a schema is annotated, anywhere: in schemas, not in data or names of properties.
fn annotations(schema: &Value, depth: usize) -> usize {
    if depth > 2 * MAX_DEPTH {
        return 0;
    }
    match schema {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match key.as_str() {
                "x-mcp-header" => 1,
                "default" | "const" | "enum" | "examples" | "dependentRequired" => 0,
                "properties" | "$defs" | "definitions" | "dependentSchemas" | "patternProperties" => value
                    .as_object()
                    .map_or(0, |map| map.values().map(|value| annotations(value, depth + 1)).sum()),
                _ => annotations(value, depth + 1),
            })
            .sum(),
        Value::Array(items) => items.iter().map(|item| annotations(item, depth + 1)).sum(),
        _ => 0,
    }
}

/// RFC 9110, 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// `Mcp-Param-*` for the arguments of one call.
pub(super) fn argument_headers(
    annotated: &[ParamHeader],
    arguments: &Map<String, Value>,
) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for ParamHeader { path, header } in annotated {
        let mut steps = path.iter();
        let mut value = steps.next().and_then(|first| arguments.get(first));
        for step in steps {
            value = value.and_then(|value| value.get(step));
        }
        let text = match value {
            Some(Value::String(text)) => text.clone(),
            Some(plain @ (Value::Bool(_) | Value::Number(_))) => plain.to_string(),
            _ => continue,
        };
        headers.push((format!("Mcp-Param-{header}"), header_value(&text)));
    }
    headers
}

/// A text as a header can carry it: as it is, or in base64 with the specification's mark.
fn header_value(text: &str) -> String {
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.trim_matches(' ') == text;
    if plain && !looks_encoded {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64_STANDARD.encode(text))
    }
}

/// What is remembered of servers, by what identifies them in the configuration.
static VERDICTS: Mutex<Option<HashMap<u64, Era>>> = Mutex::new(None);

/// Servers that are remembered; more than anybody configures.
const MAX_VERDICTS: usize = 4096;

fn key(config: &ServerConfig) -> u64 {
    static STATE: std::sync::OnceLock<std::hash::RandomState> = std::sync::OnceLock::new();
    STATE.get_or_init(std::hash::RandomState::new).hash_one((
        config.transport.as_str(),
        &config.command,
        &config.args,
        &config.url,
    ))
}

/// The era that this server was last found to speak.
pub(super) fn remembered(config: &ServerConfig) -> Option<Era> {
    VERDICTS.lock().as_ref()?.get(&key(config)).copied()
}

/// Remember the era of a server; `None` forgets it.
pub(super) fn remember(config: &ServerConfig, era: Option<Era>) {
    let mut verdicts = VERDICTS.lock();
    let verdicts = verdicts.get_or_insert_default();
    match era {
        Some(era) if verdicts.len() < MAX_VERDICTS => {
            verdicts.insert(key(config), era);
        }
        Some(_) => {}
        None => {
            verdicts.remove(&key(config));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modern_request_says_who_asks_and_the_log_level_is_the_last_one_set() {
        let manner = Manner::modern("2026-07-28", &ClientCapabilities::default(), true);
        let manner = manner.with_log_level("debug").with_log_level("error");
        let meta: Value = serde_json::from_str(&format!("{{{}}}", manner.meta)).unwrap();
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "nanobot-tools");
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
        assert_eq!(meta["io.modelcontextprotocol/logLevel"], "error");
        assert_eq!(manner.meta.matches("logLevel").count(), 1);
        assert!(Manner::legacy("2025-11-25").with_log_level("debug").meta.is_empty());
    }

    #[test]
    fn headers_repeat_method_name_and_annotated_arguments() {
        let manner = Manner::modern("2026-07-28", &ClientCapabilities::default(), true);
        let headers = manner.headers("tools/call", Some("größe"));
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"]);
        assert_eq!(headers[2].1, "=?base64?Z3LDtsOfZQ==?=");
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "x-mcp-header": {"type": "string"},
        }});
        let annotated = param_headers(&schema).unwrap();
        let arguments = json!({"region": " eu", "deep": {"n": 7}});
        assert_eq!(
            argument_headers(&annotated, arguments.as_object().unwrap()),
            [
                ("Mcp-Param-Region".to_owned(), "=?base64?IGV1?=".to_owned()),
                ("Mcp-Param-N".to_owned(), "7".to_owned())
            ]
        );
        assert!(argument_headers(&annotated, &Map::new()).is_empty());
    }

    #[test]
    fn faulty_annotations_are_refused() {
        for schema in [
            json!({"properties": {"a": {"type": "string", "x-mcp-header": ""}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "a b"}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": 1}}}),
            json!({"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}}),
            json!({"x-mcp-header": "A"}),
            json!({"properties": {"a": {"items": {"type": "string", "x-mcp-header": "A"}}}}),
        ] {
            assert!(param_headers(&schema).is_err(), "{schema}");
        }
        assert_eq!(
            param_headers(&json!({"properties": {"a": true}, "default": {"x-mcp-header": 1}})),
            Ok(vec![])
        );
    }

    #[test]
    fn plain_values_stay_plain_and_what_looks_encoded_is_encoded() {
        assert_eq!(header_value("a b"), "a b");
        assert_eq!(header_value(""), "");
        assert_eq!(header_value("=?base64?eA==?="), "=?base64?PT9iYXNlNjQ/ZUE9PT89?=");
        assert_eq!(header_value("a\nb"), "=?base64?YQpi?=");
    }
}

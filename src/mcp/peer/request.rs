//! A request: what it is called in texts for the model, and how it is written.

use std::{io::Write as _, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{
    super::{
        era::{self, Era, Manner, ParamHeader},
        wire::RpcError,
    },
    Sink, cache,
    waiter::{Again, Extra},
};
use crate::{Arguments, Error, ProgressSink, Result, tool::seconds};

/// What a request is for; its failures are told in these terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mcp) enum What {
    Tool,
    Resource,
    Prompt,
    Other(String),
}

impl What {
    pub(in crate::mcp) fn method(&self) -> &str {
        match self {
            Self::Tool => "tools/call",
            Self::Resource => "resources/read",
            Self::Prompt => "prompts/get",
            Self::Other(method) => method,
        }
    }

    /// The request for this method, in the terms that fit it.
    pub(in crate::mcp) fn of(method: &str) -> Self {
        match method {
            "tools/call" => Self::Tool,
            "resources/read" => Self::Resource,
            "prompts/get" => Self::Prompt,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The text of a failure, as the reference words it.
    pub(in crate::mcp) fn failed(&self, why: &str) -> String {
        match self {
            Self::Tool => format!("(MCP tool call failed: {why})"),
            Self::Resource => format!("(MCP resource read failed: {why})"),
            Self::Prompt => format!("(MCP prompt call failed: {why})"),
            Self::Other(method) => format!("{method} failed: {why}"),
        }
    }

    pub(super) fn timed_out(&self, after: Duration) -> String {
        let after = seconds(after);
        match self {
            Self::Tool => format!("(MCP tool call timed out after {after}s)"),
            Self::Resource => format!("(MCP resource read timed out after {after}s)"),
            Self::Prompt => format!("(MCP prompt call timed out after {after}s)"),
            Self::Other(method) => format!("{method} timed out after {after}s"),
        }
    }

    /// A result that the server sent and nobody can read.
    pub(super) fn unreadable(&self, why: &str) -> Error {
        Error::Protocol(self.failed(&format!("the server's reply could not be read: {why}")))
    }

    pub(super) fn remote(&self, error: RpcError) -> Error {
        let RpcError { code, message, data } = error;
        let text = self.failed(&format!("{message} [code {code}]"));
        Error::Remote { rpc_code: code, message, text, data: data.map(Box::new) }
    }
}

/// The parameters of a request.
#[derive(Debug, Clone, Copy)]
pub(in crate::mcp) enum Params<'a> {
    None,
    Object(&'a Map<String, Value>),
    /// A call of a tool, whose arguments may be foreign objects.
    Tool {
        name: &'a str,
        arguments: &'a Arguments,
        /// The arguments that headers repeat, where the era has that.
        headers: &'a [ParamHeader],
        /// What the caller says in `_meta`.
        meta: Option<&'a Map<String, Value>>,
    },
}

impl<'a> Params<'a> {
    /// What the caller says in `_meta`.
    fn meta(&self) -> Option<&'a Map<String, Value>> {
        match *self {
            Self::None => None,
            Self::Object(map) => map.get("_meta").and_then(Value::as_object),
            Self::Tool { meta, .. } => meta,
        }
    }
}

/// One request, ready to go.
pub(in crate::mcp) struct Request<'a> {
    pub(in crate::mcp) what: What,
    pub(in crate::mcp) params: Params<'a>,
    /// The tool's own limit.
    pub(in crate::mcp) timeout: Option<Duration>,
    /// How far progress may extend `timeout`.
    pub(in crate::mcp) cap: Option<Duration>,
    /// The caller's deadline, which nothing extends but a question to the user.
    pub(in crate::mcp) deadline: Option<std::time::Instant>,
    /// The time limit that the caller's deadline came from.
    pub(in crate::mcp) limit: Option<Duration>,
    pub(in crate::mcp) progress: Option<ProgressSink>,
    pub(in crate::mcp) sink: Sink,
    /// The manner of this one request, before the connection has its own.
    pub(in crate::mcp) dressed: Option<Arc<Manner>>,
    pub(in crate::mcp) replay: Replay,
}

/// When a request may be sent again over another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::mcp) enum Replay {
    /// It belongs to one connection.
    Never,
    /// While the server cannot have seen it.
    Unsent,
    /// Also when it may have run already.
    Anyway,
}

/// A request as it goes out.
pub(super) struct Written {
    pub(super) line: Bytes,
    pub(super) headers: Vec<(String, String)>,
    /// Where in `line` the members of `params` are, without `_meta`.
    members: std::ops::Range<usize>,
}

impl Written {
    /// Under what its result may be kept, where the era has hints about that.
    pub(super) fn cache_key(&self, what: &What, manner: &Manner) -> Option<cache::Key> {
        let method = cache::cacheable(what.method()).filter(|_| manner.era == Era::Modern)?;
        Some((method, self.line[self.members.clone()].to_vec()))
    }

    /// What it takes to write the request once more: for a further round, or for another connection.
    pub(super) fn again(&self, params: &Params<'_>, progress: bool) -> Again {
        let annotated = match params {
            Params::None | Params::Object(_) => &[][..],
            Params::Tool { headers, .. } => *headers,
        };
        let meta = params.meta().filter(|meta| !meta.is_empty()).cloned();
        let mut members = self.line.slice(self.members.clone());
        // What stood before them need not do so again.
        if members.first() == Some(&b',') {
            members = members.slice(1..);
        }
        Again { members, meta, annotated: annotated.into(), progress, rounds: 0 }
    }
}

/// Write a request. `token` asks for progress.
///
/// # Errors
/// When an argument has no JSON form.
pub(super) fn write(
    id: i64,
    what: &What,
    params: &Params<'_>,
    manner: &Manner,
    token: Option<i64>,
) -> Result<Written> {
    let method = what.method();
    let mut line = Vec::with_capacity(256 + manner.meta.len());
    begin(&mut line, Some(id), method);
    let members = write_params(&mut line, params, manner, token)?;
    line.extend_from_slice(b"}\n");
    let line = Bytes::from(line);
    let mut headers = Vec::new();
    if manner.headers {
        let name = match params {
            Params::None => None,
            Params::Object(map) => era::name_of(method, map),
            Params::Tool { name, .. } => Some(*name),
        };
        headers = manner.headers(method, name);
        if let Params::Tool { arguments, headers: annotated, .. } = params
            && !annotated.is_empty()
        {
            let arguments = arguments.to_json()?;
            headers.extend(era::argument_headers(annotated, &arguments));
        }
    }
    Ok(Written { line, headers, members })
}

/// Write a notification, which in the newer era says as much of itself as a request.
///
/// # Errors
/// As [`write`].
pub(super) fn write_notification(method: &str, params: &Params<'_>, manner: &Manner) -> Result<Vec<u8>> {
    let mut line = Vec::with_capacity(256 + manner.meta.len());
    begin(&mut line, None, method);
    write_params(&mut line, params, manner, None)?;
    line.extend_from_slice(b"}\n");
    Ok(line)
}

/// Write the member `params`, if there is anything in it; where its own members are, without `_meta`.
fn write_params(
    line: &mut Vec<u8>,
    params: &Params<'_>,
    manner: &Manner,
    token: Option<i64>,
) -> Result<std::ops::Range<usize>> {
    let own_meta = params.meta();
    if matches!(params, Params::None) && manner.meta.is_empty() && token.is_none() {
        return Ok(line.len()..line.len());
    }
    line.extend_from_slice(b",\"params\":{");
    let mut first = !meta(line, manner, token, own_meta)?;
    let start = line.len();
    match params {
        Params::None => {}
        Params::Object(map) => {
            for (key, value) in map.iter().filter(|(key, _)| *key != "_meta") {
                if !first {
                    line.push(b',');
                }
                first = false;
                json(line, key)?;
                line.push(b':');
                json(line, value)?;
            }
        }
        Params::Tool { name, arguments, .. } => {
            if !first {
                line.push(b',');
            }
            line.extend_from_slice(br#""name":"#);
            json(line, name)?;
            line.extend_from_slice(br#","arguments":"#);
            let from = line.len();
            arguments.write_json(line)?;
            one_line(&mut line[from..]);
        }
    }
    let members = start..line.len();
    line.push(b'}');
    Ok(members)
}

impl Again {
    /// Write the request once more, under the number `id`; `extra` is what a further round adds.
    pub(super) fn write(&self, id: i64, token: i64, what: &What, manner: &Manner, extra: &Extra) -> Written {
        let mut line = Vec::with_capacity(256 + manner.meta.len() + self.members.len());
        begin(&mut line, Some(id), what.method());
        line.extend_from_slice(b",\"params\":{");
        let token = self.progress.then_some(token);
        // The caller's own meta is JSON already, which can be written.
        let said = meta(&mut line, manner, token, self.meta.as_ref()).unwrap_or(false);
        if said && !self.members.is_empty() {
            line.push(b',');
        }
        let start = line.len();
        line.extend_from_slice(&self.members);
        let mut more = Map::new();
        if !extra.answers.is_empty() {
            more.insert("inputResponses".to_owned(), Value::Object(extra.answers.clone()));
        }
        if let Some(state) = &extra.state {
            more.insert("requestState".to_owned(), state.clone());
        }
        if !more.is_empty() {
            let text = Value::Object(more).to_string();
            if line.last() != Some(&b'{') && line.last() != Some(&b',') {
                line.push(b',');
            }
            line.extend_from_slice(&text.as_bytes()[1..text.len() - 1]);
        }
        let own = start..line.len();
        line.extend_from_slice(b"}}\n");
        Written { line: line.into(), headers: self.headers(what, manner), members: own }
    }

    /// What the era wants said outside of the body; read from the members, since this is rare.
    fn headers(&self, what: &What, manner: &Manner) -> Vec<(String, String)> {
        if !manner.headers {
            return Vec::new();
        }
        let object = [b"{", &*self.members, b"}"].concat();
        let map: Map<String, Value> = serde_json::from_slice(&object).unwrap_or_default();
        let mut headers = manner.headers(what.method(), era::name_of(what.method(), &map));
        if !self.annotated.is_empty()
            && let Some(arguments) = map.get("arguments").and_then(Value::as_object)
        {
            headers.extend(era::argument_headers(&self.annotated, arguments));
        }
        headers
    }
}

fn begin(line: &mut Vec<u8>, id: Option<i64>, method: &str) {
    line.extend_from_slice(br#"{"jsonrpc":"2.0","#);
    // Writing to a Vec cannot fail.
    if let Some(id) = id {
        let _ = write!(line, r#""id":{id},"#);
    }
    let _ = write!(line, r#""method":{}"#, Value::from(method));
}

/// Write `_meta` if there is anything to say; whether it was.
fn meta(
    line: &mut Vec<u8>,
    manner: &Manner,
    token: Option<i64>,
    own: Option<&Map<String, Value>>,
) -> Result<bool> {
    let own = own.filter(|own| !own.is_empty());
    if manner.meta.is_empty() && token.is_none() && own.is_none() {
        return Ok(false);
    }
    line.extend_from_slice(br#""_meta":{"#);
    let start = line.len();
    line.extend_from_slice(manner.meta.as_bytes());
    let separate = |line: &mut Vec<u8>| {
        if line.len() > start {
            line.push(b',');
        }
    };
    if let Some(token) = token {
        separate(line);
        let _ = write!(line, r#""progressToken":{token}"#);
    }
    for (key, value) in own.into_iter().flatten() {
        separate(line);
        json(line, key)?;
        line.push(b':');
        json(line, value)?;
    }
    line.push(b'}');
    Ok(true)
}

fn json<T: serde::Serialize + ?Sized>(line: &mut Vec<u8>, value: &T) -> Result<()> {
    serde_json::to_writer(line, value).map_err(|error| Error::Protocol(error.to_string()))
}

/// JSON that came with line breaks between its tokens must still be one line.
fn one_line(bytes: &mut [u8]) {
    if memchr::memchr2(b'\n', b'\r', bytes).is_some() {
        for byte in bytes {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ClientCapabilities;
    use serde_json::json;

    use super::*;

    fn line(what: &What, params: &Params<'_>, manner: &Manner, token: Option<i64>) -> Value {
        let written = write(7, what, params, manner, token).unwrap();
        assert!(written.line.ends_with(b"}\n"));
        serde_json::from_slice(&written.line).unwrap()
    }

    #[test]
    fn a_bare_request_has_no_params() {
        let manner = Manner::legacy("2025-11-25");
        assert_eq!(
            line(&What::of("ping"), &Params::None, &manner, None),
            json!({"jsonrpc": "2.0", "id": 7, "method": "ping"})
        );
    }

    #[test]
    fn meta_of_the_caller_era_and_progress_stand_together() {
        let map = json!({"uri": "x", "_meta": {"mine": 1}}).as_object().unwrap().clone();
        let manner = Manner::modern("2026-07-28", &ClientCapabilities::default(), true);
        let message = line(&What::Resource, &Params::Object(&map), &manner, Some(7));
        assert_eq!(message["params"]["_meta"]["mine"], 1);
        assert_eq!(message["params"]["_meta"]["progressToken"], 7);
        assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(message["params"]["uri"], "x");
        let (arguments, meta) = (Arguments::Raw(b"{}".to_vec()), map["_meta"].as_object());
        let tool = Params::Tool { name: "t", arguments: &arguments, headers: &[], meta };
        let message = line(&What::Tool, &tool, &Manner::legacy("x"), Some(7));
        assert_eq!(message["params"]["_meta"], json!({"mine": 1, "progressToken": 7}));
        let legacy = line(&What::Resource, &Params::Object(&Map::new()), &Manner::legacy("x"), None);
        assert_eq!(legacy["params"], json!({}));
    }

    #[test]
    fn a_further_round_repeats_the_request_with_answers_and_state() {
        let manner = Manner::modern("2026-07-28", &ClientCapabilities::default(), true);
        let arguments = Arguments::Raw(b"{\n\"a\": 1}".to_vec());
        let params = Params::Tool { name: "t", arguments: &arguments, headers: &[], meta: None };
        let written = write(7, &What::Tool, &params, &manner, None).unwrap();
        let again = written.again(&params, false);
        let answers = json!({"k": {"action": "accept"}}).as_object().unwrap().clone();
        let extra = Extra { answers, state: Some("s".into()) };
        let next = again.write(8, 7, &What::Tool, &manner, &extra);
        let message: Value = serde_json::from_slice(&next.line).unwrap();
        assert_eq!(message["id"], 8);
        assert_eq!(message["params"]["arguments"], json!({"a": 1}));
        assert_eq!(message["params"]["inputResponses"], json!({"k": {"action": "accept"}}));
        assert_eq!(message["params"]["requestState"], "s");
        assert_eq!(next.headers, written.headers);
    }

    #[test]
    fn a_request_that_is_sent_again_says_the_same_in_the_manner_of_its_new_connection() {
        let modern = Manner::modern("2026-07-28", &ClientCapabilities::default(), true);
        let legacy = Manner::legacy("2025-11-25");
        let arguments = Arguments::Raw(br#"{"a": 1}"#.to_vec());
        let map = json!({"uri": "x", "_meta": {"mine": 1}}).as_object().unwrap().clone();
        let meta = map["_meta"].as_object();
        let tool = Params::Tool { name: "t", arguments: &arguments, headers: &[], meta };
        let none = Map::new();
        for (what, params) in [
            (What::Tool, tool),
            (What::Resource, Params::Object(&map)),
            (What::of("tools/list"), Params::Object(&none)),
            (What::of("tools/list"), Params::None),
        ] {
            for (from, to) in [(&legacy, &modern), (&modern, &legacy), (&modern, &modern), (&legacy, &legacy)]
            {
                for progress in [false, true] {
                    let token = progress.then_some(7);
                    let again = write(7, &what, &params, from, token).unwrap().again(&params, progress);
                    let next = again.write(9, 7, &what, to, &Extra::default());
                    let meant = write(9, &what, &params, to, token).unwrap();
                    let parse = |line: &[u8]| serde_json::from_slice::<Value>(line).unwrap();
                    let (mut next_line, mut meant_line) = (parse(&next.line), parse(&meant.line));
                    for line in [&mut next_line, &mut meant_line] {
                        // No parameters and empty ones are the same.
                        line.as_object_mut().unwrap().entry("params").or_insert(json!({}));
                    }
                    assert_eq!(next_line, meant_line);
                    assert_eq!(next.headers, meant.headers);
                }
            }
        }
    }
}

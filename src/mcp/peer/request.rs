//! A request: what it is called in texts for the model, and how it is written.

use std::{io::Write as _, sync::Arc, time::Duration};

use serde_json::{Map, Value};

use super::{
    super::{
        era::{self, Era, Manner, ParamHeader},
        wire::RpcError,
    },
    Again, Sink, cache,
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

/// The parameters of a request, but for `_meta`.
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
    },
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
}

/// A request as it goes out.
pub(super) struct Written {
    pub(super) line: Vec<u8>,
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

    /// What a further round of the request needs, where the era has such rounds.
    pub(super) fn again(&self, what: &What, manner: &Manner, token: Option<i64>) -> Option<Box<Again>> {
        let rounds = manner.era == Era::Modern && !matches!(what, What::Other(_));
        rounds.then(|| {
            let members = self.line[self.members.clone()].to_vec();
            Box::new(Again {
                method: what.method().to_owned(),
                members,
                headers: self.headers.clone(),
                token,
                rounds: 0,
            })
        })
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
    let own_meta = match params {
        Params::Object(map) => map.get("_meta").and_then(Value::as_object),
        _ => None,
    };
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
    /// Write the next round: the same request with what the server asked for.
    pub(super) fn write(
        &self,
        id: i64,
        manner: &Manner,
        answers: Map<String, Value>,
        state: Option<Value>,
    ) -> Written {
        let mut line = Vec::with_capacity(256 + manner.meta.len() + self.members.len());
        begin(&mut line, Some(id), &self.method);
        line.extend_from_slice(b",\"params\":{");
        // Without meta of the caller's own, which cannot fail to be written.
        let _ = meta(&mut line, manner, self.token, None);
        let start = line.len();
        line.extend_from_slice(&self.members);
        let mut extra = Map::new();
        if !answers.is_empty() {
            extra.insert("inputResponses".to_owned(), Value::Object(answers));
        }
        if let Some(state) = state {
            extra.insert("requestState".to_owned(), state);
        }
        if !extra.is_empty() {
            let text = Value::Object(extra).to_string();
            line.push(b',');
            line.extend_from_slice(&text.as_bytes()[1..text.len() - 1]);
        }
        let members = start..line.len();
        line.extend_from_slice(b"}}\n");
        Written { line, headers: self.headers.clone(), members }
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
        let legacy = line(&What::Resource, &Params::Object(&Map::new()), &Manner::legacy("x"), None);
        assert_eq!(legacy["params"], json!({}));
    }

    #[test]
    fn a_further_round_repeats_the_request_with_answers_and_state() {
        let manner = Manner::modern("2026-07-28", &ClientCapabilities::default(), true);
        let arguments = Arguments::Raw(b"{\n\"a\": 1}".to_vec());
        let params = Params::Tool { name: "t", arguments: &arguments, headers: &[] };
        let written = write(7, &What::Tool, &params, &manner, None).unwrap();
        let again = written.again(&What::Tool, &manner, None).unwrap();
        let answers = json!({"k": {"action": "accept"}}).as_object().unwrap().clone();
        let next = again.write(8, &manner, answers, Some("s".into()));
        let message: Value = serde_json::from_slice(&next.line).unwrap();
        assert_eq!(message["id"], 8);
        assert_eq!(message["params"]["arguments"], json!({"a": 1}));
        assert_eq!(message["params"]["inputResponses"], json!({"k": {"action": "accept"}}));
        assert_eq!(message["params"]["requestState"], "s");
        assert_eq!(next.headers, written.headers);
        assert!(written.again(&What::of("tools/list"), &manner, None).is_none());
    }
}

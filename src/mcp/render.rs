//! The result of a call, as a model is shown it.
//!
//! Text blocks are joined by newlines; a block of another kind is marked with what it is and how
//! large, and its data is never pasted. `structuredContent` is shown when there is no text.
//! Whatever a server puts into a block is shown as something: an odd block is no failure.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::transport::wire;
use crate::{Error, Result, ToolOutput};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    is_error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result_type: Option<&'a RawValue>,
}

/// The common case, decoded without a detour: a block with nothing but its text.
#[derive(Deserialize)]
struct TextBlock {
    #[serde(rename = "type")]
    kind: TextKind,
    text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum TextKind {
    Text,
}

/// Longest data of an unknown block that is shown.
const OPAQUE_SHOWN: usize = 200;

/// Render the result of `tools/call`.
///
/// # Errors
/// [`Error::Protocol`] when it is no result of a call at all.
pub fn call_result(raw: &RawValue) -> Result<ToolOutput> {
    let text = raw.get();
    if !text.starts_with('{') {
        return Err(Error::Protocol("the result is no object".to_owned()));
    }
    match serde_json::from_str::<CallResult<'_>>(text) {
        Ok(result) => output(&result),
        Err(error) => {
            let repaired = wire::repair(text);
            let again =
                repaired.as_deref().and_then(|text| serde_json::from_str::<CallResult<'_>>(text).ok());
            again.map_or_else(|| Err(Error::Protocol(error.to_string())), |result| output(&result))
        }
    }
}

fn output(result: &CallResult<'_>) -> Result<ToolOutput> {
    if let Some(kind) = result.result_type.map(RawValue::get)
        && kind != "\"complete\""
    {
        return Err(Error::Protocol(format!("results of the type {kind} are not supported")));
    }
    let mut text = match result.content {
        Some(content) => blocks(content)?,
        None => String::new(),
    };
    if text.is_empty() {
        text = match result.structured_content {
            Some(structured) => structured.get().to_owned(),
            None => "(no output)".to_owned(),
        };
    }
    let mut output = ToolOutput::text(text);
    output.is_error = result.is_error.is_some_and(|flag| matches!(flag.get(), "true" | "\"true\"" | "1"));
    output.structured = result.structured_content.map(ToOwned::to_owned);
    Ok(output)
}

fn blocks(content: &RawValue) -> Result<String> {
    if let Ok(blocks) = serde_json::from_str::<Vec<TextBlock>>(content.get()) {
        let mut blocks = blocks.into_iter().map(|TextBlock { kind: TextKind::Text, text }| text);
        let mut all = blocks.next().unwrap_or_default();
        for text in blocks {
            all.push('\n');
            all.push_str(&text);
        }
        return Ok(all);
    }
    let content: Value = wire::from_str(content.get()).map_err(|error| Error::Protocol(error.to_string()))?;
    Ok(match content {
        Value::Array(items) => items.iter().map(block).collect::<Vec<_>>().join("\n"),
        // A single block, or a bare text, where a list of blocks belongs.
        Value::String(text) => text,
        other => block(&other),
    })
}

fn block(block: &Value) -> String {
    let text = |key: &str| block.get(key).and_then(Value::as_str);
    let mime = |fallback: &'static str| text("mimeType").unwrap_or(fallback).to_owned();
    match text("type") {
        Some("text") => text("text").map_or_else(|| "[text: no content]".to_owned(), str::to_owned),
        Some("image") => format!("[image: {}, {} bytes]", mime("unknown type"), decoded_length(text("data"))),
        Some("audio") => format!("[audio: {}, {} bytes]", mime("unknown type"), decoded_length(text("data"))),
        Some("resource_link") => {
            let uri = text("uri").unwrap_or("no address");
            match text("title").or_else(|| text("name")) {
                Some(name) => format!("[resource link: {name}, {uri}]"),
                None => format!("[resource link: {uri}]"),
            }
        }
        Some("resource") => embedded(block.get("resource").unwrap_or(&Value::Null)),
        _ => match block {
            Value::String(text) => text.clone(),
            other => opaque(other),
        },
    }
}

/// An embedded resource: its text is text, its data is not.
fn embedded(resource: &Value) -> String {
    let text = |key: &str| resource.get(key).and_then(Value::as_str);
    let uri = text("uri").unwrap_or("no address");
    match (text("text"), text("blob")) {
        (Some(content), _) => content.to_owned(),
        (None, blob) => format!(
            "[resource: {uri}, {}, {} bytes]",
            text("mimeType").unwrap_or("unknown type"),
            decoded_length(blob)
        ),
    }
}

fn opaque(block: &Value) -> String {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or("unknown block");
    let json = block.to_string();
    if json.len() <= OPAQUE_SHOWN {
        format!("[{kind}: {json}]")
    } else {
        format!("[{kind}: {} bytes of JSON]", json.len())
    }
}

/// How many bytes base64 stands for, also when it is wrapped into lines.
fn decoded_length(data: Option<&str>) -> usize {
    let significant =
        data.unwrap_or_default().bytes().filter(|b| !b.is_ascii_whitespace() && *b != b'=').count();
    significant * 3 / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(json: &str) -> (String, bool) {
        let raw = RawValue::from_string(json.to_owned()).unwrap();
        let output = call_result(&raw).unwrap();
        (output.as_text().unwrap().to_owned(), output.is_error)
    }

    #[test]
    fn text_blocks_are_joined_by_a_newline() {
        let json = r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b","annotations":{}}]}"#;
        assert_eq!(render(json), ("a\nb".into(), false));
    }

    #[test]
    fn nothing_at_all_is_no_output() {
        for json in ["{}", r#"{"content":[]}"#, r#"{"content":null,"isError":null}"#] {
            assert_eq!(render(json), ("(no output)".into(), false));
        }
    }

    #[test]
    fn structured_content_is_shown_only_without_text_and_always_kept() {
        let raw = RawValue::from_string(r#"{"content":[],"structuredContent":{"n": 1e400}}"#.into()).unwrap();
        let output = call_result(&raw).unwrap();
        assert_eq!(output.as_text(), Some(r#"{"n": 1e400}"#));
        assert_eq!(output.structured.unwrap().get(), r#"{"n": 1e400}"#);
        let json = r#"{"content":[{"type":"text","text":"t"}],"structuredContent":{"n":1}}"#;
        assert_eq!(render(json).0, "t");
    }

    #[test]
    fn data_is_marked_and_never_pasted() {
        let json = r#"{"content":[
            {"type":"image","mimeType":"image/png","data":"QUJD\nRA=="},
            {"type":"audio","data":"QUJD"},
            {"type":"resource","resource":{"uri":"f:///x","blob":"QUJD","mimeType":"application/zip"}},
            {"type":"resource","resource":{"uri":"f:///y","text":"inside"}},
            {"type":"resource_link","uri":"f:///z","name":"zed"}]}"#;
        assert_eq!(
            render(json).0,
            "[image: image/png, 4 bytes]\n[audio: unknown type, 3 bytes]\n\
             [resource: f:///x, application/zip, 3 bytes]\ninside\n[resource link: zed, f:///z]"
        );
    }

    #[test]
    fn odd_blocks_are_opaque_and_no_failure() {
        let json =
            r#"{"content":[{"type":"text","text":null},{"type":"video","x":1},7,"bare",{}],"isError":true}"#;
        let (text, is_error) = render(json);
        assert!(is_error);
        assert_eq!(
            text,
            "[text: no content]\n[video: {\"type\":\"video\",\"x\":1}]\n[unknown block: 7]\nbare\n[unknown block: {}]"
        );
        let big = format!(r#"{{"content":[{{"type":"video","data":"{}"}}]}}"#, "A".repeat(1000));
        assert_eq!(render(&big).0, "[video: 1026 bytes of JSON]");
    }

    #[test]
    fn lone_surrogates_and_nan_are_repaired() {
        assert_eq!(render(r#"{"content":[{"type":"text","text":"a\ud800b"}]}"#).0, "a\u{fffd}b");
    }

    #[test]
    fn an_unknown_result_type_is_an_error() {
        let raw = RawValue::from_string(r#"{"resultType":"input_required"}"#.into()).unwrap();
        assert!(call_result(&raw).is_err());
        assert!(call_result(&RawValue::from_string("[]".into()).unwrap()).is_err());
    }
}

//! What servers answer, as a model is shown it: results of calls, resources and prompts.
//!
//! Text blocks are joined by newlines; data becomes a file in the store ([`artifacts`]), or a mark
//! that says what it is and how large, and is never pasted. Images of a call become the JSON that
//! the reference makes of them. `structuredContent` is shown when there is no text. Whatever a
//! server puts into a block is shown as something: an odd block is no failure, and neither is a
//! full disk.
//!
//! Text alone is decoded in one pass; everything else goes block by block through `blocks`.
//! All of this may write files, so that it may block: see [`may_block`].
//!
//! [`artifacts`]: super::artifacts

mod blocks;
mod image;
mod limit;
mod members;
mod structured;

use std::{borrow::Cow, sync::Arc};

use serde::Deserialize;
use serde_json::value::RawValue;

pub(super) use self::limit::floor_boundary;
use self::{
    blocks::{Lookup, Page},
    members::Members,
};
use super::{artifacts::Store, wire};
use crate::{Error, Result, ToolOutput};

/// How results of one tool, resource or prompt are rendered.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Where data goes; without it data is only marked.
    pub artifacts: Option<Arc<Store>>,
    /// Longest text in bytes; of a longer one a preview is shown. `None`: no limit.
    pub max_result_bytes: Option<usize>,
    /// The server's name in the configuration.
    pub server: Arc<str>,
    /// The name of the tool, for the log.
    pub tool: Arc<str>,
}

impl RenderOptions {
    /// No store and no limit.
    pub fn new(server: impl Into<Arc<str>>, tool: impl Into<Arc<str>>) -> Self {
        Self { artifacts: None, max_result_bytes: None, server: server.into(), tool: tool.into() }
    }
}

/// The common case, decoded without a detour: a result with nothing but texts.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Plain<'a> {
    content: Vec<TextBlock>,
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    is_error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result_type: Option<&'a RawValue>,
}

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

/// What is shown when there is nothing to show.
const NO_OUTPUT: &str = "(no output)";

/// Render the result of `tools/call`.
///
/// `arguments` gives what the call was given under a name, as text; `prompt` and `model` are
/// recorded with an image, and asked for only then.
///
/// # Errors
/// [`Error::Protocol`] when it is no complete result of a call at all.
pub fn call_result(
    raw: &RawValue,
    options: &RenderOptions,
    arguments: &dyn Fn(&str) -> Option<String>,
) -> Result<ToolOutput> {
    let json = object(raw)?;
    if let Ok(plain) = serde_json::from_str::<Plain<'_>>(json) {
        complete(plain.result_type.map(RawValue::get))?;
        let texts =
            plain.content.into_iter().map(|TextBlock { kind: TextKind::Text, text }| Cow::Owned(text));
        let mut page = Page::new(options, None);
        let text = instead(join(texts), plain.structured_content.map(RawValue::get), &mut page);
        let text = limit::fit(text.unwrap_or_else(|| NO_OUTPUT.to_owned()), options);
        return Ok(output(text, plain.structured_content, plain.is_error.map(RawValue::get)));
    }
    let repaired = repaired(json);
    let result = members(repaired.as_deref().unwrap_or(json))?;
    complete(result.get("resultType"))?;
    let structured = result.get("structuredContent");
    let mut page = Page::new(options, Some(arguments as Lookup<'_>));
    match result.get("content") {
        // The reference iterates over the content.
        Some(content) if structured.is_none() && !content.starts_with(['[', '{', '"']) => {
            return Ok(malformed("TypeError"));
        }
        Some(content) => page.blocks(content),
        None => {}
    }
    let (texts, images) = page.take();
    let text = if images.is_empty() {
        let text = instead(join(texts.into_iter()), structured, &mut page);
        limit::fit(text.unwrap_or_else(|| NO_OUTPUT.to_owned()), options)
    } else {
        let text = join(texts.into_iter().filter(|text| !text.is_empty()));
        let text = instead(text, structured, &mut page).unwrap_or_default();
        image::result(&images, &limit::fit(text, options))?
    };
    let structured = structured.and_then(|json| serde_json::from_str::<&RawValue>(json).ok());
    Ok(output(text, structured, result.get("isError")))
}

/// Render the result of `resources/read`.
///
/// # Errors
/// [`Error::Protocol`] when it is no complete result at all.
pub fn resource_result(raw: &RawValue, options: &RenderOptions) -> Result<ToolOutput> {
    read(raw, options, "contents", |page, json| page.contents(json))
}

/// Render the result of `prompts/get`: the contents of its messages.
///
/// # Errors
/// [`Error::Protocol`] when it is no complete result at all.
pub fn prompt_result(raw: &RawValue, options: &RenderOptions) -> Result<ToolOutput> {
    read(raw, options, "messages", |page, json| page.messages(json))
}

/// The failure of a call whose content has no meaning; `kind` is what is wrong, as Python would
/// name the exception.
#[must_use]
pub fn malformed(kind: &str) -> ToolOutput {
    ToolOutput::error(format!("(MCP tool returned malformed content: {kind})"))
}

/// Whether rendering a result is likely to write a file: then it does not belong on a thread that
/// others wait for. Tells by a quick look for the signs of data, so that a few small files escape it.
#[must_use]
pub fn may_block(raw: &RawValue, options: &RenderOptions) -> bool {
    const LARGE: usize = 16 << 10;
    let json = raw.get().as_bytes();
    let has = |sign: &str| memchr::memmem::find(json, sign.as_bytes()).is_some();
    options.artifacts.is_some()
        && (options.max_result_bytes.is_some_and(|limit| json.len() > limit)
            || has("\"data\"")
            || has("\"blob\"")
            || has("\"data:")
            || (json.len() > LARGE && has("\"structuredContent\"")))
}

fn read(
    raw: &RawValue,
    options: &RenderOptions,
    member: &str,
    fill: impl for<'p> Fn(&mut Page<'p>, &'p str),
) -> Result<ToolOutput> {
    let json = object(raw)?;
    let repaired = repaired(json);
    let result = members(repaired.as_deref().unwrap_or(json))?;
    complete(result.get("resultType"))?;
    let mut page = Page::new(options, None);
    if let Some(list) = result.get(member) {
        fill(&mut page, list);
    }
    let text = join(page.take().0.into_iter());
    Ok(ToolOutput::text(limit::fit(if text.is_empty() { NO_OUTPUT.to_owned() } else { text }, options)))
}

fn object(raw: &RawValue) -> Result<&str> {
    let json = raw.get().trim_start();
    if json.starts_with('{') { Ok(json) } else { Err(Error::Protocol("the result is no object".to_owned())) }
}

/// The text with lone surrogates replaced, if it may have any: strings with them do not decode.
fn repaired(json: &str) -> Option<String> {
    let suspect =
        ["\\ud", "\\uD"].iter().any(|sign| memchr::memmem::find(json.as_bytes(), sign.as_bytes()).is_some());
    if suspect { wire::repair(json) } else { None }
}

fn members(json: &str) -> Result<Members<'_>> {
    Members::of(json).ok_or_else(|| Error::Protocol("the result cannot be read".to_owned()))
}

/// Refuses results that are not the end of the matter.
fn complete(result_type: Option<&str>) -> Result<()> {
    match result_type {
        None | Some("\"complete\"" | "null") => Ok(()),
        Some(kind) => {
            let kind = &kind[..floor_boundary(kind, 100)];
            Err(Error::Protocol(format!("results of the type {kind} are not supported")))
        }
    }
}

/// The text, or `structuredContent` instead, if there is either.
fn instead(text: String, structured: Option<&str>, page: &mut Page<'_>) -> Option<String> {
    if text.is_empty() {
        structured.map(|json| structured::shown(json, page).into_owned())
    } else {
        Some(text)
    }
}

fn join<'a>(mut texts: impl Iterator<Item = Cow<'a, str>>) -> String {
    // A single text is moved and not copied.
    let mut all = texts.next().map(Cow::into_owned).unwrap_or_default();
    for text in texts {
        all.push('\n');
        all.push_str(&text);
    }
    all
}

fn output(text: String, structured: Option<&RawValue>, is_error: Option<&str>) -> ToolOutput {
    let mut output = ToolOutput::text(text);
    output.is_error = is_error.is_some_and(truthy);
    output.structured = structured.map(ToOwned::to_owned);
    output
}

/// `true` as servers write it.
fn truthy(json: &str) -> bool {
    let word = json.trim_matches('"').trim();
    word.eq_ignore_ascii_case("true") || word.parse::<f64>().is_ok_and(|number| number != 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(raw: &RawValue) -> Result<ToolOutput> {
        call_result(raw, &RenderOptions::new("s", "t"), &|_| None)
    }

    fn render(json: &str) -> (String, bool) {
        let raw = RawValue::from_string(json.to_owned()).unwrap();
        let output = rendered(&raw).unwrap();
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
        let output = rendered(&raw).unwrap();
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
        assert!(rendered(&raw).is_err());
        assert!(rendered(&RawValue::from_string("[]".into()).unwrap()).is_err());
    }
}

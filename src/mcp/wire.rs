//! One JSON-RPC message, understood as far as it can be.
//!
//! Servers echo ids as strings or floats, omit `jsonrpc`, write NaN and lone surrogates, print
//! banners. What can be repaired is repaired; of what cannot, the id is salvaged, so that the
//! call that waits for it can fail at once. Nothing here knows who waits.

use std::borrow::Cow;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// The members of a message that decide what it is.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(borrow, default)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// An error as the server meant it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

/// JSON-RPC's "internal error", for errors that carry no usable code of their own.
pub(super) const INTERNAL: i64 = -32603;

/// The text of a line: without BOM and surrounding white space, invalid UTF-8 replaced.
pub(super) fn text(line: &[u8]) -> Cow<'_, str> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    String::from_utf8_lossy(line.trim_ascii())
}

/// The id that was sent, from what the server made of it: `7`, `"7"`, `7.0`.
pub(super) fn sent_id(raw: &str) -> Option<i64> {
    let text = raw.trim().trim_matches('"').trim();
    text.parse().ok().or_else(|| {
        let float: f64 = text.parse().ok()?;
        // Up to 2^53 a float names one integer.
        #[expect(clippy::cast_possible_truncation, reason = "integral and within 2^53")]
        (float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0).then_some(float as i64)
    })
}

/// Whatever a server puts into `error`, as code and message.
pub(super) fn rpc_error(raw: &str) -> RpcError {
    let value = from_str::<Value>(raw).unwrap_or_else(|_| Value::String(raw.to_owned()));
    let Value::Object(mut map) = value else {
        let message = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        return RpcError { code: INTERNAL, message, data: None };
    };
    let message = match map.get("message") {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => raw.to_owned(),
    };
    let (code, message) = match map.get("code") {
        Some(Value::String(text)) => match text.trim().parse() {
            Ok(code) => (code, message),
            Err(_) => (INTERNAL, format!("{message} ({text})")),
        },
        Some(code) => (sent_id(&code.to_string()).unwrap_or(INTERNAL), message),
        None => (INTERNAL, message),
    };
    RpcError { code, message, data: map.shift_remove("data") }
}

/// Decode, and decode again after [`repair`] if that fails.
pub(super) fn from_str<T: serde::de::DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str(text).or_else(|error| match repair(text) {
        Some(repaired) => serde_json::from_str(&repaired),
        None => Err(error),
    })
}

/// A result as JSON. Where it cannot be read as a whole (nested too deeply, say), its lists are
/// read item by item, with null for an item that cannot be read, so that it costs only itself.
pub(super) fn by_parts(raw: &RawValue) -> serde_json::Result<Value> {
    let error = match from_str::<Value>(raw.get()) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let Ok(members) = serde_json::from_str::<IndexMap<String, &RawValue>>(raw.get()) else {
        return Err(error);
    };
    let part = |raw: &RawValue| from_str::<Value>(raw.get()).unwrap_or(Value::Null);
    let members = members.into_iter().map(|(key, raw)| {
        let value = match serde_json::from_str::<Vec<&RawValue>>(raw.get()) {
            Ok(items) => Value::Array(items.into_iter().map(part).collect()),
            Err(_) => part(raw),
        };
        (key, value)
    });
    Ok(Value::Object(members.collect()))
}

/// `text` with what JSON does not allow replaced: NaN and infinities by null, lone surrogates by
/// U+FFFD, raw control characters in strings by escapes. `None` if there is nothing to replace.
pub(super) fn repair(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    // Everything before `kept` is in `out`; slices end at ASCII bytes, so at char boundaries.
    let mut kept = 0;
    let mut at = 0;
    let mut in_string = false;
    while let Some(&byte) = bytes.get(at) {
        let (length, replacement) = if in_string {
            match byte {
                b'"' => {
                    in_string = false;
                    (1, None)
                }
                b'\\' => escape(bytes, at),
                0..=0x1F => (1, Some(format!("\\u{byte:04x}"))),
                _ => (1, None),
            }
        } else if byte == b'"' {
            in_string = true;
            (1, None)
        } else {
            match ["NaN", "-Infinity", "Infinity", "-NaN"]
                .iter()
                .find(|word| bytes[at..].starts_with(word.as_bytes()))
            {
                Some(word) => (word.len(), Some("null".to_owned())),
                None => (1, None),
            }
        };
        if let Some(replacement) = replacement {
            out.push_str(&text[kept..at]);
            out.push_str(&replacement);
            kept = at + length;
        }
        at += length;
    }
    if kept == 0 {
        return None;
    }
    out.push_str(text.get(kept..).unwrap_or_default());
    Some(out)
}

/// The length of the escape at `at`, and what to put in its place if it is a lone surrogate.
fn escape(bytes: &[u8], at: usize) -> (usize, Option<String>) {
    let unit = |at: usize| -> Option<u32> {
        let hex = bytes.get(at..at + 6)?;
        if !hex.starts_with(b"\\u") {
            return None;
        }
        u32::from_str_radix(std::str::from_utf8(&hex[2..]).ok()?, 16).ok()
    };
    match unit(at) {
        Some(0xD800..=0xDBFF) => match unit(at + 6) {
            Some(0xDC00..=0xDFFF) => (12, None),
            _ => (6, Some("\\ufffd".to_owned())),
        },
        Some(0xDC00..=0xDFFF) => (6, Some("\\ufffd".to_owned())),
        Some(_) => (6, None),
        // A two-byte escape; the second byte may begin a longer character.
        None => (if bytes.get(at + 1).is_some_and(u8::is_ascii) { 2 } else { 1 }, None),
    }
}

/// Finds `"id": <number or string>` at the top level of an object that may be broken anywhere.
#[derive(Debug, Default)]
pub(super) struct IdScanner {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The string read last at depth 1, as far as it can matter.
    word: Vec<u8>,
    state: Scan,
    token: Vec<u8>,
    found: Vec<i64>,
    /// Look at the objects in an array, and for all their ids.
    batch: bool,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum Scan {
    #[default]
    Outside,
    /// After the colon of `"id":`.
    Value,
}

/// Longer than any id that was sent, as a string or a float.
const MAX_TOKEN: usize = 32;

impl IdScanner {
    pub(super) fn id(&self) -> Option<i64> {
        self.found.first().copied()
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if !self.batch && !self.found.is_empty() {
                return;
            }
            self.step(byte);
        }
    }

    fn step(&mut self, byte: u8) {
        if self.state == Scan::Value {
            match byte {
                b',' | b'}' | b']' | b'\r' | b'\n' => {
                    self.found.extend(std::str::from_utf8(&self.token).ok().and_then(sent_id));
                    self.token.clear();
                    self.state = Scan::Outside;
                }
                _ if self.token.len() >= MAX_TOKEN || byte == b'{' || byte == b'[' => {
                    self.token.clear();
                    self.state = Scan::Outside;
                }
                _ => {
                    self.token.push(byte);
                    return;
                }
            }
        }
        if self.in_string {
            if self.escaped {
                self.escaped = false;
            } else if byte == b'\\' {
                self.escaped = true;
            } else if byte == b'"' {
                self.in_string = false;
                return;
            }
            if self.word.len() < 3 {
                self.word.push(byte);
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.word.clear();
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b':' if self.depth == 1 + u32::from(self.batch) && self.word == b"id" => self.state = Scan::Value,
            _ => {}
        }
    }
}
/// The ids in a batch that cannot be decoded.
pub(super) fn salvage_ids(line: &str) -> Vec<i64> {
    let mut scanner = IdScanner { batch: true, ..IdScanner::default() };
    scanner.feed(line.as_bytes());
    scanner.feed(b"\n");
    scanner.found
}

/// The id in a line that cannot be decoded.
pub(super) fn salvage_id(line: &str) -> Option<i64> {
    let mut scanner = IdScanner::default();
    scanner.feed(line.as_bytes());
    scanner.feed(b"\n");
    scanner.id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_to_the_number_that_was_sent() {
        for raw in ["7", "\"7\"", "7.0", " 7 ", "\"7.0\"", "7e0"] {
            assert_eq!(sent_id(raw), Some(7), "{raw}");
        }
        for raw in ["7.5", "\"x\"", "null", "1e300", "NaN", "[7]"] {
            assert_eq!(sent_id(raw), None, "{raw}");
        }
    }

    #[test]
    fn errors_of_every_shape_keep_their_text() {
        let of = |raw| {
            let error = rpc_error(raw);
            (error.code, error.message)
        };
        assert_eq!(of(r#"{"code":-3,"message":"m"}"#), (-3, "m".into()));
        assert_eq!(of(r#"{"code":"-3","message":"m"}"#), (-3, "m".into()));
        assert_eq!(of(r#"{"code":-3.0,"message":"m"}"#), (-3, "m".into()));
        assert_eq!(of(r#"{"code":"EBAD","message":"m"}"#), (INTERNAL, "m (EBAD)".into()));
        assert_eq!(of(r#""plain""#), (INTERNAL, "plain".into()));
        assert_eq!(of("[1]"), (INTERNAL, "[1]".into()));
        assert_eq!(of(r#"{"code":1}"#), (1, r#"{"code":1}"#.into()));
    }

    #[test]
    fn what_json_forbids_is_repaired() {
        assert_eq!(
            repair(r#"{"a": [NaN, -Infinity], "b": "NaN"}"#).unwrap(),
            r#"{"a": [null, null], "b": "NaN"}"#
        );
        assert_eq!(repair("{\"a\": \"x\ty\"}").unwrap(), r#"{"a": "x\u0009y"}"#);
        assert_eq!(
            repair(r#"["\ud83d\ude00", "\ud83d", "\ude00\\ud800"]"#).unwrap(),
            r#"["\ud83d\ude00", "\ufffd", "\ufffd\\ud800"]"#
        );
        assert_eq!(repair(r#"{"a": "é\é\n"}"#), None);
    }

    #[test]
    fn repair_and_salvage_survive_any_input() {
        for text in [
            "\\",
            "\"\\",
            "\"\\u",
            "\"\\u12",
            "\"\\ud800\\",
            "\"\\ud800\\u",
            "NaNNaN",
            "\"é\\é",
            "{{{",
            "\"id\":",
        ] {
            let _ = repair(text);
            let _ = salvage_id(text);
        }
    }

    #[test]
    fn all_ids_are_salvaged_from_a_broken_batch() {
        let line = r#"[{"id":5,"result":{"id":1}},{"result":[{"id":2}],"id":"6"},{"id":7,"re"#;
        assert_eq!(salvage_ids(line), [5, 6, 7]);
        assert!(salvage_ids("[1, 2").is_empty());
    }

    #[test]
    fn an_id_is_salvaged_from_a_broken_line() {
        for (line, id) in [
            (r#"{"jsonrpc":"2.0","id":5,"result":{"x":"#, Some(5)),
            (r#"{"result":{"id":9,"s":"}\"id\":8"},oops,"id":"6"}"#, Some(6)),
            (r#"{"id":3"#, Some(3)),
            (r#"{"result":{"id":9}}"#, None),
            (r#"{"not id":4,"idx":4}"#, None),
            (r#"{"id":{"a":1},"result":1}"#, None),
        ] {
            assert_eq!(salvage_id(line), id, "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_and_repair_never_harms(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..80)) {
            let text = text(&bytes);
            let _ = (salvage_id(&text), rpc_error(&text), from_str::<Value>(&text));
            if let Some(repaired) = repair(&text) {
                proptest::prop_assert!(repair(&repaired).is_none());
            }
        }

        #[test]
        fn json_like_text_survives(text in r#"(\{|\}|\[|\]|"|:|,|\\\\|\\\\u|d[89c]00|NaN|-?Infinity|id|7|é|\t){0,40}"#) {
            let _ = (salvage_id(&text), rpc_error(&text));
            if let Some(repaired) = repair(&text) {
                proptest::prop_assert!(repair(&repaired).is_none(), "{repaired}");
            }
        }

        #[test]
        fn valid_json_means_the_same_after_repair(text in ".{0,40}") {
            let json = Value::String(text).to_string();
            proptest::prop_assert_eq!(repair(&json), None);
        }
    }
}

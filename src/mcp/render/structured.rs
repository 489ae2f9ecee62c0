//! `structuredContent` where it stands in for text: as the server wrote it, but for data.
//!
//! Some servers put the base64 of an image there a second time. Strings that are certain to be
//! data are found in the JSON's text, so that everything else, every digit of a number, stays.

use std::borrow::Cow;

use super::{blocks::Page, members::text};
use crate::mcp::artifacts::{Encoded, sniff};

/// Shorter strings are shown whatever they are.
const DATA_MIN: usize = 256;
/// How much of a string tells what it is.
const HEAD: usize = 64;

/// The JSON with data stored and marked.
pub(super) fn shown<'a>(json: &'a str, page: &mut Page<'_>) -> Cow<'a, str> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    // Everything before `kept` is in `out`.
    let (mut kept, mut at) = (0, 0);
    while let Some(start) = memchr::memchr(b'"', &bytes[at..]).map(|found| at + found) {
        let end = string_end(bytes, start + 1);
        let token = &json[start..end];
        if token.len() > DATA_MIN
            && is_data(&token[1..])
            && let Some(data) = text(token)
        {
            out.push_str(&json[kept..start]);
            let mark = serde_json::Value::String(page.data(&data));
            out.push_str(&mark.to_string());
            kept = end;
        }
        at = end;
    }
    if kept == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[kept..]);
    Cow::Owned(out)
}

/// Where a string ends whose content begins at `at`: behind its closing quote.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        // The escaped character is ASCII in JSON; `\u` and its digits hold neither sign.
        at += 2;
    }
    bytes.len()
}

/// Whether the content of a string is base64 of something known, or a `data:` URL of base64.
fn is_data(content: &str) -> bool {
    if Encoded::of_url(content).is_some_and(|url| url.is_base64()) {
        return true;
    }
    // PHP writes `/` as `\/`.
    let head: String = content.chars().take(HEAD * 2).filter(|c| *c != '\\').take(HEAD).collect();
    // Two bytes are too little to be certain by.
    let short = ["image/bmp", "image/jxl", "application/gzip", "audio/mpeg"];
    let told = Encoded::new(&head).decode(HEAD as u64).ok();
    told.and_then(|head| sniff(&head)).is_some_and(|mime| !short.contains(&mime))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::render::RenderOptions;

    fn show(json: &str) -> String {
        let options = RenderOptions::new("s", "t");
        shown(json, &mut Page::new(&options, None)).into_owned()
    }

    #[test]
    fn data_is_marked_and_everything_else_stays() {
        let png = format!("iVBORw0KGgow{}", "MDAw".repeat(100));
        let json =
            format!(r#"{{ "n": 1e400, "\"a\\": ["{png}", "x\"y"], "b": "data:image/png;base64,{png}" }}"#);
        let marked =
            r#"{ "n": 1e400, "\"a\\": ["[image/png, 309 bytes]", "x\"y"], "b": "[image/png, 309 bytes]" }"#;
        assert_eq!(show(&json), marked);
        let jpeg = format!(r#"["\/9j\/4AAQ{}"]"#, r"\/9j\/".repeat(100));
        assert_eq!(show(&jpeg), r#"["[image/jpeg, 306 bytes]"]"#);
    }

    #[test]
    fn what_may_be_no_data_is_shown() {
        for json in ["{}", r#"{"dna":"ACGT"}"#, r#""a\"#, "\"", r#"{"a":"é\u00e9"}"#] {
            assert_eq!(show(json), json);
        }
        for word in ["ACGT", "Qk1B", "deadbeef", "H4sI", "word "] {
            let json = format!(r#"["{}"]"#, word.repeat(200));
            assert_eq!(show(&json), json);
        }
        let short = r#"["iVBORw0KGgowMDAw"]"#;
        assert_eq!(show(short), short);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(json in r#"("|\\|\\u|é|iVBORw0KGgo[A-Z]{260}|data:;base64,[A-Z]{260}|\PC){0,12}"#) {
            let _ = show(&json);
        }
    }
}

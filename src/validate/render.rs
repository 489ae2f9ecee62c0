//! Values in error texts, written as the reference does: Python's notation.
//!
//! Only what a schema says is shown (limits, enumerated values), never what the caller sent.

use std::fmt::Write as _;

use serde_json::Value;

/// Longer enumerations are cut in texts.
const MAX_TEXT: usize = 4_000;

/// A value of a schema in Python's notation, cut when very long.
pub(super) fn python(value: &Value) -> String {
    let mut out = String::new();
    notate(value, &mut out, 0);
    clip(out, MAX_TEXT)
}

/// At most `limit` bytes of a text, with a mark where it was cut.
pub(super) fn clip(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

fn notate(value: &Value, out: &mut String, depth: usize) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => out.push_str(&python_float(float)),
            None => out.push_str(&number.to_string()),
        },
        Value::String(text) => quote(text, out),
        Value::Array(_) | Value::Object(_) if depth > 8 || out.len() > MAX_TEXT => out.push_str("..."),
        Value::Array(values) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                notate(value, out, depth + 1);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (name, value)) in members.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                quote(name, out);
                out.push_str(": ");
                notate(value, out, depth + 1);
            }
            out.push('}');
        }
    }
}

/// A float as Python's `repr` shows it: shortest digits, an exponent outside 1e-4..1e16.
pub(crate) fn python_float(value: f64) -> String {
    if value == 0.0 || (1e-4..1e16).contains(&value.abs()) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    match text.split_once('e').and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?))) {
        Some((digits, exponent)) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        None => text,
    }
}

/// `repr()` of a Python string: quotes as Python chooses them.
pub(crate) fn quote(text: &str, out: &mut String) {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == mark => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                let code = u32::from(c);
                let _ = write!(out, "\\x{code:02x}");
            }
            c => out.push(c),
        }
    }
    out.push(mark);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_read_as_python_writes_them() {
        let value = json!(["a'b", "c\"d", "e\n", 1, 2.0, 1e20, 1e-5, 0.1, null, true, {"k": []}]);
        assert_eq!(
            python(&value),
            r#"["a'b", 'c"d', 'e\n', 1, 2.0, 1e+20, 1e-05, 0.1, None, True, {'k': []}]"#
        );
    }

    #[test]
    fn a_long_enumeration_is_cut() {
        let value = json!(vec!["x".repeat(100); 1000]);
        assert!(python(&value).len() < 2 * MAX_TEXT);
    }
}

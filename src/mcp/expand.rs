//! `${VAR}` in the strings of a server entry.

use serde_json::Value;

/// Entries are a few levels deep; anything deeper is not an entry and is left as it is.
const MAX_DEPTH: usize = 32;

/// Replace each `${NAME}` in every string of `value`. Object keys are left alone.
///
/// # Errors
/// The name of the first variable that `lookup` does not know.
pub(super) fn expand(
    value: &mut Value,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> std::result::Result<(), String> {
    walk(value, lookup, 0)
}

fn walk(
    value: &mut Value,
    lookup: &dyn Fn(&str) -> Option<String>,
    depth: usize,
) -> std::result::Result<(), String> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    match value {
        Value::String(text) => {
            if text.contains("${") {
                *text = expand_text(text, lookup)?;
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| walk(item, lookup, depth + 1)),
        Value::Object(map) => map.values_mut().try_for_each(|item| walk(item, lookup, depth + 1)),
        _ => Ok(()),
    }
}

fn expand_text(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> std::result::Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, tail) = rest.split_at(at);
        out.push_str(before);
        match tail[2..].split_once('}') {
            Some((name, after)) if is_name(name) => {
                out.push_str(&lookup(name).ok_or_else(|| name.to_owned())?);
                rest = after;
            }
            // Not a reference (shell syntax, JSON in an argument): kept literally.
            _ => {
                out.push_str("${");
                rest = &tail[2..];
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lookup(name: &str) -> Option<String> {
        (name == "TOKEN").then(|| "secret ${HOME}".to_owned())
    }

    #[test]
    fn variables_are_replaced_in_any_string_and_not_expanded_twice() {
        let mut value = json!({"a": ["--x=${TOKEN}!"], "${TOKEN}": {"b": "${TOKEN}${TOKEN}"}, "n": 1});
        expand(&mut value, &lookup).unwrap();
        assert_eq!(
            value,
            json!({"a": ["--x=secret ${HOME}!"], "${TOKEN}": {"b": "secret ${HOME}secret ${HOME}"}, "n": 1})
        );
    }

    #[test]
    fn an_unset_variable_is_named() {
        assert_eq!(expand(&mut json!(["${NOPE}"]), &lookup), Err("NOPE".to_owned()));
    }

    #[test]
    fn what_is_no_reference_stays() {
        let mut value = json!(["${", "${}", "${a b}", "$TOKEN", "${1}", "${TOKEN"]);
        let before = value.clone();
        expand(&mut value, &lookup).unwrap();
        assert_eq!(value, before);
    }
}

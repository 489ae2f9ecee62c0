//! The root as providers want it: a plain object, without a reference or a union.
//!
//! Arguments are always an object, so that nothing is lost by saying so. Of a union the properties stay
//! visible; which of them go together is left to the check of the call.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{
    keywords::Object,
    merge::{both, gather, opened},
};

/// What providers refuse beside `type: object`.
const REFUSED: [&str; 8] =
    ["not", "enum", "const", "if", "then", "else", "dependentSchemas", "contentSchema"];

/// Make the root plain; `fold`: a union with null is marked as `nullable`. Whether anything was loosened.
pub(super) fn plain(root: &mut Object, fold: bool) -> bool {
    let plain = |keyword: &str| {
        !REFUSED.contains(&keyword) && !matches!(keyword, "$ref" | "allOf" | "anyOf" | "oneOf")
    };
    if root.keys().all(|keyword| plain(keyword)) {
        return false;
    }
    let defs = root.get("$defs").cloned();
    let mut names = Vec::new();
    let mut schema = opened(std::mem::take(root), defs.as_ref(), &mut names, 0);
    for keyword in ["anyOf", "oneOf"] {
        if let Some(Value::Array(branches)) = schema.shift_remove(keyword) {
            let mut branches: Vec<Object> = branches
                .into_iter()
                .filter_map(|branch| match branch {
                    Value::Object(branch) => Some(opened(branch, defs.as_ref(), &mut names, 0)),
                    _ => None,
                })
                .collect();
            let count = branches.len();
            branches.retain(|branch| branch.get("type").is_none_or(|kind| kind != "null"));
            if fold && branches.len() < count {
                schema.insert("nullable".to_owned(), true.into());
            }
            if let [_] = branches[..] {
                both(&mut schema, branches.remove(0));
            } else {
                gather(&mut schema, branches);
            }
        }
    }
    // Those of a branch that was merged in.
    for keyword in ["$ref", "allOf", "anyOf", "oneOf", "unevaluatedProperties"].iter().chain(&REFUSED) {
        schema.shift_remove(*keyword);
    }
    *root = schema;
    if !names.is_empty() {
        forget(root, &names);
    }
    true
}

/// Leave out definitions that were opened into the root, unless something else still names them.
fn forget(root: &mut Object, names: &[String]) {
    let mut todo = Vec::new();
    for (keyword, value) in &*root {
        if keyword != "$defs" {
            references(value, &mut todo);
        }
    }
    let Some(Value::Object(defs)) = root.get_mut("$defs") else { return };
    todo.extend(defs.keys().filter(|name| !names.contains(name)).cloned());
    let mut used = HashSet::new();
    while let Some(name) = todo.pop() {
        if !used.contains(&name) {
            if let Some(schema) = defs.get(&name) {
                references(schema, &mut todo);
            }
            used.insert(name);
        }
    }
    defs.retain(|name, _| used.contains(name));
    if defs.is_empty() {
        root.shift_remove("$defs");
    }
}

/// Names of the definitions that anything in `value` refers to, be it data.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let name = map.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/"));
            found.extend(name.map(str::to_owned));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// Complete a plain root.
pub(super) fn finish(root: &mut Object) {
    if root.get("type").is_none_or(|kind| kind != "object") {
        root.insert("type".to_owned(), "object".into());
    }
    if !root.get("properties").is_some_and(Value::is_object) {
        root.insert("properties".to_owned(), json!({}));
    }
    if !root.get("required").is_some_and(Value::is_array) {
        root.insert("required".to_owned(), json!([]));
    }
}

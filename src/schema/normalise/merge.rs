//! Several schemas as one that admits whatever they admit together.
//!
//! Where two of them disagree about a keyword, the first one's word is kept: both hold at once, so one of
//! them alone admits more.

use serde_json::{Value, json};

use super::keywords::{Object, any_of, is_annotation, types_of};

/// References that are followed from one place.
const MAX_HOPS: usize = 16;
/// Lists within lists that are opened.
const MAX_NESTING: usize = 8;

/// `first` and `second` at once.
pub(super) fn both(first: &mut Object, second: Object) {
    // What counts as evaluated differs once the two are one.
    let judged = |schema: &Object| schema.keys().any(|keyword| !is_annotation(keyword));
    if judged(first) && judged(&second) {
        for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
            first.shift_remove(keyword);
        }
    }
    let first_judges = judged(first);
    for (keyword, value) in second {
        if first_judges && keyword.starts_with("unevaluated") {
            continue;
        }
        let Some(held) = first.get_mut(&keyword) else {
            // `then` and `else` belong to the `if` beside them.
            if !matches!(keyword.as_str(), "then" | "else") || !first_judges {
                first.insert(keyword, value);
            }
            continue;
        };
        match (keyword.as_str(), held, value) {
            ("properties" | "patternProperties" | "$defs", Value::Object(held), Value::Object(more)) => {
                for (name, schema) in more {
                    held.entry(name).or_insert(schema);
                }
            }
            ("required", Value::Array(held), Value::Array(more)) => {
                for name in more {
                    if !held.contains(&name) {
                        held.push(name);
                    }
                }
            }
            ("allOf", Value::Array(held), Value::Array(mut more)) => held.append(&mut more),
            ("type", held, more) => {
                if let Some(common) = common_types(held, &more) {
                    *held = common;
                }
            }
            (keyword, held, more) if keyword.starts_with("min") || keyword == "exclusiveMinimum" => {
                stricter(held, more, |held, more| more > held);
            }
            (keyword, held, more) if keyword.starts_with("max") || keyword == "exclusiveMaximum" => {
                stricter(held, more, |held, more| more < held);
            }
            _ => {}
        }
    }
}

fn stricter(held: &mut Value, more: Value, is: impl Fn(f64, f64) -> bool) {
    if let (Some(a), Some(b)) = (held.as_f64(), more.as_f64())
        && is(a, b)
    {
        *held = more;
    }
}

fn common_types(held: &Value, more: &Value) -> Option<Value> {
    let list = |kinds: &Value| -> Vec<String> {
        match kinds {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            kind => kind.as_str().map(str::to_owned).into_iter().collect(),
        }
    };
    let (held, more) = (list(held), list(more));
    let mut common: Vec<Value> = Vec::new();
    for kind in &held {
        let admitted = |kinds: &[String], kind: &str| {
            kinds.iter().any(|k| k == kind || (kind == "integer" && k == "number"))
        };
        if admitted(&more, kind) {
            common.push(kind.as_str().into());
        } else if kind == "number" && more.iter().any(|k| k == "integer") {
            common.push("integer".into());
        }
    }
    match common.len() {
        0 => None,
        1 => common.pop(),
        _ => Some(Value::Array(common)),
    }
}

/// The definition that a reference into `$defs` names.
pub(super) fn definition<'a>(defs: Option<&'a Value>, reference: &str) -> Option<&'a Value> {
    defs?.get(reference.strip_prefix("#/$defs/")?)
}

/// A schema with its own reference followed and its `allOf` gathered in; names of the definitions that were
/// opened go to `opened`.
pub(super) fn opened(
    mut schema: Object,
    defs: Option<&Value>,
    names: &mut Vec<String>,
    nesting: usize,
) -> Object {
    for _ in 0..MAX_HOPS {
        let Some(Value::String(reference)) = schema.get("$ref") else { break };
        let target = definition(defs, reference).and_then(Value::as_object).cloned();
        if let Some(name) = reference.strip_prefix("#/$defs/") {
            names.push(name.to_owned());
        }
        schema.shift_remove("$ref");
        if let Some(target) = target {
            both(&mut schema, target);
        }
    }
    schema.shift_remove("$ref");
    if nesting < MAX_NESTING
        && let Some(Value::Array(all)) = schema.shift_remove("allOf")
    {
        for part in all {
            if let Value::Object(part) = part {
                let part = opened(part, defs, names, nesting + 1);
                both(&mut schema, part);
            }
        }
    }
    schema
}

/// Take the properties of the branches of a union into `schema`, and what all of them require.
///
/// A property that only some branches describe may be anything in the others, unless they refuse it.
pub(super) fn gather(schema: &mut Object, branches: Vec<Object>) {
    let is_object = |branch: &Object| types_of(branch).is_none_or(|types| types.contains(&"object"));
    let is_never = |branch: &Object| branch.get("not") == Some(&json!({}));
    let branches: Vec<Object> =
        branches.into_iter().filter(|branch| is_object(branch) && !is_never(branch)).collect();
    let properties = |branch: &'_ Object| match branch.get("properties") {
        Some(Value::Object(properties)) => Some(properties.clone()),
        _ => None,
    };
    let mut names: Vec<String> = Vec::new();
    let described: Vec<Option<Object>> = branches.iter().map(properties).collect();
    let own = properties(schema).unwrap_or_default();
    for name in described.iter().flatten().flat_map(Object::keys) {
        if !own.contains_key(name) && !names.contains(name) {
            names.push(name.clone());
        }
    }
    let mut added = Object::new();
    for name in names {
        let mut found = Vec::new();
        let mut open = false;
        for (branch, described) in branches.iter().zip(&described) {
            match described.as_ref().and_then(|properties| properties.get(&name)) {
                Some(schema) => found.push(schema.clone()),
                None => {
                    open |= branch.get("additionalProperties") != Some(&Value::Bool(false))
                        || branch.contains_key("patternProperties");
                }
            }
        }
        let union = alternatives(found, open);
        added.insert(name, union);
    }
    if !added.is_empty() {
        let mut own = own;
        own.append(&mut added);
        schema.insert("properties".to_owned(), Value::Object(own));
    }
    let lists: Vec<&Vec<Value>> =
        branches.iter().filter_map(|branch| branch.get("required").and_then(Value::as_array)).collect();
    if lists.len() == branches.len()
        && let Some((first, others)) = lists.split_first()
    {
        let common: Vec<Value> =
            first.iter().filter(|name| others.iter().all(|list| list.contains(name))).cloned().collect();
        if !common.is_empty() {
            let required = Object::from_iter([("required".to_owned(), Value::Array(common))]);
            both(schema, required);
        }
    }
}

/// What one of several schemas admits; `open`: or anything at all, of which they are examples.
fn alternatives(found: Vec<Value>, open: bool) -> Value {
    if let Some(listed) = listed(&found)
        && !open
    {
        return listed;
    }
    let mut union = any_of(found);
    let empty = union.as_object().is_some_and(Object::is_empty);
    if open && !empty {
        union = match union {
            Value::Object(mut map) if map.len() == 1 && map.contains_key("anyOf") => {
                if let Some(Value::Array(list)) = map.get_mut("anyOf")
                    && !list.contains(&json!({}))
                {
                    list.push(json!({}));
                }
                Value::Object(map)
            }
            one => json!({"anyOf": [one, {}]}),
        };
    }
    union
}

/// Single values, one in each schema (the tags of a tagged union), as one `enum`.
fn listed(schemas: &[Value]) -> Option<Value> {
    let mut values: Vec<Value> = Vec::new();
    let mut kind: Option<Option<&Value>> = None;
    for schema in schemas {
        let schema = schema.as_object()?;
        let only = |keyword: &String| matches!(keyword.as_str(), "type" | "const" | "enum" | "title");
        if !schema.keys().all(only) || kind.is_some_and(|kind| kind != schema.get("type")) {
            return None;
        }
        kind = Some(schema.get("type"));
        let more = match (schema.get("const"), schema.get("enum")) {
            (Some(value), None) => std::slice::from_ref(value),
            (None, Some(Value::Array(values))) => values,
            _ => return None,
        };
        for value in more {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
    }
    if schemas.len() < 2 {
        return None;
    }
    let mut listed = Object::new();
    if let Some(Some(kind)) = kind {
        listed.insert("type".to_owned(), kind.clone());
    }
    listed.insert("enum".to_owned(), Value::Array(values));
    Some(Value::Object(listed))
}

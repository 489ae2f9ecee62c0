//! JSON Schemas of servers as providers accept them.
//!
//! What the reference does for `OpenAI`: local references move into `$defs`, a union of one type
//! and null becomes that type with `nullable`, object schemas name their `properties` and
//! `required`. Besides, the root is always a plain object schema, since providers refuse a whole
//! request over one root with a union. Only schema positions are rewritten, never data (`default`,
//! `const`, `enum`, `examples`). The result is for the model alone; calls are checked against the
//! original. Any JSON value is accepted, however odd; depth and size are bounded.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Below this depth a schema admits anything: no model needs more, and the check of the call
/// goes by the original.
const MAX_DEPTH: usize = 64;
/// References that are moved into `$defs`; further ones stay as they are.
const MAX_REFS: usize = 512;
/// References that are followed from the root.
const MAX_HOPS: usize = 16;

/// Keywords whose value is a schema.
const ONE: [&str; 12] = [
    "items",
    "additionalProperties",
    "additionalItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contains",
    "propertyNames",
    "contentSchema",
    "not",
    "if",
    "then",
    "else",
];
/// Keywords whose value is a list of schemas.
const LIST: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords whose value is an object of schemas.
const MAP: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// What the outer schema of a nullable union says about itself, and the inner one must not change.
const ANNOTATIONS: [&str; 4] = ["title", "description", "default", "examples"];

/// The schema of a tool's arguments as `OpenAI` accepts it.
#[must_use]
pub fn normalise_openai(schema: &Value) -> Value {
    let Value::Object(map) = schema else {
        return json!({"type": "object", "properties": {}});
    };
    let mut root = nullable(plain_root(hoist(schema, map)), 0);
    finish_root(&mut root);
    Value::Object(root)
}

/// Move local references that point elsewhere than into `$defs` there.
fn hoist(root: &Value, map: &Map<String, Value>) -> Map<String, Value> {
    let mut refs = Refs { root, names: HashMap::new(), queue: Vec::new() };
    let mut result = refs.rewrite_map(map, 0);
    let mut moved = Map::new();
    let mut next = 0;
    while let Some((name, target)) = refs.queue.get(next).cloned() {
        next += 1;
        let target = refs.rewrite(target, 0);
        moved.insert(name, target);
    }
    if !moved.is_empty() {
        let mut defs = match result.shift_remove("$defs") {
            Some(Value::Object(defs)) => defs,
            _ => Map::new(),
        };
        defs.extend(moved);
        result.insert("$defs".to_owned(), Value::Object(defs));
    }
    result
}

struct Refs<'a> {
    root: &'a Value,
    names: HashMap<String, Option<String>>,
    /// Targets that are still to be rewritten. A queue, so that chains of references cost no
    /// stack.
    queue: Vec<(String, &'a Value)>,
}

impl<'a> Refs<'a> {
    fn rewrite(&mut self, schema: &'a Value, depth: usize) -> Value {
        match schema {
            Value::Object(map) if depth < MAX_DEPTH => Value::Object(self.rewrite_map(map, depth)),
            Value::Object(_) | Value::Array(_) if depth >= MAX_DEPTH => json!({}),
            other => other.clone(),
        }
    }

    fn rewrite_map(&mut self, schema: &'a Map<String, Value>, depth: usize) -> Map<String, Value> {
        let mut out = Map::with_capacity(schema.len());
        for (key, value) in schema {
            let value = match value {
                Value::String(reference) if key == "$ref" => {
                    self.reference(reference).map_or_else(|| value.clone(), Value::String)
                }
                Value::Object(map) if MAP.contains(&key.as_str()) => {
                    Value::Object(map.iter().map(|(k, v)| (k.clone(), self.rewrite(v, depth + 1))).collect())
                }
                Value::Array(items) if LIST.contains(&key.as_str()) => {
                    Value::Array(items.iter().map(|v| self.rewrite(v, depth + 1)).collect())
                }
                Value::Object(_) if ONE.contains(&key.as_str()) => self.rewrite(value, depth + 1),
                other => other.clone(),
            };
            out.insert(key.clone(), value);
        }
        out
    }

    /// The reference that replaces `reference`; `None` if it stays.
    fn reference(&mut self, reference: &str) -> Option<String> {
        if reference.starts_with("#/$defs/") {
            return None;
        }
        let pointer = percent_decode(reference.strip_prefix('#')?)?;
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return None;
        }
        if let Some(known) = self.names.get(reference) {
            return known.as_ref().map(|name| format!("#/$defs/{name}"));
        }
        let target = if self.queue.len() < MAX_REFS { self.resolve(&pointer) } else { None };
        let name = target.map(|target| {
            let digest = format!("{:x}", Sha256::digest(reference));
            let mut name = format!("ref_{}", &digest[..12]);
            while self.root.get("$defs").is_some_and(|defs| defs.get(&name).is_some()) {
                name.push('_');
            }
            self.queue.push((name.clone(), target));
            name
        });
        self.names.insert(reference.to_owned(), name.clone());
        name.map(|name| format!("#/$defs/{name}"))
    }

    fn resolve(&self, pointer: &str) -> Option<&'a Value> {
        let mut current = self.root;
        for part in pointer.split('/').skip(1) {
            let part = unescape(part);
            current = match current {
                Value::Object(map) => map.get(&part)?,
                Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some(current)
    }
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex =
            bytes.get(at + 1..at + 3).filter(|_| byte == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        if let Some(decoded) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            out.push(decoded);
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    String::from_utf8(out).ok()
}

/// The single branch beside null, if that is what the union is.
fn nullable_branch(options: Option<&Value>) -> Option<&Map<String, Value>> {
    let mut branch = None;
    let mut saw_null = false;
    for option in options?.as_array()? {
        let option = option.as_object()?;
        if option.get("type").is_some_and(|kind| kind == "null") {
            saw_null = true;
        } else if branch.replace(option).is_some() {
            return None;
        }
    }
    branch.filter(|_| saw_null)
}

fn nullable(mut schema: Map<String, Value>, depth: usize) -> Map<String, Value> {
    if depth > MAX_DEPTH {
        return schema;
    }
    let mut became_nullable = false;
    if let Some(Value::Array(types)) = schema.get("type") {
        let others: Vec<&Value> = types.iter().filter(|kind| *kind != "null").collect();
        if let [only] = others[..]
            && others.len() < types.len()
        {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
            became_nullable = true;
        }
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(branch) = nullable_branch(schema.get(key)).cloned() {
            schema.shift_remove(key);
            for (key, value) in branch {
                if !(ANNOTATIONS.contains(&key.as_str()) && schema.contains_key(&key)) {
                    schema.insert(key, value);
                }
            }
            became_nullable = true;
            break;
        }
    }
    if became_nullable {
        schema.insert("nullable".to_owned(), Value::Bool(true));
        if let Some(Value::Array(values)) = schema.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
    }
    for key in ["properties", "$defs"] {
        if let Some(Value::Object(map)) = schema.get_mut(key) {
            for value in map.values_mut() {
                nullable_in_place(value, depth);
            }
        }
    }
    if let Some(items) = schema.get_mut("items") {
        nullable_in_place(items, depth);
    }
    if schema.get("type").is_some_and(|kind| kind == "object") {
        schema.entry("properties").or_insert_with(|| json!({}));
        schema.entry("required").or_insert_with(|| json!([]));
    }
    schema
}

fn nullable_in_place(value: &mut Value, depth: usize) {
    if let Value::Object(map) = value {
        *map = nullable(std::mem::take(map), depth + 1);
    }
}

/// Make the root a plain object schema: a reference is followed, the properties of its unions
/// are gathered, and what providers refuse there is left to the check of the call.
fn plain_root(mut root: Map<String, Value>) -> Map<String, Value> {
    let defs = root.get("$defs").cloned().unwrap_or(Value::Null);
    let mut hops = 0;
    while let Some(Value::String(reference)) = root.get("$ref") {
        let target = local_def(&defs, reference).cloned();
        root.shift_remove("$ref");
        hops += 1;
        let Some(Value::Object(target)) = target.filter(|_| hops <= MAX_HOPS) else { break };
        for (key, value) in target {
            root.entry(key).or_insert(value);
        }
    }
    for (key, all) in [("allOf", true), ("anyOf", false), ("oneOf", false)] {
        // A root that may be null is still that object.
        if nullable_branch(root.get(key)).is_some_and(|branch| !branch.contains_key("$ref")) && key != "allOf"
        {
            continue;
        }
        if let Some(branches) = root.shift_remove(key) {
            gather(&mut root, &branches, &defs, all);
        }
    }
    for key in ["not", "enum", "const", "if", "then", "else"] {
        root.shift_remove(key);
    }
    root
}

fn local_def<'a>(defs: &'a Value, reference: &str) -> Option<&'a Value> {
    defs.get(unescape(reference.strip_prefix("#/$defs/")?))
}

/// Add the properties of the branches of a union, and what they require: of `allOf` everything,
/// of the others what every branch requires.
fn gather(root: &mut Map<String, Value>, branches: &Value, defs: &Value, all: bool) {
    let resolve = |branch: &Value| -> Option<Map<String, Value>> {
        let mut branch = branch.as_object()?;
        for _ in 0..MAX_HOPS {
            match branch.get("$ref").and_then(Value::as_str) {
                Some(reference) => branch = local_def(defs, reference)?.as_object()?,
                None => break,
            }
        }
        Some(branch.clone())
    };
    let branches: Vec<Map<String, Value>> =
        branches.as_array().map(|list| list.iter().filter_map(resolve).collect()).unwrap_or_default();
    let mut properties = match root.get("properties") {
        Some(Value::Object(map)) => map.clone(),
        _ => Map::new(),
    };
    let required_of = |branch: &Map<String, Value>| -> Vec<Value> {
        branch.get("required").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let mut required = required_of(root);
    for branch in &branches {
        if let Some(Value::Object(map)) = branch.get("properties") {
            for (name, schema) in map {
                properties.entry(name.clone()).or_insert_with(|| schema.clone());
            }
        }
    }
    let lists: Vec<Vec<Value>> = branches.iter().map(required_of).collect();
    for name in lists.iter().flatten() {
        if !required.contains(name) && (all || lists.iter().all(|list| list.contains(name))) {
            required.push(name.clone());
        }
    }
    if !properties.is_empty() {
        root.insert("properties".to_owned(), Value::Object(properties));
    }
    if !required.is_empty() {
        root.insert("required".to_owned(), Value::Array(required));
    }
}

fn finish_root(root: &mut Map<String, Value>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_schemas_come_out_as_in_the_reference() {
        for (schema, wanted) in [
            (json!("x"), json!({"type": "object", "properties": {}})),
            (json!({"type": "object"}), json!({"type": "object", "properties": {}, "required": []})),
            (
                json!({"type": "object", "properties": {
                    "a": {"type": ["string", "null"]},
                    "b": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": null},
                    "c": {"type": "array", "items": {"type": ["null", "object"]}},
                    "d": {"type": ["string", "integer", "null"]},
                    "e": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
                    "required": ["a"]}),
                json!({"type": "object", "properties": {
                    "a": {"type": "string", "nullable": true},
                    "b": {"default": null, "type": "integer", "minimum": 1, "nullable": true},
                    "c": {"type": "array", "items":
                        {"type": "object", "nullable": true, "properties": {}, "required": []}},
                    "d": {"type": ["string", "integer", "null"]},
                    "e": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
                    "required": ["a"]}),
            ),
        ] {
            assert_eq!(normalise_openai(&schema), wanted);
        }
    }

    #[test]
    fn local_references_move_into_defs_and_recursion_ends() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"next": {"$ref": "#/properties/a"}}},
            "b": {"$ref": "#/definitions/x%20y"}, "c": {"$ref": "#/nowhere"}, "d": {"$ref": "http://h/s"}},
            "definitions": {"x y": {"type": "string"}}});
        let out = normalise_openai(&schema);
        let target = out["properties"]["b"]["$ref"].as_str().unwrap();
        assert!(target.starts_with("#/$defs/ref_"), "{target}");
        assert_eq!(out.pointer(&target[1..]), Some(&json!({"type": "string"})));
        let next = out["properties"]["a"]["properties"]["next"]["$ref"].as_str().unwrap();
        assert_eq!(out.pointer(&next[1..]).unwrap()["properties"]["next"]["$ref"], next);
        assert_eq!(out["properties"]["c"], json!({"$ref": "#/nowhere"}));
        assert_eq!(out["properties"]["d"], json!({"$ref": "http://h/s"}));
    }

    #[test]
    fn data_is_left_alone() {
        let data = json!({"$ref": "#/properties/x", "type": ["string", "null"]});
        let schema = json!({"type": "object", "properties": {
            "x": {"default": data, "const": data, "enum": [data], "examples": [data]},
            "$ref": {"type": "string"}, "type": {"type": "string"}}});
        let out = normalise_openai(&schema);
        assert_eq!(out["properties"], schema["properties"]);
    }

    #[test]
    fn the_outer_description_wins_and_null_leaves_enum() {
        let schema = json!({"type": "object", "properties": {"x": {"description": "outer", "anyOf": [
            {"type": "string", "description": "inner", "enum": ["a", null]}, {"type": "null"}]}}});
        assert_eq!(
            normalise_openai(&schema)["properties"]["x"],
            json!({"description": "outer", "type": "string", "enum": ["a"], "nullable": true})
        );
    }

    #[test]
    fn the_root_is_always_a_plain_object() {
        for schema in [
            json!({}),
            json!({"type": "string"}),
            json!({"properties": null, "required": true}),
            json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}),
            json!({"oneOf": [{"properties": {"a": {}}, "required": ["a"]}, true], "not": {}, "enum": [1]}),
            json!({"anyOf": [{"type": "object"}, {"type": "null"}]}),
            json!({"$ref": "#"}),
        ] {
            let out = normalise_openai(&schema);
            assert_eq!(out["type"], "object", "{schema}");
            assert!(out["properties"].is_object() && out["required"].is_array());
            for key in ["$ref", "oneOf", "anyOf", "allOf", "not", "enum"] {
                assert!(out.get(key).is_none(), "{schema} keeps {key}");
            }
        }
    }

    #[test]
    fn unions_at_the_root_show_their_properties() {
        let schema = json!({"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}],
            "$defs": {"A": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}});
        let out = normalise_openai(&schema);
        assert_eq!(out["properties"], json!({"a": {"type": "integer"}, "b": {"type": "string"}}));
        assert_eq!(out["required"], json!(["a", "b"]));
    }

    #[test]
    fn depth_is_bounded() {
        let mut schema = json!({"type": "string"});
        for _ in 0..500 {
            let properties = Map::from_iter([("x".to_owned(), schema)]);
            schema = Value::Object(Map::from_iter([("properties".to_owned(), Value::Object(properties))]));
        }
        let out = normalise_openai(&schema);
        assert_eq!(out.to_string().matches("properties").count(), MAX_DEPTH);
    }
}

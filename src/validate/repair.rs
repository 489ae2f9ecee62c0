//! Brings any schema, however odd, to JSON Schema 2020-12 that compiles.
//!
//! Plugins and servers ship schemas of every draft, and broken ones. What older drafts say
//! otherwise is translated; a keyword whose value is of no use is left out, and named in the warning,
//! so that the rest of the schema still counts. `nullable` becomes part of the types. References
//! to other documents are never followed.

use serde_json::{Map, Value, json};

use super::plan::resolve;

/// Schemas nested deeper are taken for "anything" from there on.
pub(super) const MAX_SCHEMA_DEPTH: usize = 96;

/// Keeps the values of an `enum` as they were written, for texts, when null was added to them.
pub(super) const WRITTEN_ENUM: &str = "x-written-enum";

/// A schema that compiles, and what had to be left out.
pub(super) struct Repaired {
    pub(super) schema: Value,
    pub(super) notes: Vec<String>,
}

pub(super) fn repair(schema: &Value) -> Repaired {
    let id = schema.get("$id").and_then(Value::as_str).map(|id| id.trim_end_matches('#').to_owned());
    let mut work = Repairer { id, notes: Vec::new() };
    let mut repaired = work.schema(schema, "", 0);
    let root = repaired.clone();
    work.references(&mut repaired, &root, 0);
    Repaired { schema: repaired, notes: work.notes }
}

struct Repairer {
    id: Option<String>,
    notes: Vec<String>,
}

impl Repairer {
    fn note(&mut self, at: &str, keyword: &str) {
        self.notes.push(format!("{at}/{keyword}"));
    }

    fn schema(&mut self, schema: &Value, at: &str, depth: usize) -> Value {
        match schema {
            Value::Bool(_) => schema.clone(),
            Value::Object(_) if depth >= MAX_SCHEMA_DEPTH => {
                self.notes.push(format!("{at} (nested too deeply)"));
                Value::Bool(true)
            }
            Value::Object(keywords) => Value::Object(self.keywords(keywords, at, depth)),
            _ => {
                self.notes.push(if at.is_empty() { "the schema itself".to_owned() } else { at.to_owned() });
                Value::Bool(true)
            }
        }
    }

    fn keywords(&mut self, keywords: &Map<String, Value>, at: &str, depth: usize) -> Map<String, Value> {
        let mut out = Map::new();
        for (keyword, value) in keywords {
            let below = format!("{at}/{}", escaped(keyword));
            let repaired = match keyword.as_str() {
                // One dialect for all: whatever draft it names, it was translated.
                "$schema" | "$vocabulary" | "nullable" | "contentEncoding" | "contentMediaType"
                | "contentSchema" | "format" | "$comment" | "default" | "examples" | "deprecated"
                | "readOnly" | "writeOnly" | "$recursiveRef" | "$recursiveAnchor" | "id" => continue,
                "$id" if at.is_empty() => continue,
                "$id" | "$anchor" | "$dynamicAnchor" | "$dynamicRef" => text(value),
                "title" | "description" => match text(value) {
                    None => continue,
                    some => some,
                },
                "$ref" => self.reference(value),
                "type" => types(value),
                "enum" => value.as_array().map(|_| value.clone()),
                "required" => names(value),
                "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
                | "minContains" | "maxContains" => count(value),
                "minimum" | "maximum" => value.is_number().then(|| value.clone()),
                "exclusiveMinimum" | "exclusiveMaximum" => match value {
                    Value::Number(_) => Some(value.clone()),
                    Value::Bool(_) => continue,
                    _ => None,
                },
                "multipleOf" => value.as_f64().filter(|divisor| *divisor > 0.0).map(|_| value.clone()),
                "uniqueItems" => value.is_boolean().then(|| value.clone()),
                "pattern" => value.as_str().filter(|pattern| compiles(pattern)).map(|_| value.clone()),
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                    self.schemas(keyword, value, &below, depth)
                }
                "dependentRequired" => value.as_object().map(|groups| {
                    groups.iter().filter_map(|(name, group)| Some((name.clone(), names(group)?))).collect()
                }),
                "dependencies" => {
                    self.dependencies(value, &mut out, &below, depth);
                    continue;
                }
                "items" | "additionalItems" => {
                    if !self.items(keyword, value, keywords, &mut out, &below, depth) {
                        self.note(at, keyword);
                    }
                    continue;
                }
                "prefixItems" | "allOf" | "anyOf" | "oneOf" => self.list(value, &below, depth),
                "additionalProperties"
                | "unevaluatedProperties"
                | "unevaluatedItems"
                | "contains"
                | "not"
                | "if"
                | "then"
                | "else"
                | "propertyNames" => is_schema(value).then(|| self.schema(value, &below, depth + 1)),
                // `const` and whatever is not a keyword at all.
                _ => Some(value.clone()),
            };
            match repaired {
                Some(value) => {
                    out.insert(keyword.clone(), value);
                }
                None => self.note(at, keyword),
            }
        }
        exclusive_bounds(keywords, &mut out);
        nulls(keywords, &mut out);
        out
    }

    fn schemas(&mut self, keyword: &str, value: &Value, at: &str, depth: usize) -> Option<Value> {
        let mut out = Map::new();
        for (name, schema) in value.as_object()? {
            let below = format!("{at}/{}", escaped(name));
            if keyword == "patternProperties" && !compiles(name) {
                self.notes.push(below);
                continue;
            }
            out.insert(name.clone(), self.schema(schema, &below, depth + 1));
        }
        Some(Value::Object(out))
    }

    fn list(&mut self, value: &Value, at: &str, depth: usize) -> Option<Value> {
        let schemas = value.as_array().filter(|schemas| !schemas.is_empty())?;
        let repaired = schemas
            .iter()
            .enumerate()
            .map(|(i, schema)| self.schema(schema, &format!("{at}/{i}"), depth + 1));
        Some(Value::Array(repaired.collect()))
    }

    /// Before 2020-12 a list under `items` was what `prefixItems` is now, and `additionalItems` the rest.
    fn items(
        &mut self,
        keyword: &str,
        value: &Value,
        keywords: &Map<String, Value>,
        out: &mut Map<String, Value>,
        at: &str,
        depth: usize,
    ) -> bool {
        let tuple = keywords.get("items").is_some_and(Value::is_array);
        if keyword == "additionalItems" {
            if tuple && is_schema(value) {
                let rest = self.schema(value, at, depth + 1);
                out.insert("items".to_owned(), rest);
            }
            return true;
        }
        if let Value::Array(schemas) = value {
            if !schemas.is_empty()
                && let Some(prefix) = self.list(value, at, depth)
            {
                out.insert("prefixItems".to_owned(), prefix);
            }
            return true;
        }
        if is_schema(value) {
            let items = self.schema(value, at, depth + 1);
            out.insert("items".to_owned(), items);
        }
        is_schema(value)
    }

    /// `dependencies` of the older drafts, split in two as 2019-09 did.
    fn dependencies(&mut self, value: &Value, out: &mut Map<String, Value>, at: &str, depth: usize) {
        let Value::Object(groups) = value else {
            self.notes.push(at.to_owned());
            return;
        };
        let (mut required, mut schemas) = (Map::new(), Map::new());
        for (name, group) in groups {
            if let Some(names) = names(group) {
                required.insert(name.clone(), names);
            } else if is_schema(group) {
                schemas
                    .insert(name.clone(), self.schema(group, &format!("{at}/{}", escaped(name)), depth + 1));
            }
        }
        for (keyword, groups) in [("dependentRequired", required), ("dependentSchemas", schemas)] {
            if !groups.is_empty() {
                out.entry(keyword).or_insert(Value::Object(groups));
            }
        }
    }

    /// References by the document's own name become local ones.
    fn reference(&self, value: &Value) -> Option<Value> {
        let reference = value.as_str()?;
        let local = self.id.as_deref().filter(|id| !id.is_empty()).and_then(|id| reference.strip_prefix(id));
        Some(match local {
            Some("") => json!("#"),
            Some(fragment) if fragment.starts_with('#') => json!(fragment),
            _ => value.clone(),
        })
    }

    /// Leave out references that lead nowhere, once the document stands.
    fn references(&mut self, schema: &mut Value, root: &Value, depth: usize) {
        if depth > 3 * MAX_SCHEMA_DEPTH {
            return;
        }
        match schema {
            Value::Object(keywords) => {
                if let Some(Value::String(reference)) = keywords.get("$ref") {
                    if let Some(found) = target(root, reference) {
                        keywords.insert("$ref".to_owned(), Value::String(found));
                    } else {
                        self.notes.push(format!("$ref {reference}"));
                        keywords.shift_remove("$ref");
                    }
                }
                for (keyword, value) in keywords.iter_mut() {
                    if !matches!(keyword.as_str(), "enum" | "const" | WRITTEN_ENUM) {
                        self.references(value, root, depth + 1);
                    }
                }
            }
            Value::Array(values) => {
                for value in values {
                    self.references(value, root, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// A reference that resolves; draft-07 tuples moved from `items` to `prefixItems`. A chain of
/// references that only leads back to itself says nothing.
fn target(root: &Value, reference: &str) -> Option<String> {
    let moved = reference.replace("/items/", "/prefixItems/");
    let found = [reference, &moved].into_iter().find(|r| resolve(root, r).is_some_and(is_schema))?;
    let mut at = resolve(root, found)?;
    for _ in 0..64 {
        match at.get("$ref").and_then(Value::as_str) {
            Some(next) => match resolve(root, next) {
                Some(schema) => at = schema,
                None => return Some(found.to_owned()),
            },
            None => return Some(found.to_owned()),
        }
    }
    None
}

const fn is_schema(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Bool(_))
}

fn text(value: &Value) -> Option<Value> {
    value.is_string().then(|| value.clone())
}

/// A count may be written `2.0`.
fn count(value: &Value) -> Option<Value> {
    if value.is_u64() {
        return Some(value.clone());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..=1e15).contains(n)).map(|n| json!(n as u64))
}

fn types(value: &Value) -> Option<Value> {
    let known = |name: &Value| {
        matches!(
            name.as_str(),
            Some("string" | "integer" | "number" | "boolean" | "array" | "object" | "null")
        )
    };
    match value {
        Value::Array(names) => {
            let mut kept: Vec<Value> = Vec::new();
            for name in names.iter().filter(|name| known(name)) {
                if !kept.contains(name) {
                    kept.push(name.clone());
                }
            }
            // An unknown type among them may admit anything.
            (!kept.is_empty() && names.iter().all(known)).then_some(Value::Array(kept))
        }
        name => known(name).then(|| name.clone()),
    }
}

fn names(value: &Value) -> Option<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for name in value.as_array()?.iter().filter(|name| name.is_string()) {
        if !kept.contains(name) {
            kept.push(name.clone());
        }
    }
    Some(Value::Array(kept))
}

/// Whether the engine takes the expression: it is asked itself, since its dialect is ECMA's.
fn compiles(pattern: &str) -> bool {
    let schema = json!({"pattern": pattern});
    std::panic::catch_unwind(|| jsonschema::options().offline().build(&schema).is_ok()).unwrap_or(false)
}

/// Draft 4 wrote `minimum: 1, exclusiveMinimum: true`.
fn exclusive_bounds(keywords: &Map<String, Value>, out: &mut Map<String, Value>) {
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if keywords.get(exclusive) == Some(&Value::Bool(true))
            && let Some(limit) = out.shift_remove(bound)
        {
            out.insert(exclusive.to_owned(), limit);
        }
    }
}

/// `nullable: true` admits null whatever else is said; so does null among the types, also beside
/// an `enum` without it.
fn nulls(keywords: &Map<String, Value>, out: &mut Map<String, Value>) {
    let nullable = keywords.get("nullable") == Some(&Value::Bool(true));
    if nullable {
        match out.get_mut("type") {
            Some(Value::Array(types)) if !types.contains(&json!("null")) => types.push(json!("null")),
            Some(name @ Value::String(_)) if *name != "null" => *name = json!([name.clone(), "null"]),
            _ => {}
        }
        if let Some(value) = out.shift_remove("const") {
            out.insert(WRITTEN_ENUM.to_owned(), json!([value.clone()]));
            out.insert("enum".to_owned(), json!([value]));
        }
        let branches = ["anyOf", "oneOf"].into_iter().find(|keyword| out.contains_key(*keyword));
        if let Some(Value::Array(branches)) = branches.and_then(|keyword| out.get_mut(keyword))
            && !branches.iter().any(|branch| branch.get("type") == Some(&json!("null")))
        {
            branches.push(json!({"type": "null"}));
        } else if branches.is_none() {
            for keyword in ["$ref", "allOf"] {
                if let Some(value) = out.shift_remove(keyword) {
                    out.insert("anyOf".to_owned(), json!([{keyword: value}, {"type": "null"}]));
                    break;
                }
            }
        }
    }
    let among = matches!(out.get("type"), Some(Value::Array(types)) if types.contains(&json!("null")));
    if (nullable || among)
        && let Some(Value::Array(values)) = out.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        let written = values.clone();
        values.push(Value::Null);
        out.entry(WRITTEN_ENUM).or_insert(Value::Array(written));
    }
}

/// A name as a segment of a JSON Pointer.
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

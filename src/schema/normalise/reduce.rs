//! Schemas for providers that know only a small part of JSON Schema: one type in each place, and unions of
//! such places.
//!
//! **Moonshot** publishes its dialect with a checker (MFJS, `walle`): `type` is asked for everywhere, but not
//! beside `anyOf` or `$ref`, which stand alone but for `title` and `description`; a list of types stands
//! alone as well; `$defs` are at the root; what is required is described. It leaves out what it does not
//! know, so that here only keywords that hold schemas are dropped.
//!
//! **Gemini** documents the `Schema` of its function declarations as a part of `OpenAPI` 3.0 and refuses
//! unknown fields: no references (they are written out, and cut where they come back to themselves), no
//! `additionalProperties`, `const`, `oneOf` or `allOf`; `enum` of strings only; `items` in each array; nothing
//! beside `anyOf`; null is `nullable`.
//!
//! Whatever cannot be said is left out, so that more is admitted, with one exception: to Gemini an array
//! always has elements of a type, so that arrays in arrays of what may be anything end at [`NESTED`].

use serde_json::{Value, json};

use super::{
    clean::MAX_DEPTH,
    keywords::{Object, TYPES, is_annotation, size, type_of, types_of},
    merge::{both, definition, gather},
};

/// References within references that are written out.
const MAX_INLINED: usize = 32;
/// Arrays in arrays that may hold anything, for Gemini.
const NESTED: usize = 2;
/// A list of values that Gemini takes no `enum` for is mentioned up to this length, in bytes.
const MAX_MENTION: usize = 200;

/// Keywords that mean something for one type only.
const OF_STRINGS: [&str; 5] = ["minLength", "maxLength", "pattern", "contentEncoding", "contentMediaType"];
const OF_NUMBERS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const OF_OBJECTS: [&str; 7] = [
    "properties",
    "required",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "propertyOrdering",
];
const OF_ARRAYS: [&str; 4] = ["items", "minItems", "maxItems", "uniqueItems"];
/// Keywords that neither provider knows and that hold schemas.
const DROPPED: [&str; 16] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contentSchema",
    "additionalItems",
    "prefixItems",
    "definitions",
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Moonshot,
    Gemini,
}

pub(super) struct Reducer {
    dialect: Dialect,
    defs: Option<Value>,
    /// Bytes of definitions that may still be written out.
    budget: usize,
    /// Definitions that are being written out.
    inside: Vec<String>,
}

/// Reduce a plain root.
pub(super) fn reduce(root: Object, dialect: Dialect, budget: usize) -> Object {
    let mut root = root;
    root.shift_remove("nullable");
    root.shift_remove("$schema");
    root.shift_remove("$id");
    let defs = root.shift_remove("$defs");
    let mut reducer = Reducer { dialect, defs, budget, inside: Vec::new() };
    let mut out = reducer.schema(root, 0);
    if dialect == Dialect::Moonshot
        && let Some(Value::Object(defs)) = reducer.defs.clone()
    {
        let defs: Object = defs.into_iter().map(|(name, schema)| (name, reducer.child(schema, 0))).collect();
        out.insert("$defs".to_owned(), Value::Object(defs));
    }
    out
}

impl Reducer {
    fn gemini(&self) -> bool {
        self.dialect == Dialect::Gemini
    }

    fn child(&mut self, schema: Value, depth: usize) -> Value {
        match schema {
            Value::Object(schema) if depth < MAX_DEPTH => Value::Object(self.schema(schema, depth)),
            _ => Value::Object(self.typed(Object::new(), depth)),
        }
    }

    fn schema(&mut self, mut schema: Object, depth: usize) -> Object {
        if !self.gemini() && schema.len() == 1 && schema.contains_key("$ref") {
            return schema;
        }
        let outside = self.inside.len();
        if !self.open(&mut schema) {
            self.inside.truncate(outside);
            return schema;
        }
        let union = match (schema.shift_remove("anyOf"), schema.shift_remove("oneOf")) {
            (Some(Value::Array(union)), _) | (_, Some(Value::Array(union))) => Some(union),
            _ => None,
        };
        let reduced = match union {
            Some(union) => self.union(schema, union, depth),
            None => self.typed(schema, depth),
        };
        self.inside.truncate(outside);
        reduced
    }

    /// Write out what stands behind `allOf` and, for Gemini, `$ref`. False if a reference had to be cut.
    fn open(&mut self, schema: &mut Object) -> bool {
        loop {
            if let Some(Value::String(reference)) = schema.shift_remove("$ref") {
                let Some(target) = self.written_out(&reference) else {
                    let cut = self.cut(&reference, schema);
                    *schema = cut;
                    return false;
                };
                both(schema, target);
                continue;
            }
            let Some(Value::Array(parts)) = schema.shift_remove("allOf") else { return true };
            let judged = |schema: &Object| schema.keys().any(|key| key != "nullable" && !is_annotation(key));
            if let [only] = &parts[..]
                && !self.gemini()
                && !judged(schema)
                && only.get("$ref").is_some()
            {
                schema.insert("anyOf".to_owned(), Value::Array(parts));
                return true;
            }
            for part in parts {
                let Value::Object(mut part) = part else { continue };
                if let Some(Value::String(reference)) = part.shift_remove("$ref")
                    && let Some(target) = self.written_out(&reference)
                {
                    both(&mut part, target);
                }
                // A reference behind a reference, for the next round.
                let nested = part.shift_remove("$ref");
                both(schema, part);
                if let Some(nested) = nested {
                    schema.entry("$ref").or_insert(nested);
                }
            }
            if !schema.contains_key("$ref") && !schema.contains_key("allOf") {
                return true;
            }
        }
    }

    /// A copy of a definition, unless it is being written already or too much was.
    fn written_out(&mut self, reference: &str) -> Option<Object> {
        let name = reference.strip_prefix("#/$defs/")?;
        if self.inside.len() >= MAX_INLINED || self.inside.iter().any(|inside| inside == name) {
            return None;
        }
        let target = definition(self.defs.as_ref(), reference)?;
        self.budget = self.budget.checked_sub(size(target))?;
        let target = target.as_object()?.clone();
        self.inside.push(name.to_owned());
        Some(target)
    }

    /// What stands for a definition that is not written out: its type alone.
    fn cut(&mut self, reference: &str, beside: &Object) -> Object {
        let target = definition(self.defs.as_ref(), reference).and_then(Value::as_object);
        let mut cut = Object::new();
        for schema in target.into_iter().chain([beside]) {
            for keyword in ["type", "description", "nullable"] {
                if let Some(value) = schema.get(keyword) {
                    cut.insert(keyword.to_owned(), value.clone());
                }
            }
        }
        self.typed(cut, MAX_DEPTH)
    }

    /// A schema that has a union beside whatever else it says.
    fn union(&mut self, mut schema: Object, branches: Vec<Value>, depth: usize) -> Object {
        if schema.keys().any(|keyword| restricts(keyword)) {
            // Both hold; the properties of the branches are shown beside the schema's own.
            if types_of(&schema).is_none_or(|types| types.contains(&"object")) {
                let mut names = Vec::new();
                let branches =
                    branches.into_iter().filter_map(|branch| self.branch(branch, &mut names)).collect();
                gather(&mut schema, branches);
                self.inside.append(&mut names);
            }
            return self.typed(schema, depth);
        }
        let kind = schema.shift_remove("type");
        let mut null = schema.shift_remove("nullable") == Some(Value::Bool(true));
        let mut list: Vec<Value> = Vec::with_capacity(branches.len());
        let mut add = |branch: Value, null: &mut bool| {
            if branch.get("type").is_some_and(|kind| kind == "null") {
                *null = true;
            } else if !list.contains(&branch) {
                list.push(branch);
            }
        };
        for branch in branches {
            let Value::Object(mut branch) = branch else { continue };
            if branch.get("type").is_some_and(|kind| kind == "null") {
                null = true;
                continue;
            }
            if let Some(kind) = &kind
                && !branch.contains_key("type")
                && (self.gemini() || !branch.contains_key("$ref"))
            {
                branch.insert("type".to_owned(), kind.clone());
            }
            match self.child(Value::Object(branch), depth + 1) {
                Value::Object(mut nested) if nested.len() == 1 && nested.contains_key("anyOf") => {
                    if let Some(Value::Array(nested)) = nested.shift_remove("anyOf") {
                        for branch in nested {
                            add(branch, &mut null);
                        }
                    }
                }
                branch => add(branch, &mut null),
            }
        }
        self.joined(schema, list, null)
    }

    /// A branch of a union as far as its properties can be seen.
    fn branch(&mut self, branch: Value, names: &mut Vec<String>) -> Option<Object> {
        let Value::Object(mut branch) = branch else { return None };
        let outside = self.inside.len();
        if let Some(Value::String(reference)) = branch.shift_remove("$ref")
            && let Some(target) = self.written_out(&reference)
        {
            both(&mut branch, target);
        }
        names.extend(self.inside.drain(outside..));
        branch.shift_remove("$ref");
        Some(branch)
    }

    /// A union of reduced schemas under the annotations of `schema`.
    fn joined(&mut self, mut schema: Object, mut list: Vec<Value>, null: bool) -> Object {
        for keyword in DROPPED {
            schema.shift_remove(keyword);
        }
        if self.gemini() {
            if list.len() > 1 {
                // Nothing may stand beside `anyOf`.
                if let Some(description) = schema.get("description") {
                    for branch in list.iter_mut().filter_map(Value::as_object_mut) {
                        if !branch.contains_key("anyOf") {
                            branch.entry("description").or_insert_with(|| description.clone());
                            // Last, as where it is set first.
                            if let Some(nullable) = branch.shift_remove("nullable") {
                                branch.insert("nullable".to_owned(), nullable);
                            }
                        }
                    }
                }
            }
            if null && !list.iter().any(|branch| branch.get("nullable") == Some(&Value::Bool(true))) {
                match list.first_mut().and_then(Value::as_object_mut) {
                    Some(first) => {
                        first.insert("nullable".to_owned(), true.into());
                    }
                    None => list.push(json!({"type": "string", "nullable": true})),
                }
            }
            if list.len() > 1 {
                return Object::from_iter([("anyOf".to_owned(), Value::Array(list))]);
            }
        } else if null {
            list.push(json!({"type": "null"}));
        }
        if let [Value::Object(only)] = &mut list[..] {
            if !only.contains_key("$ref") {
                let only = std::mem::take(only);
                for (keyword, value) in only {
                    schema.entry(keyword).or_insert(value);
                }
                if self.gemini() {
                    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
                    for_gemini(&mut schema, &kind, None);
                    if let Some(nullable) = schema.shift_remove("nullable") {
                        schema.insert("nullable".to_owned(), nullable);
                    }
                }
                return schema;
            }
            if schema.is_empty() {
                return std::mem::take(only);
            }
        }
        if list.is_empty() {
            return self.typed(schema, MAX_DEPTH);
        }
        schema.insert("anyOf".to_owned(), Value::Array(list));
        schema
    }

    /// A schema without a union: one type, or as many schemas as it has types.
    fn typed(&mut self, mut schema: Object, depth: usize) -> Object {
        for keyword in DROPPED {
            schema.shift_remove(keyword);
        }
        if schema.shift_remove("patternProperties").is_some()
            && schema.get("additionalProperties").is_some_and(|more| more != &Value::Bool(true))
        {
            schema.shift_remove("additionalProperties");
        }
        let mut null = schema.shift_remove("nullable") == Some(Value::Bool(true));
        let values = match (schema.get("enum"), schema.get("const")) {
            (Some(Value::Array(values)), _) => Some(values.clone()),
            (_, Some(value)) => Some(vec![value.clone()]),
            _ => None,
        };
        let mut kinds: Vec<&'static str> = Vec::new();
        let mut add = |kind: &str| {
            if let Some(kind) = TYPES.iter().find(|known| **known == kind)
                && !kinds.contains(kind)
            {
                kinds.push(kind);
            }
        };
        match (types_of(&schema), &values) {
            (Some(types), _) => types.into_iter().for_each(&mut add),
            (None, Some(values)) => values.iter().map(type_of).for_each(&mut add),
            (None, None) => {
                ["string", "number", "boolean", "object", "array", "null"].into_iter().for_each(&mut add);
            }
        }
        if kinds.contains(&"number") {
            kinds.retain(|kind| *kind != "integer");
        }
        null |= kinds.contains(&"null");
        kinds.retain(|kind| *kind != "null");
        if let Some(values) = &values {
            let possible: Vec<&str> = kinds.iter().copied().filter(|kind| any_is(values, kind)).collect();
            if !possible.is_empty() {
                kinds =
                    possible.into_iter().filter_map(|k| TYPES.iter().find(|t| **t == k).copied()).collect();
            }
        }
        match kinds[..] {
            [] => {
                schema.retain(|keyword, _| is_annotation(keyword));
                self.joined(schema, Vec::new(), true)
            }
            [kind] if self.gemini() => {
                let mut one = self.of_kind(schema, kind, values.as_deref(), depth);
                if null {
                    one.insert("nullable".to_owned(), true.into());
                }
                one
            }
            [kind] if !null => self.of_kind(schema, kind, values.as_deref(), depth),
            _ => self.split(schema, &kinds, null, values.as_deref(), depth),
        }
    }

    /// One schema for each type.
    fn split(
        &mut self,
        schema: Object,
        kinds: &[&'static str],
        null: bool,
        values: Option<&[Value]>,
        depth: usize,
    ) -> Object {
        let (annotations, rest): (Object, Object) =
            schema.into_iter().partition(|(keyword, _)| keyword != "type" && !restricts(keyword));
        let mut list = Vec::new();
        let mut bare = Vec::new();
        for kind in kinds {
            let one = self.of_kind(rest.clone(), kind, values, depth);
            if one.len() == 1 && !self.gemini() {
                bare.push(Value::from(*kind));
            } else {
                list.push(Value::Object(one));
            }
        }
        if self.gemini() {
            return self.joined(annotations, list, null);
        }
        if null && !bare.is_empty() {
            bare.push("null".into());
        }
        let types = match bare.len() {
            0 => None,
            1 => bare.pop(),
            _ => Some(Value::Array(bare)),
        };
        let mut annotations = annotations;
        match types {
            Some(types) if list.is_empty() => {
                annotations.insert("type".to_owned(), types);
                annotations
            }
            Some(types) => {
                let covers_null = types.is_array();
                list.push(json!({"type": types}));
                self.joined(annotations, list, null && !covers_null)
            }
            None => self.joined(annotations, list, null),
        }
    }

    /// What a schema says about values of one type.
    fn of_kind(
        &mut self,
        schema: Object,
        kind: &'static str,
        values: Option<&[Value]>,
        depth: usize,
    ) -> Object {
        let mut out = Object::with_capacity(schema.len() + 1);
        if !schema.contains_key("type") {
            out.insert("type".to_owned(), kind.into());
        }
        for (keyword, value) in schema {
            let value = match keyword.as_str() {
                "type" => kind.into(),
                "enum" | "const" if self.gemini() => continue,
                "enum" => match listed(value, kind) {
                    Some(value) => value,
                    None => continue,
                },
                "const" => value,
                name if other_kind(name, kind) => continue,
                "properties" => self.properties(value, depth),
                "items" => match self.items(value, depth) {
                    Some(items) => items,
                    None => continue,
                },
                "additionalProperties" if self.gemini() => continue,
                "additionalProperties" => match value {
                    Value::Object(more) if !more.is_empty() => self.child(Value::Object(more), depth + 1),
                    other => other,
                },
                _ => value,
            };
            out.insert(keyword, value);
        }
        if kind == "object" {
            required(&mut out);
        }
        if self.gemini() {
            for_gemini(&mut out, kind, values);
            if kind == "array" && !out.contains_key("items") {
                out.insert("items".to_owned(), anything(if depth < MAX_DEPTH { NESTED } else { 0 }));
            }
        }
        out
    }

    fn properties(&mut self, value: Value, depth: usize) -> Value {
        match value {
            Value::Object(properties) => Value::Object(
                properties.into_iter().map(|(name, schema)| (name, self.child(schema, depth + 1))).collect(),
            ),
            other => other,
        }
    }

    /// The elements of an array; `None`: they may be anything.
    fn items(&mut self, value: Value, depth: usize) -> Option<Value> {
        let anything = value.as_object().is_none_or(Object::is_empty);
        (!anything).then(|| self.child(value, depth + 1))
    }
}

/// What Gemini is told where anything goes, with arrays in arrays to this depth.
fn anything(nested: usize) -> Value {
    let mut list = vec![
        json!({"type": "string", "nullable": true}),
        json!({"type": "number"}),
        json!({"type": "boolean"}),
        json!({"type": "object"}),
    ];
    if nested > 0 {
        list.push(json!({"type": "array", "items": anything(nested - 1)}));
    }
    json!({"anyOf": list})
}

fn is_kind(value: &Value, kind: &str) -> bool {
    let actual = type_of(value);
    actual == kind || (kind == "number" && actual == "integer")
}

fn any_is(values: &[Value], kind: &str) -> bool {
    values.iter().any(|value| is_kind(value, kind))
}

/// The values of an `enum` that Moonshot takes for one type.
fn listed(values: Value, kind: &str) -> Option<Value> {
    let Value::Array(mut values) = values else { return None };
    if !matches!(kind, "string" | "number" | "integer") {
        return None;
    }
    values.retain(|value| is_kind(value, kind));
    (!values.is_empty()).then_some(Value::Array(values))
}

/// Whether a keyword restricts the values of some type, and is known here.
fn restricts(keyword: &str) -> bool {
    OF_STRINGS.contains(&keyword)
        || OF_NUMBERS.contains(&keyword)
        || OF_OBJECTS.contains(&keyword)
        || OF_ARRAYS.contains(&keyword)
        || matches!(keyword, "enum" | "const" | "patternProperties")
}

/// Whether a keyword is about values of another type.
fn other_kind(keyword: &str, kind: &str) -> bool {
    (OF_STRINGS.contains(&keyword) && kind != "string")
        || (OF_NUMBERS.contains(&keyword) && !matches!(kind, "number" | "integer"))
        || (OF_OBJECTS.contains(&keyword) && kind != "object")
        || (OF_ARRAYS.contains(&keyword) && kind != "array")
}

/// What is required is described.
fn required(schema: &mut Object) {
    let Some(Value::Array(names)) = schema.get("required") else { return };
    let described = |name: &Value| {
        let properties = schema.get("properties").and_then(Value::as_object);
        name.as_str().is_some_and(|name| properties.is_some_and(|map| map.contains_key(name)))
    };
    let kept: Vec<Value> = names.iter().filter(|name| described(name)).cloned().collect();
    if kept.len() < names.len() {
        if kept.is_empty() && !schema.contains_key("properties") {
            schema.shift_remove("required");
        } else {
            schema.insert("required".to_owned(), Value::Array(kept));
        }
    }
}

fn gemini_knows(keyword: &str) -> bool {
    matches!(
        keyword,
        "type"
            | "format"
            | "title"
            | "description"
            | "nullable"
            | "enum"
            | "default"
            | "example"
            | "anyOf"
            | "minimum"
            | "maximum"
            | "minLength"
            | "maxLength"
            | "pattern"
            | "minItems"
            | "maxItems"
            | "items"
            | "properties"
            | "required"
            | "minProperties"
            | "maxProperties"
            | "propertyOrdering"
    )
}

/// The fields of Gemini's `Schema` for one type.
fn for_gemini(schema: &mut Object, kind: &str, values: Option<&[Value]>) {
    if let Some(values) = values {
        let texts: Vec<&Value> = values.iter().filter(|value| value.is_string()).collect();
        if kind == "string" && !texts.is_empty() && texts.iter().all(|text| *text != "") {
            let texts = texts.into_iter().cloned().collect();
            schema.insert("enum".to_owned(), Value::Array(texts));
        } else {
            mention(schema, kind, values);
        }
    }
    for (exclusive, inclusive) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(bound) = schema.shift_remove(exclusive) {
            schema.entry(inclusive).or_insert(bound);
        }
    }
    if let Some(Value::Array(examples)) = schema.shift_remove("examples")
        && let Some(first) = examples.into_iter().next()
    {
        schema.entry("example").or_insert(first);
    }
    let format = schema.get("format").and_then(Value::as_str);
    let known = match kind {
        "string" => matches!(format, Some("enum" | "date-time")),
        "integer" => matches!(format, Some("int32" | "int64")),
        "number" => matches!(format, Some("float" | "double")),
        _ => false,
    };
    if !known {
        schema.shift_remove("format");
    }
    schema.retain(|keyword, _| gemini_knows(keyword));
}

/// Say in words which values are meant.
fn mention(schema: &mut Object, kind: &str, values: &[Value]) {
    // The greatest floats may stand for integers that are greater still.
    let huge = |value: &Value| value.as_f64().is_some_and(|float| float.abs() > 1e300);
    let mentioned: Vec<String> =
        values.iter().filter(|value| is_kind(value, kind)).map(Value::to_string).collect();
    let list = mentioned.join(", ");
    if list.is_empty() || list.len() > MAX_MENTION || kind == "boolean" || values.iter().any(huge) {
        return;
    }
    let text = match schema.get("description").and_then(Value::as_str) {
        Some(text) if !text.is_empty() => format!("{text} (one of: {list})"),
        _ => format!("One of: {list}"),
    };
    schema.insert("description".to_owned(), text.into());
}

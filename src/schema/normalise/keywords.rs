//! What the keywords of JSON Schema hold: which values are schemas, which are data.
//!
//! Only what stands in a schema's place is ever rewritten; everything that is not named here (`default`,
//! `const`, `enum`, `examples`, unknown keywords) is data and is copied as it is.

use serde_json::{Map, Value, json};

pub(super) type Object = Map<String, Value>;

/// Keywords whose value is one schema.
const ONE: [&str; 12] = [
    "additionalProperties",
    "unevaluatedProperties",
    "additionalItems",
    "unevaluatedItems",
    "items",
    "contains",
    "propertyNames",
    "contentSchema",
    "not",
    "if",
    "then",
    "else",
];
/// Keywords whose value is a list of schemas.
const LIST: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value is an object of schemas.
const MAP: [&str; 6] =
    ["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];
/// What a schema says about itself, without admitting or refusing anything.
const ANNOTATIONS: [&str; 11] = [
    "title",
    "description",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "discriminator",
    "externalDocs",
];
/// The types of JSON Schema.
pub(super) const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// What the value of a keyword is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Schema,
    Schemas,
    NamedSchemas,
    Data,
}

pub(super) fn holds(keyword: &str) -> Holds {
    if ONE.contains(&keyword) {
        Holds::Schema
    } else if LIST.contains(&keyword) {
        Holds::Schemas
    } else if MAP.contains(&keyword) {
        Holds::NamedSchemas
    } else {
        Holds::Data
    }
}

pub(super) fn is_annotation(keyword: &str) -> bool {
    ANNOTATIONS.contains(&keyword) || keyword.starts_with("x-")
}

/// Whether loosening a schema under this keyword can make the whole refuse more.
pub(super) fn turns_round(keyword: &str) -> bool {
    matches!(keyword, "not" | "if" | "oneOf" | "maxContains" | "unevaluatedProperties" | "unevaluatedItems")
}

/// Call `each` for the schemas that stand directly under `schema`.
pub(super) fn children_mut(schema: &mut Object, each: &mut dyn FnMut(&mut Value)) {
    for (keyword, value) in schema.iter_mut() {
        match (holds(keyword), value) {
            (Holds::Schema, value @ Value::Object(_)) => each(value),
            (Holds::Schemas, Value::Array(list)) => list.iter_mut().for_each(&mut *each),
            (Holds::NamedSchemas, Value::Object(map)) => map.values_mut().for_each(&mut *each),
            _ => {}
        }
    }
}

/// As [`children_mut`], to look at only.
pub(super) fn children<'a>(schema: &'a Object, each: &mut dyn FnMut(&'a Value)) {
    for (keyword, value) in schema {
        match (holds(keyword), value) {
            (Holds::Schema, value @ Value::Object(_)) => each(value),
            (Holds::Schemas, Value::Array(list)) => list.iter().for_each(&mut *each),
            (Holds::NamedSchemas, Value::Object(map)) => map.values().for_each(&mut *each),
            _ => {}
        }
    }
}

/// A union of schemas, without repetitions; the schema itself if there is only one.
pub(super) fn any_of(schemas: Vec<Value>) -> Value {
    let mut distinct: Vec<Value> = Vec::with_capacity(schemas.len());
    for schema in schemas {
        if !distinct.contains(&schema) {
            distinct.push(schema);
        }
    }
    match distinct.len() {
        0 => json!({}),
        1 => distinct.remove(0),
        _ => json!({"anyOf": distinct}),
    }
}

/// The types that a schema names, if it names any.
pub(super) fn types_of(schema: &Object) -> Option<Vec<&str>> {
    match schema.get("type")? {
        Value::String(one) => Some(vec![one]),
        Value::Array(list) => Some(list.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

/// The type of a value, as narrow as JSON Schema can say it.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) => {
            let whole = number.as_f64().is_some_and(|float| float.fract() == 0.0);
            if number.is_i64() || number.is_u64() || whole { "integer" } else { "number" }
        }
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// How many bytes a value is as compact JSON.
pub(super) fn size(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail, and no value can either: its keys are texts and its numbers finite.
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => usize::MAX / 8,
    }
}

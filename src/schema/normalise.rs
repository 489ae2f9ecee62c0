//! JSON Schemas of tools as the providers of models accept them.
//!
//! A provider refuses a whole request over one schema that it does not like, so each is brought into the form
//! that its provider asks for, its [`Profile`]. The result is for the model alone: calls are cast and checked
//! against the original. Therefore a step keeps the meaning or admits more, never less: what the original
//! accepts, the result accepts, where `nullable: true` admits null (for the one exception see
//! [`Profile::Gemini`]).
//!
//! The rules, and where they are from:
//!
//! - **all but `json-schema`**: the root is a plain object with `properties` and `required`; broken keywords
//!   are left out and those of older drafts translated; each `$ref` names a definition in the root's `$defs`.
//!   What a reference outside the schema or to nothing stood for admits anything.
//! - **openai**: what nanobot-ai 0.3.5 does (references hoisted to `$defs/ref_<hash>`, unions with null folded
//!   into `nullable`), and the errors of the API that users report: arrays name their `items`, also tuples; a
//!   reference stands alone.
//! - **anthropic**: no union at the root; names of properties at the root match `^[a-zA-Z0-9_.-]{1,64}$` (both
//!   from its error messages, the documentation says only that `input_schema` is JSON Schema with `type:
//!   object`). Other names are mentioned in the description. All else of 2020-12 is passed on.
//! - **gemini**: the fields of `Schema` in the API's reference, and its error messages. See `reduce.rs`.
//! - **moonshot**: the published specification, MFJS. See `reduce.rs`.
//!
//! Any JSON value is accepted, however odd. Depth is bounded, and so is size: all but `gemini` at most 2.2
//! times the original plus 256 bytes, `gemini`, which writes references out, 8 times plus 16 KiB. Where the
//! usual steps would exceed it, fewer references are kept, and at last only scalar properties.

mod clean;
mod keywords;
mod merge;
mod nullable;
mod reduce;
mod refs;
mod root;

use std::{fmt, str::FromStr};

use serde_json::{Value, json};

use clean::{Cleaned, MAX_DEPTH, Wishes, clean};
use keywords::{Object, children_mut, size, turns_round, types_of};
use reduce::Dialect;

/// Whose model is to see a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Profile {
    /// `OpenAI` and what is compatible with it; the default.
    #[default]
    OpenAi,
    /// Anthropic's `input_schema`.
    Anthropic,
    /// Gemini's function declarations.
    ///
    /// It asks for the type of the elements of every array, so that of arrays in arrays of anything only three
    /// levels are admitted.
    Gemini,
    /// Moonshot (Kimi).
    Moonshot,
    /// Nothing is changed.
    JsonSchema,
}

impl Profile {
    /// Every profile, in the order in which they are named to users.
    pub const ALL: [Self; 5] =
        [Self::OpenAi, Self::Anthropic, Self::Gemini, Self::Moonshot, Self::JsonSchema];

    /// The name in configuration and in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Moonshot => "moonshot",
            Self::JsonSchema => "json-schema",
        }
    }

    /// The most bytes that the result for a schema of `size` bytes has.
    fn limit(self, size: usize) -> usize {
        if self == Self::Gemini { size * 8 + 16 * 1024 } else { size * 11 / 5 + 256 }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no profile of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown profile '{0}'; known are openai, anthropic, gemini, moonshot and json-schema")]
pub struct UnknownProfile(String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.name() == name)
            .ok_or_else(|| UnknownProfile(name.chars().take(64).collect()))
    }
}

/// The schema of a tool's arguments as `profile` wants it.
///
/// What is no object at all becomes the schema of any object.
#[must_use]
pub fn normalise(schema: &Value, profile: Profile) -> Value {
    let Value::Object(map) = schema else {
        return json!({"type": "object", "properties": {}});
    };
    if profile == Profile::JsonSchema {
        return schema.clone();
    }
    let before = size(schema);
    let limit = profile.limit(before);
    // Less and less is copied, until it fits.
    for budget in [usize::MAX, before / 2, 0] {
        let result = Value::Object(with(schema, map, profile, budget, false));
        if size(&result) <= limit {
            return result;
        }
    }
    let mut root = skeleton(map);
    if profile == Profile::Anthropic {
        speakable(&mut root);
    }
    root::finish(&mut root);
    Value::Object(root)
}

/// The schema of a tool's arguments as `OpenAI` accepts it.
#[must_use]
pub fn normalise_openai(schema: &Value) -> Value {
    normalise(schema, Profile::OpenAi)
}

/// One run, in which no more than `budget` bytes are copied from one place of the schema to another.
fn with(schema: &Value, map: &Object, profile: Profile, budget: usize, softened: bool) -> Object {
    let wishes =
        Wishes { lone_refs: profile != Profile::Anthropic, tuples: profile == Profile::Anthropic, budget };
    let Cleaned { schema: mut root, mut loosened, turns_round } = clean(schema, map, wishes);
    loosened |= root::plain(&mut root, profile == Profile::OpenAi);
    match profile {
        Profile::OpenAi => {
            loosened |= nullable::fold(&mut root, 0);
            elements(&mut root, 0);
        }
        Profile::Anthropic => loosened |= speakable(&mut root),
        Profile::Gemini | Profile::Moonshot => {
            root::finish(&mut root);
            let dialect = if profile == Profile::Gemini { Dialect::Gemini } else { Dialect::Moonshot };
            root = reduce::reduce(root, dialect, budget.min(root_budget(schema)));
        }
        Profile::JsonSchema => {}
    }
    if loosened && turns_round && !softened {
        soften(&mut root, 0);
        // What remains may be foldable now; there is nothing left to soften.
        let softened = Value::Object(root);
        let again = softened.as_object().map(|map| with(&softened, map, profile, budget, true));
        return again.unwrap_or_default();
    }
    root::finish(&mut root);
    root
}

/// Bytes of definitions that are written out at most.
fn root_budget(schema: &Value) -> usize {
    size(schema) * 4 + 8 * 1024
}

/// Every array says what its elements are.
fn elements(schema: &mut Object, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    if types_of(schema).is_some_and(|types| types.contains(&"array")) {
        schema.entry("items").or_insert_with(|| json!({}));
    }
    children_mut(schema, &mut |child| {
        if let Value::Object(child) = child {
            elements(child, depth + 1);
        }
    });
}

/// Leave out the keywords under which what was loosened elsewhere would tighten.
fn soften(schema: &mut Object, depth: usize) {
    let keywords: Vec<String> = schema.keys().filter(|keyword| turns_round(keyword)).cloned().collect();
    for keyword in keywords {
        if keyword == "oneOf" && !schema.contains_key("anyOf") {
            if let Some(list) = schema.get_mut("oneOf").map(Value::take) {
                clean::replace_key(schema, "oneOf", "anyOf", list);
            }
        } else {
            schema.shift_remove(&keyword);
        }
    }
    if !schema.contains_key("if") {
        schema.shift_remove("then");
        schema.shift_remove("else");
    }
    if depth <= MAX_DEPTH {
        children_mut(schema, &mut |child| {
            if let Value::Object(child) = child {
                soften(child, depth + 1);
            }
        });
    }
}

/// Anthropic takes only some names of properties; the others are mentioned instead.
fn speakable(root: &mut Object) -> bool {
    let is_name = |name: &str| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    };
    let Some(Value::Object(properties)) = root.get_mut("properties") else { return false };
    let hidden: Vec<String> = properties.keys().filter(|name| !is_name(name)).cloned().collect();
    if hidden.is_empty() {
        return false;
    }
    properties.retain(|name, _| is_name(name));
    if let Some(Value::Array(required)) = root.get_mut("required") {
        required.retain(|name| name.as_str().is_some_and(is_name));
    }
    for keyword in ["additionalProperties", "unevaluatedProperties", "propertyNames"] {
        root.shift_remove(keyword);
    }
    let names: Vec<String> = hidden.iter().map(|name| Value::from(name.as_str()).to_string()).collect();
    let names = format!("Further properties: {}.", names.join(", "));
    let text = match root.get("description").and_then(Value::as_str) {
        Some(text) if !text.is_empty() => format!("{text} {names}"),
        _ => names,
    };
    root.insert("description".to_owned(), text.into());
    true
}

/// The scalar properties alone: for schemas that are nothing but references and empty objects.
fn skeleton(map: &Object) -> Object {
    let mut properties = Object::new();
    for (name, schema) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let kind = schema.get("type").and_then(Value::as_str);
        let plain = |keyword: &String| matches!(keyword.as_str(), "type" | "description");
        if matches!(kind, Some("string" | "integer" | "number" | "boolean"))
            && schema.as_object().is_some_and(|schema| schema.keys().all(plain))
            && schema.get("description").is_none_or(Value::is_string)
        {
            properties.insert(name.clone(), schema.clone());
        }
    }
    let mut root = Object::from_iter([("type".to_owned(), "object".into())]);
    if let Some(text) = map.get("description").filter(|text| text.is_string()) {
        root.insert("description".to_owned(), text.clone());
    }
    root.insert("properties".to_owned(), Value::Object(properties));
    root
}

#[cfg(test)]
mod tests;

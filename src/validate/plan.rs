//! A schema boiled down to what casting needs: types, members, elements, branches.
//!
//! Plans live in one arena and name each other by index, so that a recursive `$ref` is a cycle of
//! indices and costs nothing until a value follows it. They are built from a repaired schema.

use std::collections::HashMap;

use jsonschema::json::Json;
use serde_json::{Map, Value};

use super::rebuild::Kind;

/// A JSON Schema type other than `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl Type {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "string" => Self::String,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }

    /// Whether a value of that kind is of this type as it is.
    pub(super) fn admits(self, kind: Kind) -> bool {
        match self {
            Self::Boolean => kind == Kind::Boolean,
            Self::Integer => kind == Kind::Integer,
            Self::Number => matches!(kind, Kind::Integer | Kind::Number),
            Self::String => kind == Kind::String,
            Self::Array => kind == Kind::Array,
            Self::Object => kind == Kind::Object,
        }
    }
}

pub(super) struct Property<K> {
    pub(super) key: K,
    pub(super) plan: usize,
    pub(super) required: bool,
}

/// Members that `properties` does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Additional {
    Any,
    Closed,
    Like(usize),
}

pub(super) struct Plan<R: Json> {
    /// In the order of the schema; empty means any type.
    pub(super) types: Vec<Type>,
    pub(super) admits_null: bool,
    /// The values of `enum` or `const`.
    pub(super) values: Option<Vec<Value>>,
    pub(super) properties: Vec<Property<R::PreparedKey>>,
    pub(super) names: HashMap<String, usize>,
    pub(super) required: Vec<R::PreparedKey>,
    pub(super) additional: Additional,
    pub(super) items: Option<usize>,
    pub(super) prefix: Vec<usize>,
    /// `$ref` and `allOf`.
    pub(super) all: Vec<usize>,
    /// Each `anyOf` and `oneOf`.
    pub(super) any: Vec<Vec<usize>>,
    /// Nothing but null: the type `null` alone, or the schema `false`.
    pub(super) never: bool,
}

impl<R: Json> Plan<R> {
    fn anything() -> Self {
        Self {
            types: Vec::new(),
            admits_null: true,
            values: None,
            properties: Vec::new(),
            names: HashMap::new(),
            required: Vec::new(),
            additional: Additional::Any,
            items: None,
            prefix: Vec::new(),
            all: Vec::new(),
            any: Vec::new(),
            never: false,
        }
    }
}

/// The arena; the root is plan 0.
pub(super) struct Plans<R: Json>(Vec<Plan<R>>);

impl<R: Json> Plans<R> {
    pub(super) fn of(schema: &Value) -> Self {
        let mut builder = Builder { root: schema, plans: Vec::new(), known: HashMap::new() };
        builder.plan(schema);
        Self(builder.plans)
    }

    pub(super) fn get(&self, index: usize) -> &Plan<R> {
        // Every index was given out by the builder.
        &self.0[index]
    }
}

struct Builder<'s, R: Json> {
    root: &'s Value,
    plans: Vec<Plan<R>>,
    /// By address in the schema, which stands still meanwhile.
    known: HashMap<*const Value, usize>,
}

impl<'s, R: Json> Builder<'s, R> {
    fn plan(&mut self, schema: &'s Value) -> usize {
        let address = std::ptr::from_ref(schema);
        if let Some(index) = self.known.get(&address) {
            return *index;
        }
        let index = self.plans.len();
        self.known.insert(address, index);
        self.plans.push(Plan::anything());
        let mut plan = Plan::anything();
        plan.admits_null = admits_null(self.root, schema, 0);
        match schema {
            Value::Bool(false) => plan.never = true,
            Value::Object(keywords) => self.fill(&mut plan, keywords),
            _ => {}
        }
        self.plans[index] = plan;
        index
    }

    fn fill(&mut self, plan: &mut Plan<R>, keywords: &'s Map<String, Value>) {
        plan.types = type_names(keywords).filter_map(Type::named).collect();
        plan.never = plan.types.is_empty() && keywords.contains_key("type");
        plan.values = match (keywords.get("enum"), keywords.get("const")) {
            (Some(Value::Array(values)), _) => Some(values.clone()),
            (_, Some(value)) => Some(vec![value.clone()]),
            _ => None,
        };
        let required: Vec<&str> = keywords
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        plan.required = required.iter().map(|name| R::prepare_key(name)).collect();
        if let Some(Value::Object(properties)) = keywords.get("properties") {
            for (name, schema) in properties {
                plan.names.insert(name.clone(), plan.properties.len());
                let property = Property {
                    key: R::prepare_key(name),
                    plan: self.plan(schema),
                    required: required.contains(&name.as_str()),
                };
                plan.properties.push(property);
            }
        }
        let patterns =
            keywords.get("patternProperties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
        plan.additional = match keywords.get("additionalProperties") {
            // Which members a pattern takes is left to the validator.
            _ if patterns => Additional::Any,
            Some(Value::Bool(false)) => Additional::Closed,
            Some(schema @ Value::Object(_)) => Additional::Like(self.plan(schema)),
            _ => Additional::Any,
        };
        if let Some(Value::Array(prefix)) = keywords.get("prefixItems") {
            plan.prefix = prefix.iter().map(|schema| self.plan(schema)).collect();
        }
        plan.items = keywords.get("items").filter(|items| items.is_object()).map(|items| self.plan(items));
        let target =
            keywords.get("$ref").and_then(Value::as_str).and_then(|reference| resolve(self.root, reference));
        plan.all.extend(target.map(|target| self.plan(target)));
        if let Some(Value::Array(branches)) = keywords.get("allOf") {
            plan.all.extend(branches.iter().map(|branch| self.plan(branch)).collect::<Vec<_>>());
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = keywords.get(keyword) {
                plan.any.push(branches.iter().map(|branch| self.plan(branch)).collect());
            }
        }
    }
}

/// The names under `type`, one or many.
pub(super) fn type_names(keywords: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let (one, many) = match keywords.get("type") {
        Some(Value::String(name)) => (Some(name.as_str()), None),
        Some(Value::Array(names)) => (None, Some(names)),
        _ => (None, None),
    };
    one.into_iter().chain(many.into_iter().flatten().filter_map(Value::as_str))
}

/// What a `$ref` within the same document points to.
pub(super) fn resolve<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let fragment = reference.strip_prefix('#')?;
    if fragment.is_empty() {
        return Some(root);
    }
    if fragment.starts_with('/') {
        return root.pointer(&percent_decoded(fragment));
    }
    anchored(root, fragment, 0)
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let code = text
            .get(at + 1..at + 3)
            .filter(|_| byte == b'%')
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(code.unwrap_or(byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

fn anchored<'s>(schema: &'s Value, name: &str, depth: usize) -> Option<&'s Value> {
    if depth > super::repair::MAX_SCHEMA_DEPTH * 2 {
        return None;
    }
    match schema {
        Value::Object(keywords) => {
            if keywords.get("$anchor").and_then(Value::as_str) == Some(name) {
                return Some(schema);
            }
            keywords.values().find_map(|value| anchored(value, name, depth + 1))
        }
        Value::Array(values) => values.iter().find_map(|value| anchored(value, name, depth + 1)),
        _ => None,
    }
}

/// Whether `null` satisfies a schema, as far as types, values and branches tell.
fn admits_null(root: &Value, schema: &Value, depth: usize) -> bool {
    let Value::Object(keywords) = schema else { return schema != &Value::Bool(false) };
    if depth > 16 {
        return true;
    }
    if keywords.contains_key("type") && !type_names(keywords).any(|name| name == "null") {
        return false;
    }
    if let Some(Value::Array(values)) = keywords.get("enum")
        && !values.contains(&Value::Null)
    {
        return false;
    }
    if keywords.get("const").is_some_and(|value| !value.is_null()) {
        return false;
    }
    let admits = |schema: &Value| admits_null(root, schema, depth + 1);
    let target = keywords.get("$ref").and_then(Value::as_str).and_then(|reference| resolve(root, reference));
    target.is_none_or(admits)
        && keywords.get("allOf").and_then(Value::as_array).is_none_or(|branches| branches.iter().all(admits))
        && ["anyOf", "oneOf"].iter().all(|keyword| {
            keywords
                .get(*keyword)
                .and_then(Value::as_array)
                .is_none_or(|branches| branches.iter().any(admits))
        })
}

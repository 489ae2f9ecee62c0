//! The first pass: a copy of a schema in which every keyword is what 2020-12 says it is, and every
//! reference leads into `$defs`.
//!
//! What older drafts say in another way is translated, what is broken is left out, and local references
//! that point elsewhere move into `$defs` under a name that depends on their text alone. Each step keeps
//! the meaning or admits more; where it admits more, [`Cleaned::loosened`] says so.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::{
    keywords::{Holds, Object, TYPES, any_of, holds, is_annotation, turns_round},
    refs::{Refs, Target},
};

/// Below this depth a schema admits anything: no model needs more, and calls are checked against the
/// original.
pub(super) const MAX_DEPTH: usize = 64;

/// What a provider wants of this pass.
#[derive(Clone, Copy)]
pub(super) struct Wishes {
    /// A reference stands alone; what is said beside it moves around it.
    pub(super) lone_refs: bool,
    /// Tuples stay tuples (`prefixItems`); else one schema admits all their elements.
    pub(super) tuples: bool,
    /// Bytes that may be copied into `$defs`.
    pub(super) budget: usize,
}

pub(super) struct Cleaned {
    pub(super) schema: Object,
    /// Something admits more than before.
    pub(super) loosened: bool,
    /// There is a keyword under which loosening is tightening.
    pub(super) turns_round: bool,
}

/// Copy `root`, whose members are `map`.
pub(super) fn clean(root: &Value, map: &Object, wishes: Wishes) -> Cleaned {
    let mut cleaner = Cleaner {
        refs: Refs::new(root, wishes.budget),
        wishes,
        old_draft: map.get("$schema").and_then(Value::as_str).is_some_and(|uri| uri.contains("/draft-0")),
        loosened: false,
        turns_round: false,
    };
    let mut schema = cleaner.object(map, At { depth: 0, root: true, foreign: false });
    let mut moved = Object::new();
    let mut next = 0;
    while let Some((name, target)) = cleaner.refs.queue.get(next).cloned() {
        next += 1;
        let foreign = !std::ptr::eq(target, root);
        let target = cleaner.schema(target, At { depth: 0, root: false, foreign: false }, foreign);
        moved.insert(name, target);
    }
    if let Some(Value::Object(defs)) = schema.get_mut("$defs") {
        let (replaced, used) = (&cleaner.refs.replaced, &cleaner.refs.used);
        if !replaced.is_empty() {
            defs.retain(|name, _| !replaced.contains(name) || used.contains(name));
        }
        defs.append(&mut moved);
    } else if !moved.is_empty() {
        schema.insert("$defs".to_owned(), Value::Object(moved));
    }
    if let Some(Value::Object(defs)) = schema.get_mut("$defs")
        && open_circles(defs)
    {
        cleaner.loosened = true;
    }
    Cleaned { schema, loosened: cleaner.loosened, turns_round: cleaner.turns_round }
}

#[derive(Clone, Copy)]
struct At {
    depth: usize,
    root: bool,
    /// Under an `$id` of its own, where references mean something else.
    foreign: bool,
}

impl At {
    fn below(self) -> Self {
        Self { depth: self.depth + 1, root: false, ..self }
    }
}

struct Cleaner<'a> {
    refs: Refs<'a>,
    wishes: Wishes,
    /// Up to draft 7 what stood beside a reference did not count.
    old_draft: bool,
    loosened: bool,
    turns_round: bool,
}

impl<'a> Cleaner<'a> {
    fn anything(&mut self) -> Value {
        self.loosened = true;
        json!({})
    }

    fn schema(&mut self, schema: &'a Value, at: At, may_be_foreign: bool) -> Value {
        match schema {
            Value::Object(_) if at.depth >= MAX_DEPTH => self.anything(),
            Value::Object(map) => {
                let own_id = map.get("$id").and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'));
                let foreign = at.foreign || (own_id && may_be_foreign);
                Value::Object(self.object(map, At { foreign, ..at }))
            }
            Value::Bool(true) => json!({}),
            Value::Bool(false) => {
                self.turns_round = true;
                json!({"not": {}})
            }
            _ => self.anything(),
        }
    }

    fn object(&mut self, map: &'a Object, at: At) -> Object {
        let mut out = Object::with_capacity(map.len() + 2);
        let mut has_reference = false;
        for (keyword, value) in map {
            if turns_round(keyword) {
                self.turns_round = true;
            }
            let value = match keyword.as_str() {
                "$ref" => {
                    let target = match value {
                        Value::String(reference) if !at.foreign => self.refs.target(reference),
                        _ => Target::Lost,
                    };
                    match target {
                        Target::Stays => value.clone(),
                        Target::Moved(reference) => Value::String(reference),
                        Target::Lost => {
                            self.loosened = true;
                            continue;
                        }
                    }
                }
                "$id" | "$schema" | "$defs" if !at.root => continue,
                "$anchor" | "$dynamicAnchor" | "$recursiveAnchor" | "$vocabulary" | "definitions" => continue,
                "items" | "prefixItems" | "additionalItems" => {
                    if let Some(value) = self.elements(keyword, value, map, at) {
                        out.extend(value);
                    }
                    continue;
                }
                _ => match self.keyword(keyword, value, map, at) {
                    Some(value) => value,
                    None => continue,
                },
            };
            has_reference |= keyword == "$ref";
            out.insert(keyword.clone(), value);
        }
        if has_reference && out.len() > 1 {
            self.beside_reference(&mut out, at.root);
        }
        out
    }

    /// The value of a keyword as it should be; `None` if it is broken.
    fn keyword(&mut self, keyword: &str, value: &'a Value, map: &'a Object, at: At) -> Option<Value> {
        let kept = match (holds(keyword), value) {
            (Holds::Schema, Value::Bool(_))
                if matches!(
                    keyword,
                    "additionalProperties" | "unevaluatedProperties" | "unevaluatedItems"
                ) =>
            {
                Some(value.clone())
            }
            (Holds::Schema, Value::Object(_) | Value::Bool(_)) => Some(self.schema(value, at.below(), true)),
            (Holds::Schemas, Value::Array(list)) if !list.is_empty() => {
                Some(Value::Array(list.iter().map(|item| self.schema(item, at.below(), true)).collect()))
            }
            (Holds::NamedSchemas, Value::Object(members)) => {
                let members = members.iter().map(|(name, value)| {
                    let is_list = keyword == "dependencies" && value.is_array();
                    let value = if is_list { value.clone() } else { self.schema(value, at.below(), true) };
                    (name.clone(), value)
                });
                Some(Value::Object(members.collect()))
            }
            (Holds::Data, value) => data(keyword, value, map),
            _ => None,
        };
        self.loosened |= kept.is_none();
        kept
    }

    /// `items` and what belongs to it, in the one form that is wanted.
    fn elements(
        &mut self,
        keyword: &str,
        value: &'a Value,
        map: &'a Object,
        at: At,
    ) -> Option<Vec<(String, Value)>> {
        let named = |keyword: &str, value| vec![(keyword.to_owned(), value)];
        let (first, rest) = match (map.get("prefixItems"), map.get("items")) {
            (Some(Value::Array(first)), rest) => (first, rest),
            (_, Some(Value::Array(first))) => (first, map.get("additionalItems")),
            (_, Some(Value::Object(_) | Value::Bool(_))) => {
                return (keyword == "items").then(|| named("items", self.schema(value, at.below(), true)));
            }
            (broken, other) => {
                self.loosened |= broken.is_some() || other.is_some();
                return None;
            }
        };
        let rest = rest.filter(|rest| rest.is_object() || rest.is_boolean());
        if self.wishes.tuples && keyword == "items" && value.is_array() == map.contains_key("prefixItems") {
            return None;
        }
        if self.wishes.tuples && !first.is_empty() {
            let mut out = Vec::new();
            if keyword == "prefixItems" || value.is_array() {
                let first = first.iter().map(|item| self.schema(item, at.below(), true)).collect();
                out.extend(named("prefixItems", Value::Array(first)));
            }
            // The rest has a place of its own in the new form.
            if keyword == "items" {
                match rest {
                    Some(rest @ Value::Object(_)) => {
                        out.extend(named("items", self.schema(rest, at.below(), true)));
                    }
                    Some(closed @ Value::Bool(false)) => out.extend(named("items", closed.clone())),
                    _ => {}
                }
            }
            return (keyword != "additionalItems").then_some(out);
        }
        // Once for all three keywords, where the tuple stands.
        if !std::ptr::eq(value, map.get("prefixItems").or_else(|| map.get("items"))?) {
            return None;
        }
        let mut schemas: Vec<Value> = first.iter().map(|item| self.schema(item, at.below(), true)).collect();
        self.loosened = true;
        let count = schemas.len() as u64;
        let closed = rest == Some(&Value::Bool(false));
        let full = map.get("maxItems").and_then(Value::as_u64).is_some_and(|most| most <= count);
        match rest {
            Some(rest @ Value::Object(_)) => schemas.push(self.schema(rest, at.below(), true)),
            _ if closed || full => {}
            _ => schemas.clear(),
        }
        let mut list = named("items", any_of(schemas));
        if closed && !map.contains_key("maxItems") {
            list.push(("maxItems".to_owned(), count.into()));
        }
        Some(list)
    }

    /// A reference with company: what only annotates moves around it, if it must stand alone.
    fn beside_reference(&mut self, schema: &mut Object, root: bool) {
        if self.old_draft {
            let before = schema.len();
            schema.retain(|keyword, _| {
                keyword.starts_with('$') || keyword == "nullable" || is_annotation(keyword)
            });
            self.loosened |= schema.len() < before;
        }
        // The root's own is followed later.
        if !self.wishes.lone_refs || schema.len() < 2 || root {
            return;
        }
        let Some(reference) = schema.get_mut("$ref").map(Value::take) else { return };
        let reference = json!({"$ref": reference});
        for keyword in ["anyOf", "allOf"] {
            match schema.get_mut(keyword) {
                None => {
                    replace_key(schema, "$ref", keyword, json!([reference]));
                    return;
                }
                Some(Value::Array(list)) if keyword == "allOf" => list.push(reference.clone()),
                Some(_) => {}
            }
        }
        schema.shift_remove("$ref");
    }
}

/// Put a member in the place of another.
pub(super) fn replace_key(schema: &mut Object, old: &str, new: &str, value: Value) {
    let mut value = Some(value);
    *schema = std::mem::take(schema)
        .into_iter()
        .filter_map(|(key, held)| {
            if key == old { value.take().map(|value| (new.to_owned(), value)) } else { Some((key, held)) }
        })
        .collect();
}

/// The value of a keyword that holds no schema; `None` if it is broken.
fn data(keyword: &str, value: &Value, map: &Object) -> Option<Value> {
    let fits = match keyword {
        "type" => return types(value),
        "required" => return names(value),
        "enum" => value.as_array().is_some_and(|values| !values.is_empty()),
        "title" | "description" | "pattern" | "format" | "$comment" | "$id" | "$schema"
        | "contentEncoding" | "contentMediaType" => value.is_string(),
        "uniqueItems" => value.is_boolean(),
        // Draft 4 wrote `minimum: 1, exclusiveMinimum: true`.
        "minimum" if map.get("exclusiveMinimum") == Some(&Value::Bool(true)) => return None,
        "maximum" if map.get("exclusiveMaximum") == Some(&Value::Bool(true)) => return None,
        "exclusiveMinimum" if value == &Value::Bool(true) => return map.get("minimum").and_then(number),
        "exclusiveMaximum" if value == &Value::Bool(true) => return map.get("maximum").and_then(number),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
        "multipleOf" => value.as_f64().is_some_and(|factor| factor > 0.0),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => {
            value.as_f64().is_some_and(|count| count >= 0.0 && count.fract() == 0.0)
        }
        "dependentRequired" => value.is_object(),
        "$dynamicRef" | "$recursiveRef" => false,
        _ => true,
    };
    fits.then(|| value.clone())
}

fn number(value: &Value) -> Option<Value> {
    value.is_number().then(|| value.clone())
}

fn types(value: &Value) -> Option<Value> {
    let known = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    match value {
        Value::Array(kinds) => {
            let mut kept: Vec<Value> = Vec::with_capacity(kinds.len());
            for kind in kinds {
                if !known(kind) {
                    // What the unknown one would admit is not known either.
                    return None;
                }
                if !kept.contains(kind) {
                    kept.push(kind.clone());
                }
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        kind => known(kind).then(|| kind.clone()),
    }
}

fn names(value: &Value) -> Option<Value> {
    let mut seen = HashSet::new();
    let names = value.as_array()?.iter().filter(|name| name.as_str().is_some_and(|name| seen.insert(name)));
    Some(Value::Array(names.cloned().collect()))
}

/// Definitions that only lead back to themselves admit anything; whether there are any.
///
/// Not those that contain themselves in a property or an element: only where a reference is to be followed
/// for ever to judge one value.
fn open_circles(defs: &mut Object) -> bool {
    let mut edges: HashMap<String, Vec<String>> = HashMap::new();
    for (name, schema) in &*defs {
        let mut targets = Vec::new();
        if let Some(schema) = schema.as_object() {
            in_place(schema, 0, &mut targets);
        }
        if !targets.is_empty() {
            edges.insert(name.clone(), targets);
        }
    }
    let circular: Vec<String> = edges.keys().filter(|name| leads_to_itself(name, &edges)).cloned().collect();
    for name in &circular {
        defs.insert(name.clone(), json!({}));
    }
    !circular.is_empty()
}

fn leads_to_itself(name: &str, edges: &HashMap<String, Vec<String>>) -> bool {
    let (mut seen, mut todo) = (HashSet::new(), vec![name]);
    while let Some(current) = todo.pop() {
        for next in edges.get(current).into_iter().flatten() {
            if next == name {
                return true;
            }
            if seen.insert(next.as_str()) {
                todo.push(next);
            }
        }
    }
    false
}

/// The definitions that judge the same value as `schema`.
fn in_place(schema: &Object, depth: usize, targets: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    if let Some(Value::String(reference)) = schema.get("$ref")
        && let Some(name) = reference.strip_prefix("#/$defs/")
    {
        targets.push(name.to_owned());
    }
    let mut each = |child: &Value| {
        if let Some(child) = child.as_object() {
            in_place(child, depth + 1, targets);
        }
    };
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("not" | "if" | "then" | "else", child) => each(child),
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => list.iter().for_each(&mut each),
            ("dependentSchemas", Value::Object(map)) => map.values().for_each(&mut each),
            _ => {}
        }
    }
}

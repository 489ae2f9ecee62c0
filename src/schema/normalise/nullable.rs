//! Unions of one schema and null, folded into that schema with `nullable: true`.

use serde_json::{Value, json};

use super::{
    clean::{MAX_DEPTH, replace_key},
    keywords::{Object, is_annotation, types_of},
};

/// Unions within unions that are folded in one place.
const MAX_FOLDS: usize = 16;
/// Keywords that are judged together: those of one schema must not get the company of another's.
const TOGETHER: [&[&str]; 3] = [
    &["properties", "patternProperties", "additionalProperties", "unevaluatedProperties"],
    &["items", "prefixItems", "contains", "minContains", "maxContains", "unevaluatedItems"],
    &["if", "then", "else"],
];

/// Fold in place, here and in properties, elements and definitions; whether more is admitted than before.
/// Objects name their `properties` and `required` afterwards, be there none.
pub(super) fn fold(schema: &mut Object, depth: usize) -> bool {
    let mut loosened = false;
    let mut nullable = false;
    // A list beside the union or the types, in which null is missing, excluded it.
    let excluded =
        schema.get("enum").and_then(Value::as_array).is_some_and(|list| !list.contains(&Value::Null));
    for _ in 0..MAX_FOLDS {
        let folded = fold_types(schema) | fold_union(schema, &mut loosened);
        if !folded {
            break;
        }
        nullable = true;
    }
    if nullable {
        schema.insert("nullable".to_owned(), Value::Bool(true));
        loosened |= excluded;
        if let Some(Value::Array(values)) = schema.get_mut("enum") {
            values.retain(|value| !value.is_null());
            if values.is_empty() {
                loosened = true;
                schema.shift_remove("enum");
            }
        }
    }
    if depth < MAX_DEPTH {
        let mut each = |value: &mut Value| {
            if let Value::Object(map) = value {
                loosened |= fold(map, depth + 1);
            }
        };
        for keyword in ["properties", "$defs"] {
            if let Some(Value::Object(map)) = schema.get_mut(keyword) {
                map.values_mut().for_each(&mut each);
            }
        }
        if let Some(items) = schema.get_mut("items") {
            each(items);
        }
    }
    if schema.get("type").is_some_and(|kind| kind == "object") {
        schema.entry("properties").or_insert_with(|| json!({}));
        schema.entry("required").or_insert_with(|| json!([]));
    }
    loosened
}

fn fold_types(schema: &mut Object) -> bool {
    let Some(Value::Array(types)) = schema.get_mut("type") else { return false };
    let others: Vec<&Value> = types.iter().filter(|kind| *kind != "null").collect();
    let [only] = others[..] else { return false };
    if others.len() == types.len() {
        return false;
    }
    let only = only.clone();
    schema.insert("type".to_owned(), only);
    true
}

fn fold_union(schema: &mut Object, loosened: &mut bool) -> bool {
    for keyword in ["oneOf", "anyOf"] {
        let Some(branch) = branch_beside_null(schema.get(keyword)) else { continue };
        let apart = |group: &&[&str]| {
            let has = |map: &Object| group.iter().any(|keyword| map.contains_key(*keyword));
            !(has(schema) && has(branch))
        };
        if !TOGETHER.iter().all(apart) {
            continue;
        }
        let branch = branch.clone();
        let judged = schema.keys().any(|key| key != keyword && key != "nullable" && !is_annotation(key));
        let never_null = types_of(&branch).is_some_and(|types| !types.contains(&"null"));
        *loosened |= judged || (keyword == "oneOf" && !never_null);
        if branch.contains_key("$ref") {
            // It stands alone.
            replace_key(schema, keyword, keyword, json!([branch]));
            return true;
        }
        schema.shift_remove(keyword);
        for (key, value) in branch {
            if !(is_annotation(&key) && schema.contains_key(&key)) {
                schema.insert(key, value);
            }
        }
        return true;
    }
    false
}

/// The single branch beside null, if that is what the union is.
fn branch_beside_null(options: Option<&Value>) -> Option<&Object> {
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

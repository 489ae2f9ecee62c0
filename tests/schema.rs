//! What `schema::normalise` promises of every schema: random ones, those of real servers, and the corpus of
//! odd ones that the fuzz target starts from.

use std::{fs, path::Path};

use jsonschema::Draft;
use nanobot_tools::schema::normalise::{Profile, normalise, normalise_openai};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Map, Value, json};

const RESTRICTIVE: [Profile; 4] = [Profile::OpenAi, Profile::Anthropic, Profile::Gemini, Profile::Moonshot];
const ONE: [&str; 11] = [
    "items",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "contentSchema",
];
const LIST: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const MAP: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "$defs"];

/// Every schema below `schema`, and itself.
fn nodes<'a>(schema: &'a Value, found: &mut Vec<&'a Map<String, Value>>) {
    let Value::Object(map) = schema else { return };
    found.push(map);
    for (keyword, value) in map {
        match value {
            Value::Array(list) if LIST.contains(&keyword.as_str()) => {
                for schema in list {
                    nodes(schema, found);
                }
            }
            Value::Object(named) if MAP.contains(&keyword.as_str()) => {
                for schema in named.values() {
                    nodes(schema, found);
                }
            }
            value if ONE.contains(&keyword.as_str()) => nodes(value, found),
            _ => {}
        }
    }
}

fn nodes_of(schema: &Value) -> Vec<&Map<String, Value>> {
    let mut found = Vec::new();
    nodes(schema, &mut found);
    found
}

fn check(original: &Value, profile: Profile) -> Value {
    let out = normalise(original, profile);
    let told = || format!("{profile}: {original}\n-> {out}");
    assert_eq!(normalise(original, profile).to_string(), out.to_string(), "not deterministic: {}", told());
    if original.is_object() {
        let again = normalise(&out, profile);
        assert_eq!(again.to_string(), out.to_string(), "not idempotent: {}", told());
    }
    assert_eq!(out["type"], "object", "{}", told());
    assert!(out["properties"].is_object(), "{}", told());
    for keyword in ["$ref", "anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "definitions"] {
        assert!(out.get(keyword).is_none(), "{keyword} at the root: {}", told());
    }
    let (before, after) = (original.to_string().len(), out.to_string().len());
    let limit = if profile == Profile::Gemini { before * 8 + 16 * 1024 } else { before * 11 / 5 + 256 };
    assert!(after <= limit, "{after} bytes of {before}: {}", told());
    for node in nodes_of(&out) {
        if let Some(reference) = node.get("$ref") {
            let name = reference.as_str().and_then(|r| r.strip_prefix("#/$defs/"));
            assert!(name.is_some_and(|name| out["$defs"].get(name).is_some()), "{reference}: {}", told());
        }
        let fine = match profile {
            Profile::OpenAi => openai_takes(node),
            Profile::Anthropic => !node.get("items").is_some_and(Value::is_array),
            Profile::Gemini => gemini_takes(node),
            _ => moonshot_takes(node),
        };
        assert!(fine, "{}: {}", Value::Object(node.clone()), told());
    }
    if profile == Profile::Anthropic {
        for name in out["properties"].as_object().into_iter().flat_map(Map::keys) {
            let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
            assert!(fits && (1..=64).contains(&name.len()), "{name}: {}", told());
        }
    }
    out
}

fn types(node: &Map<String, Value>) -> Vec<&str> {
    match node.get("type") {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(kind) => kind.as_str().into_iter().collect(),
        None => Vec::new(),
    }
}

fn openai_takes(node: &Map<String, Value>) -> bool {
    (!node.contains_key("$ref") || node.len() == 1)
        && (!types(node).contains(&"array") || node.get("items").is_some_and(Value::is_object))
        && !node.contains_key("prefixItems")
}

fn described(node: &Map<String, Value>) -> bool {
    let names = node.get("required").and_then(Value::as_array);
    let properties = node.get("properties").and_then(Value::as_object);
    names.into_iter().flatten().all(|name| {
        properties.is_some_and(|properties| name.as_str().is_some_and(|name| properties.contains_key(name)))
    })
}

fn gemini_takes(node: &Map<String, Value>) -> bool {
    let known = [
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "default",
        "example",
        "anyOf",
        "items",
        "minItems",
        "maxItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "minLength",
        "maxLength",
        "pattern",
        "minimum",
        "maximum",
        "propertyOrdering",
    ];
    if node.contains_key("anyOf") {
        return node.len() == 1;
    }
    let kind = node.get("type").and_then(Value::as_str).unwrap_or_default();
    let texts = |values: &Value| {
        values.as_array().is_some_and(|list| list.iter().all(|v| v.as_str().is_some_and(|v| !v.is_empty())))
    };
    node.keys().all(|keyword| known.contains(&keyword.as_str()))
        && ["string", "number", "integer", "boolean", "object", "array"].contains(&kind)
        && (kind == "array") == node.contains_key("items")
        && (kind == "object" || !(node.contains_key("properties") || node.contains_key("required")))
        && node.get("enum").is_none_or(|values| kind == "string" && texts(values))
        && described(node)
}

fn moonshot_takes(node: &Map<String, Value>) -> bool {
    let restricts =
        ["properties", "required", "items", "minLength", "maximum", "enum", "additionalProperties"];
    if node.contains_key("$ref") {
        return node.len() == 1;
    }
    if node.contains_key("anyOf") {
        return !node.contains_key("type") && !restricts.iter().any(|keyword| node.contains_key(*keyword));
    }
    // `additionalProperties: {}` is the one place without a type.
    (node.is_empty() || node.contains_key("type"))
        && (!node.get("type").is_some_and(Value::is_array)
            || !restricts.iter().any(|keyword| node.contains_key(*keyword)))
        && node.get("items").is_none_or(|items| items.as_object().is_some_and(|items| !items.is_empty()))
        && !["oneOf", "allOf", "not", "if"].iter().any(|keyword| node.contains_key(*keyword))
        && described(node)
}

/// `nullable: true` as what it means: null is admitted.
fn spelled_out(schema: &Value) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let mut out = Map::new();
    for (keyword, value) in map {
        let value = match value {
            Value::Array(list) if LIST.contains(&keyword.as_str()) => list.iter().map(spelled_out).collect(),
            Value::Object(named) if MAP.contains(&keyword.as_str()) => {
                Value::Object(named.iter().map(|(name, v)| (name.clone(), spelled_out(v))).collect())
            }
            value if ONE.contains(&keyword.as_str()) => spelled_out(value),
            value => value.clone(),
        };
        out.insert(keyword.clone(), value);
    }
    if out.remove("nullable") != Some(Value::Bool(true)) {
        return Value::Object(out);
    }
    let defs = out.remove("$defs");
    let mut union = json!({"anyOf": [out, {"type": "null"}]});
    if let Some(defs) = defs {
        union["$defs"] = defs;
    }
    union
}

fn compiled(schema: &Value) -> Option<jsonschema::Validator> {
    jsonschema::options().with_draft(Draft::Draft202012).offline().build(&spelled_out(schema)).ok()
}

fn accepts_no_less(original: &Value, profile: Profile, arguments: &[Value]) {
    let out = check(original, profile);
    let Some(before) = compiled(original) else { return };
    let after = compiled(&out);
    let Some(after) = after else { panic!("{profile}: does not compile: {original}\n-> {out}") };
    for arguments in arguments {
        if profile == Profile::Gemini && arrays_in_arrays(arguments) > 2 {
            continue;
        }
        if before.is_valid(arguments) {
            assert!(after.is_valid(arguments), "{profile}: {original}\n-> {out}\nrefuses {arguments}");
        }
    }
}

fn arrays_in_arrays(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(arrays_in_arrays).max().unwrap_or_default(),
        Value::Object(map) => map.values().map(arrays_in_arrays).max().unwrap_or_default(),
        _ => 0,
    }
}

const NAMES: [&str; 6] = ["a", "b", "c", "$ref", "type", "x y"];
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];
const REFS: [&str; 11] = [
    "#",
    "#/$defs/A",
    "#/$defs/B",
    "#/properties/a",
    "#/definitions/C",
    "#/properties/b/items",
    "#/$defs/A/properties/a",
    "#anchor",
    "#/$defs/x~1y",
    "#/nowhere",
    "http://h/s",
];

fn values() -> impl Strategy<Value = Value> {
    let leaf = select(vec![
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-2),
        json!(1.5),
        json!(""),
        json!("a"),
        json!("abc"),
    ]);
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::Array),
            vec((select(&NAMES[..]), inner), 0..3).prop_map(|members| members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

fn arguments() -> impl Strategy<Value = Value> {
    vec((select(&NAMES[..]), values()), 0..4)
        .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A keyword with a value that suits it.
fn keyword(inner: BoxedStrategy<Value>) -> BoxedStrategy<(&'static str, Value)> {
    let list = vec(inner.clone(), 1..4).prop_map(Value::Array);
    let named = vec((select(&NAMES[..]), inner.clone()), 0..4).prop_map(|members| {
        Value::Object(members.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect())
    });
    let listed = vec(select(&NAMES[..]), 0..3).prop_map(|mut names| {
        names.sort_unstable();
        names.dedup();
        json!(names)
    });
    let kinds = vec(select(&TYPES[..]), 1..4).prop_map(|mut kinds| {
        kinds.sort_unstable();
        kinds.dedup();
        json!(kinds)
    });
    prop_oneof![
        4 => select(&TYPES[..]).prop_map(|kind| ("type", json!(kind))),
        2 => kinds.prop_map(|kinds| ("type", kinds)),
        5 => named.clone().prop_map(|named| ("properties", named)),
        2 => listed.prop_map(|names| ("required", names)),
        2 => (select(vec!["additionalProperties", "items", "contains", "not", "if", "then", "else"]), inner.clone()),
        1 => (select(vec!["additionalProperties", "items", "unevaluatedProperties"]), any::<bool>().prop_map(Value::Bool)),
        4 => (select(vec!["anyOf", "oneOf", "allOf", "prefixItems"]), list),
        1 => inner.clone().prop_map(|schema| ("patternProperties", json!({"^a": schema}))),
        1 => inner.prop_map(|schema| ("anyOf", json!([schema, {"type": "null"}]))),
        1 => vec(values(), 1..4).prop_map(|values| ("enum", Value::Array(values))),
        1 => (select(vec!["const", "default"]), values()),
        2 => (select(vec!["minItems", "maxItems", "minLength", "maxLength", "maxContains", "minimum",
            "exclusiveMaximum", "minProperties"]), (0..4).prop_map(|count| json!(count))),
        2 => select(&REFS[..]).prop_map(|reference| ("$ref", json!(reference))),
        1 => select(vec![
            ("nullable", json!(true)), ("description", json!("d")), ("title", json!("t")), ("$anchor", json!("anchor")),
            ("format", json!("uri")), ("multipleOf", json!(2)), ("pattern", json!("^a")), ("uniqueItems", json!(true)),
        ]),
    ]
    .boxed()
}

fn schemas() -> impl Strategy<Value = Value> {
    let leaf = select(vec![
        json!({}),
        json!(true),
        json!(false),
        json!({"type": "string"}),
        json!({"type": "object"}),
        json!({"type": "array"}),
        json!({"type": ["string", "null"]}),
        json!({"const": "k"}),
        json!({"$ref": "#/$defs/A"}),
        json!({"$ref": "#"}),
        json!({"$ref": "#/definitions/C"}),
    ]);
    leaf.prop_recursive(4, 24, 4, |inner| {
        vec(keyword(inner.boxed()), 0..5).prop_map(|members| {
            Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        })
    })
}

fn roots() -> impl Strategy<Value = Value> {
    let defs = || vec((select(vec!["A", "B", "C", "x/y"]), schemas()), 0..4);
    (vec(keyword(schemas().boxed()), 0..5), defs(), defs(), any::<bool>()).prop_map(
        |(members, defs, old, object)| {
            let mut root = Map::new();
            if object {
                root.insert("type".to_owned(), json!("object"));
            }
            root.extend(members.into_iter().map(|(name, value)| (name.to_owned(), value)));
            for (keyword, defs) in [("$defs", defs), ("definitions", old)] {
                if !defs.is_empty() {
                    let defs = defs.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
                    root.insert(keyword.to_owned(), Value::Object(defs));
                }
            }
            Value::Object(root)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_the_original_accepts_the_normalised_schema_accepts(
        schema in roots(),
        arguments in vec(arguments(), 4..8),
    ) {
        for profile in RESTRICTIVE {
            accepts_no_less(&schema, profile, &arguments);
        }
        prop_assert_eq!(normalise(&schema, Profile::JsonSchema), schema);
    }

    #[test]
    fn any_value_at_all_gives_a_schema(value in values(), keyword in keyword(values().boxed())) {
        let odd = json!({"properties": {"a": value.clone(), "b": {keyword.0: value.clone()}}, keyword.0: value});
        for profile in RESTRICTIVE {
            check(&odd, profile);
            check(&value, profile);
        }
    }
}

fn folder(name: &str) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            (path.display().to_string(), value)
        })
        .collect()
}

#[test]
fn every_schema_of_the_corpus_keeps_the_promises_of_every_profile() {
    let corpus = folder("corpus/schema");
    assert!(corpus.len() >= 20, "{} files", corpus.len());
    for (path, schema) in corpus {
        for profile in RESTRICTIVE {
            println!("{path} {profile}");
            accepts_no_less(&schema, profile, &[json!({}), json!({"a": {}}), json!({"a": "x", "b": null})]);
        }
    }
}

#[test]
fn the_tools_of_real_servers_keep_the_promises_of_every_profile() {
    let mut tools = 0;
    for (path, list) in folder("data/tool_lists") {
        for tool in list["tools"].as_array().unwrap() {
            tools += 1;
            for profile in RESTRICTIVE {
                println!("{path} {} {profile}", tool["name"]);
                let out = check(&tool["inputSchema"], profile);
                if profile != Profile::Anthropic {
                    let names = |schema: &Value| -> Vec<String> {
                        schema["properties"].as_object().into_iter().flat_map(Map::keys).cloned().collect()
                    };
                    assert_eq!(names(&out), names(&tool["inputSchema"]));
                }
            }
        }
    }
    assert!(tools > 100, "{tools} tools");
}

#[test]
fn a_profile_is_known_by_its_name_only() {
    for profile in Profile::ALL {
        assert_eq!(profile.to_string().parse(), Ok(profile));
    }
    let error = "OpenAI".parse::<Profile>().unwrap_err().to_string();
    for profile in Profile::ALL {
        assert!(error.contains(profile.name()), "{error}");
    }
    assert_eq!(
        normalise(&json!({"type": "object"}), Profile::default()),
        normalise_openai(&json!({"type": "object"}))
    );
}

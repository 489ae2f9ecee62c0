//! Casting and validating without Python: the same rules on `serde_json` values.

use jsonschema::json::SerdeJson;
use nanobot_tools::{
    Error,
    validate::{CompiledSchema, MAX_DEPTH},
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn compile(schema: &Value) -> CompiledSchema<SerdeJson> {
    CompiledSchema::compile(schema)
}

fn accepted(schema: &Value, arguments: Value) -> Value {
    Value::Object(compile(schema).prepare("x", arguments).expect("the arguments fit"))
}

fn refused(schema: &Value, arguments: Value) -> String {
    match compile(schema).prepare("x", arguments) {
        Err(Error::InvalidArguments { tool, text, .. }) => {
            assert_eq!(tool, "x");
            text
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn arguments_are_cast_to_what_the_schema_asks_for() {
    let schema = json!({"type": "object", "properties": {
        "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"}, "s": {"type": "string"},
        "a": {"type": "array", "items": {"type": "integer"}}, "o": {"type": "object"},
        "u": {"type": ["string", "integer"]}, "r": {"$ref": "#/properties/i"},
    }});
    let sent = json!({"i": "5.0", "n": "2.5", "b": "yes", "s": {"k": 1}, "a": "[\"1\",2.0]", "o": "{}", "u": 5, "r": "7"});
    let cast = json!({"i": 5, "n": 2.5, "b": true, "s": "{\"k\":1}", "a": [1, 2], "o": {}, "u": 5, "r": 7});
    assert_eq!(accepted(&schema, sent), cast);
}

#[test]
fn arguments_are_unwrapped_first() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    for sent in [
        json!({"a": 1}),
        json!("{\"a\": \"1\"}"),
        json!({"arguments": "{\"a\":1}"}),
        json!("\"{\\\"a\\\":1}\""),
    ] {
        assert_eq!(accepted(&schema, sent), json!({"a": 1}));
    }
    assert_eq!(accepted(&schema, Value::Null), json!({}));
}

#[test]
fn arguments_that_are_no_object_name_the_required_fields() {
    let schema = json!({"type": "object", "required": ["path"]});
    for sent in [json!("{\"path\": \"x"), json!([1]), json!(5), json!("text")] {
        let text = refused(&schema, sent);
        assert!(text.starts_with("Error: Tool 'x' parameters must be a JSON object, got "), "{text}");
        assert!(text.ends_with("Required parameters: path."), "{text}");
    }
}

#[test]
fn optional_nulls_are_dropped_and_required_ones_refused() {
    let schema = json!({"type": "object", "required": ["r"], "properties": {
        "r": {"type": "string"}, "o": {"type": "string"}, "n": {"type": "string", "nullable": true},
    }});
    assert_eq!(accepted(&schema, json!({"r": "", "o": null, "n": null})), json!({"r": "", "n": null}));
    assert_eq!(
        refused(&schema, json!({"r": null})),
        "Error: Invalid parameters for tool 'x': r should be string"
    );
}

#[test]
fn deep_arguments_are_an_error_at_any_schema() {
    let tree = json!({"properties": {"v": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"anyOf": [
        {"type": "object", "properties": {"v": {"$ref": "#/$defs/n"}}}, {"type": "integer"}, {"type": "null"},
    ]}}});
    let nested = |levels: usize| (0..levels).fold(json!("1"), |inner, _| json!({"v": inner}));
    // A small stack: what is admitted must fit anywhere.
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || {
            assert!(compile(&tree).prepare("x", nested(MAX_DEPTH)).is_ok());
            assert!(refused(&tree, nested(MAX_DEPTH + 1)).contains("nested more than 128 levels"));
            assert!(refused(&json!({}), nested(1_000)).contains("nested more than 128 levels"));
        })
        .expect("a thread")
        .join()
        .expect("no panic");
}

#[test]
fn a_remote_reference_is_ignored_and_said_so() {
    let compiled = compile(
        &json!({"properties": {"a": {"$ref": "http://127.0.0.1:1/s.json"}, "b": {"type": "integer"}}}),
    );
    assert!(compiled.warning().is_some_and(|warning| warning.contains("http://127.0.0.1:1/s.json")));
    assert!(compiled.prepare("x", json!({"a": 1, "b": 2})).is_ok());
    assert!(compiled.prepare("x", json!({"b": "x"})).is_err());
}

#[test]
fn nothing_is_rebuilt_when_nothing_changes() {
    let compiled = compile(&json!({"properties": {"a": {"type": "array", "items": {"type": "integer"}}}}));
    assert!(compiled.cast(&&json!({"a": [1, 2]})).is_none());
    assert!(compiled.cast(&&json!({"a": [1, "2"]})).is_some());
}

fn anything() -> impl Strategy<Value = Value> {
    let keyword = prop::sample::select(vec![
        "type",
        "properties",
        "required",
        "items",
        "anyOf",
        "allOf",
        "$ref",
        "enum",
        "const",
        "pattern",
        "minimum",
        "nullable",
        "additionalProperties",
        "$defs",
        "prefixItems",
        "not",
        "if",
        "then",
        "$id",
        "$schema",
        "a",
        "b",
        "exclusiveMinimum",
        "dependencies",
        "patternProperties",
        "minLength",
        "uniqueItems",
        "contains",
        "$anchor",
    ]);
    let word = prop::sample::select(vec![
        "string",
        "integer",
        "object",
        "array",
        "null",
        "any",
        "#",
        "#/$defs/a",
        "#a",
        "(",
        "a",
        "b",
        "",
        "5",
        "[1]",
        "http://json-schema.org/draft-07/schema#",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..5_i64).prop_map(Value::from),
        (-3.0..5.0_f64).prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keyword.clone(), inner), 0..6).prop_map(|members| members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_schema_and_no_argument_panics(schema in anything(), arguments in anything()) {
        let compiled = compile(&schema);
        let _ = compiled.prepare("x", arguments.clone());
        let _ = compiled.cast(&&arguments);
        let failures = compiled.validate(&&arguments, "p");
        prop_assert!(failures.iter().all(|failure| !failure.message.is_empty()));
    }

    #[test]
    fn what_was_prepared_is_valid_and_stays_as_it_is(schema in anything(), arguments in anything()) {
        let compiled = compile(&schema);
        if compiled.takes_object() && let Ok(members) = compiled.prepare("x", arguments) {
            let prepared = Value::Object(members);
            prop_assert_eq!(compiled.validate(&&prepared, ""), vec![]);
        }
    }
}

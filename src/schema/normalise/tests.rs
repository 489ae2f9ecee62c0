//! What each profile promises, on small schemas.

use serde_json::Map;

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
    // What leads nowhere, or out of the schema, may be anything.
    assert_eq!(out["properties"]["c"], json!({}));
    assert_eq!(out["properties"]["d"], json!({}));
    assert!(out.get("definitions").is_none());
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

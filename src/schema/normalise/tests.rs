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

fn property(schema: &Value, profile: Profile) -> Value {
    let mut root = json!({"type": "object", "$defs": {"A": {"type": "string"}, "T": {"type": "object",
        "properties": {"next": {"$ref": "#/$defs/T"}}}}});
    root["properties"] = json!({"x": schema});
    normalise(&root, profile)["properties"]["x"].take()
}

#[test]
fn a_reference_stands_alone_and_keeps_its_description() {
    let described = json!({"$ref": "#/$defs/A", "description": "d"});
    let around = json!({"anyOf": [{"$ref": "#/$defs/A"}], "description": "d"});
    assert_eq!(property(&described, Profile::OpenAi), around);
    assert_eq!(property(&described, Profile::Moonshot), around);
    assert_eq!(property(&described, Profile::Anthropic), described);
    assert_eq!(property(&described, Profile::Gemini), json!({"description": "d", "type": "string"}));
}

#[test]
fn arrays_say_what_their_elements_are() {
    let closed = json!({"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": false});
    let elements = json!({"anyOf": [{"type": "string"}, {"type": "integer"}]});
    for profile in [Profile::OpenAi, Profile::Gemini, Profile::Moonshot] {
        let out = property(&closed, profile);
        assert_eq!((&out["items"], &out["maxItems"]), (&elements, &json!(2)), "{profile}");
    }
    let tuple = property(&closed, Profile::Anthropic);
    assert_eq!(tuple["prefixItems"], json!([{"type": "string"}, {"type": "integer"}]));
    assert_eq!(tuple["items"], json!(false));
    let bare = json!({"type": "array"});
    assert_eq!(property(&bare, Profile::OpenAi), json!({"type": "array", "items": {}}));
    assert_eq!(property(&bare, Profile::Moonshot), bare);
    assert!(property(&bare, Profile::Gemini)["items"]["anyOf"].is_array());
}

#[test]
fn gemini_gets_only_what_it_knows() {
    let union = json!({"description": "d", "oneOf": [{"const": "a"}, {"type": "integer", "exclusiveMinimum": 0,
        "format": "uint8"}, {"type": "null"}]});
    assert_eq!(
        property(&union, Profile::Gemini),
        json!({"anyOf": [{"type": "string", "enum": ["a"], "description": "d", "nullable": true},
            {"type": "integer", "minimum": 0, "description": "d"}]})
    );
    assert_eq!(
        property(&json!({"type": "integer", "enum": [1, 2]}), Profile::Gemini),
        json!({"type": "integer", "description": "One of: 1, 2"})
    );
    let object = json!({"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}, "required": ["t", "gone"],
        "additionalProperties": false});
    assert_eq!(
        property(&object, Profile::Gemini),
        json!({"type": "object", "properties": {"t": {"type": "object", "properties": {"next":
            {"type": "object"}}}}, "required": ["t"]})
    );
}

#[test]
fn moonshot_has_a_type_everywhere_and_none_beside_a_union() {
    for (schema, wanted) in [
        (
            json!({"description": "d"}),
            json!({"description": "d", "type": ["string", "number", "boolean", "object", "array", "null"]}),
        ),
        (json!({"enum": ["a", "b"]}), json!({"type": "string", "enum": ["a", "b"]})),
        (
            json!({"type": "string", "description": "d", "anyOf": [{"minLength": 1}, {"maxLength": 9}]}),
            json!({"description": "d", "anyOf": [{"type": "string", "minLength": 1}, {"type": "string", "maxLength": 9}]}),
        ),
        (
            json!({"type": ["string", "null"], "maxLength": 3}),
            json!({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]}),
        ),
        (json!({"type": ["string", "null"]}), json!({"type": ["string", "null"]})),
        (
            json!({"allOf": [{"$ref": "#/$defs/A"}], "nullable": true}),
            json!({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}),
        ),
    ] {
        assert_eq!(property(&schema, Profile::Moonshot), wanted);
    }
}

#[test]
fn a_name_that_anthropic_refuses_is_mentioned_instead() {
    let schema = json!({"type": "object", "description": "Lists.", "properties": {"filter[id]": {"type": "string"},
        "limit": {"type": "integer"}}, "required": ["filter[id]"], "additionalProperties": false});
    assert_eq!(
        normalise(&schema, Profile::Anthropic),
        json!({"type": "object", "description": "Lists. Further properties: \"filter[id]\".",
            "properties": {"limit": {"type": "integer"}}, "required": []})
    );
}

#[test]
fn the_tags_of_a_union_at_the_root_become_an_enum() {
    let branch = |tag: &str, name: &str| {
        json!({"type": "object", "properties": {"kind": {"const": tag}, name: {"type": "string"}},
            "required": ["kind", name], "additionalProperties": false})
    };
    let out = normalise_openai(&json!({"oneOf": [branch("a", "x"), branch("b", "y")]}));
    assert_eq!(
        out,
        json!({"properties": {"kind": {"enum": ["a", "b"]}, "x": {"type": "string"}, "y": {"type": "string"}},
            "required": ["kind"], "type": "object"})
    );
}

#[test]
fn what_is_loosened_under_a_negation_does_not_tighten() {
    let out = property(
        &json!({"type": "object", "not": {"properties": {"y": {"$ref": "#/nowhere"}}}}),
        Profile::OpenAi,
    );
    assert!(out.get("not").is_none(), "{out}");
}

#[test]
fn references_that_lead_to_themselves_alone_admit_anything() {
    let schema = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"anyOf": [{"$ref": "#/$defs/A"}]}}});
    let out = normalise_openai(&schema);
    assert_eq!(out["$defs"], json!({"A": {}, "B": {}}));
}

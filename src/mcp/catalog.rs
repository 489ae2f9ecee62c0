//! What a server offers, decoded item by item: a bad item costs only itself.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::era::{self, ParamHeader};

/// A tool as the server lists it, with what was odd put right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RawTool {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) input_schema: Value,
    pub(super) output_schema: Option<Value>,
    pub(super) read_only: bool,
    /// Whether running it twice with the same arguments does no more than once.
    pub(super) idempotent: bool,
    /// The arguments that headers repeat, in the era that has them.
    pub(super) headers: Vec<ParamHeader>,
}

/// A resource as the server lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RawResource {
    pub(super) uri: String,
    pub(super) name: String,
    pub(super) description: Option<String>,
}

/// A prompt as the server lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RawPrompt {
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// Name, description, and whether it must be given.
    pub(super) arguments: Vec<(String, Option<String>, bool)>,
}

/// The tools of a list; what is skipped or repaired is noted.
///
/// With `strict_headers`, a tool whose header annotations are faulty is left out, as the newer era
/// demands over HTTP.
pub(super) fn tools(items: &[Value], strict_headers: bool, notes: &mut Vec<String>) -> Vec<RawTool> {
    let tools = items.iter().filter_map(|item| keep(tool(item, strict_headers, notes), notes)).collect();
    unique(tools, "tool", |tool: &RawTool| &tool.name, notes)
}

/// The resources of a list.
pub(super) fn resources(items: &[Value], notes: &mut Vec<String>) -> Vec<RawResource> {
    let resources = items.iter().filter_map(|item| keep(resource(item), notes)).collect();
    unique(resources, "resource", |resource: &RawResource| &resource.uri, notes)
}

/// The prompts of a list.
pub(super) fn prompts(items: &[Value], notes: &mut Vec<String>) -> Vec<RawPrompt> {
    let prompts = items.iter().filter_map(|item| keep(prompt(item), notes)).collect();
    unique(prompts, "prompt", |prompt: &RawPrompt| &prompt.name, notes)
}

fn keep<T>(item: Result<T, String>, notes: &mut Vec<String>) -> Option<T> {
    item.map_err(|why| notes.push(why)).ok()
}

/// The first of those that have the same key.
fn unique<T>(items: Vec<T>, what: &str, key: impl Fn(&T) -> &String, notes: &mut Vec<String>) -> Vec<T> {
    let mut known = HashSet::with_capacity(items.len());
    let mut kept = Vec::with_capacity(items.len());
    for item in items {
        if known.insert(key(&item).clone()) {
            kept.push(item);
        } else {
            notes.push(format!("{what} '{}' is listed twice; the first one counts", key(&item)));
        }
    }
    kept
}

fn text(map: &Map<String, Value>, key: &str) -> Option<String> {
    map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn tool(item: &Value, strict_headers: bool, notes: &mut Vec<String>) -> Result<RawTool, String> {
    let Value::Object(item) = item else {
        return Err("an item of tools/list is no object; skipped".to_owned());
    };
    let Some(name) = text(item, "name") else {
        return Err("a tool without a name is skipped".to_owned());
    };
    let input_schema = match item.get("inputSchema") {
        Some(schema @ Value::Object(_)) => schema.clone(),
        missing => {
            if missing.is_some_and(|schema| !schema.is_null()) {
                notes
                    .push(format!("tool '{name}': its inputSchema is no object; any arguments are accepted"));
            }
            json!({"type": "object", "properties": {}})
        }
    };
    let headers = match era::param_headers(&input_schema) {
        Ok(headers) => headers,
        Err(why) if strict_headers => return Err(format!("tool '{name}' is skipped: {why}")),
        Err(_) => Vec::new(),
    };
    let annotations = item.get("annotations").and_then(Value::as_object);
    let hint = |name| annotations.and_then(|a| a.get(name)) == Some(&Value::Bool(true));
    Ok(RawTool {
        description: text(item, "description"),
        read_only: hint("readOnlyHint"),
        idempotent: hint("idempotentHint"),
        output_schema: item.get("outputSchema").filter(|schema| schema.is_object()).cloned(),
        input_schema,
        headers,
        name,
    })
}

fn resource(item: &Value) -> Result<RawResource, String> {
    let Value::Object(item) = item else {
        return Err("an item of resources/list is no object; skipped".to_owned());
    };
    let Some(uri) = text(item, "uri") else {
        return Err("a resource without an address is skipped".to_owned());
    };
    let name = text(item, "name").unwrap_or_else(|| uri.clone());
    Ok(RawResource { description: text(item, "description"), name, uri })
}

fn prompt(item: &Value) -> Result<RawPrompt, String> {
    let Value::Object(item) = item else {
        return Err("an item of prompts/list is no object; skipped".to_owned());
    };
    let Some(name) = text(item, "name") else {
        return Err("a prompt without a name is skipped".to_owned());
    };
    let arguments = item.get("arguments").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let arguments = arguments
        .iter()
        .filter_map(Value::as_object)
        .filter_map(|argument| {
            let required = argument.get("required") == Some(&Value::Bool(true));
            Some((text(argument, "name")?, text(argument, "description"), required))
        })
        .collect();
    Ok(RawPrompt { description: text(item, "description"), arguments, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_tool_costs_only_itself() {
        let items = [
            json!({"name": "a", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}),
            json!({"name": 3}),
            json!(7),
            json!(null),
            json!({}),
            json!({"name": ""}),
            json!({"name": "b", "description": 5, "inputSchema": "x", "annotations": [1]}),
            json!({"name": "a", "description": "again"}),
            json!({"name": "c", "description": "see", "annotations": {"readOnlyHint": "yes"}}),
        ];
        let mut notes = Vec::new();
        let tools = tools(&items, false, &mut notes);
        let names: Vec<_> = tools.iter().map(|t| (t.name.as_str(), t.read_only)).collect();
        assert_eq!(names, [("a", true), ("b", false), ("c", false)]);
        assert_eq!(tools[1].input_schema, json!({"type": "object", "properties": {}}));
        assert_eq!(tools[2].description.as_deref(), Some("see"));
        assert_eq!(notes.len(), 7);
    }

    #[test]
    fn faulty_header_annotations_cost_the_tool_only_where_headers_are_sent() {
        let schema = json!({"properties": {"a": {"type": "string", "x-mcp-header": "no good"}}});
        let items = [json!({"name": "a", "inputSchema": schema}), json!({"name": "b"})];
        let mut notes = Vec::new();
        assert_eq!(tools(&items, true, &mut notes).len(), 1);
        assert!(notes[0].contains("'a'") && notes[0].contains("x-mcp-header"), "{notes:?}");
        assert_eq!(tools(&items, false, &mut Vec::new()).len(), 2);
    }

    #[test]
    fn bad_resources_and_prompts_cost_only_themselves() {
        let mut notes = Vec::new();
        let items = [json!({"uri": "a:1"}), json!({"name": "x"}), json!({"uri": "a:1"}), json!(1)];
        assert_eq!(
            resources(&items, &mut notes),
            [RawResource { uri: "a:1".into(), name: "a:1".into(), description: None }]
        );
        let items = [json!({"name": "p", "arguments": [{"name": "n", "required": true}, {}, 3]}), json!({})];
        let prompts = prompts(&items, &mut notes);
        assert_eq!(prompts[0].arguments, [("n".to_owned(), None, true)]);
        assert_eq!(notes.len(), 4);
    }
}

//! What a server offers, decoded item by item: a bad item costs only itself.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

/// A tool as the server lists it, with what was odd put right.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RawTool {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) input_schema: Value,
    pub(super) read_only: bool,
}

/// Append the tools of one page of `tools/list`; what is skipped or repaired is noted.
///
/// # Errors
/// When the page holds no list at all.
pub(super) fn tools_of_page(
    page: &Value,
    tools: &mut Vec<RawTool>,
    notes: &mut Vec<String>,
) -> std::result::Result<(), String> {
    let items = match page.get("tools") {
        Some(Value::Array(items)) => items.as_slice(),
        None | Some(Value::Null) if page.is_object() => &[],
        _ => return Err("tools/list brought no list of tools".to_owned()),
    };
    let mut known: HashSet<String> = tools.iter().map(|tool| tool.name.clone()).collect();
    for item in items {
        match tool(item, notes) {
            Ok(tool) if known.contains(&tool.name) => {
                notes.push(format!("tool '{}' is listed twice; the first one counts", tool.name));
            }
            Ok(tool) => {
                known.insert(tool.name.clone());
                tools.push(tool);
            }
            Err(why) => notes.push(why),
        }
    }
    Ok(())
}

fn tool(item: &Value, notes: &mut Vec<String>) -> std::result::Result<RawTool, String> {
    let Value::Object(item) = item else {
        return Err("an item of tools/list is no object; skipped".to_owned());
    };
    let name = match item.get("name") {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        _ => return Err("a tool without a name is skipped".to_owned()),
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
    let text = |map: &Map<String, Value>, key: &str| {
        map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let annotations = item.get("annotations").and_then(Value::as_object);
    Ok(RawTool {
        description: text(item, "description"),
        read_only: annotations.and_then(|a| a.get("readOnlyHint")) == Some(&Value::Bool(true)),
        input_schema,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_tool_costs_only_itself() {
        let page = json!({"tools": [
            {"name": "a", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
            {"name": 3}, 7, null, {}, {"name": ""},
            {"name": "b", "description": 5, "inputSchema": "x", "annotations": [1]},
            {"name": "a", "description": "again"},
            {"name": "c", "description": "see", "annotations": {"readOnlyHint": "yes"}},
        ]});
        let (mut tools, mut notes) = (Vec::new(), Vec::new());
        tools_of_page(&page, &mut tools, &mut notes).unwrap();
        let names: Vec<_> = tools.iter().map(|t| (t.name.as_str(), t.read_only)).collect();
        assert_eq!(names, [("a", true), ("b", false), ("c", false)]);
        assert_eq!(tools[1].input_schema, json!({"type": "object", "properties": {}}));
        assert_eq!(tools[2].description.as_deref(), Some("see"));
        assert_eq!(notes.len(), 7);
    }

    #[test]
    fn a_page_without_a_list_is_an_error_unless_it_is_merely_empty() {
        let read = |page: Value| tools_of_page(&page, &mut Vec::new(), &mut Vec::new());
        assert!(read(json!({})).is_ok());
        assert!(read(json!([])).is_err() && read(json!({"tools": {}})).is_err());
    }
}

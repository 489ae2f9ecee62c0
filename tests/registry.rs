//! What the core registry promises, without Python.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use nanobot_tools::{Error, FunctionTool, Registry, Tool, ToolOutput, ToolSpec};
use serde_json::{Value, json};

fn named(name: &str) -> Arc<dyn Tool> {
    let spec = ToolSpec::new(name, format!("The tool {name}."), json!({"type": "object", "properties": {}}));
    Arc::new(FunctionTool::new(spec, |_, _| async { Ok(ToolOutput::text("ok")) }))
}

fn names(registry: &Registry) -> Vec<String> {
    registry.snapshot().definitions.iter().map(|d| d.name.clone()).collect()
}

#[test]
fn built_ins_come_first_and_mcp_tools_last_each_by_name() {
    let registry = Registry::new();
    for name in ["mcp_b", "z", "mcp_a", "a"] {
        registry.register(named(name));
    }
    assert_eq!(names(&registry), ["a", "z", "mcp_a", "mcp_b"]);
}

#[test]
fn the_json_is_an_array_of_openai_functions() {
    let registry = Registry::new();
    registry.register(named("a"));
    let json: Value = serde_json::from_slice(&registry.snapshot().json()).expect("valid JSON");
    assert_eq!(
        json,
        json!([{"type": "function", "function": {
            "name": "a", "description": "The tool a.", "parameters": {"type": "object", "properties": {}}}}])
    );
}

#[test]
fn the_snapshot_is_kept_until_something_changes() {
    let registry = Registry::new();
    registry.register(named("a"));
    let first = registry.snapshot();
    assert!(Arc::ptr_eq(&first, &registry.snapshot()));
    registry.register(named("a"));
    let second = registry.snapshot();
    assert!(second.generation > first.generation);
    assert_eq!(second.fingerprint(), first.fingerprint(), "the model sees the same");
    registry.unregister("a");
    assert_ne!(registry.snapshot().fingerprint(), first.fingerprint());
}

#[test]
fn several_changes_at_once_are_one_change() {
    let registry = Registry::new();
    registry.register(named("old"));
    let told = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&told);
    let id = registry.subscribe(Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    registry.apply(&["old".into()], vec![named("a"), named("b")]);
    assert_eq!(told.load(Ordering::Relaxed), 1);
    assert_eq!(names(&registry), ["a", "b"]);
    registry.apply(&[], vec![]);
    registry.unsubscribe(id);
    registry.register(named("c"));
    assert_eq!(told.load(Ordering::Relaxed), 1);
}

#[test]
fn a_miss_names_what_is_near() {
    let registry = Registry::new();
    registry.register(named("read_file"));
    let Error::NotFound { text, .. } = registry.not_found("read-file") else { panic!("not found") };
    assert_eq!(
        text,
        "Error: Tool 'read-file' not found. Did you mean 'read_file'? Tool names must match exactly. \
         Available: read_file"
    );
}

//! What the tokio driver of the executor promises, without Python.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use nanobot_tools::{
    Arguments, Error, FunctionTool, Registry, ToolCall, ToolOutput, ToolSpec,
    executor::{Executor, Limits},
};
use serde_json::{Map, Value, json};

struct Gauge {
    now: AtomicUsize,
    peak: AtomicUsize,
}

fn registry() -> (Arc<Registry>, Arc<Gauge>) {
    let registry = Arc::new(Registry::new());
    let gauge = Arc::new(Gauge { now: AtomicUsize::new(0), peak: AtomicUsize::new(0) });
    let schema = json!({"type": "object", "properties": {"ms": {"type": "integer"}}});
    let inside = Arc::clone(&gauge);
    let nap = FunctionTool::new(
        ToolSpec::new("nap", "Sleep.", schema.clone()).read_only(),
        move |arguments: Map<String, Value>, _| {
            let inside = Arc::clone(&inside);
            async move {
                let now = inside.now.fetch_add(1, Ordering::SeqCst) + 1;
                inside.peak.fetch_max(now, Ordering::SeqCst);
                let ms = arguments.get("ms").and_then(Value::as_u64).unwrap_or(0);
                tokio::time::sleep(Duration::from_millis(ms)).await;
                inside.now.fetch_sub(1, Ordering::SeqCst);
                Ok(ToolOutput::text(format!("slept {ms}")))
            }
        },
    );
    registry.register(Arc::new(nap));
    let panics =
        FunctionTool::new(ToolSpec::new("panics", "Panic.", schema.clone()).read_only(), |_, _| async {
            panic!("out of order")
        });
    registry.register(Arc::new(panics));
    let fails = FunctionTool::new(ToolSpec::new("fails", "Fail.", schema), |_, _| async {
        Err(Error::Tool("no luck".into()))
    });
    registry.register(Arc::new(fails));
    (registry, gauge)
}

fn call(name: &str, arguments: Value) -> ToolCall {
    let Value::Object(map) = arguments else { panic!("an object") };
    ToolCall { id: name.into(), name: name.into(), arguments: Arguments::Json(map) }
}

fn text(result: &Result<ToolOutput, Error>) -> String {
    match result {
        Ok(output) => output.as_text().unwrap_or_default().to_owned(),
        Err(error) => format!("{}: {error}", error.code()),
    }
}

#[tokio::test]
async fn outcomes_come_in_the_order_of_the_calls_and_one_failure_costs_only_itself() {
    let (registry, _) = registry();
    let executor = Executor::new(registry, Limits::default(), None, true);
    let outcomes = executor
        .run(vec![
            call("nap", json!({"ms": "20"})),
            call("panics", json!({})),
            call("fails", json!({})),
            call("missing", json!({})),
            call("nap", json!({"ms": "soon"})),
            call("nap", json!({"ms": 1})),
        ])
        .await;
    let texts: Vec<String> = outcomes.iter().map(|o| text(&o.result)).collect();
    assert_eq!(texts[0], "slept 20");
    assert_eq!(texts[1], "internal: internal error: out of order");
    assert_eq!(texts[2], "tool_error: no luck");
    assert!(texts[3].starts_with("not_found: Error: Tool 'missing' not found."), "{}", texts[3]);
    assert_eq!(texts[4], "invalid_arguments: Error: Invalid parameters for tool 'nap': ms should be integer");
    assert_eq!(texts[5], "slept 1");
}

#[tokio::test]
async fn no_more_calls_run_at_once_than_allowed() {
    let (registry, gauge) = registry();
    let limits = Limits { overall: Some(3), ..Limits::default() };
    let executor = Executor::new(registry, limits, None, true);
    let calls = (0..12).map(|_| call("nap", json!({"ms": 5}))).collect();
    let outcomes = executor.run(calls).await;
    assert!(outcomes.iter().all(|o| o.result.is_ok()));
    assert_eq!(gauge.peak.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_call_over_its_limit_is_stopped() {
    let (registry, gauge) = registry();
    let executor = Executor::new(registry, Limits::default(), Some(Duration::from_millis(30)), true);
    let outcomes = executor.run(vec![call("nap", json!({"ms": 30_000}))]).await;
    assert_eq!(text(&outcomes[0].result), "timeout: timed out after 0.03s");
    assert!(outcomes[0].duration < Duration::from_secs(20));
    assert_eq!(gauge.peak.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn dropping_a_run_frees_its_slots() {
    let (registry, _) = registry();
    let limits = Limits { overall: Some(1), ..Limits::default() };
    let executor = Executor::new(registry, limits, None, true);
    let run = executor.run(vec![call("nap", json!({"ms": 30_000}))]);
    assert!(tokio::time::timeout(Duration::from_millis(30), run).await.is_err());
    let outcomes =
        tokio::time::timeout(Duration::from_secs(20), executor.run(vec![call("nap", json!({}))])).await;
    assert!(outcomes.expect("the slot is free").iter().all(|o| o.result.is_ok()));
}

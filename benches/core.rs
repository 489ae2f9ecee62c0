//! The core without Python: definitions, planning, and slots.

#![allow(missing_docs, reason = "criterion's macros write functions without any")]

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use nanobot_tools::{
    FunctionTool, Registry, Tool, ToolOutput, ToolSpec,
    executor::{CallKey, Limiter, Limits, Schedule, Turn, plan},
};
use serde_json::json;

fn tool(name: String) -> Arc<dyn Tool> {
    let schema = json!({"type": "object", "properties": {
        "path": {"type": "string"}, "limit": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["a", "b"]}, "deep": {"type": "boolean"}}, "required": ["path"]});
    let spec = ToolSpec::new(name, "A tool.", schema).read_only();
    Arc::new(FunctionTool::new(spec, |_, _| async { Ok(ToolOutput::text("ok")) }))
}

fn registry() -> Registry {
    let registry = Registry::new();
    for i in 0..200 {
        registry.register(tool(format!("mcp_server_tool_{i}")));
    }
    registry
}

fn definitions(c: &mut Criterion) {
    let registry = registry();
    c.bench_function("definitions after one change among 201 tools", |b| {
        b.iter(|| {
            registry.register(tool("mcp_changing".into()));
            black_box(registry.snapshot().definitions.len())
        });
    });
    c.bench_function("definitions and JSON after one change among 201 tools", |b| {
        b.iter(|| {
            registry.register(tool("mcp_changing".into()));
            black_box(registry.snapshot().json().len())
        });
    });
    c.bench_function("prepare a call of four fields", |b| {
        b.iter_batched(
            || json!({"path": "a", "limit": 3, "mode": "a", "deep": true}),
            |arguments| black_box(registry.prepare("mcp_server_tool_7", arguments).is_ok()),
            criterion::BatchSize::SmallInput,
        );
    });
}

fn schedule(c: &mut Criterion) {
    let keys: Vec<CallKey> =
        (0..64).map(|i| CallKey { tool: format!("tool_{i}"), server: Some("server".into()) }).collect();
    let limiter = Limiter::new(Limits::default());
    c.bench_function("schedule a batch of 64 calls", |b| {
        b.iter(|| {
            let batches = plan(&[true; 64], true);
            let mut schedule = Schedule::new(keys.clone(), batches, Arc::clone(&limiter), None);
            let mut permits = Vec::with_capacity(64);
            while let Turn::Start { permit, .. } = schedule.turn(None) {
                permits.push(permit);
            }
            for permit in permits {
                drop(permit);
                schedule.ended();
            }
            black_box(matches!(schedule.turn(None), Turn::Finished))
        });
    });
}

criterion_group!(benches, definitions, schedule);
criterion_main!(benches);

//! Servers of others: that of the Rust SDK, and where npm has put it server-everything (`tests/node`).
//! `test_mcp_real_servers.py` calls many more.

#[path = "servers/support.rs"]
mod support;

use std::{path::Path, sync::Arc};

use nanobot_tools::{
    CallContext, Progress, Tool,
    mcp::{Connection, ServerConfig, connect},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use support::{gone, server, tool};

async fn call(connection: &Connection, name: &str, arguments: Value, context: CallContext) -> String {
    let Value::Object(arguments) = arguments else { panic!("arguments are objects") };
    let output = tool(connection, name).call(arguments.into(), context).await.unwrap();
    output.as_text().unwrap().to_owned()
}

#[tokio::test]
async fn the_rust_sdks_server_is_understood_in_both_eras() {
    for (pinned, agreed) in
        [(None, "2026-07-28"), (Some("2025-06-18"), "2025-06-18"), (Some("2024-11-05"), "2024-11-05")]
    {
        let entry = json!({"command": server("rmcp_server"), "protocol": pinned});
        let connection = connect("rs", ServerConfig::from_json("rs", &entry).unwrap()).await.unwrap();
        assert_eq!(connection.protocol_version(), agreed);
        assert_eq!(connection.instructions(), Some("Ask for what you need."));
        let names: Vec<String> = connection.tools().iter().map(|tool| tool.raw_name().to_owned()).collect();
        assert_eq!(names, ["echo", "ask", "count", "region"]);
        assert_eq!(call(&connection, "echo", json!({"text": "hi"}), CallContext::default()).await, "hi");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let progress = Some(Arc::new(move |p: Progress| sink.lock().push(p.progress)) as _);
        let context = CallContext { progress, ..CallContext::default() };
        assert_eq!(call(&connection, "count", json!({"to": 3}), context).await, "3");
        assert_eq!(*seen.lock(), [1.0, 2.0, 3.0]);
        connection.close().await;
    }
}

#[tokio::test]
#[ignore = "needs Node and the npm servers, which `make test` installs"]
async fn server_everything_is_understood() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/node/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let config = ServerConfig::stdio("node", [script.to_str().unwrap(), "stdio"]);
    let connection = connect("everything", config).await.unwrap();
    let names: Vec<String> = connection.tools().iter().map(|tool| tool.raw_name().to_owned()).collect();
    println!("{names:?} {:?} {:?}", connection.server_info(), connection.warnings());
    assert_eq!(names.len(), 13);
    let context = CallContext::default;
    assert_eq!(call(&connection, "echo", json!({"message": "hi"}), context()).await, "Echo: hi");
    for (name, arguments) in [
        ("get-sum", json!({"a": 1, "b": 2})),
        ("get-sum", json!({"a": "x"})),
        ("get-tiny-image", json!({})),
        ("get-structured-content", json!({"location": "New York"})),
        ("get-resource-links", json!({"count": 2})),
        ("get-resource-reference", json!({"resourceType": "Blob", "resourceId": 1})),
        ("get-annotated-message", json!({"messageType": "error", "includeImage": true})),
    ] {
        println!("{name}: {}\n", call(&connection, name, arguments, context()).await);
    }
    let seen = Arc::new(Mutex::new(0));
    let count = Arc::clone(&seen);
    let progress =
        CallContext { progress: Some(Arc::new(move |_| *count.lock() += 1)), ..CallContext::default() };
    let arguments = json!({"duration": 1, "steps": 4});
    println!("{}", call(&connection, "trigger-long-running-operation", arguments, progress).await);
    assert_eq!(*seen.lock(), 4);
    let env = call(&connection, "get-env", json!({}), context()).await;
    println!("{env}");
    call(&connection, "toggle-simulated-logging", json!({}), context()).await;
    let pid = connection.pid().unwrap();
    connection.close().await;
    gone(pid).await;
}

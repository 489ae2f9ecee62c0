//! What the MCP tests share: where the servers are, and short ways to call them.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses a part")]

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use nanobot_tools::{
    CallContext, Error, Tool, ToolOutput,
    mcp::{Connection, McpTool, ServerConfig, connect},
};
use serde_json::{Value, json};

/// Anything that must not hang is given this long.
pub const GENEROUS: Duration = Duration::from_secs(20);

/// The path of a server that is an example of this package; built if need be.
pub fn server(name: &str) -> String {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows where it is");
        let target = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
        let folder = target.join("examples");
        let stale = |example: &str, source: &str| {
            let made = |path: PathBuf| std::fs::metadata(path).and_then(|m| m.modified()).ok();
            let source = made(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers").join(source));
            made(folder.join(example).with_extension(std::env::consts::EXE_EXTENSION)) < source
        };
        let sources = [
            ("floor_server", "floor.rs"),
            ("misbehaving_server", "misbehaving.rs"),
            ("misbehaving_server", "front.rs"),
            ("rmcp_server", "rmcp_server.rs"),
        ];
        if sources.iter().any(|(example, source)| stale(example, source)) {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.arg("build").args(sources.iter().flat_map(|(example, _)| ["--example", example]));
            if target.ends_with("release") {
                cargo.arg("--release");
            }
            let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
            assert!(status.success(), "the test servers do not build");
        }
        folder
    });
    folder.join(name).with_extension(std::env::consts::EXE_EXTENSION).to_string_lossy().into_owned()
}

/// An entry for the misbehaving server.
pub fn entry(mode: &str, extra: Value) -> ServerConfig {
    let mut entry = json!({"command": server("misbehaving_server"), "args": [mode]});
    if let (Value::Object(entry), Value::Object(extra)) = (&mut entry, extra) {
        entry.extend(extra);
    }
    ServerConfig::from_json("odd", &entry).expect("a valid entry")
}

/// A connection to the misbehaving server.
pub async fn connected(mode: &str) -> Arc<Connection> {
    connect("odd", entry(mode, json!({}))).await.expect("the server starts")
}

pub fn tool(connection: &Connection, raw_name: &str) -> Arc<McpTool> {
    connection.tools().into_iter().find(|tool| tool.raw_name() == raw_name).expect("the tool is listed")
}

/// Have the server do something, as a call of its tool `act`.
pub async fn act(connection: &Connection, what: &str) -> Result<ToolOutput, Error> {
    act_with(connection, json!({"do": what}), CallContext::default()).await
}

pub async fn act_with(
    connection: &Connection,
    arguments: Value,
    context: CallContext,
) -> Result<ToolOutput, Error> {
    let Value::Object(arguments) = arguments else { panic!("arguments are objects") };
    let call = tool(connection, "act").call(arguments.into(), context);
    tokio::time::timeout(GENEROUS, call).await.expect("the call hangs")
}

/// The text of a call that must succeed.
pub async fn text(connection: &Connection, what: &str) -> String {
    let output = act(connection, what).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!output.is_error, "{what}: {output:?}");
    output.as_text().expect("MCP results are text").to_owned()
}

/// The error of a call that must fail.
pub async fn error(connection: &Connection, what: &str) -> Error {
    act(connection, what).await.expect_err("the call must fail")
}

/// Whether a process exists and is no zombie.
pub fn alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with(['Z', 'X'])
}

/// The live processes of a group.
pub fn group(pgid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("Linux");
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|pid| {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        let fields = stat.rsplit(')').next().unwrap_or_default().to_owned();
        fields.split_whitespace().nth(2) == Some(&pgid.to_string()) && alive(*pid)
    })
    .collect()
}

/// Wait until nothing of the group lives.
pub async fn gone(pgid: u32) {
    let start = Instant::now();
    while !group(pgid).is_empty() {
        assert!(start.elapsed() < GENEROUS, "processes survive: {:?}", group(pgid));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

//! The native tools as a Rust program uses them: through the trait, with deadlines and cancelling.

use std::{
    fs,
    path::Path,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use nanobot_tools::{
    Arguments, CallContext, Completion, Error, Tool, ToolOutput,
    native::{FindFilesTool, GrepTool, ScanBudget, Workspace},
};
use serde_json::{Value, json};

fn arguments(value: Value) -> Arguments {
    match value {
        Value::Object(map) => Arguments::Json(map),
        other => panic!("{other} is no object"),
    }
}

async fn call(tool: impl Tool, value: Value) -> Result<ToolOutput, Error> {
    Arc::new(tool).call(arguments(value), CallContext::default()).await
}

async fn text(tool: impl Tool, value: Value) -> String {
    call(tool, value).await.unwrap().as_text().unwrap().to_owned()
}

fn open(dir: &Path) -> GrepTool {
    GrepTool::new(Workspace::open(dir))
}

fn write(dir: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[tokio::test]
async fn matches_come_with_their_context_and_the_walks_order() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "b/z.txt", "needle\n");
    write(dir.path(), "c.txt", "one\ntwo\nneedle\nfour\n");
    let out =
        text(open(dir.path()), json!({"pattern": "needle", "context_before": 1, "context_after": 1})).await;
    assert_eq!(out, "c.txt:3\n  2| two\n> 3| needle\n  4| four\n\nb/z.txt:1\n> 1| needle");
}

#[tokio::test]
async fn many_threads_give_the_order_of_one() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..2000 {
        write(dir.path(), &format!("d{:02}/f{i:04}.txt", i % 40), format!("needle {i}\n"));
    }
    let mut expected: Vec<String> = (0..2000).map(|i| format!("d{:02}/f{i:04}.txt", i % 40)).collect();
    expected.sort();
    let out = text(
        open(dir.path()),
        json!({"pattern": "needle", "head_limit": 1000, "offset": 700, "context_before": 0, "context_after": 0}),
    )
    .await;
    let found: Vec<&str> = out.lines().filter_map(|line| line.strip_suffix(":1")).collect();
    assert_eq!(found, expected[700..1700]);
    assert!(out.ends_with("(pagination: limit=1000, offset=700; use offset=1700 to continue)"));
}

#[tokio::test]
async fn a_refusal_is_an_error_result_with_the_boundary_note() {
    let dir = tempfile::tempdir().unwrap();
    for tool in [
        call(GrepTool::new(Workspace::bounded(dir.path())), json!({"pattern": "x", "path": "../"})).await,
        call(FindFilesTool::new(Workspace::bounded(dir.path())), json!({"path": "../"})).await,
    ] {
        let output = tool.unwrap();
        assert!(output.is_error);
        let text = output.as_text().unwrap();
        assert!(text.starts_with("Error: Path ../ is outside allowed directory "), "{text}");
        assert!(text.ends_with("if the resource is genuinely required)"), "{text}");
    }
}

#[tokio::test]
async fn unvalidated_arguments_of_wrong_types_are_error_results() {
    for value in [
        json!({}),
        json!({"pattern": 1}),
        json!({"pattern": "x", "head_limit": -1}),
        json!({"pattern": "x", "offset": "many"}),
        json!({"pattern": "x", "output_mode": "all"}),
        json!({"pattern": "x", "case_insensitive": "yes"}),
    ] {
        let output = call(GrepTool::new(Workspace::default()), value).await.unwrap();
        assert!(output.is_error && output.as_text().unwrap().starts_with("Error: "));
    }
}

#[tokio::test]
async fn huge_limits_do_not_overflow() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", "x\n");
    let most = u64::MAX;
    let grep = json!({"pattern": "x", "head_limit": most, "context_before": most, "context_after": most});
    assert_eq!(text(open(dir.path()), grep).await, "a:1\n> 1| x");
    for mode in ["content", "count", "files_with_matches"] {
        let grep = json!({"pattern": "x", "head_limit": most, "offset": most, "output_mode": mode});
        call(open(dir.path()), grep).await.unwrap();
    }
    let find = json!({"head_limit": most, "offset": most});
    assert_eq!(text(FindFilesTool::new(Workspace::open(dir.path())), find).await, "No files found");
}

#[tokio::test]
async fn a_scan_beyond_its_budget_asks_for_a_narrower_call() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..20 {
        write(dir.path(), &format!("{i}"), "");
    }
    let tool =
        |paths, time| FindFilesTool::new(Workspace::open(dir.path())).with_budget(ScanBudget { paths, time });
    let full = Duration::from_secs(30);
    assert_eq!(
        text(tool(10, full), json!({})).await,
        "Error: find_files scan exceeded 10 paths; narrow path, query, glob, or type and retry."
    );
    assert_eq!(
        text(tool(100, Duration::ZERO), json!({})).await,
        "Error: find_files scan exceeded 0 seconds; narrow path, query, glob, or type and retry."
    );
    assert_eq!(text(tool(20, full), json!({})).await.lines().count(), 20);
}

#[tokio::test]
async fn a_call_past_its_deadline_times_out() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", "x\n");
    let context = CallContext { deadline: Some(Instant::now()), ..CallContext::default() };
    let tool = Arc::new(open(dir.path()));
    let result = tool.call(arguments(json!({"pattern": "x"})), context).await;
    assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}");
}

#[cfg(unix)]
#[test]
fn a_cancelled_search_stops_reading() {
    // 64 MB, line by line through the backtracking engine: far longer than the test may take.
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "big", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n".repeat(2_000_000));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (sender, receiver) = mpsc::channel();
    let _inside = runtime.enter();
    let running = Arc::new(open(dir.path())).submit(
        arguments(json!({"pattern": "(a)b\\1", "path": "big"})),
        CallContext::default(),
        Completion::new(move |result| sender.send(result).unwrap()),
    );
    // Most likely in the middle of the search; right in any case.
    std::thread::sleep(Duration::from_millis(200));
    running.cancel();
    let result = receiver.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    // The pool's thread is free again, so that shutting down does not wait.
    let before = Instant::now();
    runtime.shutdown_timeout(Duration::from_secs(60));
    assert!(before.elapsed() < Duration::from_secs(50));
}

#[cfg(unix)]
#[tokio::test]
async fn odd_trees_do_not_disturb_a_search() {
    use std::os::unix::{ffi::OsStrExt, fs::symlink};
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write(root, "a/good", "needle\n");
    symlink("..", root.join("a/up")).unwrap();
    symlink("self", root.join("self")).unwrap();
    symlink("gone", root.join("broken")).unwrap();
    symlink("/dev/zero", root.join("zero")).unwrap();
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "needle\n").unwrap();
    let mut deep = root.to_owned();
    for _ in 0..300 {
        deep.push("deep");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("bottom"), "needle\n").unwrap();
    let out = text(open(root), json!({"pattern": "needle", "output_mode": "count"})).await;
    assert!(out.contains("a/good: 1") && out.contains("\u{fffd}\u{fffd}: 1") && out.contains("/bottom: 1"));
    assert!(out.contains("(skipped 3 binary/unreadable files)"));
    let out = text(FindFilesTool::new(Workspace::open(root)), json!({})).await;
    assert_eq!(out.lines().count(), 5, "{out}");
}

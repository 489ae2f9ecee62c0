//! Calls on the fast lane: deadlines, cancelling, progress, bursts, results.

#[path = "servers/support.rs"]
mod support;

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use nanobot_tools::{
    Arguments, CallContext, Completion, Progress, Tool,
    mcp::{ServerConfig, burst, connect},
};
use parking_lot::Mutex;
use serde_json::json;
use support::{GENEROUS, act, act_with, connected, entry, error, server, text, tool};

#[tokio::test]
async fn a_timeout_has_the_references_text_and_tells_the_server() {
    let connection = connect("odd", entry("normal", json!({"toolTimeout": 0.2}))).await.unwrap();
    let error = error(&connection, "never").await;
    assert_eq!(error.to_string(), "(MCP tool call timed out after 0.2s)");
    assert_eq!(error.code(), "timeout");
    assert_eq!(text(&connection, "cancelled").await, "1");
}

#[tokio::test]
async fn the_callers_deadline_wins_if_it_is_shorter() {
    let connection = connected("normal").await;
    let context = CallContext::within(Some(Duration::from_millis(100)));
    let error = act_with(&connection, json!({"do": "never"}), context).await.unwrap_err();
    assert_eq!(error.to_string(), "(MCP tool call timed out after 0.1s)");
}

#[tokio::test]
async fn a_late_reply_is_ignored() {
    let connection = connect("odd", entry("normal", json!({"toolTimeout": 0.2}))).await.unwrap();
    assert_eq!(error(&connection, "late").await.code(), "timeout");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(text(&connection, "next").await, "next");
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_on_the_server() {
    let connection = connected("normal").await;
    let call = act(&connection, "never");
    assert!(tokio::time::timeout(Duration::from_millis(100), call).await.is_err());
    assert_eq!(text(&connection, "cancelled").await, "1");
}

#[tokio::test]
async fn a_submitted_call_can_be_cancelled() {
    let connection = connected("normal").await;
    let (send, receive) = tokio::sync::oneshot::channel();
    let done = Completion::new(move |result| {
        let _ = send.send(result);
    });
    let arguments = json!({"do": "never"}).as_object().unwrap().clone().into();
    let running = tool(&connection, "act").submit(arguments, CallContext::default(), done);
    running.cancel();
    assert_eq!(receive.await.unwrap().unwrap_err().code(), "cancelled");
    assert_eq!(text(&connection, "cancelled").await, "1");
}

#[tokio::test]
async fn progress_reaches_the_caller_and_is_asked_for_only_then() {
    let connection = connected("normal").await;
    assert_eq!(text(&connection, "token").await, "null");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let context = CallContext {
        progress: Some(Arc::new(move |p: Progress| sink.lock().push(p))),
        ..CallContext::default()
    };
    act_with(&connection, json!({"do": "progress"}), context).await.unwrap();
    let seen = seen.lock();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[2], Progress { progress: 3.0, total: Some(3.0), message: Some("step 3".into()) });
}

#[tokio::test]
async fn a_progress_callback_that_panics_costs_nothing() {
    let connection = connected("normal").await;
    let context = CallContext { progress: Some(Arc::new(|_| panic!("oh"))), ..CallContext::default() };
    act_with(&connection, json!({"do": "progress"}), context).await.unwrap();
    assert_eq!(text(&connection, "x").await, "x");
}

#[tokio::test]
async fn progress_extends_a_call_up_to_the_cap() {
    let more = json!({"toolTimeout": 0.4, "progressCap": 10});
    let connection = connect("odd", entry("normal", more)).await.unwrap();
    // 0.8 s in steps of 0.1 s.
    assert_eq!(text(&connection, "slow_progress").await, "slow_progress");
    let connection =
        connect("odd", entry("normal", json!({"toolTimeout": 0.4, "progressCap": 0.5}))).await.unwrap();
    assert_eq!(error(&connection, "slow_progress").await.to_string(), "(MCP tool call timed out after 0.5s)");
}

#[tokio::test]
async fn results_are_rendered() {
    let connection = connected("normal").await;
    let output = act(&connection, "is_error").await.unwrap();
    assert!(output.is_error);
    assert_eq!(output.as_text(), Some("no such file"));
    let output = act(&connection, "structured").await.unwrap();
    assert_eq!(output.as_text(), Some(r#"{"rows":[1,2]}"#));
    assert_eq!(output.structured.unwrap().get(), r#"{"rows":[1,2]}"#);
}

#[tokio::test]
async fn a_raw_call_gives_the_json_that_the_server_sent() {
    let connection = connected("normal").await;
    let arguments = || Arguments::from(json!({"do": "structured"}).as_object().unwrap().clone());
    let raw = connection.call_tool("act", arguments(), CallContext::default()).await.unwrap();
    assert_eq!(raw.get(), r#"{"content":[],"structuredContent":{"rows":[1,2]}}"#);
    let failing = Arguments::from(json!({"do": "error"}).as_object().unwrap().clone());
    let error = connection.call_tool("act", failing, CallContext::default()).await.unwrap_err();
    assert!(matches!(error, nanobot_tools::Error::Remote { rpc_code: -32042, .. }));
}

#[tokio::test]
async fn arguments_with_line_breaks_between_tokens_stay_one_line() {
    let connection = connected("normal").await;
    let raw = Arguments::Raw(b"{\n  \"do\": \"arguments\",\r\n  \"x\": \"a\\nb\"\n}".to_vec());
    let output = tool(&connection, "act").call(raw, CallContext::default()).await.unwrap();
    assert_eq!(output.as_text(), Some(r#"{"do":"arguments","x":"a\nb"}"#));
}

#[tokio::test]
async fn a_server_that_does_not_read_fails_its_calls_by_their_deadlines() {
    let connection = connect("odd", entry("normal", json!({"toolTimeout": 0.5}))).await.unwrap();
    let big = "z".repeat(1 << 20);
    let deaf = act(&connection, "deaf");
    let later = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        act_with(&connection, json!({"do": "x", "big": big}), CallContext::default()).await
    };
    let (deaf, later) = tokio::join!(deaf, later);
    assert_eq!((deaf.unwrap_err().code(), later.unwrap_err().code()), ("timeout", "timeout"));
    tokio::time::timeout(GENEROUS, connection.close()).await.unwrap();
}

#[test]
fn calls_from_threads_without_a_runtime_complete_in_bursts() {
    let config = ServerConfig::stdio(server("floor_server"), Vec::<String>::new());
    let connection = nanobot_tools::runtime_handle().block_on(connect("floor", config)).unwrap();
    let echo = tool(&connection, "echo");
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let echo = Arc::clone(&echo);
            nanobot_tools::spawn_blocking(move || {
                for round in 0..20 {
                    let (send, receive) = mpsc::channel();
                    burst(|| {
                        for call in 0..64 {
                            let text = format!("{thread} {round} {call}");
                            let send = send.clone();
                            let arguments = json!({"text": text}).as_object().unwrap().clone().into();
                            let done = Completion::new(move |result| {
                                let output = result.expect("the floor answers");
                                let _ = send.send((text, output.as_text().unwrap().to_owned()));
                            });
                            // Bursts nest.
                            burst(|| drop(Arc::clone(&echo).submit(arguments, CallContext::default(), done)));
                        }
                    });
                    for _ in 0..64 {
                        let (asked, answered) = receive.recv_timeout(GENEROUS).expect("a call hangs");
                        assert_eq!(asked, answered);
                    }
                }
            })
        })
        .collect();
    nanobot_tools::runtime_handle().block_on(async {
        for thread in threads {
            thread.await.unwrap();
        }
        connection.close().await;
    });
}

#[test]
fn nothing_leaves_before_the_outermost_burst_ends() {
    let config = ServerConfig::stdio(server("floor_server"), Vec::<String>::new());
    let connection = nanobot_tools::runtime_handle().block_on(connect("floor", config)).unwrap();
    let echo = tool(&connection, "echo");
    let (send, receive) = mpsc::channel();
    burst(|| {
        for _ in 0..2 {
            let send = send.clone();
            let arguments = json!({"text": "t"}).as_object().unwrap().clone().into();
            let done = Completion::new(move |result| {
                let _ = send.send(result.is_ok());
            });
            burst(|| drop(Arc::clone(&echo).submit(arguments, CallContext::default(), done)));
        }
        assert!(receive.recv_timeout(Duration::from_millis(100)).is_err(), "a call left early");
    });
    for _ in 0..2 {
        assert!(receive.recv_timeout(GENEROUS).expect("a call hangs"));
    }
}

#[test]
fn a_receiver_that_panics_costs_only_its_own_call() {
    let config = ServerConfig::stdio(server("floor_server"), Vec::<String>::new());
    let connection = nanobot_tools::runtime_handle().block_on(connect("floor", config)).unwrap();
    let echo = tool(&connection, "echo");
    let arguments = || Arguments::from(json!({"text": "t"}).as_object().unwrap().clone());
    drop(Arc::clone(&echo).submit(arguments(), CallContext::default(), Completion::new(|_| panic!("oh"))));
    let (send, receive) = mpsc::channel();
    let done = Completion::new(move |result| {
        let _ = send.send(result.is_ok());
    });
    drop(echo.submit(arguments(), CallContext::default(), done));
    assert!(receive.recv_timeout(GENEROUS).unwrap());
}

//! The wire over stdio: whatever a server does there, every call that waits ends.

#[path = "servers/support.rs"]
mod support;

use std::time::{Duration, Instant};

use nanobot_tools::{CallContext, Error, Tool, mcp::ConnectionState};
use serde_json::json;
use support::{GENEROUS, act, act_with, connected, error, gone, text, tool};

#[tokio::test]
async fn banners_and_blank_lines_are_skipped() {
    let connection = connected("banner").await;
    assert_eq!(text(&connection, "banner").await, "banner");
    assert_eq!(text(&connection, "again").await, "again");
}

#[tokio::test]
async fn text_at_shutdown_is_skipped() {
    let connection = connected("bye").await;
    assert_eq!(text(&connection, "x").await, "x");
    connection.close().await;
    assert_eq!(connection.state(), ConnectionState::Closed);
}

#[tokio::test]
async fn a_byte_order_mark_and_crlf_and_line_separators_are_understood() {
    let connection = connected("bom").await;
    assert_eq!(text(&connection, "crlf").await, "crlf");
    assert_eq!(text(&connection, "separator").await, "a\u{2028}b\u{2029}c\u{85}d");
}

#[tokio::test]
async fn one_message_in_three_writes_and_two_in_one_are_understood() {
    let connection = connected("normal").await;
    assert_eq!(text(&connection, "three_writes").await, "three_writes");
    let (first, second) = tokio::join!(text(&connection, "hold"), text(&connection, "hold"));
    assert_eq!((first.as_str(), second.as_str()), ("first", "second"));
}

#[tokio::test]
async fn an_id_echoed_as_a_string_or_a_float_is_matched() {
    let connection = connected("normal").await;
    assert_eq!(text(&connection, "string_id").await, "string_id");
    assert_eq!(text(&connection, "float_id").await, "float_id");
}

#[tokio::test]
async fn a_reply_inside_a_batch_is_unwrapped() {
    let connection = connected("normal").await;
    assert_eq!(text(&connection, "batch").await, "batch");
}

#[tokio::test]
async fn a_reply_behind_a_prompt_or_a_colour_code_is_found() {
    let connection = connected("normal").await;
    assert_eq!(text(&connection, "prefixed").await, "prefixed");
}

#[tokio::test]
async fn errors_of_every_shape_fail_their_call_at_once_with_the_text() {
    let connection = connected("normal").await;
    for (what, wanted) in [
        ("error", "(MCP tool call failed: no such city [code -32042])"),
        ("string_error", "(MCP tool call failed: out of paper [code -32603])"),
        ("string_code", "(MCP tool call failed: jammed (E7) [code -32603])"),
        ("null_id", "(MCP tool call failed: parse error [code -32700])"),
        ("no_jsonrpc_error", "(MCP tool call failed: bare [code 1])"),
    ] {
        let error = error(&connection, what).await;
        assert_eq!(error.to_string(), wanted);
        assert_eq!(error.code(), "remote");
    }
    assert_eq!(text(&connection, "no_jsonrpc").await, "no_jsonrpc");
}

#[tokio::test]
async fn an_error_with_a_null_id_fails_nobody_while_several_calls_wait() {
    let connection = connected("normal").await;
    let never = tool(&connection, "act").call(
        json!({"do": "never"}).as_object().unwrap().clone().into(),
        CallContext::within(Some(Duration::from_millis(300))),
    );
    let null = act_with(
        &connection,
        json!({"do": "null_id"}),
        CallContext::within(Some(Duration::from_millis(300))),
    );
    let (never, null) = tokio::join!(never, null);
    assert_eq!((never.unwrap_err().code(), null.unwrap_err().code()), ("timeout", "timeout"));
}

#[tokio::test]
async fn seventeen_mebibytes_in_one_line_are_delivered() {
    let connection = connected("normal").await;
    let size = 17 << 20;
    let output =
        act_with(&connection, json!({"do": "huge", "size": size}), CallContext::default()).await.unwrap();
    assert_eq!(output.as_text().unwrap().len(), size);
    assert_eq!(text(&connection, "after").await, "after");
}

#[tokio::test]
async fn a_line_over_the_limit_fails_its_call_at_once() {
    let connection = connected("normal").await;
    let error = act_with(&connection, json!({"do": "huge", "size": 65 << 20}), CallContext::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), "protocol");
    assert!(error.to_string().contains("bytes"), "{error}");
    assert_eq!(text(&connection, "after").await, "after");
}

#[tokio::test]
async fn a_request_larger_than_the_pipe_is_delivered() {
    let connection = connected("normal").await;
    let big = "y".repeat(5 << 20);
    let output =
        act_with(&connection, json!({"do": "arguments", "x": big}), CallContext::default()).await.unwrap();
    assert!(output.as_text().unwrap().len() > 5 << 20);
}

#[tokio::test]
async fn invalid_utf8_and_nan_and_lone_surrogates_are_repaired() {
    let connection = connected("normal").await;
    assert_eq!(text(&connection, "bad_utf8").await, "\u{fffd}\u{fffd}bad_utf8");
    assert_eq!(text(&connection, "nan").await, r#"{"n":null}"#);
    assert_eq!(text(&connection, "surrogate").await, "a\u{fffd}b");
}

#[tokio::test]
async fn a_reply_that_cannot_be_read_fails_its_call_at_once() {
    let connection = connected("normal").await;
    for what in ["cut", "cut_before_id", "broken_batch", "null_id_result", "wrong_kind", "neither"] {
        let error = error(&connection, what).await;
        assert_eq!(error.code(), "protocol", "{what}: {error}");
        assert!(error.to_string().contains("could not be read"), "{error}");
    }
    assert_eq!(text(&connection, "after").await, "after");
}

#[tokio::test]
async fn the_last_line_without_lf_before_the_exit_is_delivered() {
    let connection = connected("normal").await;
    assert_eq!(text(&connection, "last_line").await, "last_line");
    assert_eq!(connection.ended().await, ConnectionState::Lost);
}

#[tokio::test]
async fn an_exit_in_mid_call_is_an_error_with_exit_status_and_stderr() {
    let connection = connected("normal").await;
    let start = Instant::now();
    let error = error(&connection, "exit").await;
    assert!(start.elapsed() < GENEROUS);
    let text = error.to_string();
    for part in ["'odd'", "exit status: 42", "assertion failed: paper left", "outcome is unknown"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(matches!(error, Error::Connection { sent: true, .. }));
    // From now on calls fail without being sent.
    let later = support::error(&connection, "x").await;
    assert!(matches!(later, Error::Connection { sent: false, .. }));
    assert!(later.to_string().contains("exit status: 42"), "{later}");
    assert_eq!(connection.state(), ConnectionState::Lost);
}

#[tokio::test]
async fn a_killed_server_fails_the_call_at_once() {
    let connection = connected("normal").await;
    let call = act(&connection, "never");
    let kill = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let pid = connection.pid().unwrap().to_string();
        assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    };
    let (result, ()) = tokio::join!(call, kill);
    let text = result.unwrap_err().to_string();
    assert!(text.contains("signal: 9"), "{text}");
}

#[tokio::test]
async fn a_server_that_closes_its_output_is_lost_and_does_not_survive() {
    let connection = connected("normal").await;
    let error = error(&connection, "close_stdout").await;
    assert!(error.to_string().contains("closed its output"), "{error}");
    gone(connection.pid().unwrap()).await;
}

#[tokio::test]
async fn a_server_that_closes_its_input_fails_the_next_call_at_once_and_does_not_survive() {
    let connection = connected("normal").await;
    assert_eq!(text(&connection, "close_stdin").await, "close_stdin");
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let error = error(&connection, "x").await;
    assert!(error.to_string().contains("closed its input"), "{error}");
    assert!(matches!(error, Error::Connection { sent: false, .. }));
    gone(connection.pid().unwrap()).await;
}

#[tokio::test]
async fn stray_progress_and_unknown_traffic_are_tolerated_and_requests_answered() {
    let connection = connected("normal").await;
    // ping, roots (an empty list), sampling, elicitation (declined), unknown, malformed, bare ping
    let kinds = text(&connection, "odd_traffic").await;
    let kinds: Vec<&str> = kinds.split(' ').collect();
    assert_eq!(kinds.len(), 7);
    assert_eq!([kinds[0], kinds[2], kinds[4], kinds[6]], ["result", "error", "error", "result"]);
}

#[tokio::test]
async fn requests_before_the_handshake_are_answered() {
    let connection = connected("ping_before").await;
    assert_eq!(text(&connection, "x").await, "x");
}

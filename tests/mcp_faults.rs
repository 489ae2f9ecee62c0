//! What servers get wrong, over every transport on which they can: every call that waits ends, with
//! its reply or at once with an error, and one faulty item costs only itself.
//!
//! What concerns processes and pipes alone is in `mcp_wire` and `mcp_connecting`.

#[path = "servers/over.rs"]
#[macro_use]
mod over;
#[path = "servers/support.rs"]
mod support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nanobot_tools::{CallContext, Error, Progress, Tool, mcp::Connection};
use over::Over;
use parking_lot::Mutex;
use serde_json::{Value, json};
use support::{GENEROUS, act, act_with, error, text, tool};

fn raw_names(connection: &Connection) -> Vec<String> {
    connection.tools().iter().map(|tool| tool.raw_name().to_owned()).collect()
}

/// The calls whose replies are odd and can be understood all the same.
async fn understood(connection: &Connection, calls: &[&str]) {
    for what in calls {
        assert_eq!(text(connection, what).await, *what);
    }
    assert_eq!(text(connection, "after").await, "after");
}

// ---- the wire ----

promise! { banners_and_lines_that_are_no_messages_are_skipped [stdio sse legacy] |over| {
    understood(&*over.connected("normal").await, &["banner"]).await;
}}

promise! { crlf_and_line_separators_inside_a_string_are_understood [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    understood(&peer, &["crlf"]).await;
    assert_eq!(text(&peer, "separator").await, "a\u{2028}b\u{2029}c\u{85}d");
}}

promise! { one_message_in_three_writes_is_understood [stdio json sse legacy] |over| {
    understood(&*over.connected("normal").await, &["three_writes"]).await;
}}

promise! { two_messages_in_one_write_and_in_the_other_order_are_understood [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    let (first, second) = tokio::join!(text(&peer, "hold"), text(&peer, "hold"));
    // Over HTTP the two may arrive in either order.
    let mut both = [first, second];
    both.sort();
    assert_eq!(both, ["first", "second"]);
}}

promise! { an_id_echoed_as_a_string_or_a_float_is_matched [stdio json sse legacy] |over| {
    understood(&*over.connected("normal").await, &["string_id", "float_id"]).await;
}}

promise! { a_reply_inside_a_batch_is_unwrapped [stdio json sse legacy] |over| {
    understood(&*over.connected("normal").await, &["batch"]).await;
}}

promise! { a_reply_without_jsonrpc_is_understood [stdio json sse legacy] |over| {
    understood(&*over.connected("normal").await, &["no_jsonrpc"]).await;
}}

promise! { errors_of_every_shape_fail_their_call_at_once_with_the_text [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    for (what, wanted) in [
        ("error", "(MCP tool call failed: no such city [code -32042])"),
        ("string_error", "(MCP tool call failed: out of paper [code -32603])"),
        ("string_code", "(MCP tool call failed: jammed (E7) [code -32603])"),
        ("null_id", "(MCP tool call failed: parse error [code -32700])"),
        ("no_jsonrpc_error", "(MCP tool call failed: bare [code 1])"),
    ] {
        let error = error(&peer, what).await;
        assert_eq!((error.to_string().as_str(), error.code()), (wanted, "remote"));
    }
    assert_eq!(text(&peer, "after").await, "after");
}}

promise! { seventeen_mebibytes_in_one_message_are_delivered [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    let size = 17 << 20;
    let arguments = json!({"do": "huge", "size": size});
    let output = act_with(&peer, arguments, CallContext::default()).await.unwrap();
    assert_eq!(output.as_text().unwrap().len(), size);
    assert_eq!(text(&peer, "after").await, "after");
}}

promise! { a_message_over_the_limit_fails_its_call_at_once [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    let arguments = json!({"do": "huge", "size": 65 << 20});
    let error = act_with(&peer, arguments, CallContext::default()).await.unwrap_err();
    assert!(error.to_string().contains("bytes"), "{error}");
    assert_eq!(error.code(), "protocol", "{error}");
    if over != Over::Legacy {
        assert_eq!(text(&peer, "after").await, "after");
    }
}}

/// The tool timeout is the only limit of a call: nothing below it has one of its own, such as the 30 s that
/// HTTP clients like. All at once, because it takes its time.
#[tokio::test]
async fn a_call_of_33_s_works_over_every_transport() {
    let call = |over: Over| async move {
        let peer = over.connected_with("normal", json!({"toolTimeout": 60})).await;
        let Value::Object(arguments) = json!({"do": "long"}) else { unreachable!() };
        let call = tool(&peer, "act").call(arguments.into(), CallContext::default());
        let output = call.await.unwrap_or_else(|error| panic!("{over:?}: {error}"));
        assert_eq!(output.as_text(), Some("long"), "{over:?}");
    };
    tokio::join!(call(Over::Stdio), call(Over::Json), call(Over::Sse), call(Over::Legacy));
}

promise! { a_large_request_is_delivered [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    let arguments = json!({"do": "arguments", "x": "y".repeat(5 << 20)});
    let output = act_with(&peer, arguments, CallContext::default()).await.unwrap();
    assert!(output.as_text().unwrap().len() > 5 << 20);
}}

promise! { invalid_utf8_and_nan_and_lone_surrogates_are_repaired [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    assert_eq!(text(&peer, "bad_utf8").await, "\u{fffd}\u{fffd}bad_utf8");
    assert_eq!(text(&peer, "nan").await, r#"{"n":null}"#);
    assert_eq!(text(&peer, "surrogate").await, "a\u{fffd}b");
}}

promise! { a_reply_that_cannot_be_read_fails_its_call_at_once [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    for what in ["cut", "cut_before_id", "broken_batch", "null_id_result", "wrong_kind", "neither"] {
        let error = error(&peer, what).await;
        assert_eq!(error.code(), "protocol", "{what}: {error}");
        assert!(error.to_string().contains("could not be read"), "{what}: {error}");
    }
    assert_eq!(text(&peer, "after").await, "after");
}}

promise! { a_server_that_dies_in_mid_call_fails_it_at_once_and_the_outcome_is_unknown
    [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    let error = error(&peer, "exit").await;
    assert!(error.to_string().contains("outcome is unknown"), "{error}");
    assert!(matches!(error, Error::Connection { sent: true, .. }), "{error:?}");
}}

promise! { a_killed_server_fails_the_call_at_once [stdio json sse legacy] |over| {
    let mut peer = over.connected("normal").await;
    let connection = Arc::clone(&peer.connection);
    let call = act(&connection, "never");
    let kill = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        peer.kill();
    };
    let (result, ()) = tokio::join!(call, kill);
    assert!(matches!(result, Err(Error::Connection { sent: true, .. })), "{result:?}");
}}

promise! { a_call_to_a_dead_server_fails_at_once_and_may_be_repeated [json sse legacy] |over| {
    let mut peer = over.connected("normal").await;
    assert_eq!(text(&peer, "x").await, "x");
    peer.kill();
    // A connection that was kept may not know yet, and nobody can tell what became of what was written to it.
    let first = error(&peer, "x").await;
    assert!(matches!(first, Error::Connection { .. }), "{first:?}");
    let second = error(&peer, "x").await;
    assert!(matches!(second, Error::Connection { sent: false, .. }), "{second:?}");
}}

promise! { an_unknown_version_is_a_clear_error_and_an_older_one_is_fine [stdio json sse legacy] |over| {
    assert!(over.refused("new_version", json!({})).await.contains("'2099-01-01'"));
    assert_eq!(over.connected("old_version").await.protocol_version(), "2024-10-07");
}}

promise! { a_sparse_handshake_is_put_right [stdio json sse legacy] |over| {
    understood(&*over.connected("sparse_initialize").await, &["x"]).await;
}}

promise! { bad_tools_cost_only_themselves_and_names_are_valid_and_unique [stdio json sse legacy] |over| {
    let peer = over.connected("bad_tools").await;
    assert_eq!(raw_names(&peer), ["no_schema", "odd", "twice", "\u{67e5}\u{8be2}", "\u{5929}\u{6c14}"]);
    let mut names: Vec<String> = peer.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    let valid = |name: &String| name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    assert!(names.iter().all(valid), "{names:?}");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5);
    assert_eq!(raw_names(&*over.connected("deep_tool").await), ["flat"]);
}}

promise! { all_pages_are_read_and_a_cursor_that_repeats_ends [stdio json sse legacy] |over| {
    let peer = over.connected("pages").await;
    assert_eq!(raw_names(&peer), ["t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8"]);
    let peer = over.connected("endless").await;
    assert_eq!(raw_names(&peer), ["t1"]);
    assert!(peer.warnings().iter().any(|note| note.contains("repeats")), "{:?}", peer.warnings());
}}

promise! { stray_progress_and_unknown_traffic_are_tolerated_and_requests_answered [stdio sse legacy] |over| {
    let peer = over.connected("normal").await;
    // ping, roots (an empty list), sampling, elicitation (declined), unknown, malformed, bare ping
    let kinds = text(&peer, "odd_traffic").await;
    let kinds: Vec<&str> = kinds.split(' ').collect();
    assert_eq!(kinds.len(), 7);
    assert_eq!([kinds[0], kinds[2], kinds[4], kinds[6]], ["result", "error", "error", "result"]);
}}

promise! { requests_before_the_handshake_are_answered [stdio sse legacy] |over| {
    understood(&*over.connected("ping_before").await, &["x"]).await;
}}

promise! { a_server_that_never_answers_meets_the_deadline [stdio json sse legacy] |over| {
    for mode in ["mute", "mute_list"] {
        let text = over.refused(mode, json!({"connectTimeout": 0.5})).await;
        assert!(text.contains("within 0.5s"), "{mode}: {text}");
    }
}}

promise! { a_refusal_of_the_handshake_is_shown [stdio json sse legacy] |over| {
    let text = over.refused("refuse", json!({})).await;
    assert!(text.contains("licence expired [code -32000]"), "{text}");
}}

// ---- calls ----

promise! { a_timeout_has_the_references_text_and_tells_the_server [stdio json sse legacy] |over| {
    let peer = over.connected_with("normal", json!({"toolTimeouts": {"act": 0.3}})).await;
    let error = error(&peer, "never").await;
    assert_eq!((error.to_string().as_str(), error.code()), ("(MCP tool call timed out after 0.3s)", "timeout"));
    cancelled(&peer).await;
}}

promise! { a_dropped_call_is_cancelled_on_the_server [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    let call = act(&peer, "never");
    assert!(tokio::time::timeout(Duration::from_millis(200), call).await.is_err());
    cancelled(&peer).await;
}}

/// Wait until the server has heard that one call is cancelled.
async fn cancelled(connection: &Connection) {
    let start = Instant::now();
    // Over HTTP the notification and the next call may overtake each other.
    while text(connection, "cancelled").await != "1" {
        assert!(start.elapsed() < GENEROUS, "the server never heard of it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

promise! { a_late_reply_is_ignored [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    let context = CallContext::within(Some(Duration::from_millis(200)));
    let error = act_with(&peer, json!({"do": "late"}), context).await.unwrap_err();
    assert_eq!(error.code(), "timeout");
    tokio::time::sleep(Duration::from_millis(400)).await;
    understood(&peer, &["next"]).await;
}}

promise! { progress_reaches_the_caller [stdio sse legacy] |over| {
    let peer = over.connected("normal").await;
    assert_eq!(text(&peer, "token").await, "null");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let progress = Some(Arc::new(move |p: Progress| sink.lock().push(p)) as _);
    act_with(&peer, json!({"do": "progress"}), CallContext { progress, ..CallContext::default() }).await.unwrap();
    let seen = seen.lock();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[2], Progress { progress: 3.0, total: Some(3.0), message: Some("step 3".into()) });
}}

promise! { progress_extends_a_call_up_to_the_cap [stdio sse legacy] |over| {
    let peer = over.connected_with("normal", json!({"toolTimeout": 0.4, "progressCap": 20})).await;
    // 0.8 s in steps of 0.1 s.
    assert_eq!(text(&peer, "slow_progress").await, "slow_progress");
    let peer = over.connected_with("normal", json!({"toolTimeout": 0.4, "progressCap": 0.5})).await;
    assert_eq!(error(&peer, "slow_progress").await.to_string(), "(MCP tool call timed out after 0.5s)");
}}

promise! { results_that_are_errors_or_structured_are_rendered [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    let output = act(&peer, "is_error").await.unwrap();
    assert!(output.is_error);
    assert_eq!(output.as_text(), Some("no such file"));
    let output = act(&peer, "structured").await.unwrap();
    assert_eq!(output.as_text(), Some(r#"{"rows":[1,2]}"#));
}}

promise! { a_running_call_fails_when_the_connection_is_closed [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    let call = act(&peer, "never");
    let close = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        tokio::time::timeout(GENEROUS, peer.close()).await.expect("close hangs");
    };
    let (result, ()) = tokio::join!(call, close);
    assert!(result.unwrap_err().to_string().contains("closed"));
}}

promise! { one_call_of_many_that_fails_leaves_the_others_alone [stdio json sse legacy] |over| {
    let peer = over.connected("normal").await;
    let calls = (0..24).map(|n| {
        let what = if n % 3 == 0 { "error".to_owned() } else { format!("call {n}") };
        let peer = &peer;
        async move { (what.clone(), act(peer, &what).await) }
    });
    for (what, result) in futures_util::future::join_all(calls).await {
        match result {
            Ok(output) => assert_eq!(output.as_text(), Some(what.as_str())),
            Err(error) => assert_eq!((what.as_str(), error.code()), ("error", "remote")),
        }
    }
}}

promise! { lists_of_enabled_tools_admit_what_they_name [stdio json sse legacy] |over| {
    let peer = over.connected_with("normal", json!({"enabledTools": ["read_*", "mcp_odd_slow"]})).await;
    assert_eq!(raw_names(&peer), ["read_a", "read_b", "slow"]);
    assert_eq!(tool(&peer, "slow").spec().name, "mcp_odd_slow");
}}

// ---- the wire (HTTP) ----

promise! { any_2xx_for_a_notification_is_fine [json sse] |over| {
    for mode in ["accept_200", "accept_204", "accept_json", "accept_text"] {
        let peer = over.connected(mode).await;
        assert_eq!(text(&peer, "x").await, "x", "{mode}");
    }
}}

promise! { a_response_that_is_no_reply_fails_its_call_at_once_with_status_and_a_short_body [json sse] |over| {
    let peer = over.connected("normal").await;
    for (what, wanted) in [
        ("http_html", ["200", "Please sign in"]),
        ("http_text", ["200", "all is well"]),
        ("http_500", ["500", "out of paper"]),
        ("http_202", ["202", ""]),
    ] {
        let text = error(&peer, what).await.to_string();
        assert!(wanted.iter().all(|part| text.contains(part)), "{what}: {text}");
        assert!(!text.contains('<'), "{what}: {text}");
    }
    assert_eq!(text(&peer, "after").await, "after");
}}

promise! { a_reply_with_an_error_status_is_the_reply [json sse] |over| {
    let error = error(&*over.connected("normal").await, "http_400_reply").await;
    assert_eq!(error.to_string(), "(MCP tool call failed: bad city [code -32602])");
}}

promise! { the_content_type_is_read_loosely [json sse] |over| {
    understood(&*over.connected("normal").await, &["http_charset", "http_untyped"]).await;
}}

promise! { a_connection_that_breaks_in_mid_call_fails_it_at_once_and_the_next_call_works [json sse] |over| {
    let peer = over.connected("normal").await;
    let error = error(&peer, "http_hang_up").await;
    assert!(matches!(error, Error::Connection { sent: true, .. }), "{error:?}");
    assert_eq!(text(&peer, "after").await, "after");
}}

promise! { a_tool_that_had_its_side_effect_is_not_run_again [json sse] |over| {
    let peer = over.connected("normal").await;
    let arguments = json!({"do": "http_hang_up"}).as_object().unwrap().clone();
    let call = tool(&peer, "write_c").call(arguments.into(), CallContext::default());
    let error = tokio::time::timeout(GENEROUS, call).await.expect("the call hangs").unwrap_err();
    assert!(matches!(error, Error::Connection { sent: true, .. }), "{error:?}");
    assert_eq!(text(&peer, "runs").await, "1");
}}

promise! { events_are_read_by_the_book [sse legacy] |over| {
    let peer = over.connected("normal").await;
    understood(&peer, &["sse_cr", "sse_crlf", "sse_data_lines", "sse_comments", "sse_other_events"]).await;
    assert_eq!(text(&peer, "sse_cut_utf8").await, "h\u{e4}\u{df}lich \u{1f600}");
}}

promise! { a_stream_that_ends_without_the_reply_fails_its_call_at_once [sse] |over| {
    let peer = over.connected("normal").await;
    let error = error(&peer, "sse_nothing").await;
    assert!(["connection", "protocol"].contains(&error.code()), "{error}");
    // The last event lacks the blank line behind it, and is whole.
    understood(&peer, &["sse_unfinished"]).await;
}}

promise! { a_stream_that_breaks_off_is_resumed_by_the_last_event [sse] |over| {
    understood(&*over.connected("normal").await, &["sse_resumed"]).await;
}}

promise! { a_redirect_to_the_same_origin_is_followed_also_that_to_a_slash [json sse] |over| {
    understood(&*over.connected("moved").await, &["x"]).await;
    understood(&*over.connected("slash").await, &["x"]).await;
}}

promise! { the_endpoint_of_the_older_transport_may_be_written_in_any_way [legacy] |over| {
    for mode in ["endpoint_crlf", "endpoint_relative", "endpoint_absolute"] {
        understood(&*over.connected(mode).await, &["x"]).await;
    }
}}

promise! { the_older_transports_stream_that_breaks_fails_the_calls_that_wait [legacy] |over| {
    let peer = over.connected("normal").await;
    let error = error(&peer, "http_hang_up").await;
    assert!(matches!(error, Error::Connection { sent: true, .. }), "{error:?}");
}}

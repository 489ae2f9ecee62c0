//! Servers that are kept connected: lost and found, slow, asleep, changed, closed.

#[path = "servers/over.rs"]
#[macro_use]
mod over;
#[path = "servers/support.rs"]
mod support;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use nanobot_tools::{
    Arguments, BoxFuture, CallContext, Error, Tool,
    mcp::{ConnectionState, Delegate, Event, McpTool, NoDelegate, RequestError, Server, ServerConfig, Shelf},
};
use over::{Over, Process};
use serde_json::{Value, json};
use support::{GENEROUS, alive, entry, gone, group, server};

fn open(mode: &str, extra: Value) -> Arc<Server> {
    Server::open("odd", entry(mode, extra), Arc::new(NoDelegate), None)
}

async fn ready(server: &Server) -> u32 {
    let status = server.settled(GENEROUS).await;
    assert_eq!(status.state, ConnectionState::Ready, "{:?}", status.failure);
    pid(server)
}

fn pid(server: &Server) -> u32 {
    server.latest().and_then(|connection| connection.pid()).expect("it has a process")
}

fn tool(server: &Server, raw_name: &str) -> Arc<McpTool> {
    server.tools().into_iter().find(|tool| tool.raw_name() == raw_name).expect("the tool is listed")
}

async fn call(server: &Server, raw_name: &str, what: &str) -> Result<String, Error> {
    let Value::Object(arguments) = json!({"do": what}) else { unreachable!() };
    let call = tool(server, raw_name).call(arguments.into(), CallContext::default());
    let output = tokio::time::timeout(GENEROUS, call).await.expect("the call hangs")?;
    Ok(output.as_text().expect("text").to_owned())
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < GENEROUS, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn kill(pid: u32) {
    use nix::{sys::signal::Signal, unistd::Pid};
    nix::sys::signal::kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("it lives");
}

#[tokio::test]
async fn a_killed_server_is_back_with_the_same_tools_and_nothing_is_left_of_it() {
    let server = open("grandchild", json!({}));
    let first = ready(&server).await;
    let before = tool(&server, "act");
    kill(first);
    until("another process", || server.state() == ConnectionState::Ready && pid(&server) != first).await;
    gone(first).await;
    assert!(Arc::ptr_eq(&before, &tool(&server, "act")));
    assert_eq!(call(&server, "act", "hello").await.unwrap(), "hello");
    assert_eq!(server.status().reconnects, 1);
    let second = pid(&server);
    server.close(Duration::ZERO).await;
    assert!(!alive(second));
    gone(second).await;
}

#[tokio::test]
async fn calls_made_while_a_server_is_away_wait_for_it() {
    let server = open("normal", json!({}));
    let first = ready(&server).await;
    kill(first);
    until("it is noticed", || {
        server.latest().is_none_or(|c| c.pid() != Some(first) || c.why_ended().is_some())
    })
    .await;
    for n in 0..20 {
        assert_eq!(call(&server, "write_c", &n.to_string()).await.unwrap(), n.to_string());
    }
    assert_ne!(pid(&server), first);
}

#[tokio::test]
async fn a_call_with_a_side_effect_is_not_run_twice_and_its_error_says_that_it_may_have_run() {
    let server = open("normal", json!({}));
    let first = ready(&server).await;
    let error = call(&server, "write_c", "exit").await.unwrap_err();
    assert!(matches!(error, Error::Connection { sent: true, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("'odd'") && text.contains("42") && text.contains("outcome is unknown"), "{text}");
    assert_eq!(call(&server, "write_c", "next").await.unwrap(), "next");
    assert_ne!(pid(&server), first);
}

#[tokio::test]
async fn a_harmless_call_that_kills_its_server_is_repeated_but_not_for_ever() {
    let server = open("normal", json!({}));
    ready(&server).await;
    let error = call(&server, "act", "exit").await.unwrap_err();
    assert!(error.to_string().contains("42"), "{error}");
    until("it is back", || server.state() == ConnectionState::Ready).await;
    assert!(server.status().reconnects <= 3, "{:?}", server.status());
}

#[tokio::test]
async fn retry_says_which_calls_are_repeated() {
    // An exit in mid-call, seen by calls that are harmless and by such that are not.
    for (retry, harmless, harmful) in [("never", 0, 0), ("safe", 2, 0), ("always", 2, 2)] {
        for (name, repeats) in [("act", harmless), ("write_c", harmful)] {
            let server = open("normal", json!({"retry": retry}));
            ready(&server).await;
            call(&server, name, "exit").await.unwrap_err();
            until("it is back", || server.status().reconnects > repeats).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(server.status().reconnects, repeats + 1, "{retry} {name}");
        }
    }
}

#[tokio::test]
async fn reconnecting_counts_within_the_calls_own_deadline() {
    let server = open("normal", json!({"toolTimeout": 0.5}));
    let first = ready(&server).await;
    kill(first);
    until("lost", || server.state() != ConnectionState::Ready || pid(&server) != first).await;
    let begun = Instant::now();
    let error = call(&server, "write_c", "never").await.unwrap_err();
    assert_eq!(error.to_string(), "(MCP tool call timed out after 0.5s)");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_server_that_cannot_start_is_tried_again_and_calls_fail_at_once_naming_the_next_attempt() {
    let server = open("exit_at_once", json!({}));
    let status = server.settled(GENEROUS).await;
    assert_eq!(status.state, ConnectionState::Lost);
    assert!(status.failure.unwrap().to_string().contains("cannot find my configuration"));
    until("a few attempts", || server.status().attempts >= 3 && server.state() == ConnectionState::Lost)
        .await;
    let begun = Instant::now();
    let call = server.call_tool("act", Arguments::Raw(b"{}".to_vec()), CallContext::default());
    let error = tokio::time::timeout(GENEROUS, call).await.unwrap().unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(3));
    let text = error.to_string();
    assert!(text.contains("cannot find my configuration") && text.contains("next attempt"), "{text}");
    assert!(matches!(error, Error::Connection { sent: false, .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_was_repaired_is_found_without_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("server");
    let config = ServerConfig::from_json("late", &json!({"command": program, "args": ["normal"]})).unwrap();
    let server = Server::open("late", config, Arc::new(NoDelegate), None);
    assert_eq!(server.settled(GENEROUS).await.state, ConnectionState::Lost);
    std::os::unix::fs::symlink(support::server("misbehaving_server"), &program).unwrap();
    until("it is found", || server.state() == ConnectionState::Ready).await;
    assert_eq!(call(&server, "act", "hello").await.unwrap(), "hello");
    assert_eq!(server.status().attempts, 0);
}

#[tokio::test]
async fn an_attempt_can_be_asked_for() {
    let server = open("exit_at_once", json!({}));
    until("long delays", || server.status().attempts >= 3).await;
    let before = server.status().attempts;
    until("more attempts", || {
        server.reconnect();
        server.status().attempts >= before + 5
    })
    .await;
}

#[tokio::test]
async fn closing_during_a_hung_handshake_ends_soon_and_leaves_nothing() {
    for mode in ["mute", "mute_list"] {
        let server = open(mode, json!({}));
        assert_eq!(server.settled(Duration::from_millis(300)).await.state, ConnectionState::Connecting);
        let begun = Instant::now();
        server.close(Duration::ZERO).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(server.state(), ConnectionState::Closed);
    }
}

#[tokio::test]
async fn closing_lets_running_calls_end_if_it_is_told_to() {
    let server = open("normal", json!({}));
    ready(&server).await;
    let running = call(&server, "write_c", "late");
    let closing = async {
        until("it runs", || server.counts().calls == 1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.close(Duration::from_secs(10)).await;
    };
    let refused = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        call(&server, "write_c", "too late").await.unwrap_err().to_string()
    };
    let (running, (), refused) = tokio::join!(running, closing, refused);
    assert_eq!(running.unwrap(), "late");
    assert!(refused.contains("closed"), "{refused}");
}

#[tokio::test]
async fn what_needs_no_restart_is_changed_in_place() {
    let server = open("normal", json!({}));
    let first = ready(&server).await;
    let act = tool(&server, "act");
    let changed = json!({"enabledTools": ["act", "read_*"], "startupWait": 3});
    assert!(server.update(entry("normal", changed)));
    let names: Vec<String> = server.tools().iter().map(|tool| tool.raw_name().to_owned()).collect();
    assert_eq!(names, ["act", "read_a", "read_b"]);
    assert!(Arc::ptr_eq(&act, &tool(&server, "act")), "it is as before");
    assert!(server.update(entry("normal", json!({"toolTimeout": 0.2}))));
    let error = call(&server, "write_c", "never").await.unwrap_err();
    assert_eq!(error.to_string(), "(MCP tool call timed out after 0.2s)");
    assert_eq!(pid(&server), first);
    for other in [entry("pages", json!({})), entry("normal", json!({"env": {"A": "1"}}))] {
        assert!(!server.update(other), "it would be another server");
    }
    assert!(!server.update(entry("normal", json!({"disabled": true}))));
}

#[tokio::test]
async fn a_server_that_nobody_needs_is_stopped_until_the_next_call() {
    let server = open("normal", json!({"lazy": true, "idleTimeout": 0.3}));
    let first = ready(&server).await;
    until("it is stopped", || server.state() == ConnectionState::Cached).await;
    gone(first).await;
    assert_eq!(server.tools().len(), 5);
    assert_eq!(call(&server, "write_c", "hello").await.unwrap(), "hello");
    assert_ne!(pid(&server), first);
    // A call that takes longer than that is no idleness.
    assert_eq!(call(&server, "write_c", "late").await.unwrap(), "late");
    assert_eq!(group(first), [0; 0]);
}

fn names(server: &Server) -> Vec<String> {
    server.tools().iter().map(|tool| tool.spec().name.clone()).collect()
}

/// A shelf that knows the misbehaving server, as it is with this entry.
async fn known(mode: &str, extra: Value) -> (tempfile::TempDir, Shelf) {
    let folder = tempfile::tempdir().unwrap();
    let shelf = Shelf::new(folder.path().to_owned());
    let first = Server::open("odd", entry(mode, extra), Arc::new(NoDelegate), Some(shelf.clone()));
    ready(&first).await;
    until("it is kept", || !shelf.entries().unwrap().is_empty()).await;
    first.close(Duration::ZERO).await;
    (folder, shelf)
}

#[tokio::test]
async fn what_is_known_from_the_cache_is_offered_before_the_server_runs_and_stays_the_same() {
    let (_folder, shelf) = known("normal", json!({})).await;
    let server = Server::open("odd", entry("normal", json!({})), Arc::new(NoDelegate), Some(shelf));
    assert_eq!(names(&server).len(), 5, "at once");
    assert!(server.latest().is_none());
    let status = server.settled(Duration::ZERO).await;
    assert!(status.cached, "there is nothing to wait for");
    assert_eq!(server.instructions().as_deref(), Some("Be careful."));
    let act = tool(&server, "act");
    // The call waits for the start that goes on in the background.
    assert_eq!(call(&server, "write_c", "hello").await.unwrap(), "hello");
    assert_eq!(server.state(), ConnectionState::Ready);
    assert!(!server.status().cached && Arc::ptr_eq(&act, &tool(&server, "act")));
}

#[tokio::test]
async fn a_lazy_server_is_started_by_its_first_call() {
    let (_folder, shelf) = known("normal", json!({})).await;
    let lazy = entry("normal", json!({"lazy": true}));
    let server = Server::open("odd", lazy, Arc::new(NoDelegate), Some(shelf));
    until("it is asleep", || server.state() == ConnectionState::Cached).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(server.latest().is_none());
    assert_eq!(call(&server, "act", "hello").await.unwrap(), "hello");
    pid(&server);
}

#[tokio::test]
async fn a_changed_entry_does_not_start_a_server_that_sleeps() {
    let lazy = json!({"lazy": true});
    let (_folder, shelf) = known("normal", lazy.clone()).await;
    let server = Server::open("odd", entry("normal", lazy), Arc::new(NoDelegate), Some(shelf));
    until("it is asleep", || server.state() == ConnectionState::Cached).await;
    assert!(server.update(entry("normal", json!({"lazy": true, "enabledTools": ["act"]}))));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.state(), ConnectionState::Cached);
    assert!(server.latest().is_none());
    assert_eq!(names(&server), ["mcp_odd_act"]);
}

/// A program that is the misbehaving server in one mode and then in another, without its entry saying so.
struct Switch(tempfile::TempDir);

impl Switch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn to(&self, mode: &str) {
        let script = format!("#!/bin/sh\nexec '{}' {mode}\n", support::server("misbehaving_server"));
        std::fs::write(self.0.path().join("next"), script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(self.0.path().join("next"), mode).unwrap();
        std::fs::rename(self.0.path().join("next"), self.0.path().join("server")).unwrap();
    }

    fn config(&self) -> ServerConfig {
        ServerConfig::from_json("odd", &json!({"command": self.0.path().join("server")})).unwrap()
    }

    fn open(&self) -> (Arc<Server>, Shelf) {
        let cache = Shelf::new(self.0.path().join("shelf"));
        let server = Server::open("odd", self.config(), Arc::new(NoDelegate), Some(cache.clone()));
        (server, cache)
    }

    /// Start it in this mode once, so that the cache knows it.
    async fn known_as(&self, mode: &str) {
        self.to(mode);
        let (first, cache) = self.open();
        ready(&first).await;
        until("it is kept", || !cache.entries().unwrap().is_empty()).await;
        first.close(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_cache_that_is_wrong_is_put_right_when_the_server_answers() {
    let switch = Switch::new();
    switch.known_as("pages").await;
    switch.to("normal");
    let (server, shelf) = switch.open();
    assert!(names(&server).contains(&"mcp_odd_t1".to_owned()));
    until("it is confirmed", || !server.status().cached).await;
    assert!(names(&server).contains(&"mcp_odd_act".to_owned()) && names(&server).len() == 5);
    until("the cache follows", || shelf.entries().unwrap().iter().any(|entry| entry.tools == 5)).await;
}

#[tokio::test]
async fn tools_from_the_cache_whose_server_cannot_start_fail_with_the_reason() {
    let switch = Switch::new();
    switch.known_as("normal").await;
    switch.to("exit_at_once");
    let (server, _shelf) = switch.open();
    let error = call(&server, "write_c", "x").await.unwrap_err().to_string();
    assert!(error.contains("cannot find my configuration") && error.contains("next attempt"), "{error}");
    assert_eq!(names(&server).len(), 5, "they stay listed");
}

#[tokio::test]
async fn a_server_that_is_not_lazy_is_not_known_from_the_cache() {
    let (_folder, shelf) = known("normal", json!({})).await;
    let eager = entry("normal", json!({"lazy": false}));
    let server = Server::open("odd", eager, Arc::new(NoDelegate), Some(shelf));
    assert!(server.tools().is_empty());
    ready(&server).await;
}

#[tokio::test]
async fn a_server_can_be_told_later_to_stop_when_nobody_needs_it() {
    let server = open("normal", json!({}));
    let first = ready(&server).await;
    assert!(server.update(entry("normal", json!({"idleTimeout": 0.2}))));
    until("it is stopped", || server.state() == ConnectionState::Cached).await;
    gone(first).await;
}

#[tokio::test]
async fn a_disabled_server_is_never_started() {
    let server = open("normal", json!({"disabled": true}));
    assert_eq!(server.settled(GENEROUS).await.state, ConnectionState::Disabled);
    server.close(Duration::ZERO).await;
    assert!(server.latest().is_none());
}

#[tokio::test]
async fn a_dropped_server_goes_with_everything_it_started() {
    let server = open("grandchild", json!({}));
    let first = ready(&server).await;
    drop(server);
    gone(first).await;
}

/// Remembers the states that it is told.
#[derive(Default)]
struct States(Mutex<Vec<(&'static str, bool)>>);

impl Delegate for States {
    fn request(&self, _: &str, method: &str, _: Value) -> BoxFuture<Result<Value, RequestError>> {
        let error = RequestError::new(-32601, method);
        Box::pin(std::future::ready(Err(error)))
    }

    fn event(&self, _: &str, event: Event) {
        if let Event::State { state, failure } = event {
            self.0.lock().unwrap().push((state.as_str(), failure.is_some()));
        }
    }
}

#[tokio::test]
async fn every_change_of_state_is_told_in_order() {
    let states = Arc::new(States::default());
    let server =
        Server::open("odd", entry("normal", json!({})), Arc::clone(&states) as Arc<dyn Delegate>, None);
    let first = ready(&server).await;
    kill(first);
    until("another process", || server.state() == ConnectionState::Ready && pid(&server) != first).await;
    server.close(Duration::ZERO).await;
    let told = states.0.lock().unwrap().clone();
    let names: Vec<&str> = told.iter().map(|(state, _)| *state).collect();
    assert_eq!(names, ["connecting", "ready", "reconnecting", "ready", "closed"]);
    assert!(told[2].1 && !told[3].1, "why it was lost: {told:?}");
}

promise! {
    /// Nobody starts an HTTP server again but whoever runs it: it is found when it is back.
    a_server_that_is_started_again_is_found [json sse legacy] |over| {
        let (config, process) = over.entry("normal", json!({"connectTimeout": 5}));
        let mut process = process.expect("over HTTP");
        let port = process.port();
        let server = Server::open("odd", config, Arc::new(NoDelegate), None);
        assert_eq!(server.settled(GENEROUS).await.state, ConnectionState::Ready);
        let act = tool(&server, "act");
        assert_eq!(call(&server, "write_c", "before").await.unwrap(), "before");
        process.kill();
        // At once, and with the reason: nobody listens there.
        let begun = Instant::now();
        let error = call(&server, "write_c", "meanwhile").await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
        let text = error.to_string();
        assert!(text.contains("'odd'"), "{text}");
        until("it is noticed", || server.state() == ConnectionState::Lost).await;
        assert_eq!(server.tools().len(), 5, "its tools stay listed");
        let error = call(&server, "write_c", "again").await.unwrap_err().to_string();
        assert!(error.contains("next attempt") && error.contains("not sent"), "{error}");
        let process = Process::start_at("normal", over, port);
        until("it is found", || server.state() == ConnectionState::Ready).await;
        assert!(Arc::ptr_eq(&act, &tool(&server, "act")));
        assert_eq!(call(&server, "write_c", "after").await.unwrap(), "after");
        server.close(Duration::ZERO).await;
        drop(process);
    }
}

promise! {
    /// A restart between two calls is not seen by the second, if the server is there again by then.
    a_restart_between_calls_costs_no_call [json sse legacy] |over| {
        let (config, process) = over.entry("normal", json!({}));
        let mut process = process.expect("over HTTP");
        let port = process.port();
        let server = Server::open("odd", config, Arc::new(NoDelegate), None);
        assert_eq!(server.settled(GENEROUS).await.state, ConnectionState::Ready);
        for round in 0..5 {
            process.kill();
            process = Process::start_at("normal", over, port);
            // An attempt may have come between, and found nobody.
            until("it is back", || { server.reconnect(); server.state() == ConnectionState::Ready }).await;
            let said = round.to_string();
            assert_eq!(call(&server, "act", &said).await.unwrap(), said);
        }
        server.close(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_bad_server_holds_up_nobody() {
    let bad: Vec<_> = ["mute", "mute_list", "exit_at_once"].map(|mode| open(mode, json!({}))).into();
    let good = open("normal", json!({}));
    ready(&good).await;
    assert_eq!(call(&good, "act", "hello").await.unwrap(), "hello");
    let begun = Instant::now();
    for server in &bad {
        server.close(Duration::ZERO).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(15));
    let missing = ServerConfig::stdio(server("no_such_server"), Vec::<String>::new());
    let missing = Server::open("missing", missing, Arc::new(NoDelegate), None);
    let failure = missing.settled(GENEROUS).await.failure.unwrap().to_string();
    assert!(failure.contains("no_such_server") && failure.contains("whole path"), "{failure}");
    let folder = ServerConfig::stdio("/tmp", Vec::<String>::new());
    let folder = Server::open("folder", folder, Arc::new(NoDelegate), None);
    let failure = folder.settled(GENEROUS).await.failure.unwrap().to_string();
    assert!(failure.contains("'/tmp'") && failure.contains("no program"), "{failure}");
}

//! The transport against servers on loopback that keep the protocol, or break it.

use std::sync::atomic::AtomicUsize;

use indexmap::IndexMap;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{
    super::{
        Failure,
        testing::{Recorder, Report, notify, request},
    },
    *,
};
use crate::net::{
    AllowPrivate, Policy,
    testing::{Seen, Server, Wire},
};

fn connect_to(url: &str) -> (Arc<dyn Carrier>, Arc<Recorder>) {
    let headers = IndexMap::from([("X-Key".to_owned(), "hush".to_owned())]);
    let client = HttpClient::new("s", Policy { allow_private: AllowPrivate::All }, &headers).unwrap();
    let recorder = Arc::new(Recorder::default());
    let receiver: Arc<dyn Receiver> = Arc::clone(&recorder) as _;
    (open(&"s".into(), url, client, receiver).unwrap(), recorder)
}

fn connect(server: &Server) -> (Arc<dyn Carrier>, Arc<Recorder>) {
    connect_to(&server.url("/mcp"))
}

/// A reply to the request with a result that says which method it was.
fn reply(seen: &Seen) -> String {
    json!({"jsonrpc": "2.0", "id": seen.json()["id"], "result": {"to": seen.rpc()}}).to_string()
}

fn event(data: &str) -> String {
    format!("event: message\ndata: {data}\n\n")
}

/// What a server does that keeps sessions: the numbers of those it knows.
#[derive(Clone, Default)]
struct Sessions(Arc<AtomicUsize>);

impl Sessions {
    fn id(&self) -> String {
        format!("session-{}", self.0.load(Ordering::SeqCst))
    }

    fn forget(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    async fn answer(&self, seen: Seen, wire: Wire, status: u16, body: &str) -> Option<Wire> {
        let current = seen.header("mcp-session-id") == Some(self.id().as_str());
        match (seen.method.as_str(), seen.rpc().as_str()) {
            ("POST", "initialize") => {
                let extra = format!("Mcp-Session-Id: {}\r\n", self.id());
                let body = json!({"jsonrpc": "2.0", "id": seen.json()["id"], "result": {"protocolVersion": "2025-06-18"}});
                wire.answer(200, "application/json", &extra, body.to_string()).await
            }
            _ if !current => wire.answer(status, "application/json", "", body).await,
            ("POST", method) if method.starts_with("notifications/") => wire.answer(202, "", "", "").await,
            ("POST", _) => wire.json(reply(&seen)).await,
            ("DELETE", _) => wire.answer(200, "", "", "").await,
            _ => wire.answer(405, "", "", "").await,
        }
    }
}

async fn handshake(carrier: &Arc<dyn Carrier>, recorder: &Recorder, listen: bool) {
    request(carrier, 0, "initialize");
    recorder.outcome(0).await.unwrap();
    carrier.agreed("2025-06-18", listen);
    notify(carrier, "notifications/initialized");
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come about");
}

/// One call to a server that answers it in this one way.
async fn call<F, A>(answer: F) -> (Result<Value, Failure>, Arc<Recorder>)
where
    F: Fn(Seen, Wire) -> A + Send + Sync + 'static,
    A: Future<Output = Option<Wire>> + Send + 'static,
{
    let server = Server::start(answer).await;
    let (carrier, recorder) = connect(&server);
    request(&carrier, 7, "tools/call");
    let outcome = recorder.outcome(7).await;
    (outcome, recorder)
}

fn unreadable(outcome: Result<Value, Failure>) -> String {
    match outcome {
        Err(Failure::Unreadable(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// The session, the version and the entry's headers go with every message after the handshake, and the session is ended.
#[tokio::test]
async fn a_session_is_kept_and_ended() {
    let sessions = Sessions::default();
    let server = Server::start(move |seen, wire| {
        let sessions = sessions.clone();
        async move { sessions.answer(seen, wire, 404, "").await }
    })
    .await;
    let (carrier, recorder) = connect(&server);
    handshake(&carrier, &recorder, true).await;
    request(&carrier, 1, "tools/list");
    assert_eq!(recorder.outcome(1).await, Ok(json!({"to": "tools/list"})));
    carrier.close();
    assert_eq!(carrier.send(b"{}\n", Kind::Reply), Err(Refused::Closed));
    eventually("DELETE", || server.seen().iter().any(|seen| seen.method == "DELETE")).await;

    let seen = server.seen();
    let accept = Some("application/json, text/event-stream");
    assert_eq!((seen[0].header("accept"), seen[0].header("mcp-session-id")), (accept, None));
    assert_eq!(seen[0].header("mcp-protocol-version"), None);
    for later in &seen[1..] {
        assert_eq!(later.header("mcp-session-id"), Some("session-0"), "{later:?}");
        assert_eq!(later.header("mcp-protocol-version"), Some("2025-06-18"));
        assert_eq!(later.header("x-key"), Some("hush"));
    }
    // A server without a stream of its own is asked once.
    assert_eq!(seen.iter().filter(|seen| seen.method == "GET").count(), 1);
    assert!(seen.iter().any(|seen| seen.body == r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
}

/// What the era wants in headers goes with that message alone.
#[tokio::test]
async fn headers_of_the_era_go_with_their_message() {
    let server = Server::start(|seen, wire: Wire| async move { wire.json(reply(&seen)).await }).await;
    let (carrier, recorder) = connect(&server);
    let headers =
        vec![("Mcp-Method".to_owned(), "tools/call".to_owned()), ("bad name".to_owned(), "x".to_owned())];
    let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}\n";
    carrier.send(line, Kind::Request { id: 1, method: "tools/call", headers }).unwrap();
    recorder.outcome(1).await.unwrap();
    request(&carrier, 2, "ping");
    recorder.outcome(2).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].header("mcp-method"), Some("tools/call"));
    assert_eq!(seen[1].header("mcp-method"), None);
}

/// Any 2xx will do for a notification, with whatever body.
#[tokio::test]
async fn any_success_is_accepted_for_a_notification() {
    let answers = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |seen: Seen, wire: Wire| {
        let at = answers.fetch_add(1, Ordering::SeqCst);
        async move {
            match at {
                0 => wire.answer(204, "", "", "").await,
                1 => wire.answer(200, "application/json", "", r#"{"jsonrpc":"2.0","result":{}}"#).await,
                2 => wire.answer(201, "text/html", "", "<p>ok</p>").await,
                3 => wire.answer(500, "text/plain", "", "no").await,
                _ => wire.json(reply(&seen)).await,
            }
        }
    })
    .await;
    let (carrier, recorder) = connect(&server);
    for count in 1..=4 {
        notify(&carrier, "notifications/roots/list_changed");
        eventually("the notification", || server.seen().len() == count).await;
    }
    request(&carrier, 1, "ping");
    recorder.outcome(1).await.unwrap();
    assert!(!recorder.reports().iter().any(|report| matches!(report, Report::End(_))));
}

/// Nothing overtakes `notifications/initialized`.
#[tokio::test]
async fn nothing_overtakes_the_end_of_the_handshake() {
    let server = Server::start(|seen: Seen, wire: Wire| async move {
        if seen.rpc().starts_with("notifications/") {
            tokio::time::sleep(Duration::from_millis(100)).await;
            return wire.answer(202, "", "", "").await;
        }
        wire.json(reply(&seen)).await
    })
    .await;
    let (carrier, recorder) = connect(&server);
    handshake(&carrier, &recorder, true).await;
    request(&carrier, 1, "tools/list");
    recorder.outcome(1).await.unwrap();
    let methods: Vec<String> = server.seen().iter().map(Seen::rpc).collect();
    assert_eq!(methods[..2], ["initialize", "notifications/initialized"]);
}

/// A page, a foreign content type, an empty body or mere acceptance is an error at once, with status and excerpt.
#[tokio::test]
async fn what_is_no_reply_is_an_error_at_once() {
    for (status, kind, body, parts) in [
        (
            200,
            "text/html; charset=utf-8",
            "<html><body><h1>Sign in</h1></body></html>",
            ["HTTP 200", "text/html", "Sign in"],
        ),
        (200, "text/plain", "hello", ["HTTP 200", "text/plain", "hello"]),
        (200, "", "", ["HTTP 200", "no content type", ""]),
        (200, "application/json", "", ["HTTP 200", "empty body", ""]),
        (202, "", "", ["HTTP 202", "no reply", ""]),
        (204, "", "", ["HTTP 204", "no reply", ""]),
        (200, "application/json", r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, ["no reply", "", ""]),
        (200, "application/json", "{}", ["no reply", "", ""]),
        (200, "application/json", r#"{"jsonrpc":"2.0","id":99,"result":{}}"#, ["no reply", "", ""]),
    ] {
        let (outcome, _) = call(move |_, wire: Wire| wire.answer(status, kind, "", body)).await;
        let text = unreadable(outcome);
        assert!(parts.iter().all(|part| text.contains(part)) && !text.contains('<'), "{text}");
    }
    let (outcome, _) = call(|_, wire: Wire| {
        wire.answer(200, "application/json", "Content-Encoding: gzip\r\n", "\x1f\u{8b}")
    })
    .await;
    assert!(unreadable(outcome).contains("gzip"));
}

/// A status of failure is told with what the body says; a JSON-RPC body of one is the reply.
#[tokio::test]
async fn a_status_of_failure_is_told_or_holds_the_reply() {
    let (outcome, _) =
        call(|_, wire: Wire| wire.answer(502, "text/html", "", "<h1>Bad   Gateway</h1>")).await;
    let text = "HTTP 502 Bad Gateway: Bad Gateway".to_owned();
    assert_eq!(outcome, Err(Failure::Http { status: 502, text, challenge: None }));

    let extra = "WWW-Authenticate: Bearer resource_metadata=\"x\"\r\n";
    let body = r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}"#;
    let (outcome, _) = call(move |_, wire: Wire| wire.answer(401, "application/json", extra, body)).await;
    let Err(Failure::Http { status: 401, challenge: Some(challenge), .. }) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(challenge.starts_with("Bearer"));

    for status in [400, 404, 500] {
        let (outcome, recorder) =
            call(move |_, wire: Wire| wire.answer(status, "application/json", "", body)).await;
        assert_eq!(outcome, Ok(json!({"code": 1, "message": "no"})));
        assert!(matches!(recorder.reports()[0], Report::Message(_, Some(7))));
    }
    let (outcome, _) =
        call(|_, wire: Wire| wire.answer(404, "application/json", "", r#"{"detail":"Not Found"}"#)).await;
    assert!(matches!(outcome, Err(Failure::Http { status: 404, .. })));
}

/// A reply may come as events, among others, with the stream open after it, cut anywhere, and without the blank
/// line at its end.
#[tokio::test]
async fn a_reply_comes_as_events() {
    let (outcome, recorder) = call(|seen, mut wire: Wire| async move {
        wire.events("").await;
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"x":"€"}}"#;
        for byte in [": hello\r\n\r\n", &event(progress), &event(&reply(&seen))].concat().as_bytes() {
            wire.raw([*byte]).await;
        }
        wire.gone().await;
        None
    })
    .await;
    assert_eq!(outcome, Ok(json!({"to": "tools/call"})));
    let Report::Message(progress, Some(7)) = &recorder.reports()[0] else { panic!() };
    assert_eq!(progress["params"]["x"], "€");

    let (outcome, _) = call(|seen, mut wire: Wire| async move {
        wire.events("").await;
        wire.raw(format!("data: {}", reply(&seen))).await;
        None
    })
    .await;
    assert_eq!(outcome, Ok(json!({"to": "tools/call"})));
}

/// An event of many MiB is delivered whole, also beside an id on top of it.
#[tokio::test]
async fn a_large_event_is_delivered() {
    let (outcome, _) = call(|seen, mut wire: Wire| async move {
        wire.events("").await;
        let large = json!({"result": {"x": "y".repeat(8 << 20)}, "jsonrpc": "2.0", "id": seen.json()["id"]});
        wire.raw(event(&large.to_string())).await;
        None
    })
    .await;
    assert_eq!(outcome.unwrap()["x"].as_str().unwrap().len(), 8 << 20);
}

/// A stream that ends without the reply and without an id is a lost reply, at once; so is a body that breaks off.
#[tokio::test]
async fn a_stream_that_ends_without_the_reply_is_a_lost_reply() {
    let (outcome, _) = call(|_, mut wire: Wire| async move {
        wire.events("").await;
        wire.raw(event(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#)).await;
        wire.raw("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"resu").await;
        None
    })
    .await;
    assert!(matches!(outcome, Err(Failure::Lost(_))), "{outcome:?}");
    let (outcome, _) = call(|_, mut wire: Wire| async move {
        wire.raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"json")
            .await;
        None
    })
    .await;
    assert!(matches!(outcome, Err(Failure::Lost(_))), "{outcome:?}");
    let (outcome, _) = call(|_, _| async { None }).await;
    assert!(matches!(outcome, Err(Failure::Lost(_))), "{outcome:?}");
}

/// A closed port fails the call at once, and it is known that nothing was sent.
#[tokio::test]
async fn a_call_to_a_closed_port_was_not_sent() {
    let (carrier, recorder) = connect_to("http://127.0.0.1:9/hush");
    request(&carrier, 1, "ping");
    let Err(Failure::NotSent(text)) = recorder.outcome(1).await else { panic!() };
    assert!(text.contains("unreachable") && !text.contains("hush"), "{text}");
}

/// A stream of a reply that ends is taken up after the last event, when the server said, as long as it brings
/// something: a priming event without data is enough.
#[tokio::test]
async fn the_stream_of_a_reply_is_taken_up_where_it_ended() {
    let polls = Arc::new(AtomicUsize::new(0));
    let sessions = Sessions::default();
    let server = Server::start(move |seen: Seen, mut wire: Wire| {
        let (polls, sessions) = (Arc::clone(&polls), sessions.clone());
        async move {
            if seen.rpc() == "tools/call" {
                wire.events("").await;
                wire.raw("id: e-0\nretry: 20\ndata:\n\n").await;
                return None;
            }
            if seen.method == "GET" {
                let poll = polls.fetch_add(1, Ordering::SeqCst) + 1;
                wire.events("").await;
                if poll < 10 {
                    wire.raw(format!("id: e-{poll}\ndata: \n\n")).await;
                } else {
                    wire.raw(event(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#)).await;
                }
                return None;
            }
            sessions.answer(seen, wire, 404, "").await
        }
    })
    .await;
    let (carrier, recorder) = connect(&server);
    handshake(&carrier, &recorder, false).await;
    request(&carrier, 7, "tools/call");
    assert_eq!(recorder.outcome(7).await, Ok(json!({})));
    let gets: Vec<Seen> = server.seen().into_iter().filter(|seen| seen.method == "GET").collect();
    assert_eq!(gets.len(), 10);
    for (at, get) in gets.iter().enumerate() {
        assert_eq!(get.header("last-event-id"), Some(format!("e-{at}").as_str()));
        assert_eq!((get.header("mcp-session-id"), get.header("content-type")), (Some("session-0"), None));
    }
}

/// A stream that cannot be taken up, or brings nothing more, is given up.
#[tokio::test]
async fn a_stream_that_brings_nothing_more_is_given_up() {
    for (status, gets) in [(400, 1), (200, 6), (503, 6)] {
        let sessions = Sessions::default();
        let server = Server::start(move |seen: Seen, mut wire: Wire| {
            let sessions = sessions.clone();
            async move {
                if seen.rpc() == "tools/call" {
                    wire.events("").await;
                    wire.raw("id: e\nretry: 1\n\n").await;
                    return None;
                }
                if seen.method == "GET" {
                    return wire.answer(status, "text/event-stream", "", "").await;
                }
                sessions.answer(seen, wire, 404, "").await
            }
        })
        .await;
        let (carrier, recorder) = connect(&server);
        handshake(&carrier, &recorder, false).await;
        request(&carrier, 7, "tools/call");
        let outcome = recorder.outcome(7).await;
        let Err(Failure::Lost(text)) = &outcome else { panic!("{outcome:?}") };
        assert!(text.contains("could not be taken up"), "{text}");
        assert_eq!(server.seen().iter().filter(|seen| seen.method == "GET").count(), gets);
    }
}

/// However many calls find the session unknown, it is initialised once, and each call runs in the new one.
#[tokio::test]
async fn an_unknown_session_is_renewed_once_for_all_calls() {
    for (status, body) in [
        (404, ""),
        (404, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#),
        (
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#,
        ),
        (401, "Session expired"),
        (403, r#"{"error":"unknown session"}"#),
    ] {
        let sessions = Sessions::default();
        let at_server = sessions.clone();
        let server = Server::start(move |seen, wire| {
            let sessions = at_server.clone();
            async move { sessions.answer(seen, wire, status, body).await }
        })
        .await;
        let (carrier, recorder) = connect(&server);
        handshake(&carrier, &recorder, false).await;
        request(&carrier, 1, "ping");
        recorder.outcome(1).await.unwrap();
        sessions.forget();
        for id in 2..22 {
            request(&carrier, id, "tools/call");
        }
        for id in 2..22 {
            assert_eq!(recorder.outcome(id).await, Ok(json!({"to": "tools/call"})), "{status} {body}");
        }
        let seen = server.seen();
        let initialized: Vec<&Seen> = seen.iter().filter(|seen| seen.rpc() == "initialize").collect();
        assert_eq!(initialized.len(), 2, "{status}");
        assert_eq!(initialized[1].header("mcp-session-id"), None);
        assert_ne!(initialized[1].json()["id"], 0);
        assert_eq!(seen.iter().filter(|seen| seen.rpc() == "notifications/initialized").count(), 2);
        // The reply to our own request is not the peer's.
        let foreign = |report: &Report| matches!(report, Report::Message(message, _) if message["id"].as_i64() > Some(100));
        assert!(!recorder.reports().iter().any(foreign));
    }
}

/// A server that refuses the new session as well fails the calls, and is not asked again for ever.
#[tokio::test]
async fn a_session_that_cannot_be_renewed_fails_the_calls() {
    for broken in [false, true] {
        let initialized = Arc::new(AtomicUsize::new(0));
        let server = Server::start(move |seen: Seen, wire: Wire| {
            let count =
                if seen.rpc() == "initialize" { initialized.fetch_add(1, Ordering::SeqCst) } else { 0 };
            async move {
                match seen.rpc().as_str() {
                    "initialize" if count > 0 && broken => {
                        wire.answer(503, "text/plain", "", "maintenance").await
                    }
                    "initialize" => {
                        wire.answer(200, "application/json", "Mcp-Session-Id: x\r\n", reply(&seen)).await
                    }
                    "notifications/initialized" => wire.answer(202, "", "", "").await,
                    _ => wire.answer(404, "text/plain", "", "gone").await,
                }
            }
        })
        .await;
        let (carrier, recorder) = connect(&server);
        handshake(&carrier, &recorder, false).await;
        request(&carrier, 1, "tools/call");
        match recorder.outcome(1).await {
            Err(Failure::NotSent(text)) if broken => {
                assert!(text.contains("503") && text.contains("maintenance"), "{text}");
            }
            Err(Failure::Http { status: 404, .. }) if !broken => {}
            other => panic!("{other:?}"),
        }
        let calls = server.seen().iter().filter(|seen| seen.rpc() == "tools/call").count();
        assert_eq!(calls, if broken { 1 } else { 2 });
    }
}

/// What looked like a lost session and is a question of who may ask is told as that.
#[tokio::test]
async fn a_refusal_for_want_of_credentials_keeps_its_challenge() {
    let extra = "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n";
    let expired = Arc::new(AtomicUsize::new(0));
    let at_server = Arc::clone(&expired);
    let server = Server::start(move |seen: Seen, wire: Wire| {
        let expired = at_server.load(Ordering::SeqCst) > 0;
        async move {
            match seen.rpc().as_str() {
                _ if expired => wire.answer(401, "text/plain", extra, "the session token has expired").await,
                "initialize" => {
                    wire.answer(200, "application/json", "Mcp-Session-Id: x\r\n", reply(&seen)).await
                }
                _ => wire.answer(202, "", "", "").await,
            }
        }
    })
    .await;
    let (carrier, recorder) = connect(&server);
    handshake(&carrier, &recorder, false).await;
    eventually("the end of the handshake", || server.seen().len() == 2).await;
    expired.store(1, Ordering::SeqCst);
    request(&carrier, 1, "tools/call");
    let outcome = recorder.outcome(1).await;
    assert!(matches!(outcome, Err(Failure::Http { status: 401, challenge: Some(_), .. })), "{outcome:?}");
}

/// A refusal that has nothing to do with a session is the call's alone.
#[tokio::test]
async fn a_refusal_without_a_session_is_no_lost_session() {
    let server = Server::start(|seen: Seen, wire: Wire| async move {
        match seen.rpc().as_str() {
            "initialize" => wire.json(reply(&seen)).await,
            _ => wire.answer(404, "text/plain", "", "Session not found").await,
        }
    })
    .await;
    let (carrier, recorder) = connect(&server);
    handshake(&carrier, &recorder, false).await;
    request(&carrier, 1, "tools/call");
    assert!(matches!(recorder.outcome(1).await, Err(Failure::Http { status: 404, .. })));
    assert_eq!(server.seen().iter().filter(|seen| seen.rpc() == "initialize").count(), 1);
}

/// A session id that comes with a later response is kept as well.
#[tokio::test]
async fn a_session_id_that_comes_late_is_kept() {
    let server = Server::start(|seen: Seen, wire: Wire| async move {
        match seen.rpc().as_str() {
            "notifications/initialized" => wire.answer(202, "", "Mcp-Session-Id: late\r\n", "").await,
            _ => wire.json(reply(&seen)).await,
        }
    })
    .await;
    let (carrier, recorder) = connect(&server);
    handshake(&carrier, &recorder, false).await;
    request(&carrier, 1, "ping");
    recorder.outcome(1).await.unwrap();
    assert_eq!(server.seen()[2].header("mcp-session-id"), Some("late"));
}

/// Messages of the server's own come on the GET stream, which is opened again where it ended.
#[tokio::test]
async fn the_servers_own_stream_is_opened_again_where_it_ended() {
    let opened = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |seen: Seen, mut wire: Wire| {
        let count = if seen.method == "GET" { opened.fetch_add(1, Ordering::SeqCst) } else { 0 };
        async move {
            match seen.rpc().as_str() {
                "" => {}
                "initialize" => return wire.json(reply(&seen)).await,
                _ => return wire.answer(202, "", "", "").await,
            }
            if count == 1 {
                return wire.answer(503, "", "", "").await;
            }
            wire.events("").await;
            wire.raw(format!("retry: 10\nid: {count}\ndata: {{\"method\":\"notifications/{count}\"}}\n\n"))
                .await;
            if count > 2 {
                wire.gone().await;
            }
            None
        }
    })
    .await;
    let (carrier, recorder) = connect(&server);
    handshake(&carrier, &recorder, true).await;
    for count in [0, 2, 3] {
        let method = format!("notifications/{count}");
        recorder
            .first(|report| {
                matches!(report, Report::Message(message, None) if message["method"] == *method).then_some(())
            })
            .await;
    }
    let ids: Vec<Option<String>> = server
        .seen()
        .iter()
        .filter(|seen| seen.method == "GET")
        .map(|seen| seen.header("last-event-id").map(str::to_owned))
        .collect();
    assert_eq!(ids, [None, Some("0".to_owned()), Some("0".to_owned()), Some("2".to_owned())]);
}

/// A server that is gone is noticed without a call, by the end of its own stream; one that only closes that stream
/// is not gone.
#[tokio::test]
async fn a_server_that_is_gone_is_noticed_by_its_stream() {
    let server = Server::start(|seen: Seen, mut wire: Wire| async move {
        match seen.rpc().as_str() {
            "" => {
                wire.events("").await;
                wire.raw("retry: 20\n\n").await;
                None
            }
            "initialize" => wire.json(reply(&seen)).await,
            _ => wire.answer(202, "", "", "").await,
        }
    })
    .await;
    let (carrier, recorder) = connect(&server);
    handshake(&carrier, &recorder, true).await;
    eventually("several streams", || server.seen().iter().filter(|seen| seen.method == "GET").count() > 3)
        .await;
    assert!(!recorder.reports().iter().any(|report| matches!(report, Report::End(_))));
    drop(server);
    assert!(recorder.end_reason().await.contains("unreachable"));
}

/// Calls run side by side, and a forgotten one takes its connection with it.
#[tokio::test]
async fn calls_run_side_by_side_and_are_dropped_when_forgotten() {
    let together = Arc::new(Semaphore::new(0));
    let gone = Arc::new(AtomicUsize::new(0));
    let (waiting, left) = (Arc::clone(&together), Arc::clone(&gone));
    let server = Server::start(move |seen: Seen, mut wire: Wire| {
        let (waiting, left) = (Arc::clone(&waiting), Arc::clone(&left));
        async move {
            if seen.rpc() == "forgotten" {
                wire.events("").await;
                wire.gone().await;
                left.fetch_add(1, Ordering::SeqCst);
                return None;
            }
            // Nobody is answered before all have come.
            if seen.json()["id"] == 64 {
                waiting.add_permits(64);
            }
            waiting.acquire().await.unwrap().forget();
            wire.json(reply(&seen)).await
        }
    })
    .await;
    let (carrier, recorder) = connect(&server);
    request(&carrier, 100, "forgotten");
    for id in 1..=64 {
        request(&carrier, id, "ping");
    }
    for id in 1..=64 {
        recorder.outcome(id).await.unwrap();
    }
    assert_eq!(gone.load(Ordering::SeqCst), 0);
    carrier.forget(100);
    eventually("the end of the stream", || gone.load(Ordering::SeqCst) == 1).await;
}

/// Whoever waits when the transport is closed or dropped does not wait on.
#[tokio::test]
async fn closing_ends_what_waits() {
    for close in [true, false] {
        let server = Server::start(|_, wire: Wire| async {
            wire.gone().await;
            None
        })
        .await;
        let (carrier, recorder) = connect(&server);
        request(&carrier, 1, "ping");
        eventually("the request", || !server.seen().is_empty()).await;
        if close {
            carrier.close();
        }
        drop(carrier);
        assert!(matches!(recorder.outcome(1).await, Err(Failure::Lost(_))));
    }
}

/// Where `initialize` was redirected to, the session lives: later messages go there, without what belongs to the
/// entry's origin.
#[tokio::test]
async fn a_session_lives_where_it_was_begun() {
    let sessions = Sessions::default();
    let new = Server::start(move |seen, wire| {
        let sessions = sessions.clone();
        async move { sessions.answer(seen, wire, 404, "").await }
    })
    .await;
    let location = format!("Location: {}\r\n", new.url("/new"));
    let old = Server::start(move |_, wire: Wire| {
        let location = location.clone();
        async move { wire.answer(308, "", &location, "").await }
    })
    .await;
    let (carrier, recorder) = connect(&old);
    handshake(&carrier, &recorder, false).await;
    request(&carrier, 1, "ping");
    recorder.outcome(1).await.unwrap();
    assert_eq!(old.seen().len(), 1);
    assert!(new.seen().iter().all(|seen| seen.header("x-key").is_none()));
    assert_eq!(new.seen().last().unwrap().header("mcp-session-id"), Some("session-0"));
}

/// An address without a path is asked for as it is.
#[tokio::test]
async fn an_address_without_a_path_works() {
    let server = Server::start(|seen, wire: Wire| async move { wire.json(reply(&seen)).await }).await;
    let (carrier, recorder) = connect_to(&server.url(""));
    request(&carrier, 1, "ping");
    recorder.outcome(1).await.unwrap();
    assert_eq!(server.seen()[0].target, "/");
}

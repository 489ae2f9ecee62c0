//! The transport against servers on loopback that keep the protocol, or break it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use indexmap::IndexMap;
use serde_json::json;
use tokio::sync::Mutex as AsyncMutex;

use super::{
    super::testing::{Recorder, Report, notify, request},
    *,
};
use crate::net::{
    AllowPrivate, Policy,
    testing::{Seen, Server, Wire},
};

fn connect(url: &str) -> (Arc<dyn Carrier>, Arc<Recorder>) {
    let headers = IndexMap::from([("X-Key".to_owned(), "hush".to_owned())]);
    let client = HttpClient::new("s", Policy { allow_private: AllowPrivate::All }, &headers).unwrap();
    let recorder = Arc::new(Recorder::default());
    let receiver: Arc<dyn Receiver> = Arc::clone(&recorder) as _;
    (open(&"s".into(), url, client, receiver).unwrap(), recorder)
}

/// A server that keeps the protocol: what is posted is answered on the stream.
async fn serve(endpoint: &'static str) -> Server {
    let stream: Arc<AsyncMutex<Option<Wire>>> = Arc::default();
    Server::start(move |seen: Seen, mut wire: Wire| {
        let stream = Arc::clone(&stream);
        async move {
            if seen.method == "GET" {
                wire.events("").await;
                // Messages wait for it.
                tokio::time::sleep(Duration::from_millis(50)).await;
                wire.raw(format!("event: endpoint\ndata: {endpoint}\n\n")).await;
                *stream.lock().await = Some(wire);
                return None;
            }
            let method = seen.rpc();
            if method == "refused" {
                return wire.answer(404, "text/plain", "", "Could not find session").await;
            }
            if method == "bye" {
                *stream.lock().await = None;
            }
            if let Some(stream) = &mut *stream.lock().await
                && !method.starts_with("notifications/")
            {
                let reply = json!({"jsonrpc": "2.0", "id": seen.json()["id"], "result": {"to": method}});
                stream.raw(format!("event: message\r\ndata: {reply}\r\n\r\n")).await;
            }
            wire.answer(202, "text/plain", "", "Accepted").await
        }
    })
    .await
}

/// Messages wait for the endpoint, go there with the entry's headers, and replies come on the stream.
#[tokio::test]
async fn messages_wait_for_the_endpoint() {
    let server = serve("/messages/?session_id=abc").await;
    let (carrier, recorder) = connect(&server.url("/sse?key=1"));
    request(&carrier, 1, "initialize");
    assert_eq!(recorder.outcome(1).await, Ok(json!({"to": "initialize"})));
    notify(&carrier, "notifications/initialized");
    for id in 2..66 {
        request(&carrier, id, "tools/call");
    }
    for id in 2..66 {
        assert_eq!(recorder.outcome(id).await, Ok(json!({"to": "tools/call"})));
    }
    let seen = server.seen();
    assert_eq!(
        (seen[0].target.as_str(), seen[0].header("accept")),
        ("/sse?key=1", Some("text/event-stream"))
    );
    assert!(seen[1..].iter().all(|seen| seen.target == "/messages/?session_id=abc"));
    assert!(seen.iter().all(|seen| seen.header("x-key") == Some("hush")));
    assert_eq!(seen[2].rpc(), "notifications/initialized", "nothing overtakes it");
}

/// A message that the server refuses fails its call with the status, and no other.
#[tokio::test]
async fn a_refused_message_fails_its_call() {
    let server = serve("messages").await;
    let (carrier, recorder) = connect(&server.url("/deep/sse"));
    request(&carrier, 1, "refused");
    request(&carrier, 2, "ping");
    let text = "HTTP 404 Not Found: Could not find session".to_owned();
    assert_eq!(recorder.outcome(1).await, Err(Failure::Http { status: 404, text, challenge: None }));
    recorder.outcome(2).await.unwrap();
    assert!(server.seen()[1..].iter().all(|seen| seen.target == "/deep/messages"));
}

/// The end of the stream ends the connection at once, with the reason.
#[tokio::test]
async fn the_end_of_the_stream_is_the_end_of_the_connection() {
    let server = serve("/m").await;
    let (carrier, recorder) = connect(&server.url("/sse"));
    request(&carrier, 1, "bye");
    assert_eq!(recorder.end_reason().await, "the server has closed the event stream");
    assert_eq!(carrier.send(b"{}\n", Kind::Reply), Err(Refused::Closed));
}

/// An endpoint on another origin is refused, and nothing is sent there.
#[tokio::test]
async fn an_endpoint_of_another_origin_is_refused() {
    let other = Server::start(|_, wire: Wire| wire.json("{}")).await;
    let url = other.url("/hush?session=hush");
    let server = Server::start(move |_, mut wire: Wire| {
        let url = url.clone();
        async move {
            wire.events("").await;
            wire.raw(format!("event: endpoint\ndata: {url}\n\n")).await;
            wire.gone().await;
            None
        }
    })
    .await;
    let (carrier, recorder) = connect(&server.url("/sse"));
    request(&carrier, 1, "initialize");
    assert!(matches!(recorder.outcome(1).await, Err(Failure::NotSent(_))));
    let why = recorder.end_reason().await;
    assert!(why.contains("another origin") && !why.contains("hush"), "{why}");
    assert!(other.seen().is_empty());
}

/// An endpoint that is named again is where messages go from then on.
#[tokio::test]
async fn an_endpoint_can_move() {
    let server = Server::start(|seen: Seen, mut wire: Wire| async move {
        if seen.method != "GET" {
            return wire.answer(202, "", "", "").await;
        }
        wire.events("").await;
        wire.raw(
            "event: endpoint\ndata: /one\n\nevent: endpoint\ndata: /two\n\ndata: {\"method\":\"moved\"}\n\n",
        )
        .await;
        wire.gone().await;
        None
    })
    .await;
    let (carrier, recorder) = connect(&server.url("/sse"));
    recorder.first(|report| matches!(report, Report::Message(..)).then_some(())).await;
    notify(&carrier, "notifications/x");
    while server.seen().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.seen()[1].target, "/two");
}

/// A server that is not there, has no stream or shows a page fails what waits, and ends.
#[tokio::test]
async fn a_stream_that_cannot_be_opened_fails_what_waits() {
    let (carrier, recorder) = connect("http://127.0.0.1:9/hush");
    request(&carrier, 1, "initialize");
    assert!(matches!(recorder.outcome(1).await, Err(Failure::NotSent(_))));
    let why = recorder.end_reason().await;
    assert!(why.contains("unreachable") && !why.contains("hush"), "{why}");

    for (status, kind, part) in
        [(405, "text/plain", "405"), (200, "text/html", "text/html"), (200, "application/json", "json")]
    {
        let server = Server::start(move |_, wire: Wire| wire.answer(status, kind, "", "no")).await;
        let (carrier, recorder) = connect(&server.url("/sse"));
        // It may have ended before.
        let _ =
            carrier.send(b"{\"id\":1}\n", Kind::Request { id: 1, method: "initialize", headers: Vec::new() });
        let why = recorder.end_reason().await;
        assert!(why.contains(part), "{why}");
    }
}

/// Forgotten and closed requests do not linger.
#[tokio::test]
async fn what_is_forgotten_is_not_sent() {
    let gets = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&gets);
    let server = Server::start(move |_, mut wire: Wire| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            wire.events("").await;
            wire.gone().await;
            None
        }
    })
    .await;
    let (carrier, recorder) = connect(&server.url("/sse"));
    request(&carrier, 1, "forgotten");
    request(&carrier, 2, "closed");
    carrier.forget(1);
    carrier.close();
    assert!(matches!(recorder.outcome(2).await, Err(Failure::Lost(_))));
    assert!(!recorder.reports().iter().any(|report| matches!(report, Report::End(_))));
}

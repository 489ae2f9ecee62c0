//! Promises of the peer, held against a carrier that only records.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use rmcp::model::ClientCapabilities;
use serde_json::{Map, Value, json, value::RawValue};
use tokio::{sync::oneshot, task::AbortHandle};

use super::{Asker, InputRequired, Params, Peer, Replay, Reply, Request, Sink, What};
use crate::{
    CallContext, Result,
    mcp::{
        delegate::ListKind,
        era::Manner,
        transport::{Carrier, Kind, Position, Refused},
    },
};

#[derive(Debug, Default)]
struct Recorder {
    sent: Mutex<Vec<Value>>,
    forgotten: Mutex<Vec<i64>>,
}

impl Carrier for Recorder {
    fn send(&self, line: &[u8], _: Kind<'_>) -> std::result::Result<Position, Refused> {
        self.sent.lock().push(serde_json::from_slice(line).unwrap());
        Ok(Position::default())
    }

    fn has_left(&self, _: Position) -> bool {
        true
    }

    fn forget(&self, id: i64) {
        self.forgotten.lock().push(id);
    }

    fn agreed(&self, _: &str, _: bool) {}

    fn close(&self) {}
}

/// Notes what it was asked, and leaves the answer to the test.
#[derive(Default)]
struct Asked(Mutex<Vec<(i64, InputRequired)>>);

impl Asker for Asked {
    fn ask(&self, key: i64, input: InputRequired) -> AbortHandle {
        self.0.lock().push((key, input));
        crate::spawn(std::future::pending::<()>()).abort_handle()
    }
}

fn modern() -> (Arc<Peer>, Arc<Recorder>, Arc<Asked>) {
    let (peer, carrier, asked) = (Peer::new("s".into()), Arc::<Recorder>::default(), Arc::<Asked>::default());
    peer.carry_by(Arc::clone(&carrier) as Arc<dyn Carrier>);
    peer.answer_by(Arc::clone(&asked) as Arc<dyn Asker>);
    peer.set_manner(Manner::modern("2026-07-28", &ClientCapabilities::default(), true));
    crate::spawn(Arc::clone(&peer).sweep());
    (peer, carrier, asked)
}

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

type Waiting = (i64, oneshot::Receiver<Result<Box<RawValue>>>);

fn call(peer: &Arc<Peer>, timeout: Option<Duration>) -> Waiting {
    let (send, receive) = oneshot::channel();
    let params = Map::from_iter([("name".to_owned(), json!("t"))]);
    let key = peer.submit(Request {
        what: What::Tool,
        params: Params::Object(&params),
        timeout,
        cap: None,
        deadline: None,
        limit: None,
        progress: None,
        sink: Sink::Raw(send),
        dressed: None,
        replay: Replay::Never,
    });
    (key.unwrap(), receive)
}

const QUESTION: &str =
    r#"{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"s"}"#;

fn question(peer: &Peer, wire: i64) {
    peer.settle(wire, Reply::Result(&RawValue::from_string(QUESTION.to_owned()).unwrap()));
}

#[tokio::test]
async fn rounds_of_input_are_one_call_to_its_caller() {
    let (peer, carrier, asked) = modern();
    let (key, receive) = call(&peer, None);
    question(&peer, key);
    let (at, input) = asked.0.lock().pop().unwrap();
    assert_eq!((at, input.requests.len()), (key, 1));
    peer.resume(key, Ok(Map::from_iter([("k".to_owned(), json!({"roots": []}))])), input.state);
    let again = carrier.sent.lock().last().unwrap().clone();
    let wire = again["id"].as_i64().unwrap();
    assert_ne!(wire, key);
    assert_eq!(again["params"]["requestState"], "s");
    // A late word to the first number disturbs nobody.
    peer.settle(key + 1000, Reply::Result(&raw(&json!({}))));
    peer.settle(wire, Reply::Result(&raw(&json!({"content": []}))));
    assert_eq!(receive.await.unwrap().unwrap().get(), r#"{"content":[]}"#);
    assert_eq!(peer.len(), 0);
}

#[tokio::test]
async fn a_server_that_asks_for_ever_is_stopped() {
    let (peer, carrier, _asked) = modern();
    let (key, mut receive) = call(&peer, None);
    for _ in 0..20 {
        let wire = carrier.sent.lock().last().unwrap()["id"].as_i64().unwrap();
        question(&peer, wire);
        peer.resume(key, Ok(Map::new()), None);
        if let Ok(result) = receive.try_recv() {
            assert!(result.unwrap_err().to_string().contains("more than 10 times"));
            return;
        }
    }
    panic!("it went on");
}

#[tokio::test]
async fn a_call_that_waits_for_the_user_can_be_cancelled() {
    let (peer, carrier, _asked) = modern();
    let (key, receive) = call(&peer, None);
    question(&peer, key);
    peer.cancel(key);
    assert_eq!(receive.await.unwrap().unwrap_err().code(), "cancelled");
    // Over HTTP in this era the exchange is dropped, and nothing is said.
    assert_eq!(*carrier.forgotten.lock(), [key]);
    assert_eq!(carrier.sent.lock().len(), 1);
    peer.resume(key, Ok(Map::new()), None);
    assert_eq!(carrier.sent.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn time_that_the_user_takes_does_not_count() {
    let limit = Duration::from_millis(200);
    let (peer, carrier, _asked) = modern();
    let (key, mut receive) = call(&peer, Some(limit));
    question(&peer, key);
    // The clock of calls is the real one, which a paused runtime does not stop.
    std::thread::sleep(limit * 2);
    tokio::time::sleep(limit * 2).await;
    assert!(receive.try_recv().is_err());
    peer.resume(key, Ok(Map::new()), None);
    assert_eq!(carrier.sent.lock().len(), 2);
    let error = receive.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "(MCP tool call timed out after 0.2s)");
}

#[tokio::test]
async fn while_the_user_is_asked_no_deadline_of_the_connection_passes() {
    let limit = Duration::from_millis(50);
    let (peer, _carrier, _asked) = modern();
    let paused = peer.pause();
    let (key, mut receive) = call(&peer, Some(limit));
    tokio::time::sleep(limit * 4).await;
    assert!(receive.try_recv().is_err(), "the call ended while its user was asked");
    drop(paused);
    peer.settle(key, Reply::Result(&raw(&json!({}))));
    assert!(receive.await.unwrap().is_ok());
}

#[tokio::test]
async fn what_a_server_says_holds_is_not_asked_for_again_until_it_changes() {
    let (peer, carrier, _asked) = modern();
    let params = Map::from_iter([("uri".to_owned(), json!("a:b"))]);
    let read = async |peer: &Arc<Peer>| {
        let asking = peer.request(What::Resource, Params::Object(&params), CallContext::default(), None);
        let asking = async { asking.await.unwrap().get().to_owned() };
        let answering = async {
            tokio::task::yield_now().await;
            if let Some(id) = peer.only() {
                peer.settle(id, Reply::Result(&raw(&json!({"contents": [id], "ttlMs": 60000}))));
            }
        };
        tokio::join!(asking, answering).0
    };
    let first = read(&peer).await;
    assert_eq!(read(&peer).await, first);
    assert_eq!(carrier.sent.lock().len(), 1);
    peer.forget_kept(ListKind::Resources, Some("a:c"));
    peer.forget_kept(ListKind::Tools, None);
    assert_eq!(read(&peer).await, first);
    peer.forget_kept(ListKind::Resources, Some("a:b"));
    assert_ne!(read(&peer).await, first);
    assert_eq!(carrier.sent.lock().len(), 2);
}

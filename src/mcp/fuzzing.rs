//! What [`crate::fuzzing`] offers of the MCP client.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;

use super::{
    delegate::NoDelegate,
    handler::Handler,
    inbox::Inbox,
    peer::{Params, Peer, Replay, Request, Sink, What},
    transport::{Carrier, Kind, Position, Receiver, Refused},
    wire,
};

pub use super::transport::fuzzing::{Line, lines};

/// Carries nothing, and insists on lines.
#[derive(Debug)]
struct Nowhere;

impl Carrier for Nowhere {
    fn send(&self, line: &[u8], _: Kind<'_>) -> Result<Position, Refused> {
        let message = line.strip_suffix(b"\n").expect("a message ends with LF");
        assert!(!message.contains(&b'\n'), "a message is one line");
        assert!(serde_json::from_slice::<Value>(message).is_ok_and(|m| m.is_object()), "a message is JSON");
        Ok(Position::default())
    }

    fn has_left(&self, _: Position) -> bool {
        true
    }

    fn forget(&self, _: i64) {}

    fn agreed(&self, _: &str, _: bool) {}

    fn close(&self) {}
}

/// Read bytes as one message after the other, while two requests wait: as the lines of a stream, and as the bodies
/// of responses to the first request.
///
/// # Panics
/// When a promise is broken: a request of the server's is answered with what is no message, a waiter outlives the
/// connection, or what was repaired needs repair.
pub fn deliver(bytes: &[u8]) {
    for answering in [None, Some(1)] {
        let peer = Peer::new("fuzz".into());
        peer.carry_by(Arc::new(Nowhere));
        let handler = Handler::new(&peer, Arc::new(NoDelegate));
        let inbox = Inbox::new(&peer, &handler, |_| {});
        let mut waiting: Vec<_> = (0..2).map(|_| wait(&peer)).collect();
        for line in bytes.split(|byte| *byte == b'\n') {
            let text = wire::text(line);
            if let Some(repaired) = wire::repair(&text) {
                assert_eq!(wire::repair(&repaired), None, "what was repaired needs no repair");
            }
            inbox.deliver(&text, answering);
        }
        inbox.end("it is over");
        handler.stop();
        for waiter in &mut waiting {
            assert!(waiter.try_recv().is_ok(), "a request outlives the connection");
        }
    }
}

fn wait(peer: &Arc<Peer>) -> oneshot::Receiver<crate::Result<Box<serde_json::value::RawValue>>> {
    let (sink, waiter) = oneshot::channel();
    peer.submit(Request {
        replay: Replay::Never,
        what: What::Tool,
        params: Params::None,
        timeout: None,
        cap: None,
        deadline: None,
        limit: None,
        progress: None,
        sink: Sink::Raw(sink),
        dressed: None,
    });
    waiter
}

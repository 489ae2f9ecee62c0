//! The GET stream, on which a server sends messages of its own accord.
//!
//! A server need not have one: whatever it answers but a stream of events ends the matter. A stream that ends is
//! opened again for ever, where it ended, and more slowly the less it brings. That it cannot be opened says
//! nothing about the server as long as it answers messages; only when nobody listens at its address, several
//! times in a row and without a message having been answered meanwhile, the connection is over.

use std::sync::{Arc, atomic::Ordering};

use super::{
    super::http::{Refusal, carries_message},
    Shared, State,
    stream::{End, Stream},
};
use crate::net::{NetErrorKind, sse::Event};

/// Attempts that find nobody at the address before the server counts as gone.
const UNREACHABLE: u32 = 3;

impl Shared {
    /// Open the stream for the session as it is, in place of the one that was open. If it is wanted, and not before
    /// the handshake is over: the order in which that is told does not matter.
    pub(super) fn start_listening(self: &Arc<Self>, state: &mut State) {
        if state.closed || !state.listen || !state.initialized {
            return;
        }
        let gate = state.gate.clone();
        let shared = Arc::clone(self);
        let task = crate::spawn(async move {
            let stop = shared.stop.clone();
            let listening = async {
                gate.pass().await;
                shared.listen().await;
            };
            stop.run_until_cancelled(listening).await;
        });
        if let Some(before) = state.listener.replace(task.abort_handle()) {
            before.abort();
        }
    }

    async fn listen(self: &Arc<Self>) {
        let mut stream = Stream::default();
        let mut attempt = 0;
        let mut opened = false;
        let mut unreachable = 0;
        let mut answered = self.answered.load(Ordering::Relaxed);
        loop {
            let (response, sent) = self.get(stream.last_id.as_deref()).await;
            let refused = matches!(&response, Err(error) if error.kind == NetErrorKind::Unreachable);
            let before = std::mem::replace(&mut answered, self.answered.load(Ordering::Relaxed));
            unreachable = match refused {
                true if before == answered => unreachable + 1,
                true => 1,
                false => 0,
            };
            match response {
                Ok(mut response) if response.status().is_success() => {
                    if response.media_type() != "text/event-stream" {
                        return;
                    }
                    opened = true;
                    let end = stream
                        .read(&mut response, |event| {
                            self.hear(event);
                            false
                        })
                        .await;
                    if let End::Broken(error) = end {
                        tracing::debug!(server = %self.server, %error, "the server's own stream broke");
                    }
                    attempt = if stream.progress { 0 } else { attempt + 1 };
                }
                Ok(mut response) => {
                    let status = response.status();
                    if !status.is_server_error() && !matches!(status.as_u16(), 408 | 429) {
                        let refusal = Refusal::read(&mut response).await;
                        if opened && sent.session && refusal.tells_of_session() {
                            // The next message would find out; but nobody may send one for hours.
                            let renewal = Arc::clone(self).renewed(sent.generation);
                            crate::spawn(renewal);
                        }
                        return;
                    }
                    attempt += 1;
                }
                Err(error) => {
                    tracing::debug!(server = %self.server, %error, "the server's own stream cannot be opened");
                    if error.kind == NetErrorKind::Blocked {
                        return;
                    }
                    if unreachable >= UNREACHABLE {
                        self.receiver.end(&error.to_string());
                        return;
                    }
                    // Whether a server is gone should be known soon.
                    attempt = if unreachable > 0 { 0 } else { attempt + 1 };
                }
            }
            tokio::time::sleep(stream.pause(attempt)).await;
        }
    }

    fn hear(&self, event: Event) {
        match event {
            Event::Message { kind, data } if carries_message(&kind, &data) => {
                self.receiver.deliver(&data, None);
            }
            Event::Message { .. } => {}
            Event::TooLong { .. } => {
                tracing::debug!(server = %self.server, "an event of the server's own is too long");
            }
        }
    }
}

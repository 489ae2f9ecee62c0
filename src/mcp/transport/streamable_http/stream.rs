//! Events: the stream of a reply, and where it is taken up again.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{
        Failure, MAX_MESSAGE,
        http::{self as common, Exchange, Refusal, carries_message},
    },
    Shared,
};
use crate::net::{
    NetError, Response,
    sse::{Event, Parser},
};

/// How long to wait before a stream is taken up, unless the server says.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// What a server may ask for at least and at most.
const MIN_RETRY: Duration = Duration::from_millis(10);
const MAX_RETRY: Duration = Duration::from_secs(300);
/// Between attempts that bring nothing.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Attempts that bring no event, one after the other, before a reply is given up.
const ATTEMPTS: u32 = 6;
/// A stream that was open for so long was of use, whatever came: something on the way may end idle ones.
const LASTED: Duration = Duration::from_secs(5);
/// How long after its reply a stream may still bring something, and end, before it is dropped.
const LINGER: Duration = Duration::from_secs(1);

/// Why reading a stream ended.
pub(super) enum End {
    Closed,
    Broken(NetError),
    /// It goes on, and what is awaited was seen.
    Left,
}

/// A stream of events, over all the responses that carry it.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) last_id: Option<String>,
    pub(super) retry: Option<Duration>,
    /// Whether the reply was among the events.
    pub(super) answered: bool,
    /// Whether the last response was of use: it brought an event or an id, or was open for a while.
    pub(super) progress: bool,
}

impl Stream {
    /// Read one response to its end, or until shortly after the reply.
    pub(super) async fn read(&mut self, response: &mut Response, deliver: impl Fn(Event) -> bool) -> End {
        let mut parser = Parser::new(MAX_MESSAGE);
        self.progress = false;
        let opened = Instant::now();
        let mut leave: Option<Instant> = None;
        let end = loop {
            let chunk = match leave {
                None => response.chunk().await,
                Some(at) => match tokio::time::timeout_at(at, response.chunk()).await {
                    Ok(chunk) => chunk,
                    Err(_) => break End::Left,
                },
            };
            let chunk = match chunk {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break End::Closed,
                Err(error) => break End::Broken(error),
            };
            for event in parser.feed(&chunk) {
                self.progress = true;
                self.answered |= deliver(event);
            }
            if self.answered && leave.is_none() {
                leave = Some(Instant::now() + LINGER);
            }
        };
        if let Some(id) = parser.last_id() {
            self.progress |= self.last_id.as_deref() != Some(id);
            self.last_id = Some(id.to_owned());
        }
        self.progress |= opened.elapsed() >= LASTED;
        self.retry = parser.retry().or(self.retry);
        // A server that forgets the last blank line has said all there is, if it is whole.
        if matches!(end, End::Closed)
            && let Some(Event::Message { kind, data }) = parser.unfinished()
            && common::is_whole(&data)
        {
            self.answered |= deliver(Event::Message { kind, data });
        }
        end
    }

    /// How long to wait before attempt number `attempt`, from 0.
    pub(super) fn pause(&self, attempt: u32) -> Duration {
        let retry = self.retry.unwrap_or(RETRY).clamp(MIN_RETRY, MAX_RETRY);
        if attempt == 0 {
            return retry;
        }
        let base = retry.max(Duration::from_millis(20));
        base.saturating_mul(1 << attempt.min(10)).min(MAX_BACKOFF.max(retry))
    }
}

impl Shared {
    /// Read the events of a reply's stream until the reply was among them. A stream that ends before is taken up
    /// where it ended, as long as it brings something, if its events have ids.
    pub(super) async fn follow(&self, exchange: &Exchange, mut response: Response) {
        let mut stream = Stream::default();
        let mut attempt = 0;
        loop {
            let end = stream.read(&mut response, |event| deliver(exchange, event)).await;
            if stream.answered {
                return;
            }
            if stream.progress {
                attempt = 0;
            }
            if stream.last_id.is_none() || !self.resumes() {
                exchange.fail(Failure::Lost(match end {
                    End::Broken(error) => error.to_string(),
                    End::Closed | End::Left => "the stream ended without the reply".to_owned(),
                }));
                return;
            }
            response = match self.take_up(&stream, &mut attempt).await {
                Ok(response) => response,
                Err(why) => {
                    let text =
                        format!("the stream ended without the reply, and could not be taken up again: {why}");
                    exchange.fail(Failure::Lost(text));
                    return;
                }
            };
        }
    }

    /// The response that carries a stream on.
    async fn take_up(&self, stream: &Stream, attempt: &mut u32) -> Result<Response, String> {
        let mut last = "it brings nothing more".to_owned();
        while *attempt < ATTEMPTS {
            tokio::time::sleep(stream.pause(*attempt)).await;
            *attempt += 1;
            let (response, _) = self.get(stream.last_id.as_deref()).await;
            let mut response = match response {
                Ok(response) => response,
                Err(error) => {
                    last = error.to_string();
                    continue;
                }
            };
            let status = response.status();
            if status.is_success() && response.media_type() == "text/event-stream" {
                return Ok(response);
            }
            last = match Refusal::read(&mut response).await.failure {
                Failure::Http { text, .. } => text,
                _ => status.to_string(),
            };
            if !status.is_server_error() && status.as_u16() != 429 {
                break;
            }
        }
        Err(last)
    }
}

/// Deliver an event of a reply's stream. Whether it was the reply.
fn deliver(exchange: &Exchange, event: Event) -> bool {
    match event {
        Event::Message { kind, data } if carries_message(&kind, &data) => exchange.deliver(&data),
        Event::Message { .. } => false,
        Event::TooLong { .. } => {
            exchange.too_long();
            true
        }
    }
}

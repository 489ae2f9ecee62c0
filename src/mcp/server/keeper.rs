//! Keeps one server connected: attempts, watching, waiting, for ever.
//!
//! A lost server is tried again at once, then after delays that grow. A connection is watched in three
//! ways: its own end (a process that exits, a stream that breaks), what calls notice (`Hints`), and, over
//! HTTP, a request once in a while when nothing else is heard. A connection in doubt is asked something; if it
//! does not answer, it counts as lost.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use super::{ConnectionState, Relay, Shared, backoff::Backoff};
use crate::{
    CallContext, Error, Result,
    mcp::{
        config::{Lazy, TransportKind},
        connection::{self, Connection, Failed, Supervision},
        delegate::Event,
        link::Hints,
        shelf::changes,
    },
    tool::seconds,
};

/// How many servers are started at once.
static STARTS: Semaphore = Semaphore::const_new(16);
/// How long a server that is slow to start counts among them.
const START: Duration = Duration::from_secs(3);
/// A connection that lasted so long was a success, even if nobody called.
const LASTING: Duration = Duration::from_secs(5);
/// How long an HTTP server may be quiet before it is asked whether it is there.
const QUIET: Duration = Duration::from_secs(30);
/// How long it has for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a process has: it may be busy with something else, and to restart it would lose that.
const BUSY: Duration = Duration::from_secs(30);
/// How long the end of a lost server is waited for before the next attempt.
const REAP: Duration = Duration::from_secs(1);

/// How watching a connection ended.
enum End {
    Stopped,
    Lost(String),
    Idle,
}

/// Keep the server until it is closed.
pub(super) async fn keep(shared: Arc<Shared>, asleep: bool) {
    let mut keeper = Keeper { shared, backoff: Backoff::default(), lost: false, told: None };
    keeper.run(asleep).await;
    let shared = keeper.shared;
    shared.link().close("the connection is closed");
    let latest = shared.latest.read().clone();
    if let Some(connection) = latest {
        connection.close().await;
    }
    shared.enter(ConnectionState::Closed, |status| status.failure = None);
}

struct Keeper {
    shared: Arc<Shared>,
    backoff: Backoff,
    /// Whether there was a connection, which is missed.
    lost: bool,
    /// The failure that was logged last.
    told: Option<String>,
}

impl Keeper {
    async fn run(&mut self, asleep: bool) {
        let shared = Arc::clone(&self.shared);
        if asleep && !self.sleep().await {
            return;
        }
        loop {
            let (failed, delay) = match self.attempt().await {
                None => return,
                Some(Err(failed)) => (failed, self.backoff.failed()),
                Some(Ok(connection)) => {
                    let (begun, calls) = (Instant::now(), shared.link().traffic().calls());
                    match self.watch(&connection).await {
                        End::Stopped => return,
                        End::Idle => {
                            tracing::info!(server = connection.name(), "stopped, since nobody needs it");
                            connection.close().await;
                            self.lost = false;
                            if !self.sleep().await {
                                return;
                            }
                            continue;
                        }
                        End::Lost(why) => {
                            connection.kill();
                            let _ = tokio::time::timeout(REAP, connection.close()).await;
                            let of_use =
                                begun.elapsed() >= LASTING || shared.link().traffic().calls() > calls;
                            let delay = self.backoff.ended(of_use);
                            let server = connection.name().to_owned();
                            let text = format!("MCP server '{server}': {why}");
                            (Error::Connection { server, text, sent: false }.into(), delay)
                        }
                    }
                }
            };
            if !self.wait(failed, delay).await {
                return;
            }
        }
    }

    /// Try to reach the server; `None` if it is to be closed.
    async fn attempt(&mut self) -> Option<Result<Arc<Connection>, Failed>> {
        let shared = &self.shared;
        let link = shared.link();
        link.attempt(self.lost);
        let state = if self.lost { ConnectionState::Reconnecting } else { ConnectionState::Connecting };
        shared.enter(state, |_| {});
        let supervision = Supervision { rescuer: link.rescuer(), stop: shared.stop.clone() };
        let (generation, before) = (shared.offering.generation(), shared.offering.offer());
        let opened = tokio::select! {
            opened = shared.start(&supervision) => opened,
            // Only while it waits for its turn: the attempt itself is told, and cleans up.
            () = shared.stop.cancelled(), if STARTS.available_permits() == 0 => return None,
        };
        if shared.stop.is_cancelled() {
            if let Ok(connection) = opened {
                connection.close().await;
            }
            return None;
        }
        let connection = match opened {
            Ok(connection) => connection,
            Err(failed) => return Some(Err(failed)),
        };
        *shared.latest.write() = Some(Arc::clone(&connection));
        *shared.about.write() = Some(Arc::new(connection.about().clone()));
        shared.keep();
        let after = shared.offering.offer();
        // What calls noticed concerned an earlier connection.
        Hints::take(&link.hints.suspect);
        Hints::take(&link.hints.wanted);
        link.open(connection.peer());
        if (shared.status.borrow().cached || self.lost) && !Arc::ptr_eq(&before, &after) {
            // Calls do not wait for this: how long it takes is up to what the server sent.
            let server = Arc::clone(shared.offering.server());
            crate::spawn_blocking(move || {
                for change in changes(&before, &after) {
                    tracing::warn!(server = &*server, "not as it was when it was last there: {change}");
                }
            });
        }
        if self.lost || self.told.is_some() {
            let attempts = shared.status.borrow().attempts;
            tracing::info!(server = connection.name(), attempts, "connected again");
        }
        let again = self.lost;
        (self.lost, self.told) = (true, None);
        shared.enter(ConnectionState::Ready, |status| {
            status.failure = None;
            status.attempts = 0;
            status.cached = false;
            status.reconnects += u64::from(again);
        });
        if shared.offering.generation() != generation {
            shared.tell(Event::Offering);
        }
        Some(Ok(connection))
    }

    /// Watch a connection until it is over.
    async fn watch(&self, connection: &Arc<Connection>) -> End {
        let shared = &self.shared;
        let link = shared.link();
        let over = || connection.why_ended().unwrap_or_else(|| "the server is gone".to_owned());
        loop {
            let config = shared.offering.config();
            let traffic = link.traffic();
            let http = config.transport != TransportKind::Stdio;
            let quiet = async {
                if http {
                    tokio::time::sleep(QUIET.saturating_sub(traffic.quiet()).max(Duration::from_secs(1)))
                        .await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            let idle = async {
                match config.idle_timeout.filter(|_| config.lazy != Lazy::No) {
                    Some(limit) => {
                        tokio::time::sleep(
                            limit.saturating_sub(traffic.idle()).max(Duration::from_millis(10)),
                        )
                        .await;
                        limit
                    }
                    None => std::future::pending().await,
                }
            };
            let doubtful = tokio::select! {
                biased;
                () = shared.stop.cancelled() => return End::Stopped,
                _ = connection.ended() => return End::Lost(over()),
                () = link.hints.wait() => Hints::take(&link.hints.suspect),
                () = shared.again.notified() => true,
                () = quiet => traffic.quiet() >= QUIET,
                limit = idle => {
                    if traffic.idle() >= limit && !connection.is_busy() {
                        // Calls that come now wait for the next start.
                        link.sleep();
                        if !connection.is_busy() {
                            return End::Idle;
                        }
                        // One had come before.
                        link.open(connection.peer());
                    }
                    false
                }
            };
            if !doubtful {
                continue;
            }
            let checked = tokio::select! {
                biased;
                () = shared.stop.cancelled() => return End::Stopped,
                _ = connection.ended() => return End::Lost(over()),
                checked = check(connection, if http { ANSWER } else { BUSY }) => checked,
            };
            match checked {
                // What waited for this goes on.
                Ok(()) => link.open(connection.peer()),
                Err(why) => {
                    connection.lose(&why);
                    return End::Lost(why);
                }
            }
        }
    }

    /// The server failed: wait until the next attempt is due or asked for; false if it is to be closed.
    async fn wait(&mut self, failed: Failed, delay: Duration) -> bool {
        let shared = &self.shared;
        let text = failed.error.to_string();
        let next = Instant::now() + delay;
        if delay.is_zero() {
            shared.status.send_modify(|status| status.failure = Some(failed.error));
            return !shared.stop.is_cancelled();
        }
        let state =
            if failed.unauthorised { ConnectionState::NeedsAuthorisation } else { ConnectionState::Lost };
        let server = &**shared.offering.server();
        if self.told.as_ref() == Some(&text) {
            tracing::debug!(server, delay = seconds(delay), "still not connected: {text}");
        } else {
            tracing::warn!(server, "{text}; it is tried again in {:.1}s", delay.as_secs_f64());
        }
        let prefix = format!("MCP server '{server}': ");
        shared.link().wait(text.strip_prefix(&prefix).unwrap_or(&text), next);
        self.told = Some(text);
        shared.enter(state, |status| {
            status.failure = Some(failed.error);
            status.attempts += 1;
            status.next_attempt = Some(next);
        });
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => false,
            () = shared.again.notified() => true,
            () = tokio::time::sleep_until(next.into()) => true,
        }
    }

    /// Wait until the server is wanted; false if it is to be closed.
    async fn sleep(&self) -> bool {
        let shared = &self.shared;
        let hints = &shared.link().hints;
        shared.link().sleep();
        shared.enter(ConnectionState::Cached, |_| {});
        loop {
            tokio::select! {
                biased;
                () = shared.stop.cancelled() => return false,
                () = shared.again.notified() => return true,
                () = hints.wait() => {
                    if Hints::take(&hints.wanted) {
                        return true;
                    }
                }
            }
        }
    }
}

impl Shared {
    async fn start(self: &Arc<Self>, supervision: &Supervision) -> Result<Arc<Connection>, Failed> {
        let turn = STARTS.acquire().await.ok();
        let relay = Arc::new(Relay(Arc::downgrade(self)));
        let opening = connection::open(&self.offering, relay, Some(supervision));
        let pass_on = async {
            tokio::time::sleep(START).await;
            drop(turn);
            std::future::pending().await
        };
        tokio::select! {
            opened = opening => opened,
            never = pass_on => never,
        }
    }
}

/// Ask a server in doubt something, to see whether it answers; the reason why it counts as lost.
async fn check(connection: &Connection, limit: Duration) -> std::result::Result<(), String> {
    let begun = Instant::now();
    let answer = tokio::time::timeout(limit, connection.probe(CallContext::default())).await;
    match answer {
        // Any answer is one.
        Ok(Ok(()) | Err(Error::Remote { .. } | Error::Protocol(_))) => Ok(()),
        Ok(Err(Error::Http { status, .. })) if !matches!(status, 401 | 502..=504) => Ok(()),
        Ok(Err(error)) => Err(connection.why_ended().unwrap_or_else(|| error.to_string())),
        // It said something else meanwhile.
        Err(_) if connection.quiet() < begun.elapsed() => Ok(()),
        Err(_) => Err(format!("it does not answer (nothing was heard for {}s)", seconds(limit))),
    }
}

//! Where the calls to one server go: over the current connection, to wait for the next, or nowhere.
//!
//! Tools hold a [`Link`], which outlives connections. While there is a connection, a call goes straight
//! to its peer. A call that a connection could not carry to its end comes back here ([`Rescuer`]); it
//! waits for the next connection if it may be sent once more, and fails otherwise. While an attempt is
//! under way calls join it, for a while; between attempts they fail at once and say when the next one
//! is. Whoever keeps the connection is told through [`Hints`] what calls have noticed. No lock is held
//! while a call is settled or sent.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::peer::{self, Loss, Peer, Request, Rescuer, Traffic, Waiter};
use crate::{Error, Meter, Running, tool::seconds};

/// How long a call waits for a lost server to be back.
pub(super) const JOIN: Duration = Duration::from_secs(5);

/// What calls have noticed, for whoever keeps the connection.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// A call waits for a server that is not started.
    pub(super) wanted: AtomicBool,
    /// The server may be gone or stuck.
    pub(super) suspect: AtomicBool,
    notify: Notify,
}

impl Hints {
    fn give(&self, flag: &AtomicBool) {
        flag.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Have the keeper look again, though no call has noticed anything.
    pub(super) fn nudge(&self) {
        self.notify.notify_one();
    }

    /// Wait until there is any.
    pub(super) async fn wait(&self) {
        self.notify.notified().await;
    }

    /// Whether the flag was set; it is not any more.
    pub(super) fn take(flag: &AtomicBool) -> bool {
        flag.swap(false, Ordering::AcqRel)
    }
}

/// Where calls go.
#[derive(Debug)]
enum Phase {
    /// Over this connection.
    Open(Arc<Peer>),
    /// An attempt is under way. Calls wait for a server that was lost, but not long; one that was never
    /// there is given the time of the call.
    Pending { lost: bool },
    /// The server is not started; a call starts it.
    Asleep,
    /// It is gone, and tried again at this time.
    Waiting { why: String, next: Instant },
    /// For ever. What runs over the last connection may still end there.
    Closed { why: String, last: Option<Arc<Peer>> },
}

struct State {
    phase: Phase,
    /// Requests that wait for a connection.
    parked: HashMap<i64, Waiter>,
}

/// Where calls to one server go.
pub(super) struct Link {
    server: Arc<str>,
    traffic: Arc<Traffic>,
    state: Mutex<State>,
    pub(super) hints: Hints,
    /// Counts what came of requests.
    pub(super) meter: Arc<Meter>,
    this: Weak<Self>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Link {
    /// A link to a server that is not started.
    pub(super) fn new(server: Arc<str>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            server,
            traffic: Arc::default(),
            state: Mutex::new(State { phase: Phase::Asleep, parked: HashMap::new() }),
            hints: Hints::default(),
            meter: Arc::default(),
            this: Weak::clone(this),
        })
    }

    pub(super) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Whoever takes over the requests of connections that fail.
    pub(super) fn rescuer(self: &Arc<Self>) -> Weak<dyn Rescuer> {
        let weak: Weak<Self> = Arc::downgrade(self);
        weak
    }

    /// The connection, while there is one.
    pub(super) fn peer(&self) -> Option<Arc<Peer>> {
        match &self.state.lock().phase {
            Phase::Open(peer) => Some(Arc::clone(peer)),
            _ => None,
        }
    }

    /// Send a request, now or as soon as there is a connection.
    pub(super) fn submit(&self, request: Request<'_>) -> Running {
        self.traffic.called();
        let key = match self.peer() {
            Some(peer) => peer.submit(request),
            None => self.wait_with(request),
        };
        let Some(key) = key else { return Running::finished() };
        let link = Weak::clone(&self.this);
        Running::new(move || {
            if let Some(link) = link.upgrade() {
                link.cancel(key);
            }
        })
    }

    fn wait_with(&self, request: Request<'_>) -> Option<i64> {
        let (key, waiter) = peer::without_connection(request, &self.traffic)?;
        self.park(key, waiter, None, None);
        Some(key)
    }

    /// The caller has lost interest.
    fn cancel(&self, key: i64) {
        let (waiter, peer) = {
            let mut state = self.state.lock();
            let peer = match &state.phase {
                Phase::Open(peer) | Phase::Closed { last: Some(peer), .. } => Some(Arc::clone(peer)),
                _ => None,
            };
            (state.parked.remove(&key), peer)
        };
        match (waiter, peer) {
            (Some(waiter), _) => waiter.fail(Error::Cancelled),
            (None, Some(peer)) => peer.cancel(key),
            (None, None) => {}
        }
    }

    /// What becomes of a request that has no connection: it waits, goes on, or fails.
    fn park(&self, key: i64, waiter: Waiter, loss: Option<Loss>, from: Option<&Arc<Peer>>) {
        let mut state = self.state.lock();
        let patience = match &state.phase {
            Phase::Open(peer) if from.is_none_or(|from| !Arc::ptr_eq(from, peer)) => {
                let peer = Arc::clone(peer);
                drop(state);
                return peer.adopt(key, waiter);
            }
            // The connection that failed it: it waits until it is known whether that lives.
            Phase::Open(_) => {
                self.hints.give(&self.hints.suspect);
                Some(JOIN)
            }
            Phase::Pending { lost } => lost.then_some(JOIN),
            Phase::Asleep => {
                self.hints.give(&self.hints.wanted);
                None
            }
            Phase::Waiting { why, next } => {
                let why = loss.map_or_else(|| why.clone(), |loss| loss.why);
                let why = format!("{why}; {}", in_words(*next));
                drop(state);
                return waiter.refuse(&self.server, &why);
            }
            Phase::Closed { why, .. } => {
                let why = why.clone();
                drop(state);
                return waiter.refuse(&self.server, &why);
            }
        };
        let now = Instant::now();
        let until = patience.and_then(|patience| now.checked_add(patience));
        let until = [until, waiter.deadline()].into_iter().flatten().min();
        state.parked.insert(key, waiter);
        drop(state);
        if let (Some(until), Some(link)) = (until, self.this.upgrade()) {
            crate::spawn(async move {
                tokio::time::sleep_until(until.into()).await;
                link.expire(key);
            });
        }
    }

    /// A parked request has waited long enough.
    fn expire(&self, key: i64) {
        let Some(waiter) = self.state.lock().parked.remove(&key) else { return };
        if waiter.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            return waiter.expire();
        }
        let why = format!("it is being reconnected, and not back after {}s", seconds(JOIN));
        waiter.refuse(&self.server, &why);
    }

    /// Someone waits for the server.
    pub(super) fn want(&self) {
        self.hints.give(&self.hints.wanted);
    }

    /// An attempt has begun.
    pub(super) fn attempt(&self, lost: bool) {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Closed { .. }) {
            state.phase = Phase::Pending { lost };
        }
    }

    /// There is a connection (or it was found to be well): what waits goes over it.
    pub(super) fn open(&self, peer: &Arc<Peer>) {
        let parked = {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Closed { .. }) {
                return;
            }
            state.phase = Phase::Open(Arc::clone(peer));
            std::mem::take(&mut state.parked)
        };
        for (key, waiter) in parked {
            peer.adopt(key, waiter);
        }
    }

    /// The server is stopped until it is wanted.
    pub(super) fn sleep(&self) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Closed { .. }) {
            return;
        }
        state.phase = Phase::Asleep;
        if !state.parked.is_empty() {
            self.hints.give(&self.hints.wanted);
        }
    }

    /// An attempt failed; the next one is at `next`.
    pub(super) fn wait(&self, why: &str, next: Instant) {
        let text = format!("{why}; {}", in_words(next));
        self.refuse(&text, |_| Phase::Waiting { why: why.to_owned(), next });
    }

    /// There will be no connection any more.
    pub(super) fn close(&self, why: &str) {
        self.refuse(why, |last| Phase::Closed { why: why.to_owned(), last });
    }

    fn refuse(&self, why: &str, phase: impl FnOnce(Option<Arc<Peer>>) -> Phase) {
        let parked = {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Closed { .. }) {
                return;
            }
            let last = match std::mem::replace(&mut state.phase, Phase::Asleep) {
                Phase::Open(peer) => Some(peer),
                _ => None,
            };
            state.phase = phase(last);
            std::mem::take(&mut state.parked)
        };
        for (_, waiter) in parked {
            waiter.refuse(&self.server, why);
        }
    }
}

impl Rescuer for Link {
    fn rescue(&self, key: i64, mut waiter: Waiter, loss: Loss, from: &Arc<Peer>) {
        waiter.seen |= loss.sent;
        if waiter.may_be_replayed(loss.sent) {
            return self.park(key, waiter, Some(loss), Some(from));
        }
        self.hints.give(&self.hints.suspect);
        waiter.refuse(&self.server, &loss.why);
    }

    fn suspect(&self) {
        self.hints.give(&self.hints.suspect);
    }
}

fn in_words(next: Instant) -> String {
    let left = next.saturating_duration_since(Instant::now());
    if left < Duration::from_millis(100) {
        return "the next attempt to reconnect begins now".to_owned();
    }
    let tenths = Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX) / 100 * 100);
    format!("the next attempt to reconnect is in {}s", seconds(tenths))
}

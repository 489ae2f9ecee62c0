//! Deadlines: one sweeper per connection keeps all of them, and none runs while the user is asked something.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use super::{Peer, Waiter};

/// No deadline of the connection runs while this is held.
pub(in crate::mcp) struct Paused(Arc<Peer>);

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.unpause();
    }
}

impl Peer {
    /// The user is being asked something on behalf of the server: until the guard is dropped, no
    /// deadline of this connection runs. Nobody can tell which of the calls that wait made the server
    /// ask.
    pub(in crate::mcp) fn pause(self: &Arc<Self>) -> Paused {
        let mut waiters = self.waiters.lock();
        waiters.asking += 1;
        waiters.asked_at.get_or_insert_with(Instant::now);
        Paused(Arc::clone(self))
    }

    fn unpause(&self) {
        let mut waiters = self.waiters.lock();
        waiters.asking = waiters.asking.saturating_sub(1);
        if waiters.asking > 0 {
            return;
        }
        if let Some(since) = waiters.asked_at.take() {
            let now = Instant::now();
            for waiter in waiters.map.values_mut() {
                waiter.shift(now.saturating_duration_since(since.max(waiter.begun)));
            }
        }
        drop(waiters);
        self.sweep.notify_one();
    }

    /// The sweeper: fails requests at their deadlines, until the connection ends.
    pub(in crate::mcp) async fn sweep(self: Arc<Self>) {
        loop {
            if self.ended.get().is_some() {
                return;
            }
            let next = self.expire();
            match next {
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at.into()) => {}
                        () = self.sweep.notified() => {}
                    }
                }
                None => self.sweep.notified().await,
            }
        }
    }

    /// Fail what is overdue; the next date.
    fn expire(&self) -> Option<Instant> {
        let now = Instant::now();
        let (overdue, next) = {
            let mut waiters = self.waiters.lock();
            if waiters.asking > 0 {
                waiters.sweep_at = None;
                return None;
            }
            let keys: Vec<i64> = waiters
                .map
                .iter()
                .filter(|(_, waiter)| waiter.deadline.is_some_and(|deadline| deadline <= now))
                .map(|(key, _)| *key)
                .collect();
            let overdue: Vec<Waiter> = keys.into_iter().filter_map(|key| waiters.remove(key)).collect();
            let next = waiters.map.values().filter_map(|waiter| waiter.deadline).min();
            waiters.sweep_at = next;
            (overdue, next)
        };
        let any = !overdue.is_empty();
        for waiter in overdue {
            self.abandon(&waiter, "the call timed out");
            waiter.expire();
        }
        if any && let Some(rescuer) = self.rescuer.as_ref().and_then(Weak::upgrade) {
            rescuer.suspect();
        }
        next
    }
}

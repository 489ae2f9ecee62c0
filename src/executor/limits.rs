//! How many calls run at once: overall, per tool and per server.
//!
//! A [`Limiter`] is shared by all runs of an executor, on whatever threads and loops they live. A
//! run that finds no slot leaves a waker, which is called once when any slot is freed.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use super::schedule::CallKey;

/// A limit for each name of a kind (tool or server).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limit {
    /// The limit of names that have none of their own; `None` is no limit.
    pub default: Option<usize>,
    /// Limits of single names.
    pub named: HashMap<String, usize>,
}

impl Limit {
    fn of(&self, name: &str) -> Option<usize> {
        self.named.get(name).copied().or(self.default)
    }

    fn is_none(&self) -> bool {
        self.default.is_none() && self.named.is_empty()
    }
}

/// The limits of an executor. A limit of 0 counts as 1, since a call that never starts helps nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Calls at once, all told; `None` is no limit.
    pub overall: Option<usize>,
    /// Calls at once of one tool.
    pub per_tool: Limit,
    /// Calls at once to one MCP server.
    pub per_server: Limit,
}

impl Default for Limits {
    fn default() -> Self {
        Self { overall: Some(64), per_tool: Limit::default(), per_server: Limit::default() }
    }
}

/// Called once when a slot was freed; on any thread.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct State {
    overall: usize,
    tools: HashMap<String, usize>,
    servers: HashMap<String, usize>,
    waiting: Vec<(u64, Waker)>,
}

/// Counts the slots that are taken.
pub struct Limiter {
    limits: Limits,
    state: Mutex<State>,
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter")
            .field("limits", &self.limits)
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}

fn has_room(taken: usize, limit: Option<usize>) -> bool {
    limit.is_none_or(|limit| taken < limit.max(1))
}

fn free(counts: &mut HashMap<String, usize>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

impl Limiter {
    /// A limiter with no slot taken.
    #[must_use]
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    /// The single slot that a call lends to the runs inside it.
    #[must_use]
    pub fn single() -> Arc<Self> {
        Self::new(Limits { overall: Some(1), per_tool: Limit::default(), per_server: Limit::default() })
    }

    /// How many slots are taken.
    pub fn running(&self) -> usize {
        self.state.lock().overall
    }

    /// Take a slot, or remember `waker` under `waiter` (one waker per waiter).
    pub fn acquire(self: &Arc<Self>, key: &CallKey, waiter: u64, waker: Option<&Waker>) -> Option<Permit> {
        let mut state = self.state.lock();
        let count = |counts: &HashMap<String, usize>, name: &str| counts.get(name).copied().unwrap_or(0);
        let tool = (!self.limits.per_tool.is_none()).then_some(key.tool.as_str());
        let server = key.server.as_deref().filter(|_| !self.limits.per_server.is_none());
        let room = has_room(state.overall, self.limits.overall)
            && tool.is_none_or(|t| has_room(count(&state.tools, t), self.limits.per_tool.of(t)))
            && server.is_none_or(|s| has_room(count(&state.servers, s), self.limits.per_server.of(s)));
        if !room {
            if let Some(waker) = waker
                && state.waiting.iter().all(|(id, _)| *id != waiter)
            {
                state.waiting.push((waiter, Arc::clone(waker)));
            }
            return None;
        }
        state.overall += 1;
        if let Some(tool) = tool {
            *state.tools.entry(tool.to_owned()).or_default() += 1;
        }
        if let Some(server) = server {
            *state.servers.entry(server.to_owned()).or_default() += 1;
        }
        Some(Permit {
            limiter: Arc::clone(self),
            tool: tool.map(str::to_owned),
            server: server.map(str::to_owned),
        })
    }
}

/// A slot; freed when dropped.
#[derive(Debug)]
#[must_use]
pub struct Permit {
    limiter: Arc<Limiter>,
    tool: Option<String>,
    server: Option<String>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.limiter.state.lock();
            state.overall -= 1;
            if let Some(tool) = &self.tool {
                free(&mut state.tools, tool);
            }
            if let Some(server) = &self.server {
                free(&mut state.servers, server);
            }
            std::mem::take(&mut state.waiting)
        };
        for (_, wake) in waiting {
            wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn key(tool: &str, server: Option<&str>) -> CallKey {
        CallKey { tool: tool.into(), server: server.map(Into::into) }
    }

    #[test]
    fn slots_are_limited_overall_per_tool_and_per_server() {
        let limiter = Limiter::new(Limits {
            overall: Some(3),
            per_tool: Limit { default: None, named: HashMap::from([("once".into(), 1)]) },
            per_server: Limit { default: Some(2), named: HashMap::new() },
        });
        let once = limiter.acquire(&key("once", None), 0, None);
        assert!(once.is_some());
        assert!(limiter.acquire(&key("once", None), 0, None).is_none(), "one call of the tool at a time");
        let a = limiter.acquire(&key("a", Some("s")), 0, None);
        let b = limiter.acquire(&key("b", Some("s")), 0, None);
        assert!(a.is_some() && b.is_some());
        assert!(limiter.acquire(&key("c", None), 0, None).is_none(), "three calls at a time");
        drop(once);
        assert!(limiter.acquire(&key("c", Some("s")), 0, None).is_none(), "two calls to a server at a time");
        assert!(limiter.acquire(&key("c", Some("t")), 0, None).is_some());
    }

    #[test]
    fn a_freed_slot_wakes_each_waiter_once() {
        let limiter = Limiter::single();
        let slot = limiter.acquire(&key("a", None), 1, None);
        let woken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&woken);
        let waker: Waker = Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        assert!(limiter.acquire(&key("b", None), 2, Some(&waker)).is_none());
        assert!(limiter.acquire(&key("b", None), 2, Some(&waker)).is_none());
        drop(slot);
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        assert_eq!(limiter.running(), 0);
    }

    #[test]
    fn a_limit_of_zero_lets_one_call_run() {
        let limiter = Limiter::new(Limits { overall: Some(0), ..Limits::default() });
        assert!(limiter.acquire(&key("a", None), 0, None).is_some());
    }
}

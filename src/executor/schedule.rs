//! The next call to start.
//!
//! A schedule belongs to one run. It hands out the calls of one batch as slots allow, and goes on
//! to the next batch when all of it has ended. It does no I/O and keeps no time.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::limits::{Limiter, Permit, Waker};

/// What limits go by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallKey {
    /// The tool's name.
    pub tool: String,
    /// The MCP server that the tool belongs to.
    pub server: Option<Arc<str>>,
}

/// What to do next.
#[derive(Debug)]
pub enum Turn {
    /// Start this call; its slot is freed when the permit is dropped.
    Start {
        /// Position of the call in the run.
        index: usize,
        /// The slot it takes.
        permit: Permit,
        /// Whether the call is the only one of its batch.
        alone: bool,
    },
    /// Wait until a running call ends or the waker is called.
    Blocked,
    /// All calls have ended.
    Finished,
}

/// Hands out the calls of one run. See the module's text.
#[derive(Debug)]
pub struct Schedule {
    id: u64,
    keys: Vec<CallKey>,
    batches: VecDeque<Range<usize>>,
    ready: VecDeque<usize>,
    alone: bool,
    running: usize,
    limiter: Arc<Limiter>,
    /// The slot of the call inside which this run takes place: it takes no second one.
    lent: Option<Arc<Limiter>>,
}

impl Schedule {
    /// A schedule of `batches` over calls described by `keys`.
    pub fn new(
        keys: Vec<CallKey>,
        batches: Vec<Range<usize>>,
        limiter: Arc<Limiter>,
        lent: Option<Arc<Limiter>>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            keys,
            batches: batches.into(),
            ready: VecDeque::new(),
            alone: false,
            running: 0,
            limiter,
            lent,
        }
    }

    /// What to do next; `wake` is called once if a slot is freed after [`Turn::Blocked`].
    pub fn turn(&mut self, wake: Option<&Waker>) -> Turn {
        if self.ready.is_empty() {
            if self.running > 0 {
                return Turn::Blocked;
            }
            let Some(batch) = self.batches.pop_front() else { return Turn::Finished };
            self.alone = batch.len() == 1;
            self.ready.extend(batch);
        }
        // A call that waits for its own tool or server does not hold up the ones behind it.
        for position in 0..self.ready.len() {
            let index = self.ready[position];
            let key = &self.keys[index];
            let lent = self.lent.as_ref().and_then(|lent| lent.acquire(key, self.id, wake));
            if let Some(permit) = lent.or_else(|| self.limiter.acquire(key, self.id, wake)) {
                self.ready.remove(position);
                self.running += 1;
                return Turn::Start { index, permit, alone: self.alone };
            }
        }
        Turn::Blocked
    }

    /// A started call has an outcome.
    pub fn ended(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// Whether a turn could bring something new, once slots are free.
    pub fn wants_turn(&self) -> bool {
        !self.ready.is_empty() || self.running == 0
    }

    /// Start nothing more.
    pub fn stop(&mut self) {
        self.ready.clear();
        self.batches.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{Limit, Limits, plan};

    fn keys(names: &[&str]) -> Vec<CallKey> {
        names.iter().map(|n| CallKey { tool: (*n).into(), server: None }).collect()
    }

    fn started(turn: Turn) -> (usize, Permit, bool) {
        match turn {
            Turn::Start { index, permit, alone } => (index, permit, alone),
            other => panic!("expected a start, got {other:?}"),
        }
    }

    #[test]
    fn batches_follow_each_other_and_end() {
        let limiter = Limiter::new(Limits::default());
        let mut schedule =
            Schedule::new(keys(&["a", "b", "c"]), plan(&[true, true, false], true), limiter, None);
        let (first, p1, alone) = started(schedule.turn(None));
        let (second, p2, _) = started(schedule.turn(None));
        assert_eq!((first, second, alone), (0, 1, false));
        assert!(matches!(schedule.turn(None), Turn::Blocked), "c waits for the batch before it");
        drop((p1, p2));
        schedule.ended();
        schedule.ended();
        let (third, p3, alone) = started(schedule.turn(None));
        assert_eq!((third, alone), (2, true));
        drop(p3);
        schedule.ended();
        assert!(matches!(schedule.turn(None), Turn::Finished));
    }

    #[test]
    fn a_call_that_waits_for_its_tool_does_not_hold_up_the_next() {
        let limits = Limits {
            per_tool: Limit { default: None, named: [("slow".to_owned(), 1)].into() },
            ..Limits::default()
        };
        let mut schedule = Schedule::new(
            keys(&["slow", "slow", "quick"]),
            plan(&[true; 3], true),
            Limiter::new(limits),
            None,
        );
        let (first, _held, _) = started(schedule.turn(None));
        let (next, _also, _) = started(schedule.turn(None));
        assert_eq!((first, next), (0, 2));
    }

    #[test]
    fn a_run_inside_a_call_takes_no_second_slot() {
        let limiter = Limiter::new(Limits { overall: Some(1), ..Limits::default() });
        let mut outer = Schedule::new(keys(&["a"]), plan(&[true], true), Arc::clone(&limiter), None);
        let (_, _outer_slot, _) = started(outer.turn(None));
        let lent = Limiter::single();
        let mut inner =
            Schedule::new(keys(&["a", "a"]), plan(&[true; 2], true), limiter, Some(Arc::clone(&lent)));
        let (_, slot, _) = started(inner.turn(None));
        assert!(matches!(inner.turn(None), Turn::Blocked), "it has the one lent slot");
        drop(slot);
        inner.ended();
        assert_eq!(started(inner.turn(None)).0, 1);
    }
}

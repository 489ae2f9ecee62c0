//! Parallel work whose results are taken in order.
//!
//! The calling thread draws batches from a source, works on them and consumes results; after its
//! first batch, helpers join in. Nobody runs further ahead than [`WINDOW`] batches, so that memory
//! stays bounded, and when the consumer has enough, everybody stops. Helpers live no longer than
//! the call.

use std::{
    any::Any,
    collections::BTreeMap,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
};

use parking_lot::{Condvar, Mutex};

/// Items in a batch.
const BATCH: usize = 16;
/// Batches between the one that is consumed next and the newest.
const WINDOW: usize = 8;
/// More threads than this only wait for the disk.
const MAX_THREADS: usize = 8;

type Batch<R> = Result<Vec<R>, Box<dyn Any + Send>>;

struct Shared<I, R> {
    source: Mutex<Source<I>>,
    state: Mutex<State<R>>,
    changed: Condvar,
}

struct Source<I> {
    items: I,
    drawn: usize,
    exhausted: bool,
}

struct State<R> {
    finished: BTreeMap<usize, Batch<R>>,
    consumed: usize,
    stopped: bool,
}

/// Give every item to a worker made by `make_worker`, and every result, in the order of the items,
/// to `consume`, until that breaks.
///
/// # Panics
/// When a worker panics.
pub(super) fn run<I, R, W>(
    items: I,
    make_worker: impl Fn() -> W + Sync,
    mut consume: impl FnMut(R) -> ControlFlow<()>,
) where
    I: Iterator + Send,
    R: Send,
    W: FnMut(I::Item) -> R,
{
    let shared = Shared {
        source: Mutex::new(Source { items, drawn: 0, exhausted: false }),
        state: Mutex::new(State { finished: BTreeMap::new(), consumed: 0, stopped: false }),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        // Also when `consume` or a worker panics, the helpers must end.
        let _stop = StopOnDrop(&shared);
        let mut worker = make_worker();
        let mut alone = true;
        loop {
            while let Some(batch) = shared.take_next() {
                let batch = batch.unwrap_or_else(|panic| resume_unwind(panic));
                if batch.into_iter().any(|result| consume(result).is_break()) {
                    return;
                }
                shared.note_consumed();
            }
            match shared.work_once(&mut worker, false) {
                Step::Worked => {}
                Step::Exhausted if shared.all_consumed() => return,
                Step::Exhausted | Step::TooFarAhead => shared.wait_for_next(),
                Step::Stopped => return,
            }
            if alone && !shared.source.lock().exhausted {
                let helpers = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS) - 1;
                for _ in 0..helpers {
                    let (shared, make_worker) = (&shared, &make_worker);
                    let builder = thread::Builder::new().name("nanobot-tools-search".into());
                    // Without helpers the calling thread does it all.
                    let _ = builder.spawn_scoped(scope, move || {
                        let mut worker = make_worker();
                        while matches!(shared.work_once(&mut worker, true), Step::Worked) {}
                    });
                }
            }
            alone = false;
        }
    });
}

enum Step {
    Worked,
    Exhausted,
    TooFarAhead,
    Stopped,
}

impl<I: Iterator, R> Shared<I, R> {
    /// Draw a batch and work on it.
    fn work_once(&self, worker: &mut impl FnMut(I::Item) -> R, wait: bool) -> Step {
        let (index, batch) = {
            let mut source = self.source.lock();
            if source.exhausted {
                return Step::Exhausted;
            }
            let mut state = self.state.lock();
            while !state.stopped && source.drawn >= state.consumed + WINDOW {
                if !wait {
                    return Step::TooFarAhead;
                }
                drop(source);
                self.changed.wait(&mut state);
                drop(state);
                source = self.source.lock();
                if source.exhausted {
                    return Step::Exhausted;
                }
                state = self.state.lock();
            }
            if state.stopped {
                return Step::Stopped;
            }
            drop(state);
            let batch: Vec<I::Item> = source.items.by_ref().take(BATCH).collect();
            source.exhausted = batch.len() < BATCH;
            if batch.is_empty() {
                return Step::Exhausted;
            }
            source.drawn += 1;
            (source.drawn - 1, batch)
        };
        let done = catch_unwind(AssertUnwindSafe(|| batch.into_iter().map(worker).collect()));
        self.state.lock().finished.insert(index, done);
        self.changed.notify_all();
        Step::Worked
    }
}

impl<I, R> Shared<I, R> {
    fn take_next(&self) -> Option<Batch<R>> {
        let mut state = self.state.lock();
        let next = state.consumed;
        state.finished.remove(&next)
    }

    fn note_consumed(&self) {
        self.state.lock().consumed += 1;
        self.changed.notify_all();
    }

    fn all_consumed(&self) -> bool {
        let drawn = self.source.lock().drawn;
        self.state.lock().consumed == drawn
    }

    fn wait_for_next(&self) {
        let mut state = self.state.lock();
        while !state.finished.contains_key(&state.consumed) {
            self.changed.wait(&mut state);
        }
    }
}

struct StopOnDrop<'a, I, R>(&'a Shared<I, R>);

impl<I, R> Drop for StopOnDrop<'_, I, R> {
    fn drop(&mut self) {
        self.0.state.lock().stopped = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        for count in [0, 1, BATCH, BATCH + 1, 5000] {
            let mut seen = Vec::new();
            run(
                0..count,
                || |n: usize| n * 2,
                |n| {
                    seen.push(n);
                    ControlFlow::Continue(())
                },
            );
            assert_eq!(seen, (0..count).map(|n| n * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_consumer_that_has_enough_ends_the_work() {
        let mut seen = 0;
        run(
            0..,
            || |n: u64| n,
            |n| {
                seen += 1;
                if n == 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(seen, 1001);
    }

    #[test]
    fn a_panicking_worker_ends_the_work() {
        let outcome = catch_unwind(|| {
            run(0..10_000, || |n: usize| assert!(n != 5000, "worker"), |()| ControlFlow::Continue(()));
        });
        assert!(outcome.is_err());
    }
}

//! The tokio driver: runs batches of calls for Rust programs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::sync::{Notify, mpsc};

use super::{
    limits::{Limiter, Limits, Waker},
    plan::plan,
    schedule::{CallKey, Schedule, Turn},
};
use crate::{
    cancel::Running,
    error::{Error, Result},
    registry::Registry,
    tool::{CallContext, Completion, ToolCall, ToolOutput},
};

/// What became of one call.
#[derive(Debug)]
pub struct Outcome {
    /// The provider's id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The tool's result, or why there is none.
    pub result: Result<ToolOutput>,
    /// Time from start to end; zero for a call that was never started.
    pub duration: Duration,
}

/// Runs the calls of model responses against a registry.
#[derive(Debug)]
pub struct Executor {
    registry: Arc<Registry>,
    limiter: Arc<Limiter>,
    timeout: Option<Duration>,
    concurrent: bool,
}

/// Cancels what still runs when a run's future is dropped.
#[derive(Default)]
struct CancelOnDrop(Vec<Option<Running>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        for running in self.0.drain(..).flatten() {
            running.cancel();
        }
    }
}

impl Executor {
    /// An executor with its own slots; `timeout` is each call's limit unless its tool has a
    /// shorter one.
    #[must_use]
    pub fn new(registry: Arc<Registry>, limits: Limits, timeout: Option<Duration>, concurrent: bool) -> Self {
        Self { registry, limiter: Limiter::new(limits), timeout, concurrent }
    }

    /// Run all calls; outcomes come in the order of the calls, whatever ends first.
    ///
    /// Dropping the future cancels every call that still runs.
    pub async fn run(&self, calls: Vec<ToolCall>) -> Vec<Outcome> {
        let tools: Vec<_> = calls.iter().map(|call| self.registry.get(&call.name)).collect();
        let safe: Vec<bool> =
            tools.iter().map(|t| t.as_ref().is_some_and(|t| t.concurrency_safe())).collect();
        let keys = calls
            .iter()
            .zip(&tools)
            .map(|(call, tool)| CallKey {
                tool: call.name.clone(),
                server: tool.as_ref().and_then(|tool| tool.spec().server.clone()),
            })
            .collect();
        let mut schedule = Schedule::new(keys, plan(&safe, self.concurrent), Arc::clone(&self.limiter), None);

        let mut outcomes: Vec<Outcome> = Vec::with_capacity(calls.len());
        let mut arguments = Vec::with_capacity(calls.len());
        for call in calls {
            let result = Err(Error::Cancelled);
            outcomes.push(Outcome { id: call.id, name: call.name, result, duration: Duration::ZERO });
            arguments.push(Some(call.arguments));
        }
        let mut running = CancelOnDrop(outcomes.iter().map(|_| None).collect());
        let (ended, mut endings) = mpsc::unbounded_channel();
        let freed = Arc::new(Notify::new());
        let wake: Waker = {
            let freed = Arc::clone(&freed);
            Arc::new(move || freed.notify_one())
        };

        loop {
            match schedule.turn(Some(&wake)) {
                Turn::Finished => break,
                Turn::Start { index, permit, .. } => {
                    let started = Instant::now();
                    let given = arguments[index].take().map_or(Value::Null, |a| {
                        a.to_json().map_or(Value::Null, |map| Value::Object(map.into_owned()))
                    });
                    match self.registry.prepare(&outcomes[index].name, given) {
                        Err(error) => {
                            self.registry.count_refused(&outcomes[index].name, error.code());
                            outcomes[index].result = Err(error);
                            schedule.ended();
                        }
                        Ok((tool, prepared)) => {
                            let limit = [self.timeout, tool.spec().timeout].into_iter().flatten().min();
                            let context = CallContext::within(limit);
                            let ended = ended.clone();
                            let tally = self.registry.count(&outcomes[index].name);
                            let done = Completion::new(move |result| {
                                drop(permit);
                                tally.end_with(&result);
                                // The receiver is gone when the run was dropped.
                                let _ = ended.send((index, result, started.elapsed()));
                            });
                            running.0[index] = Some(tool.submit(prepared, context, done));
                        }
                    }
                }
                Turn::Blocked => {
                    tokio::select! {
                        Some((index, result, duration)) = endings.recv() => {
                            outcomes[index].result = result;
                            outcomes[index].duration = duration;
                            running.0[index] = None;
                            schedule.ended();
                        }
                        () = freed.notified() => {}
                    }
                }
            }
        }
        outcomes
    }
}

//! One run of the executor: starts native calls itself, and hands calls of Python tools to
//! `nanobot_tools.executor`, which runs them as coroutines on the loop.
//!
//! A run belongs to one loop and is driven from its thread; only completions and freed slots come from
//! elsewhere, through the loop's queue. No lock is held while Python code runs.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use pyo3::{
    exceptions::{PyException, PyRuntimeError},
    intern,
    prelude::*,
    types::{PyList, PyString},
};

use super::{
    bridge::{self, Item, Queue},
    call::{self, Parts},
    convert,
    current::{self, CurrentCall},
    job::Job,
    meta,
    outcome::{self, Shown, ToolOutcome},
    registry::{self, Prepared, py_tool},
};
use crate::{
    CallContext, Completion, Error, Progress, Registry, Result, Running, Tally, Tool, ToolOutput,
    executor::{CallKey, Limiter, Permit, RepeatGuard, Schedule, Turn, Waker, plan},
};

/// One call of a run.
struct Call {
    id: Py<PyAny>,
    name: Py<PyAny>,
    text: Arc<str>,
    arguments: Py<PyAny>,
    /// Why it is no call at all.
    fault: Option<String>,
    started: Option<Instant>,
    /// Counts the call while it runs.
    tally: Option<Tally>,
    permit: Option<Permit>,
    running: Option<Running>,
    current: Option<Py<CurrentCall>>,
}

impl Call {
    fn read(call: &Bound<'_, PyAny>, index: usize) -> PyResult<Self> {
        let py = call.py();
        let (parts, fault) = match call::read(call) {
            Ok(parts) => (parts, None),
            Err(error) if !error.is_instance_of::<PyException>(py) => return Err(error),
            Err(error) => {
                let none = py.None().into_bound(py);
                let parts = Parts { name: PyString::new(py, "").into_any(), arguments: none, id: None };
                (parts, Some(outcome::text_of(error.value(py))?))
            }
        };
        let text = registry::name_text(&parts.name)?.into();
        let id = match parts.id {
            Some(id) => id,
            None => PyString::new(py, &format!("call_{index}")).into_any(),
        };
        Ok(Self {
            id: id.unbind(),
            name: parts.name.unbind(),
            text,
            arguments: parts.arguments.unbind(),
            fault,
            started: None,
            tally: None,
            permit: None,
            running: None,
            current: None,
        })
    }
}

struct State {
    schedule: Schedule,
    calls: Vec<Call>,
    ended: Vec<bool>,
    outcomes: Vec<Option<Py<ToolOutcome>>>,
    waiter: Option<Py<PyAny>>,
    /// Something happened since the last turn.
    attention: bool,
    happened: Vec<Event>,
}

enum Event {
    Started(usize),
    Progress(usize, Progress),
    Finished(usize),
}

/// A run that is under way. See the module's text.
pub(crate) struct Run {
    /// Let go of when the run is closed: through it a tool that keeps its task would keep itself.
    registry: Mutex<Option<Arc<Registry>>>,
    limiter: Arc<Limiter>,
    guard: Option<Arc<RepeatGuard>>,
    options: Options,
    queue: Arc<Queue>,
    event_loop: Py<PyAny>,
    wake: Waker,
    /// The same moment on the monotonic clock and in seconds since the epoch.
    base: (Instant, f64),
    state: Mutex<State>,
}

fn epoch() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// What holds for all calls of a run.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// Each call's time limit, unless its tool has a shorter one.
    pub(crate) timeout: Option<Duration>,
    /// Whether calls may run together at all.
    pub(crate) concurrent: bool,
    /// Whether hooks surround calls, so that Python has to run all of them.
    pub(crate) hooked: bool,
    /// Whether somebody wants to know what happens meanwhile.
    pub(crate) events: bool,
}

impl Run {
    /// Plan a run on the loop of this thread; nothing starts before `advance`.
    pub(crate) fn plan(
        py: Python<'_>,
        registry: &Arc<Registry>,
        limiter: &Arc<Limiter>,
        guard: Option<&Arc<RepeatGuard>>,
        calls: &[Bound<'_, PyAny>],
        options: Options,
    ) -> PyResult<Arc<Self>> {
        let (event_loop, queue) = bridge::running(py)?;
        let mut planned = Vec::with_capacity(calls.len());
        let mut safe = Vec::with_capacity(calls.len());
        let mut keys = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            let entry = Call::read(call, index)?;
            let tool = entry.fault.is_none().then(|| registry.get(&entry.text)).flatten();
            safe.push(tool.as_ref().is_some_and(|tool| tool.concurrency_safe()));
            keys.push(CallKey {
                tool: entry.text.to_string(),
                server: tool.and_then(|tool| tool.spec().server.clone()),
            });
            planned.push(entry);
        }
        let batches = plan(&safe, options.concurrent);
        let parent = current::current_call(py)?;
        let lent = parent.and_then(|parent| parent.get().lend(limiter));
        let schedule = Schedule::new(keys, batches, Arc::clone(limiter), lent);
        let count = planned.len();
        Ok(Arc::new_cyclic(|this: &Weak<Self>| {
            let (freed, wake_queue) = (this.clone(), Arc::downgrade(&queue));
            let wake: Waker = Arc::new(move || {
                if let (Some(run), Some(queue)) = (freed.upgrade(), wake_queue.upgrade()) {
                    run.state.lock().attention = true;
                    queue.push(Item::Touched { run });
                }
            });
            Self {
                registry: Mutex::new(Some(Arc::clone(registry))),
                limiter: Arc::clone(limiter),
                guard: guard.cloned(),
                options,
                queue,
                event_loop: event_loop.unbind(),
                wake,
                base: (Instant::now(), epoch()),
                state: Mutex::new(State {
                    schedule,
                    calls: planned,
                    ended: vec![false; count],
                    outcomes: (0..count).map(|_| None).collect(),
                    waiter: None,
                    attention: false,
                    happened: Vec::new(),
                }),
            }
        }))
    }

    /// A native call of this run has ended.
    pub(crate) fn native_ended(&self, py: Python<'_>, index: usize, result: Result<ToolOutput>) {
        let name = self.text(index);
        match outcome::native(py, &name, result) {
            Ok(shown) => self.record(py, index, shown, false),
            Err(error) => error.write_unraisable(py, None),
        }
    }

    /// Give a call its outcome; the first one stands. With `keep` its slot stays taken.
    pub(crate) fn record(&self, py: Python<'_>, index: usize, shown: Shown, keep: bool) {
        match Py::new(py, self.outcome(py, index, shown)) {
            Ok(outcome) => self.store(index, outcome, keep),
            Err(error) => error.write_unraisable(py, None),
        }
    }

    pub(crate) fn store(&self, index: usize, outcome: Py<ToolOutcome>, keep: bool) {
        // Dropped after the lock: freeing a slot calls wakers.
        let mut dropped = None;
        let kind = outcome.get().kind();
        let ended = {
            let mut state = self.state.lock();
            if !keep {
                dropped = state.calls[index].permit.take();
            }
            state.calls[index].running = None;
            state.calls[index].current = None;
            let ended = (!state.ended[index]).then(|| state.calls[index].tally.take());
            if ended.is_some() {
                state.ended[index] = true;
                state.outcomes[index] = Some(outcome);
                state.schedule.ended();
                state.attention = true;
                if self.options.events {
                    state.happened.push(Event::Finished(index));
                }
            }
            ended
        };
        drop(dropped);
        match ended {
            Some(Some(tally)) => tally.end(kind),
            // It never began.
            Some(None) => {
                if let (Some(kind), Ok(registry)) = (kind, self.registry()) {
                    registry.count_refused(&self.text(index), kind);
                }
            }
            None => {}
        }
    }

    /// Wake the coroutine that drives the run, if there is something for it to do.
    pub(crate) fn attend(&self, py: Python<'_>) {
        let waiter = {
            let mut state = self.state.lock();
            let due = state.attention && (state.schedule.wants_turn() || !state.happened.is_empty());
            if due { state.waiter.take() } else { None }
        };
        let Some(waiter) = waiter else { return };
        let waiter = waiter.bind(py);
        let settled = (|| {
            if !waiter.call_method0(intern!(py, "done"))?.is_truthy()? {
                waiter.call_method1(intern!(py, "set_result"), (py.None(),))?;
            }
            Ok(())
        })();
        if let Err(error) = settled {
            PyErr::write_unraisable(error, py, None);
        }
    }

    /// Whether the calls of this run take the slots of `limiter`.
    pub(crate) fn holds_slot_of(&self, limiter: &Arc<Limiter>) -> bool {
        Arc::ptr_eq(&self.limiter, limiter)
    }

    /// Takes the progress of one call, from any thread.
    pub(crate) fn sink(self: &Arc<Self>, index: usize) -> Option<crate::ProgressSink> {
        if !self.options.events {
            return None;
        }
        let (run, queue) = (Arc::downgrade(self), Arc::downgrade(&self.queue));
        Some(Arc::new(move |progress| {
            if let (Some(run), Some(queue)) = (run.upgrade(), queue.upgrade()) {
                // Noted here, so that what a call reports comes before its end.
                run.progressed(index, progress);
                queue.push(Item::Touched { run });
            }
        }))
    }

    fn progressed(&self, index: usize, progress: Progress) {
        let mut state = self.state.lock();
        if !state.ended[index] {
            state.happened.push(Event::Progress(index, progress));
            state.attention = true;
        }
    }

    /// Start one call: natively, or as a job for Python; a refused one has its outcome at once.
    fn start(
        self: &Arc<Self>,
        py: Python<'_>,
        index: usize,
        permit: Permit,
        alone: bool,
    ) -> PyResult<Option<Job>> {
        let (name, arguments, fault) = {
            let mut state = self.state.lock();
            let call = &mut state.calls[index];
            call.permit = Some(permit);
            (Arc::clone(&call.text), std::mem::replace(&mut call.arguments, py.None()), call.fault.take())
        };
        let arguments = arguments.into_bound(py);
        if let Some(fault) = fault {
            let kind = "invalid_call";
            let shown = Shown {
                result: outcome::error_result(py, &format!("Error: {fault}"), kind)?,
                kind: Some(kind),
                exception: None,
                structured: None,
            };
            self.record(py, index, shown, false);
            return Ok(None);
        }
        let (tool, arguments) = match registry::prepare(&*self.registry()?, &name, &arguments)? {
            Prepared::Ready { tool, arguments } => (tool, arguments),
            Prepared::Refused { error, .. } => {
                self.record(py, index, outcome::failed(py, &name, &error)?, false);
                return Ok(None);
            }
        };
        if let Some(guard) = &self.guard
            && let Err(text) = guard.check(&name, &canonical(&arguments))
        {
            self.record(py, index, outcome::failed(py, &name, &Error::Refused(text))?, false);
            return Ok(None);
        }
        let tally = self.registry()?.count(&name);
        {
            let mut state = self.state.lock();
            state.calls[index].started = Some(tally.begun());
            state.calls[index].tally = Some(tally);
            if self.options.events {
                state.happened.push(Event::Started(index));
            }
        }
        let limit = [self.options.timeout, tool.spec().timeout].into_iter().flatten().min();
        let native = py_tool(&tool).is_none_or(|own| own.native.is_some());
        if native && !self.options.hooked {
            self.submit(py, index, &tool, &arguments, limit)?;
            return Ok(None);
        }
        let current = {
            let (id, name) = self.labels(py, index);
            let deadline = limit.map(|limit| Instant::now() + limit);
            Py::new(py, CurrentCall::of_run(id, name, deadline, self, index))?
        };
        self.state.lock().calls[index].current = Some(current.clone_ref(py));
        Ok(Some(Job::new(py, Arc::clone(self), index, tool, arguments.unbind(), current, alone, limit)))
    }

    /// Id and name of a call.
    pub(crate) fn labels(&self, py: Python<'_>, index: usize) -> (Py<PyAny>, Py<PyAny>) {
        let state = self.state.lock();
        let call = &state.calls[index];
        (call.id.clone_ref(py), call.name.clone_ref(py))
    }

    /// The name of a call as text.
    pub(crate) fn text(&self, index: usize) -> Arc<str> {
        Arc::clone(&self.state.lock().calls[index].text)
    }

    /// The kind of error that a call ended in, while its outcome is here.
    pub(crate) fn error_kind(&self, index: usize) -> Option<&'static str> {
        self.state.lock().outcomes[index].as_ref().and_then(|outcome| outcome.get().kind())
    }

    /// Whether a call has its outcome.
    pub(crate) fn has_ended(&self, index: usize) -> bool {
        self.state.lock().ended[index]
    }

    /// The outcome of a call, with the time from its start until now.
    pub(crate) fn outcome(&self, py: Python<'_>, index: usize, shown: Shown) -> ToolOutcome {
        let (id, name, started) = {
            let state = self.state.lock();
            let call = &state.calls[index];
            (call.id.clone_ref(py), call.name.clone_ref(py), call.started)
        };
        let (started, duration) = started.map_or((0.0, 0.0), |at| {
            let since = at.saturating_duration_since(self.base.0).as_secs_f64();
            (self.base.1 + since, at.elapsed().as_secs_f64())
        });
        ToolOutcome::new(id, name, shown, started, duration)
    }

    /// Free the slot of a call, if it still holds one.
    pub(crate) fn release(&self, index: usize) {
        let permit = self.state.lock().calls[index].permit.take();
        drop(permit);
    }

    /// The registry, while the run is driven.
    pub(crate) fn registry(&self) -> PyResult<Arc<Registry>> {
        self.registry.lock().clone().ok_or_else(|| PyRuntimeError::new_err("the run is closed"))
    }

    fn submit(
        self: &Arc<Self>,
        py: Python<'_>,
        index: usize,
        tool: &Arc<dyn Tool>,
        arguments: &Bound<'_, PyAny>,
        limit: Option<Duration>,
    ) -> PyResult<()> {
        let arguments = match registry::native_arguments(arguments) {
            Ok(arguments) => arguments,
            Err(error) => {
                let name = self.text(index);
                self.record(py, index, outcome::raised(py, &name, error.value(py).as_any())?, false);
                return Ok(());
            }
        };
        let (run, queue) = (Arc::clone(self), Arc::clone(&self.queue));
        let done = Completion::new(move |result| queue.push(Item::Ended { run, index, result }));
        let context =
            CallContext { progress: self.sink(index), meta: meta::current(py), ..CallContext::within(limit) };
        let running = Arc::clone(tool).submit(arguments, context, done);
        self.state.lock().calls[index].running = Some(running);
        Ok(())
    }
}

/// Arguments as JSON text with sorted keys; what has no JSON form counts by its `repr`.
fn canonical(arguments: &Bound<'_, PyAny>) -> Vec<u8> {
    fn sorted(value: serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Object(mut map) => {
                map.sort_keys();
                map.into_iter().map(|(k, v)| (k, sorted(v))).collect()
            }
            serde_json::Value::Array(items) => items.into_iter().map(sorted).collect(),
            other => other,
        }
    }
    match convert::to_value(arguments) {
        Ok(value) => sorted(value).to_string().into_bytes(),
        Err(_) => {
            arguments.repr().map_or_else(|_| Vec::new(), |r| r.to_string_lossy().into_owned().into_bytes())
        }
    }
}

/// A run, as `nanobot_tools.executor` drives it.
#[pyclass(frozen, module = "nanobot_tools._native")]
pub(crate) struct PyRun(Arc<Run>);

impl PyRun {
    pub(crate) fn new(run: Arc<Run>) -> Self {
        Self(run)
    }
}

#[pymethods]
impl PyRun {
    /// Start what can be started; the jobs that Python has to run, or `None` when all calls have ended.
    fn advance(&self, py: Python<'_>) -> PyResult<Option<Vec<Job>>> {
        let run = &self.0;
        let mut jobs = Vec::new();
        // One burst: what is written to a server inside leaves in one system call.
        crate::mcp::burst(|| {
            loop {
                let turn = {
                    let mut state = run.state.lock();
                    state.attention = false;
                    state.schedule.turn(Some(&run.wake))
                };
                match turn {
                    Turn::Finished => return Ok(None),
                    Turn::Blocked => return Ok(Some(jobs)),
                    Turn::Start { index, permit, alone } => jobs.extend(run.start(py, index, permit, alone)?),
                }
            }
        })
    }

    /// A future that is done when the run needs another turn; `None` if it does already.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let due = {
            let state = self.0.state.lock();
            state.attention && (state.schedule.wants_turn() || !state.happened.is_empty())
        };
        if due {
            return Ok(None);
        }
        let future = self.0.event_loop.bind(py).call_method0(intern!(py, "create_future"))?;
        let old = self.0.state.lock().waiter.replace(future.clone().unbind());
        drop(old);
        Ok(Some(future))
    }

    /// Hand over the outcomes in the order of the calls; the run keeps none of them.
    fn outcomes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let outcomes: Vec<_> = self.0.state.lock().outcomes.iter_mut().map(Option::take).collect();
        PyList::new(py, outcomes)
    }

    /// Let go of what the run still holds of Python, once nobody drives it any more.
    fn close(&self) {
        let (outcomes, waiter, happened) = {
            let mut state = self.0.state.lock();
            let outcomes: Vec<_> = state.outcomes.iter_mut().filter_map(Option::take).collect();
            (outcomes, state.waiter.take(), std::mem::take(&mut state.happened))
        };
        let registry = self.0.registry.lock().take();
        drop((outcomes, waiter, happened, registry));
    }

    /// What happened since the last time: `(kind, index, id, name, details)` each.
    fn take_events<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let happened = std::mem::take(&mut self.0.state.lock().happened);
        happened
            .into_iter()
            .map(|event| {
                let (kind, index, details) = match event {
                    Event::Started(index) => ("started", index, py.None()),
                    Event::Progress(index, p) => {
                        let details = (p.progress, p.total, p.message).into_pyobject(py)?;
                        ("progress", index, details.into_any().unbind())
                    }
                    Event::Finished(index) => {
                        let outcome = self.0.state.lock().outcomes[index].take();
                        ("finished", index, outcome.into_pyobject(py)?.unbind())
                    }
                };
                let (id, name) = self.0.labels(py, index);
                Ok((kind, index, id, name, details).into_pyobject(py)?.into_any())
            })
            .collect()
    }

    /// Start nothing more, cancel the native calls that run, and tell the others.
    fn stop(&self) {
        let (running, current): (Vec<Running>, Vec<_>) = {
            let mut state = self.0.state.lock();
            state.schedule.stop();
            let running = state.calls.iter_mut().filter_map(|call| call.running.take()).collect();
            (running, state.calls.iter_mut().filter_map(|call| call.current.take()).collect())
        };
        for running in running {
            running.cancel();
        }
        for current in current {
            current.get().cancel();
        }
    }
}

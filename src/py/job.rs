//! One call that runs on the loop: its tool is a Python object, or hooks surround it.
//!
//! A job is a coroutine. Awaited (or made a task) it calls the tool, steps the tool's own coroutine and
//! records the outcome; what the tool raises ends the call, not the awaiter. That saves a Python frame and
//! a dozen attribute reads for each call, which decides whether a batch of small tools is as quick as a
//! plain `asyncio.gather`: docs/decisions/0005-two-worlds.md. Calls with hooks, plain functions and
//! nanobot's own classes go through `nanobot_tools.executor` instead, which ends jobs by their methods.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use pyo3::{
    exceptions::{PyException, PyGeneratorExit, PyKeyboardInterrupt, PyRuntimeError, PyStopIteration},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyTuple, PyType},
};

use super::{
    call::ToolCall,
    current::{self, CurrentCall},
    outcome::{self, Shown, ToolOutcome},
    pytool::Mode,
    registry::{self, Prepared, py_tool},
    run::Run,
};
use crate::{Error, Tool};

/// How a job's tool is called, beside the modes of a Python tool.
const NATIVE: u8 = 3;

/// Where the tool's coroutine is.
enum Stage {
    Fresh,
    Running { coroutine: Py<PyAny>, token: Py<PyAny> },
    Over,
}

/// What a call needs until it ends.
struct Held {
    core: Arc<dyn Tool>,
    tool: Py<PyAny>,
    arguments: Py<PyAny>,
    current: Py<CurrentCall>,
}

/// See the module's text.
#[pyclass(frozen, module = "nanobot_tools._native")]
pub(crate) struct Job {
    run: Arc<Run>,
    index: usize,
    /// Let go of when the call ends, so that a tool that keeps its own task, or the traceback of what it
    /// raised, makes no cycle that the garbage collector could not see through.
    held: Mutex<Option<Held>>,
    /// 0 coroutine function, 1 plain function, 2 on the loop, 3 native.
    #[pyo3(get)]
    mode: u8,
    /// Whether it is the only call of its batch.
    #[pyo3(get)]
    alone: bool,
    limit: Option<Duration>,
    expired: AtomicBool,
    stage: Mutex<Stage>,
}

impl Job {
    #[expect(clippy::too_many_arguments, reason = "made in one place only")]
    pub(crate) fn new(
        py: Python<'_>,
        run: Arc<Run>,
        index: usize,
        core: Arc<dyn Tool>,
        arguments: Py<PyAny>,
        current: Py<CurrentCall>,
        alone: bool,
        limit: Option<Duration>,
    ) -> Self {
        let (tool, mode) = match py_tool(&core) {
            Some(own) if own.native.is_none() => (own.object.clone_ref(py), own.mode as u8),
            Some(own) => (own.object.clone_ref(py), NATIVE),
            None => (py.None(), NATIVE),
        };
        Self {
            run,
            index,
            held: Mutex::new(Some(Held { core, tool, arguments, current })),
            mode,
            alone,
            limit,
            expired: AtomicBool::new(false),
            stage: Mutex::new(Stage::Fresh),
        }
    }

    /// A thread keeps its slot until it ends, whatever became of the call.
    fn keeps_slot(&self) -> bool {
        self.mode == Mode::Thread as u8
    }

    fn end(&self, py: Python<'_>, shown: Shown, keep: bool) {
        self.run.record(py, self.index, shown, keep);
        self.let_go();
        self.run.attend(py);
    }

    /// Drop what only a running call needs.
    fn let_go(&self) {
        let held = self.held.lock().take();
        drop(held);
    }

    /// Something of what the call needs; an error once it has ended.
    fn of_held<T>(&self, pick: impl FnOnce(&Held) -> T) -> PyResult<T> {
        let held = self.held.lock();
        held.as_ref().map(pick).ok_or_else(|| PyRuntimeError::new_err("the call has ended"))
    }

    /// Let the tool's own code know that going on is of no use.
    fn tell(&self) {
        if let Some(held) = &*self.held.lock() {
            held.current.get().cancel();
        }
    }

    fn outcome(&self, py: Python<'_>, shown: Shown) -> PyResult<Py<ToolOutcome>> {
        Py::new(py, self.run.outcome(py, self.index, shown))
    }

    /// Call the tool; its coroutine, or why there is none.
    fn open<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let variable = current::variable(py)?;
        let (tool, arguments, current) = self.of_held(|held| {
            (held.tool.clone_ref(py), held.arguments.clone_ref(py), held.current.clone_ref(py))
        })?;
        let token = variable.call_method1(intern!(py, "set"), (current,))?.unbind();
        let arguments = arguments.into_bound(py).cast_into::<PyDict>().map_err(PyErr::from);
        let made = arguments
            .and_then(|arguments| tool.bind(py).getattr(intern!(py, "execute"))?.call((), Some(&arguments)));
        match made {
            Ok(coroutine) => {
                *self.stage.lock() = Stage::Running { coroutine: coroutine.clone().unbind(), token };
                Ok(coroutine)
            }
            Err(error) => {
                *self.stage.lock() = Stage::Over;
                variable.call_method1(intern!(py, "reset"), (token,))?;
                Err(error)
            }
        }
    }

    /// The tool's coroutine has ended: put the context variable back.
    fn over(&self, py: Python<'_>) -> PyResult<()> {
        let stage = std::mem::replace(&mut *self.stage.lock(), Stage::Over);
        // A task that runs beside others has a context of its own, which ends with it.
        if self.alone
            && let Stage::Running { token, .. } = stage
        {
            // Another context than the one it was set in, when a loop shuts down: nothing to put back.
            if let Err(error) = current::variable(py)?.call_method1(intern!(py, "reset"), (token,))
                && !error.is_instance_of::<PyException>(py)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// What a step of the tool's coroutine gave: something to wait for, or the end.
    fn stepped<'py>(
        &self,
        py: Python<'py>,
        step: PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let error = match step {
            Ok(awaited) => return Ok(Some(awaited)),
            Err(error) => error,
        };
        self.over(py)?;
        if error.is_instance_of::<PyStopIteration>(py) {
            let result = error.value(py).getattr(intern!(py, "value"))?;
            self.finish(py, &result)?;
            return Ok(None);
        }
        self.broke(py, &error)
    }

    /// The tool raised. Raises only what is no concern of a single call.
    fn broke<'py>(&self, py: Python<'py>, error: &PyErr) -> PyResult<Option<Bound<'py, PyAny>>> {
        static CANCELLED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        static CONTAINED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let cancelled = CANCELLED.import(py, "asyncio", "CancelledError")?;
        if self.expired.load(Ordering::Acquire) {
            self.expire(py, false)?;
        } else if error.is_instance(py, cancelled) {
            self.cancelled(py)?;
            if being_cancelled(py)? {
                return Err(error.clone_ref(py));
            }
        } else if error.is_instance_of::<PyKeyboardInterrupt>(py)
            || error.is_instance_of::<PyGeneratorExit>(py)
        {
            self.fail(py, error.value(py).as_any())?;
            return Err(error.clone_ref(py));
        } else if error.is_instance_of::<PyException>(py) {
            self.fail(py, error.value(py).as_any())?;
        } else {
            let contained = CONTAINED.import(py, "nanobot_tools._dispatch", "contained")?;
            self.fail(py, &contained.call1((error.value(py),))?)?;
        }
        Ok(None)
    }

    fn coroutine<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match &*self.stage.lock() {
            Stage::Running { coroutine, .. } => Some(coroutine.clone_ref(py).into_bound(py)),
            Stage::Fresh | Stage::Over => None,
        }
    }
}

/// Whether somebody asked the current task to stop, so that a cancellation is theirs.
fn being_cancelled(py: Python<'_>) -> PyResult<bool> {
    static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let task = CURRENT.import(py, "asyncio", "current_task")?.call0()?;
    if task.is_none() {
        return Ok(false);
    }
    task.call_method0(intern!(py, "cancelling"))?.is_truthy()
}

#[pymethods]
impl Job {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let coroutine = match self.coroutine(py) {
            Some(coroutine) => coroutine,
            None if matches!(*self.stage.lock(), Stage::Over) => return Ok(None),
            None => match self.open(py) {
                Ok(coroutine) => coroutine,
                Err(error) => return self.broke(py, &error),
            },
        };
        let step = coroutine.call_method1(intern!(py, "send"), (py.None(),));
        self.stepped(py, step)
    }

    /// Step the tool's coroutine; see `collections.abc.Coroutine`.
    fn send<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let stepped = match self.coroutine(py) {
            Some(coroutine) if !value.is_none() => {
                let step = coroutine.call_method1(intern!(py, "send"), (value,));
                self.stepped(py, step)?
            }
            _ => self.__next__(py)?,
        };
        stepped.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Raise inside the tool's coroutine; see `collections.abc.Coroutine`.
    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw<'py>(
        &self,
        py: Python<'py>,
        kind: &Bound<'py, PyAny>,
        value: Option<&Bound<'py, PyAny>>,
        traceback: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let stepped = if let Some(coroutine) = self.coroutine(py) {
            let step = match (value, traceback) {
                (None, None) => coroutine.call_method1(intern!(py, "throw"), (kind,)),
                _ => coroutine.call_method1(intern!(py, "throw"), (kind, value, traceback)),
            };
            self.stepped(py, step)?
        } else {
            // Cancelled before its first step: the tool never ran.
            *self.stage.lock() = Stage::Over;
            self.cancelled(py)?;
            None
        };
        stepped.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Close the tool's coroutine; see `collections.abc.Coroutine`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let coroutine = self.coroutine(py);
        *self.stage.lock() = Stage::Over;
        if let Some(coroutine) = coroutine {
            coroutine.call_method0(intern!(py, "close"))?;
        }
        if !self.ended() {
            self.cancelled(py)?;
        }
        Ok(())
    }

    /// The id of the call.
    #[getter]
    fn id(&self, py: Python<'_>) -> Py<PyAny> {
        self.run.labels(py, self.index).0
    }

    /// The tool's name.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.run.labels(py, self.index).1
    }

    /// The registered object.
    #[getter]
    fn tool(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.of_held(|held| held.tool.clone_ref(py))
    }

    /// The call as the tool's code sees it.
    #[getter]
    fn current(&self, py: Python<'_>) -> PyResult<Py<CurrentCall>> {
        self.of_held(|held| held.current.clone_ref(py))
    }

    /// The arguments, cast and valid.
    #[getter]
    fn arguments(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.of_held(|held| held.arguments.clone_ref(py))
    }

    /// Seconds that the call may take, or `None`.
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.limit.map(|limit| limit.as_secs_f64())
    }

    /// Whether the call is just that of a coroutine function beside others, without a time limit: then the
    /// job can be made a task as it is.
    #[getter]
    fn plain(&self) -> bool {
        self.mode == Mode::Coroutine as u8 && !self.alone && self.limit.is_none()
    }

    /// Whether the call has its outcome.
    #[getter]
    fn ended(&self) -> bool {
        self.run.has_ended(self.index)
    }

    /// The kind of error that the call ended in; `None` before, and once its outcome was handed over.
    #[getter]
    fn error_kind(&self) -> Option<&'static str> {
        self.run.error_kind(self.index)
    }

    /// Whether the call is over its limit.
    #[getter]
    fn expired(&self) -> bool {
        self.expired.load(Ordering::Acquire)
    }

    /// The call as a `ToolCall`.
    fn call(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let call = py.get_type::<ToolCall>().call1((self.name(py), self.arguments(py)?, self.id(py)))?;
        Ok(call.unbind())
    }

    /// Put other arguments in place, cast and validated; the error result if they do not fit.
    fn rewrite<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match registry::prepare(&*self.run.registry()?, &self.run.text(self.index), arguments)? {
            Prepared::Ready { arguments, .. } => {
                let mut arguments = arguments.unbind();
                if let Some(held) = &mut *self.held.lock() {
                    std::mem::swap(&mut held.arguments, &mut arguments);
                }
                drop(arguments); // the old ones, outside the lock
                Ok(None)
            }
            Prepared::Refused { error, .. } => Ok(Some(outcome::plain_error(py, &error.to_string())?)),
        }
    }

    /// Start the native tool; a future of what the model is shown.
    fn start_native<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (core, arguments) =
            self.of_held(|held| (Arc::clone(&held.core), held.arguments.clone_ref(py)))?;
        let arguments = arguments.into_bound(py);
        registry::start_native(py, &core, &self.run.text(self.index), &arguments, self.limit, true, None)
    }

    /// The outcome that `result` would give, without ending the call.
    fn outcome_of(&self, py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<Py<ToolOutcome>> {
        self.outcome(py, outcome::returned(result)?)
    }

    /// The outcome that raising `exception` would give, without ending the call.
    fn outcome_of_error(&self, py: Python<'_>, exception: &Bound<'_, PyAny>) -> PyResult<Py<ToolOutcome>> {
        self.outcome(py, outcome::raised(py, &self.run.text(self.index), exception)?)
    }

    /// End the call with an outcome.
    fn end_with(&self, py: Python<'_>, outcome: Py<ToolOutcome>) {
        self.run.store(self.index, outcome, self.keeps_slot());
        self.let_go();
        self.run.attend(py);
    }

    /// The tool returned; a call that has its outcome only frees its slot.
    fn finish(&self, py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.expired() {
            return self.expire(py, false);
        }
        self.end(py, outcome::returned(result)?, self.keeps_slot());
        Ok(())
    }

    /// The tool raised.
    fn fail(&self, py: Python<'_>, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.end(py, outcome::raised(py, &self.run.text(self.index), exception)?, self.keeps_slot());
        Ok(())
    }

    /// The call was refused with this text before it began.
    fn refuse(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        let error = Error::Refused(text.to_owned());
        self.end(py, outcome::failed(py, &self.run.text(self.index), &error)?, false);
        Ok(())
    }

    /// The call was cancelled.
    fn cancelled(&self, py: Python<'_>) -> PyResult<()> {
        self.tell();
        let shown = outcome::failed(py, &self.run.text(self.index), &Error::Cancelled)?;
        self.end(py, shown, self.keeps_slot());
        Ok(())
    }

    /// The call's time is up: what comes now is too late. A plain function has its outcome at once.
    fn time_is_up(&self, py: Python<'_>) -> PyResult<()> {
        self.expired.store(true, Ordering::Release);
        self.tell();
        if self.keeps_slot() { self.expire(py, false) } else { Ok(()) }
    }

    /// End the call as timed out; with `stuck` it did not stop when cancelled and keeps its slot.
    fn expire(&self, py: Python<'_>, stuck: bool) -> PyResult<()> {
        let after = self.limit.unwrap_or_default();
        let mut text = format!("timed out after {}s", crate::tool::seconds(after));
        if stuck {
            text.push_str(" and did not stop when it was cancelled");
        }
        let shown = outcome::failed(py, &self.run.text(self.index), &Error::Timeout { after, text })?;
        self.end(py, shown, stuck || self.keeps_slot());
        Ok(())
    }

    /// What the call ran on has ended: free its slot. From any thread.
    #[pyo3(signature = (*_args))]
    fn release(&self, _args: &Bound<'_, PyTuple>) {
        self.run.release(self.index);
    }
}

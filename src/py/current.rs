//! The call that is under way, as the tool's own code sees it.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use pyo3::{intern, prelude::*, sync::PyOnceLock};

use super::{errors, run::Run};
use crate::{Error, Progress, executor::Limiter};

/// The call inside which the current code runs; from `current_call()`.
///
/// Usable from any thread.
#[pyclass(frozen, module = "nanobot_tools")]
pub(crate) struct CurrentCall {
    /// The provider's id of the call; `None` for a call made by `ToolRegistry.execute`.
    #[pyo3(get)]
    id: Option<Py<PyAny>>,
    /// The tool's name.
    #[pyo3(get)]
    name: Py<PyAny>,
    deadline: Option<Instant>,
    cancelled: AtomicBool,
    run: Weak<Run>,
    index: usize,
    lent: OnceLock<Arc<Limiter>>,
}

impl CurrentCall {
    pub(crate) fn of_run(
        id: Py<PyAny>,
        name: Py<PyAny>,
        deadline: Option<Instant>,
        run: &Arc<Run>,
        index: usize,
    ) -> Self {
        Self {
            id: Some(id),
            name,
            deadline,
            cancelled: AtomicBool::new(false),
            run: Arc::downgrade(run),
            index,
            lent: OnceLock::new(),
        }
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// The slot that this call lends to runs inside it, of the same executor.
    pub(crate) fn lend(&self, limiter: &Arc<Limiter>) -> Option<Arc<Limiter>> {
        let run = self.run.upgrade()?;
        run.holds_slot_of(limiter).then(|| Arc::clone(self.lent.get_or_init(Limiter::single)))
    }
}

#[pymethods]
impl CurrentCall {
    #[new]
    #[pyo3(signature = (name, id=None))]
    fn new(name: Py<PyAny>, id: Option<Py<PyAny>>) -> Self {
        Self {
            id,
            name,
            deadline: None,
            cancelled: AtomicBool::new(false),
            run: Weak::new(),
            index: 0,
            lent: OnceLock::new(),
        }
    }

    /// When the call must have ended, on the clock of `time.monotonic()`; `None` without a limit.
    #[getter]
    fn deadline(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        static CLOCK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let Some(remaining) = self.remaining() else { return Ok(None) };
        let now: f64 = CLOCK.import(py, "time", "monotonic")?.call0()?.extract()?;
        Ok(Some(now + remaining))
    }

    /// Seconds until the deadline, 0.0 once it has passed; `None` without a limit.
    fn remaining(&self) -> Option<f64> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    /// Whether the call was cancelled or is over its deadline, so that going on is of no use.
    #[getter]
    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
            || self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Raise `ToolCancelledError` if the call was cancelled or is over its deadline.
    fn raise_if_cancelled(&self) -> PyResult<()> {
        if self.cancelled() { Err(errors::to_py(Error::Cancelled)) } else { Ok(()) }
    }

    /// Report progress: work done so far, all the work if known, and a line for people.
    ///
    /// It becomes an event of `ToolExecutor.stream`; elsewhere it is dropped.
    #[pyo3(signature = (progress, total=None, message=None))]
    fn progress(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        if let Some(sink) = self.run.upgrade().and_then(|run| run.sink(self.index)) {
            sink(Progress { progress, total, message });
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<CurrentCall {}>", self.name.bind(py).repr()?))
    }
}

/// The context variable that holds the call.
pub(crate) fn variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let variable = VARIABLE.get_or_try_init(py, || -> PyResult<_> {
        let options = pyo3::types::PyDict::new(py);
        options.set_item(intern!(py, "default"), py.None())?;
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        Ok(class.call(("nanobot_tools_current_call",), Some(&options))?.unbind())
    })?;
    Ok(variable.bind(py))
}

/// The call inside which the current code runs, or `None` outside of calls.
#[pyfunction]
pub(crate) fn current_call(py: Python<'_>) -> PyResult<Option<Py<CurrentCall>>> {
    let current = variable(py)?.call_method0(intern!(py, "get"))?;
    match current.cast_into::<CurrentCall>() {
        Ok(call) => Ok(Some(call.unbind())),
        Err(other) => {
            let name = other.into_inner();
            if name.is_none() {
                Ok(None)
            } else {
                Ok(Some(Py::new(py, CurrentCall::new(name.unbind(), None))?))
            }
        }
    }
}

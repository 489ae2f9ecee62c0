//! The executor's native half: its limits, and what it plans.
//!
//! `nanobot_tools.executor.ToolExecutor` is made of it. A single run is in `run`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use pyo3::{
    exceptions::PyValueError,
    gc::{PyTraverseError, PyVisit},
    prelude::*,
    types::PyDict,
};

use super::{
    call,
    registry::{self, NativeRegistry},
    run::{Options, PyRun, Run},
};
use crate::executor::{Limit, Limiter, Limits, RepeatGuard, plan};

/// Native half of `ToolExecutor`.
#[pyclass(frozen, module = "nanobot_tools._native")]
pub(crate) struct NativeExecutor {
    registry: Py<NativeRegistry>,
    limiter: Arc<Limiter>,
    timeout: Option<Duration>,
    concurrent: bool,
    guard: Option<Arc<RepeatGuard>>,
}

/// A limit as Python gives it: a number for every name, or a mapping of names to numbers.
fn limit(given: Option<&Bound<'_, PyAny>>, what: &str) -> PyResult<Limit> {
    let Some(given) = given else { return Ok(Limit::default()) };
    let named: Option<HashMap<String, usize>> = match given.cast::<PyDict>() {
        Ok(dict) => Some(dict.extract()?),
        Err(_) => None,
    };
    let limit = match named {
        Some(named) => Limit { default: None, named },
        None => Limit { default: Some(given.extract()?), named: HashMap::new() },
    };
    if limit.default == Some(0) || limit.named.values().any(|&n| n == 0) {
        return Err(PyValueError::new_err(format!("{what} must be at least 1")));
    }
    Ok(limit)
}

/// Seconds as Python gives them.
pub(crate) fn duration(seconds: Option<f64>, what: &str) -> PyResult<Option<Duration>> {
    seconds
        .map(|seconds| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|_| PyValueError::new_err(format!("{what} must be a positive number of seconds")))
        })
        .transpose()
}

#[pymethods]
impl NativeExecutor {
    #[new]
    #[pyo3(signature = (registry, max_concurrency, timeout, concurrent, per_tool, per_server, repeat_limit))]
    fn new(
        registry: &Bound<'_, NativeRegistry>,
        max_concurrency: Option<usize>,
        timeout: Option<f64>,
        concurrent: bool,
        per_tool: Option<&Bound<'_, PyAny>>,
        per_server: Option<&Bound<'_, PyAny>>,
        repeat_limit: Option<u32>,
    ) -> PyResult<Self> {
        if max_concurrency == Some(0) {
            return Err(PyValueError::new_err("max_concurrency must be at least 1"));
        }
        if repeat_limit == Some(0) {
            return Err(PyValueError::new_err("repeat_limit must be at least 1"));
        }
        let limits = Limits {
            overall: max_concurrency,
            per_tool: limit(per_tool, "per_tool")?,
            per_server: limit(per_server, "per_server")?,
        };
        Ok(Self {
            registry: registry.clone().unbind(),
            limiter: Limiter::new(limits),
            timeout: duration(timeout, "timeout")?,
            concurrent,
            guard: repeat_limit.map(|limit| Arc::new(RepeatGuard::new(limit))),
        })
    }

    /// The batches in which `calls` would run.
    fn plan<'py>(
        &self,
        py: Python<'py>,
        calls: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Vec<Bound<'py, PyAny>>>> {
        let _ = py;
        let safe: Vec<bool> = calls
            .iter()
            .map(|call| {
                let Ok(parts) = call::read(call) else { return Ok(false) };
                let name = registry::name_text(&parts.name)?;
                Ok(self.registry.get().core().get(&name).is_some_and(|tool| tool.concurrency_safe()))
            })
            .collect::<PyResult<_>>()?;
        Ok(plan(&safe, self.concurrent).into_iter().map(|range| calls[range].to_vec()).collect())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.registry)
    }

    /// Forget the calls that the guard against repeats has counted.
    fn reset_repeats(&self) {
        if let Some(guard) = &self.guard {
            guard.reset();
        }
    }

    /// Slots that are taken now.
    #[getter]
    fn running(&self) -> usize {
        self.limiter.running()
    }

    /// Plan a run on the loop of this thread; nothing starts before `advance`.
    #[pyo3(signature = (calls, timeout, hooked, events))]
    fn begin<'py>(
        &self,
        py: Python<'py>,
        calls: Vec<Bound<'py, PyAny>>,
        timeout: Option<f64>,
        hooked: bool,
        events: bool,
    ) -> PyResult<PyRun> {
        let timeout = [duration(timeout, "timeout")?, self.timeout].into_iter().flatten().min();
        let options = Options { timeout, concurrent: self.concurrent, hooked, events };
        let registry = self.registry.get().core();
        let run = Run::plan(py, registry, &self.limiter, self.guard.as_ref(), &calls, options)?;
        Ok(PyRun::new(run))
    }
}

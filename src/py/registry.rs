//! The registry's native half; `nanobot_tools.registry.ToolRegistry` subclasses it.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use pyo3::{
    exceptions::{PyException, PyRuntimeError},
    gc::{PyTraverseError, PyVisit},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};

use super::{
    bridge::{self, Item},
    convert, meta, outcome,
    pytool::{PyDefinition, PyTool},
    validate::{self, PySchema},
};
use crate::{
    Arguments, CallContext, Completion, Definition, Latency, Registry, Snapshot, Stats, Tally, Tool,
};

/// A call that passed preparation, or why it did not.
pub(crate) enum Prepared<'py> {
    /// Tool and arguments, cast and valid.
    Ready { tool: Arc<dyn Tool>, arguments: Bound<'py, PyAny> },
    /// The text for the model, the tool if there is one, and the arguments as far as they got.
    Refused { tool: Option<Arc<dyn Tool>>, arguments: Bound<'py, PyAny>, error: crate::Error },
}

/// Our own view of a registered tool: everything in a Python registry was adopted.
pub(crate) fn py_tool(tool: &Arc<dyn Tool>) -> Option<&PyTool> {
    tool.as_any().downcast_ref()
}

/// Resolve, unwrap, cast and validate one call. Nothing that a tool's code raises gets out, except
/// what is no `Exception` (`KeyboardInterrupt` and the like).
pub(crate) fn prepare<'py>(
    registry: &Registry,
    name: &str,
    arguments: &Bound<'py, PyAny>,
) -> PyResult<Prepared<'py>> {
    let Some(tool) = registry.get(name) else {
        let error = registry.not_found(name);
        return Ok(Prepared::Refused { tool: None, arguments: arguments.clone(), error });
    };
    let checked = std::panic::catch_unwind(AssertUnwindSafe(|| check(name, &tool, arguments)));
    let text = match checked {
        Ok(Ok(Ok(ready))) => return Ok(Prepared::Ready { tool, arguments: ready }),
        Ok(Ok(Err((arguments, error)))) => {
            return Ok(Prepared::Refused { tool: Some(tool), arguments, error });
        }
        Ok(Err(raised)) if !raised.is_instance_of::<PyException>(arguments.py()) => return Err(raised),
        Ok(Err(raised)) => outcome::text_of(raised.value(arguments.py()))?,
        Err(panic) => format!("internal error: {}", crate::tool::panic_text(&*panic)),
    };
    let error = crate::Error::InvalidArguments {
        tool: name.to_owned(),
        text: format!("Error: Invalid parameters for tool '{name}': {text}"),
        failures: Vec::new(),
    };
    Ok(Prepared::Refused { tool: Some(tool), arguments: arguments.clone(), error })
}

/// What `prepare_call` gives to Python: tool, arguments and error.
type PreparedCall<'py> = (Option<Bound<'py, PyAny>>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

type Checked<'py> = Result<Bound<'py, PyAny>, (Bound<'py, PyAny>, crate::Error)>;

fn check<'py>(name: &str, tool: &Arc<dyn Tool>, arguments: &Bound<'py, PyAny>) -> PyResult<Checked<'py>> {
    let py = arguments.py();
    let Some(own) = py_tool(tool) else {
        let compiled = PySchema::compile(tool.spec().checked_schema());
        return Ok(checked(validate::prepare(&compiled, name, arguments)));
    };
    if own.context_aware {
        static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let context = CURRENT.import(py, "nanobot_tools.context", "current_request_context")?.call0()?;
        if !context.is_none() {
            own.object.bind(py).call_method1(intern!(py, "set_context"), (context,))?;
        }
    }
    let known = own.schema(py)?;
    if !own.own_cast && !own.own_validate {
        return Ok(checked(validate::prepare(&known.compiled, name, arguments)));
    }
    // The tool casts or validates in its own way: the same steps, with its methods in their place.
    let mut arguments = match validate::unwrap(&known.compiled, name, arguments) {
        (arguments, None) => arguments,
        (arguments, Some(error)) => return Ok(Err((arguments, error))),
    };
    let object = own.object.bind(py);
    arguments = if own.own_cast {
        object.call_method1(intern!(py, "cast_params"), (arguments,))?
    } else {
        validate::cast(&known.compiled, &arguments)
    };
    let messages: Vec<String> = if own.own_validate {
        let errors = object.call_method1(intern!(py, "validate_params"), (&arguments,))?;
        if errors.is_truthy()? { errors.extract()? } else { Vec::new() }
    } else {
        let error = known.compiled.finish_node(name, &arguments.as_borrowed());
        return Ok(checked((arguments, error)));
    };
    if messages.is_empty() {
        return Ok(Ok(arguments));
    }
    let text = format!("Error: Invalid parameters for tool '{name}': {}", messages.join("; "));
    let error = crate::Error::InvalidArguments { tool: name.to_owned(), text, failures: Vec::new() };
    Ok(Err((arguments, error)))
}

fn checked((arguments, error): (Bound<'_, PyAny>, Option<crate::Error>)) -> Checked<'_> {
    match error {
        None => Ok(arguments),
        Some(error) => Err((arguments, error)),
    }
}

/// Arguments of a Python call for a native tool: serialised here, on the caller's thread.
pub(crate) fn native_arguments(arguments: &Bound<'_, PyAny>) -> PyResult<Arguments> {
    let mut json = Vec::with_capacity(128);
    convert::write_json(arguments, &mut json)?;
    Ok(Arguments::Raw(json))
}

/// The definition as the dict that all callers share.
fn definition_dict(py: Python<'_>, definition: &Definition) -> PyResult<Py<PyDict>> {
    if let Some(foreign) = definition.as_foreign()
        && let Some(own) = foreign.as_any().downcast_ref::<PyDefinition>()
    {
        return Ok(own.dict.clone_ref(py));
    }
    if let Some(known) = definition.binding.get()
        && let Some(dict) = known.downcast_ref::<Py<PyDict>>()
    {
        return Ok(dict.clone_ref(py));
    }
    let text = definition.as_json().unwrap_or("{}");
    let dict = convert::loads(py, text)?.cast_into::<PyDict>()?.unbind();
    let _ = definition.binding.set(Box::new(dict.clone_ref(py)));
    Ok(dict)
}

/// The definitions of a registry at one generation.
#[pyclass(frozen, module = "nanobot_tools")]
pub(crate) struct RegistrySnapshot(Arc<Snapshot>);

#[pymethods]
impl RegistrySnapshot {
    /// The generation of the registry that was described.
    #[getter]
    fn generation(&self) -> u64 {
        self.0.generation
    }

    /// A new list of the definitions; the dicts are shared.
    #[getter]
    fn definitions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        list_of(py, &self.0)
    }

    /// The definitions as JSON, ready for a request body.
    #[getter]
    fn json<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.json())
    }

    /// SHA-256 of the JSON in hex.
    #[getter]
    fn fingerprint(&self) -> &str {
        self.0.fingerprint()
    }

    /// Name and reason of each tool that could not be described.
    #[getter]
    fn skipped(&self) -> Vec<(String, String)> {
        self.0.skipped.iter().map(|(name, error)| (name.clone(), error.to_string())).collect()
    }
}

fn list_of<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyList>> {
    let dicts: Vec<Py<PyDict>> =
        snapshot.definitions.iter().map(|d| definition_dict(py, d)).collect::<PyResult<_>>()?;
    PyList::new(py, dicts)
}

/// Ends a subscription.
#[pyclass(frozen, module = "nanobot_tools")]
pub(crate) struct Subscription {
    registry: Arc<Registry>,
    id: u64,
}

#[pymethods]
impl Subscription {
    /// Call the callback no more; later calls do nothing.
    fn close(&self) {
        self.registry.unsubscribe(self.id);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, PyTuple>) {
        self.close();
    }
}

/// Native half of `ToolRegistry`.
#[pyclass(frozen, subclass, module = "nanobot_tools._native")]
pub(crate) struct NativeRegistry {
    core: Arc<Registry>,
    list: Mutex<Option<(u64, Py<PyList>)>>,
}

impl NativeRegistry {
    pub(crate) fn core(&self) -> &Arc<Registry> {
        &self.core
    }
}

#[pymethods]
impl NativeRegistry {
    #[new]
    #[pyo3(signature = (*_args, **_options))]
    fn new(_args: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Self {
        Self { core: Arc::new(Registry::new()), list: Mutex::new(None) }
    }

    /// Tools often know the registry, as an agent's own tools do; such a circle can be collected as long
    /// as nothing native uses the tools.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if Arc::strong_count(&self.core) > 1 {
            return Ok(());
        }
        let mut seen = Ok(());
        self.core.for_each_unshared(|tool| {
            if seen.is_ok()
                && let Some(own) = tool.as_any().downcast_ref::<PyTool>()
            {
                seen = visit.call(&own.object);
            }
        });
        seen
    }

    fn __clear__(&self) {
        for name in self.core.names() {
            drop(self.core.unregister(&name));
        }
    }

    /// Register a tool under its name; a taken name is replaced.
    ///
    /// Raises `TypeError` when the tool has no name or one that is no string.
    fn register(&self, tool: &Bound<'_, PyAny>) -> PyResult<()> {
        let adopted = PyTool::adopt(tool)?;
        let old = self.core.register(Arc::new(adopted));
        drop(old);
        Ok(())
    }

    /// Remove a tool; an unknown name is no error.
    fn unregister(&self, name: &str) {
        drop(self.core.unregister(name));
    }

    /// Remove and add tools as one change with one notification.
    fn apply(&self, removed: Vec<String>, added: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let mut tools: Vec<Arc<dyn Tool>> = Vec::with_capacity(added.len());
        for tool in &added {
            tools.push(Arc::new(PyTool::adopt(tool)?));
        }
        self.core.apply(&removed, tools);
        Ok(())
    }

    /// The registered object of that name, or `None`.
    fn get<'py>(&self, py: Python<'py>, name: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let name = name.cast::<PyString>().ok()?;
        let tool = self.core.get(&name.to_string_lossy())?;
        py_tool(&tool).map(|own| own.object.bind(py).clone())
    }

    /// Whether a tool of that name is registered.
    fn has(&self, name: &Bound<'_, PyAny>) -> bool {
        name.cast::<PyString>().is_ok_and(|name| self.core.has(&name.to_string_lossy()))
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        self.has(name)
    }

    fn __len__(&self) -> usize {
        self.core.len()
    }

    /// The names in the order of registration.
    #[getter]
    fn tool_names(&self) -> Vec<String> {
        self.core.names()
    }

    /// A copy of the mapping from name to registered object, in the order of registration.
    #[getter]
    fn _tools<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tools = PyDict::new(py);
        for tool in self.core.tools() {
            if let Some(own) = py_tool(&tool) {
                tools.set_item(tool.spec().name.as_str(), own.object.bind(py))?;
            }
        }
        Ok(tools)
    }

    /// A number that grows with each change.
    #[getter]
    fn generation(&self) -> u64 {
        self.core.generation()
    }

    /// What the model sees: built-in tools by name, then those named `mcp_*` by name.
    ///
    /// A new list each time, whose dicts are shared. Tools that cannot be described are left out.
    fn get_definitions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let generation = self.core.generation();
        let known = {
            let list = self.list.lock();
            list.as_ref().filter(|(of, _)| *of == generation).map(|(_, list)| list.clone_ref(py))
        };
        let list = if let Some(list) = known {
            list.into_bound(py)
        } else {
            let snapshot = self.core.snapshot();
            let list = list_of(py, &snapshot)?;
            let old = self.list.lock().replace((snapshot.generation, list.clone().unbind()));
            drop(old);
            list
        };
        Ok(list.get_slice(0, list.len()))
    }

    /// The definitions as the bytes of a JSON array, ready for a request body; cached.
    fn definitions_json<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.core.snapshot().json())
    }

    /// SHA-256 of `definitions_json()` in hex: changes only when what the model sees changes.
    fn fingerprint(&self) -> String {
        self.core.snapshot().fingerprint().to_owned()
    }

    /// The definitions as they are now, as an object that does not change.
    fn snapshot(&self) -> RegistrySnapshot {
        RegistrySnapshot(self.core.snapshot())
    }

    /// Read a tool's description and schema again, or those of all tools.
    #[pyo3(signature = (name=None))]
    fn refresh(&self, name: Option<&str>) {
        for tool in self.core.tools() {
            if name.is_none_or(|name| tool.spec().name == name)
                && let Some(own) = py_tool(&tool)
            {
                own.forget();
            }
        }
        self.core.refresh(name);
    }

    /// Call `callback(generation)` on the running loop after changes, once for a burst of them.
    ///
    /// Raises `RuntimeError` when no event loop runs in this thread.
    fn subscribe(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<Subscription> {
        let (_, queue) = bridge::running(py)?;
        let queue = Arc::downgrade(&queue);
        let callback = Arc::new(callback);
        let pending = Arc::new(AtomicBool::new(false));
        let core = Arc::downgrade(&self.core);
        let notify = move |_generation| {
            // One call for the whole burst, with the generation as it is when the loop gets to it.
            let Some(queue) = queue.upgrade() else { return };
            if pending.swap(true, Ordering::AcqRel) {
                return;
            }
            let (callback, pending, core) = (Arc::clone(&callback), Arc::clone(&pending), core.clone());
            queue.push(Item::Call(Box::new(move |py| {
                pending.store(false, Ordering::Release);
                let Some(core) = core.upgrade() else { return };
                if let Err(error) = callback.call1(py, (core.generation(),)) {
                    error.write_unraisable(py, Some(callback.bind(py)));
                }
            })));
        };
        let id = self.core.subscribe(Arc::new(notify));
        Ok(Subscription { registry: Arc::clone(&self.core), id })
    }

    /// Resolve, unwrap, cast and validate one call: `(tool, arguments, error)`.
    ///
    /// `error` is `None`, or an error result for the model. Never raises for odd arguments or schemas.
    fn prepare_call<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
        params: &Bound<'py, PyAny>,
    ) -> PyResult<PreparedCall<'py>> {
        let object = |tool: &Arc<dyn Tool>| py_tool(tool).map(|own| own.object.bind(py).clone());
        match prepare(&self.core, &name_text(name)?, params)? {
            Prepared::Ready { tool, arguments } => Ok((object(&tool), arguments, None)),
            Prepared::Refused { tool, arguments, error } => {
                let text = outcome::plain_error(py, &error.to_string())?;
                Ok((tool.as_ref().and_then(object), arguments, Some(text)))
            }
        }
    }

    /// Call one tool from a thread without an event loop, and wait for its result.
    ///
    /// Native and MCP tools run as always; a Python tool runs on the loop that was running when it was
    /// registered, in which case that loop has to be alive in another thread. Returns what `execute` would
    /// return. `timeout` is in seconds; without one the tool's own limit holds.
    ///
    /// Raises `RuntimeError` when an event loop runs in this thread: waiting would block it.
    #[pyo3(signature = (name, params, timeout=None))]
    fn call_blocking<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
        params: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        if bridge::loop_is_running(py)? {
            return Err(PyRuntimeError::new_err(
                "call_blocking() would block the event loop of this thread; await execute() instead",
            ));
        }
        let timeout = super::executor::duration(timeout, "timeout")?;
        let name = name_text(name)?;
        let (tool, arguments) = match prepare(&self.core, &name, params)? {
            Prepared::Ready { tool, arguments } => (tool, arguments),
            Prepared::Refused { error, .. } => {
                self.core.count_refused(&name, error.code());
                return Ok(outcome::failed(py, &name, &error)?.result);
            }
        };
        let arguments = match native_arguments(&arguments) {
            Ok(arguments) => arguments,
            Err(error) => {
                self.core.count_refused(&name, "exception");
                return Ok(outcome::raised(py, &name, error.value(py).as_any())?.result);
            }
        };
        let limit = [timeout, tool.spec().timeout].into_iter().flatten().min();
        let context = CallContext { meta: meta::current(py), ..CallContext::within(limit) };
        let tally = self.core.count(&name);
        let result = py.detach(|| {
            let (send, receive) = std::sync::mpsc::sync_channel(1);
            let done = Completion::new(move |result| {
                tally.end_with(&result);
                // The receiver waits below, in any case.
                let _ = send.send(result);
            });
            let _running = tool.submit(arguments, context, done);
            receive.recv().unwrap_or(Err(crate::Error::Cancelled))
        });
        Ok(outcome::native(py, &name, result)?.result)
    }

    /// What came of calls: the statistics of each tool that was called, and how many calls named no tool.
    fn _stats<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, u64)> {
        let tools = PyDict::new(py);
        for (name, stats) in self.core.stats() {
            tools.set_item(name, stats_dict(py, &stats)?)?;
        }
        Ok((tools, self.core.unknown_calls()))
    }

    /// Begin a call: a future (native tool), `(tool, arguments, mode, call)` (Python tool), or the final
    /// error result. `call` has to be told how it ends.
    fn _start<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
        params: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let name = name_text(name)?;
        match prepare(&self.core, &name, params)? {
            Prepared::Refused { error, .. } => {
                self.core.count_refused(&name, error.code());
                Ok(outcome::failed(py, &name, &error)?.result.into_bound(py))
            }
            Prepared::Ready { tool, arguments } => match py_tool(&tool) {
                Some(own) if own.native.is_none() => {
                    let mode = own.mode as u8;
                    let tally = self.core.count(&name);
                    let call = CountedCall { name, tally: Mutex::new(Some(tally)) };
                    Ok((own.object.bind(py), arguments, mode, call).into_pyobject(py)?.into_any())
                }
                _ => start_native(py, &tool, &name, &arguments, None, true, Some(self.core.count(&name))),
            },
        }
    }
}

/// A name as text; what is no text is no tool's name.
pub(crate) fn name_text(name: &Bound<'_, PyAny>) -> PyResult<String> {
    match name.cast::<PyString>() {
        Ok(text) => Ok(text.to_string_lossy().into_owned()),
        Err(_) => outcome::text_of(name),
    }
}

/// Start a native tool; the future yields what the model is shown. `tally` counts the call.
pub(crate) fn start_native<'py>(
    py: Python<'py>,
    tool: &Arc<dyn Tool>,
    name: &str,
    arguments: &Bound<'py, PyAny>,
    limit: Option<Duration>,
    hinted: bool,
    tally: Option<Tally>,
) -> PyResult<Bound<'py, PyAny>> {
    let arguments = match native_arguments(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            if let Some(tally) = tally {
                tally.end(Some("exception"));
            }
            let shown = outcome::raised(py, name, error.value(py))?;
            let result = if hinted { shown.result } else { shown.without_hint(py)? };
            return Ok(result.into_bound(py));
        }
    };
    let (event_loop, queue) = bridge::running(py)?;
    let limit = [limit, tool.spec().timeout].into_iter().flatten().min();
    let context = CallContext { meta: meta::current(py), ..CallContext::within(limit) };
    bridge::future(&event_loop, &queue, name, hinted, |done| {
        let done = match tally {
            None => done,
            Some(tally) => Completion::new(move |result| {
                tally.end_with(&result);
                done.complete(result);
            }),
        };
        Arc::clone(tool).submit(arguments, context, done)
    })
}

/// A call of a Python tool that `ToolRegistry.execute` makes: counts it, and shows how it ended.
#[pyclass(frozen, module = "nanobot_tools._native")]
pub(crate) struct CountedCall {
    name: String,
    tally: Mutex<Option<Tally>>,
}

impl CountedCall {
    fn end(&self, kind: Option<&'static str>) {
        if let Some(tally) = self.tally.lock().take() {
            tally.end(kind);
        }
    }
}

#[pymethods]
impl CountedCall {
    /// The tool has ended well.
    fn succeeded(&self) {
        self.end(None);
    }

    /// The caller was cancelled, or the process is to end.
    fn cancelled(&self) {
        self.end(Some("cancelled"));
    }

    /// The tool returned; what the model is shown for it.
    fn returned(&self, result: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let shown = outcome::returned(result)?;
        self.end(shown.kind);
        Ok(shown.result)
    }

    /// The tool raised; what the model is shown for it.
    fn raised(&self, py: Python<'_>, exception: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let shown = outcome::raised(py, &self.name, exception)?;
        self.end(shown.kind);
        Ok(shown.result)
    }
}

/// Statistics as a dict of plain objects; times are in seconds.
pub(crate) fn stats_dict<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let Latency { count, sum, max, p50, p95 } = stats.latency;
    let latency = PyDict::new(py);
    latency.set_item("count", count)?;
    latency.set_item("sum", sum.as_secs_f64())?;
    for (name, value) in [("p50", p50), ("p95", p95), ("max", max)] {
        latency.set_item(name, (count > 0).then_some(value.as_secs_f64()))?;
    }
    let errors = PyDict::new(py);
    for (kind, count) in &stats.errors {
        errors.set_item(kind, count)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("calls", stats.calls)?;
    dict.set_item("errors", errors)?;
    dict.set_item("running", stats.running)?;
    dict.set_item("latency", latency)?;
    Ok(dict)
}

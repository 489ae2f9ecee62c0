//! Connections to MCP servers, as Python sees them.
//!
//! `nanobot_tools.mcp` wraps them. What a connection's futures bring, and what its server asks and tells,
//! arrives on the loop on which each was asked for (`bridge`, `host`).

mod host;

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyList},
};
use serde_json::{Map, Value, value::RawValue};

pub(crate) use self::host::Answer;
use self::host::PyHost;
use super::{
    bridge::{self, Item},
    convert, errors, meta,
    native::NativeTool,
    registry::{native_arguments, stats_dict},
};
use crate::{
    CallContext, Progress, ProgressSink, Tool,
    mcp::{Capability, Connection, ConnectionState, List, Server, ServerConfig, Shelf, server::Status},
};

/// One MCP server, kept connected; made by `open_server`.
#[pyclass(frozen, module = "nanobot_tools._native")]
pub(crate) struct NativeConnection(Arc<Server>);

impl NativeConnection {
    /// The connection that is, or the last that was.
    fn latest<T>(&self, read: impl FnOnce(&Connection) -> T) -> Option<T> {
        self.0.latest().map(|connection| read(&connection))
    }

    /// A future of the state, once `wait` is over: in `timeout` seconds, or the entry's `startupWait`.
    fn waited<'py, W: Future<Output = Status> + Send + 'static>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
        wait: impl FnOnce(Arc<Server>, Duration) -> W,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = super::executor::duration(timeout, "timeout")?;
        let limit = limit.unwrap_or_else(|| self.0.config().startup_wait);
        let waiting = wait(Arc::clone(&self.0), limit);
        bridge::spawn(py, async move { Ok(waiting.await.state.as_str()) }, |py, state: &'static str| {
            Ok(state.into_pyobject(py)?.into_any().unbind())
        })
    }
}

#[pymethods]
impl NativeConnection {
    /// The server's name in the configuration.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// `recipe`, `disabled`, `cached`, `connecting`, `ready`, `lost`, `needs-authorisation`,
    /// `reconnecting` or `closed`.
    #[getter]
    fn state(&self) -> &'static str {
        self.0.state().as_str()
    }

    /// The state, once the first attempt is over or the tools are known from the cache, but at the latest
    /// after `timeout` seconds (the entry's `startupWait` by default); a future.
    #[pyo3(signature = (timeout = None))]
    fn settled<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        self.waited(py, timeout, |server, limit| async move { server.settled(limit).await })
    }

    /// Start the next attempt now unless the server is there; the state once it is over, but at the latest
    /// after `timeout` seconds (the entry's `startupWait` by default); a future.
    #[pyo3(signature = (timeout = None))]
    fn retry<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        self.waited(py, timeout, |server, limit| async move { server.retry(limit).await })
    }

    /// Why the last attempt or connection failed, as an exception; `None` while it is well.
    #[getter]
    fn failure(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let failure = self.0.status().failure?;
        Some(errors::to_py(failure).into_value(py).into_any())
    }

    /// How the server is; a new dict each time.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (status, counts) = (self.0.status(), self.0.counts());
        let since = status.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let next = status.next_attempt.map(|at| at.saturating_duration_since(Instant::now()).as_secs_f64());
        let dict = PyDict::new(py);
        dict.set_item("state", status.state.as_str())?;
        dict.set_item("since", since)?;
        dict.set_item("failure", status.failure.map(|failure| failure.to_string()))?;
        dict.set_item("next_attempt", next)?;
        dict.set_item("attempts", status.attempts)?;
        dict.set_item("reconnects", status.reconnects)?;
        dict.set_item("cached", status.cached)?;
        dict.set_item("tools", self.0.offers())?;
        dict.set_item("protocol_version", self.protocol_version())?;
        dict.set_item("pid", self.pid())?;
        dict.set_item("calls", counts.calls)?;
        dict.set_item("bytes_sent", counts.bytes_sent)?;
        dict.set_item("bytes_received", counts.bytes_received)?;
        Ok(dict)
    }

    /// What came of requests to the server; a new dict each time.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats_dict(py, &self.0.stats())
    }

    /// How the server is reached: `stdio`, `sse` or `streamableHttp`.
    #[getter]
    fn transport(&self) -> &'static str {
        self.0.config().transport.as_str()
    }

    /// Take a changed entry without a restart; false if the server has to be opened anew.
    ///
    /// Raises `ConfigError` that names the entry and what is wrong with it.
    fn update(&self, config: &Bound<'_, PyAny>) -> PyResult<bool> {
        let value = convert::to_value(config)?;
        let config = ServerConfig::from_json(self.0.name(), &value).map_err(errors::to_py)?;
        Ok(self.0.update(config))
    }

    /// Start the next attempt now, or have the connection checked.
    fn reconnect(&self) {
        self.0.reconnect();
    }

    /// The process that runs, or `None` if there is none.
    #[getter]
    fn pid(&self) -> Option<u32> {
        let live = self.0.state() == ConnectionState::Ready;
        self.latest(Connection::pid).flatten().filter(|_| live)
    }

    /// The server's own instructions for the model, or `None`.
    #[getter]
    fn instructions(&self) -> Option<String> {
        self.0.instructions()
    }

    /// Name and version that the server gave of itself, or `None` before it was reached.
    #[getter]
    fn server_info(&self) -> Option<(String, String)> {
        self.0.server_info()
    }

    /// The protocol version that was agreed on, or `None` before the server was reached.
    #[getter]
    fn protocol_version(&self) -> Option<String> {
        self.0.protocol_version()
    }

    /// What the server says it can do; a new dict each time.
    #[getter]
    fn capabilities<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_python(py, &self.0.capabilities())
    }

    /// What was odd about the entry or the server without being fatal.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }

    /// The last lines that the server wrote to stderr.
    #[getter]
    fn stderr_tail(&self) -> String {
        self.latest(Connection::stderr_tail).unwrap_or_default()
    }

    /// The last 64 KiB that the server wrote to stderr.
    #[getter]
    fn stderr(&self) -> String {
        self.latest(Connection::stderr).unwrap_or_default()
    }

    /// Rename the tools whose names are taken; a line for each.
    fn claim_names(&self, taken: HashSet<String>) -> Vec<String> {
        let mut taken = taken;
        self.0.claim_names(&mut taken)
    }

    /// What the server offers to a model: `("tool" | "resource" | "prompt", raw name or address, tool)` each.
    #[getter]
    fn offers(&self) -> Vec<(&'static str, String, NativeTool)> {
        let (tools, extras) = (self.0.tools(), self.0.extras());
        tools
            .into_iter()
            .chain(extras)
            .map(|tool| {
                let kind = match tool.capability() {
                    Capability::Tool => "tool",
                    Capability::Resource => "resource",
                    Capability::Prompt => "prompt",
                };
                (kind, tool.raw_name().to_owned(), NativeTool::new(tool as Arc<dyn Tool>))
            })
            .collect()
    }

    /// Call a tool by its raw name; a future of the server's whole result as objects.
    ///
    /// `report(progress, total, message)` is called on the loop for each report of progress, before the
    /// future is done.
    #[pyo3(signature = (name, arguments, timeout, report))]
    fn call_tool<'py>(
        &self,
        py: Python<'py>,
        name: String,
        arguments: &Bound<'py, PyAny>,
        timeout: Option<f64>,
        report: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = native_arguments(arguments)?;
        let mut context = context(timeout)?;
        context.meta = meta::current(py);
        context.progress = report.map(|report| reporter(py, report)).transpose()?;
        let connection = Arc::clone(&self.0);
        bridge::spawn(py, async move { connection.call_tool(&name, arguments, context).await }, |py, raw| {
            objects(py, &raw)
        })
    }

    /// Make any request; a future of the result as objects.
    #[pyo3(signature = (method, params, timeout))]
    fn request<'py>(
        &self,
        py: Python<'py>,
        method: String,
        params: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let params = object(params)?;
        let context = CallContext { meta: meta::current(py), ..context(timeout)? };
        let connection = Arc::clone(&self.0);
        bridge::spawn(py, async move { connection.request(&method, params, context).await }, |py, raw| {
            objects(py, &raw)
        })
    }

    /// Send any notification.
    fn notify(&self, method: &str, params: &Bound<'_, PyAny>) -> PyResult<()> {
        let params = object(params)?;
        self.0.notify(method, Some(&params).filter(|params| !params.is_empty())).map_err(errors::to_py)
    }

    /// Read a whole list as the server sends it; a future of the items as objects.
    ///
    /// `kind` is `tools`, `resources`, `resource_templates` or `prompts`.
    fn read_list<'py>(&self, py: Python<'py>, kind: &str) -> PyResult<Bound<'py, PyAny>> {
        let list = match kind {
            "tools" => List::Tools,
            "resources" => List::Resources,
            "resource_templates" => List::Templates,
            "prompts" => List::Prompts,
            other => return Err(PyValueError::new_err(format!("there is no list of {other}"))),
        };
        let connection = Arc::clone(&self.0);
        bridge::spawn(py, async move { connection.list(list).await }, |py, items| {
            let list = PyList::empty(py);
            for item in &items {
                list.append(convert::to_python(py, item)?)?;
            }
            Ok(list.into_any().unbind())
        })
    }

    /// Hear of changes of a resource, or no more; a future.
    fn subscribe<'py>(&self, py: Python<'py>, uri: String, on: bool) -> PyResult<Bound<'py, PyAny>> {
        let connection = Arc::clone(&self.0);
        bridge::spawn(
            py,
            async move { if on { connection.subscribe(&uri).await } else { connection.unsubscribe(&uri).await } },
            none,
        )
    }

    /// Say which messages the server should log; a future.
    fn set_logging_level<'py>(&self, py: Python<'py>, level: String) -> PyResult<Bound<'py, PyAny>> {
        let connection = Arc::clone(&self.0);
        bridge::spawn(py, async move { connection.set_logging_level(&level).await }, none)
    }

    /// Close the connection and end the server; a future. Calls that run get up to `drain` seconds. Closing
    /// twice does nothing more.
    #[pyo3(signature = (drain = 0.0))]
    fn close<'py>(&self, py: Python<'py>, drain: f64) -> PyResult<Bound<'py, PyAny>> {
        let server = Arc::clone(&self.0);
        let drain = if drain > 0.0 { Duration::from_secs_f64(drain.min(86_400.0)) } else { Duration::ZERO };
        bridge::spawn(
            py,
            async move {
                server.close(drain).await;
                Ok(())
            },
            none,
        )
    }

    /// End the server at once, without waiting; for the end of the process.
    fn kill(&self) {
        self.0.kill();
    }
}

fn none(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

fn objects(py: Python<'_>, raw: &RawValue) -> PyResult<Py<PyAny>> {
    Ok(convert::loads(py, raw.get())?.unbind())
}

/// The parameters of a request.
fn object(params: &Bound<'_, PyAny>) -> PyResult<Map<String, Value>> {
    match convert::to_value(params)? {
        Value::Object(map) => Ok(map),
        _ => Err(PyTypeError::new_err("params must be an object")),
    }
}

fn context(timeout: Option<f64>) -> PyResult<CallContext> {
    Ok(CallContext::within(super::executor::duration(timeout, "timeout")?))
}

/// A sink that calls `report` on the running loop.
fn reporter(py: Python<'_>, report: Py<PyAny>) -> PyResult<ProgressSink> {
    let (_, queue) = bridge::running(py)?;
    // Weak, since a queue must not outlive its loop.
    let (queue, report) = (Arc::downgrade(&queue), Arc::new(report));
    Ok(Arc::new(move |Progress { progress, total, message }| {
        let Some(queue) = queue.upgrade() else { return };
        let report = Arc::clone(&report);
        queue.push(Item::Call(Box::new(move |py| {
            if let Err(error) = report.call1(py, (progress, total, message)) {
                PyErr::write_unraisable(error, py, Some(report.bind(py)));
            }
        })));
    }))
}

/// Read a server entry: whether it is disabled, and what is odd about it.
///
/// Raises `ConfigError` that names the entry and what is wrong with it.
#[pyfunction]
pub(crate) fn check_server(name: &str, config: &Bound<'_, PyAny>) -> PyResult<(bool, Vec<String>)> {
    let config = ServerConfig::from_json(name, &convert::to_value(config)?).map_err(errors::to_py)?;
    Ok((config.disabled, config.warnings.clone()))
}

/// In a forked process: let go of what the parent's servers depend on.
#[pyfunction]
pub(crate) fn forked() {
    crate::mcp::forked();
}

/// Where what servers offer is kept by default; `None` if there is no such place.
#[pyfunction]
pub(crate) fn default_shelf() -> Option<PathBuf> {
    Shelf::default_folder()
}

/// Keep a server connected from now on, in the background.
///
/// `host` is asked what the server asks, and told what happens, on the running loop; `offers` names what it
/// answers: `sampling`, `elicitation`, `roots`. `shelf` is the folder where what servers offer is kept.
/// Raises `ConfigError` that names the entry and what is wrong with it.
#[pyfunction]
#[pyo3(signature = (name, config, host, offers, shelf = None))]
pub(crate) fn open_server(
    py: Python<'_>,
    name: &str,
    config: &Bound<'_, PyAny>,
    host: Py<PyAny>,
    offers: Vec<String>,
    shelf: Option<PathBuf>,
) -> PyResult<NativeConnection> {
    let config = ServerConfig::from_json(name, &convert::to_value(config)?).map_err(errors::to_py)?;
    let (_, queue) = bridge::running(py)?;
    let host = Arc::new(PyHost::new(host, &queue, &offers));
    Ok(NativeConnection(Server::open(name, config, host, shelf.map(Shelf::new))))
}

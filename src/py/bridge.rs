//! How results reach an asyncio loop: one queue per loop, one wake-up per burst.
//!
//! Native threads push finished work here; the first item of a burst wakes the loop through a file
//! descriptor that it watches (on loops without `add_reader`, through `call_soon_threadsafe`), and the
//! loop's thread drains the queue and settles futures. Native threads never attach to Python on this
//! path. Decision and figures: docs/decisions/0005-two-worlds.md.
//!
//! A queue lives as long as its loop watches it. When the loop is closed the queue goes, and what is
//! still pushed is dropped.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock, Weak},
};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use pyo3::{intern, prelude::*, sync::PyOnceLock, types::PyDict};

use super::run::Run;
use crate::{
    Completion, Result, Running, ToolOutput,
    mcp::{self, Held},
};

/// Work for the loop's thread.
pub(crate) enum Item {
    /// A native call ended; its future waits for what the model is shown, or without the retry hint.
    Settle { future: Py<PyAny>, name: Arc<str>, result: Result<ToolOutput>, hinted: bool },
    /// A native call of a batch ended.
    Ended { run: Arc<Run>, index: usize, result: Result<ToolOutput> },
    /// A run may have something to do: a slot was freed, or a call reported progress.
    Touched { run: Arc<Run> },
    /// Anything else.
    Call(Box<dyn FnOnce(Python<'_>) + Send>),
}

/// What finished for one loop.
pub(crate) struct Queue {
    items: Mutex<Vec<Item>>,
    wake: Wake,
    /// What calls made in this turn of the loop have to send, but for the first one; `None` before it.
    turn: Mutex<Option<Held>>,
}

/// Ends a turn of the loop: what was held back leaves.
#[pyclass(frozen, module = "nanobot_tools._native")]
struct EndOfTurn(Weak<Queue>);

#[pymethods]
impl EndOfTurn {
    fn __call__(&self) {
        if let Some(queue) = self.0.upgrade() {
            let held = queue.turn.lock().take();
            drop(held);
        }
    }
}

enum Wake {
    #[cfg(unix)]
    Descriptor(descriptor::Bell),
    /// For loops that cannot watch descriptors: attaching is dearer, but works everywhere.
    Threadsafe { event_loop: Py<PyAny>, drain: OnceLock<Py<PyAny>> },
}

#[cfg(unix)]
mod descriptor {
    //! A bell that a loop can watch.

    use std::{
        io::{self, Read as _, Write as _},
        os::{
            fd::{AsRawFd as _, RawFd},
            unix::net::UnixStream,
        },
    };

    /// Two ends of a socket: native threads write to one, the loop watches the other.
    pub(super) struct Bell {
        ring: UnixStream,
        hear: UnixStream,
    }

    impl Bell {
        pub(super) fn new() -> io::Result<Self> {
            let (ring, hear) = UnixStream::pair()?;
            ring.set_nonblocking(true)?;
            hear.set_nonblocking(true)?;
            Ok(Self { ring, hear })
        }

        pub(super) fn fd(&self) -> RawFd {
            self.hear.as_raw_fd()
        }

        pub(super) fn ring(&self) {
            // A full socket has rung already; a closed one has nobody to hear it.
            let _ = (&self.ring).write(&[1]);
        }

        pub(super) fn silence(&self) {
            let mut sink = [0; 64];
            while matches!((&self.hear).read(&mut sink), Ok(n) if n == sink.len()) {}
        }
    }
}

impl Queue {
    fn new(wake: Wake) -> Self {
        Self { items: Mutex::default(), wake, turn: Mutex::default() }
    }

    /// Submit a call. The first one in a turn of the loop is sent at once; those that follow in the same
    /// turn, as in an `asyncio.gather`, leave together in the next.
    fn submit(
        self: &Arc<Self>,
        event_loop: &Bound<'_, PyAny>,
        submit: impl FnOnce() -> Running,
    ) -> PyResult<Running> {
        if let Some(held) = &mut *self.turn.lock() {
            return Ok(mcp::hold(held, submit));
        }
        let py = event_loop.py();
        let end = Bound::new(py, EndOfTurn(Arc::downgrade(self)))?;
        event_loop.call_method1(intern!(py, "call_soon"), (end,))?;
        *self.turn.lock() = Some(Held::default());
        Ok(submit())
    }

    /// Hand over an item; wakes the loop if it is the first of a burst.
    pub(crate) fn push(&self, item: Item) {
        let first = {
            let mut items = self.items.lock();
            items.push(item);
            items.len() == 1
        };
        if first {
            self.ring();
        }
    }

    fn ring(&self) {
        match &self.wake {
            #[cfg(unix)]
            Wake::Descriptor(bell) => bell.ring(),
            Wake::Threadsafe { event_loop, drain } => {
                // None while the interpreter shuts down: nobody waits any more.
                let _ = Python::try_attach(|py| {
                    if let Some(drain) = drain.get() {
                        // Raises when the loop is closed: nobody waits any more.
                        let _ = event_loop.call_method1(py, intern!(py, "call_soon_threadsafe"), (drain,));
                    }
                });
            }
        }
    }
}

/// Drains the queue of the loop that watches it.
#[pyclass(frozen, module = "nanobot_tools._native")]
pub(crate) struct LoopBridge {
    queue: Arc<Queue>,
}

#[pymethods]
impl LoopBridge {
    /// Settle everything that has finished; called by the loop.
    fn drain(&self, py: Python<'_>) {
        #[cfg(unix)]
        if let Wake::Descriptor(bell) = &self.queue.wake {
            bell.silence();
        }
        let items = std::mem::take(&mut *self.queue.items.lock());
        let mut runs: Vec<Arc<Run>> = Vec::new();
        for item in items {
            match item {
                Item::Settle { future, name, result, hinted } => {
                    settle(future.bind(py), &name, result, hinted);
                }
                Item::Ended { run, index, result } => {
                    run.native_ended(py, index, result);
                    touch(&mut runs, run);
                }
                Item::Touched { run } => touch(&mut runs, run),
                Item::Call(work) => work(py),
            }
        }
        for run in runs {
            run.attend(py);
        }
    }
}

fn touch(runs: &mut Vec<Arc<Run>>, run: Arc<Run>) {
    if runs.iter().all(|known| !Arc::ptr_eq(known, &run)) {
        runs.push(run);
    }
}

fn settle(future: &Bound<'_, PyAny>, name: &str, result: Result<ToolOutput>, hinted: bool) {
    let py = future.py();
    let settled = (|| {
        if future.call_method0(intern!(py, "done"))?.is_truthy()? {
            return Ok(()); // cancelled meanwhile; the late result is of no use
        }
        let shown = super::outcome::native(py, name, result)?;
        let result = if hinted { shown.result } else { shown.without_hint(py)? };
        future.call_method1(intern!(py, "set_result"), (result,)).map(drop)
    })();
    if let Err(error) = settled {
        PyErr::write_unraisable(error, py, Some(future));
    }
}

static QUEUES: Mutex<Option<HashMap<usize, Weak<Queue>>>> = Mutex::new(None);

/// Whether an event loop runs in this thread.
pub(crate) fn loop_is_running(py: Python<'_>) -> PyResult<bool> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Ok(!GET.import(py, "asyncio", "_get_running_loop")?.call0()?.is_none())
}

/// The queue of the loop that runs in this thread.
///
/// # Errors
/// `RuntimeError` when no loop runs in this thread.
pub(crate) fn running(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Arc<Queue>)> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let event_loop = GET.import(py, "asyncio", "get_running_loop")?.call0()?;
    let queue = of_loop(&event_loop)?;
    Ok((event_loop, queue))
}

/// The queue of a loop; made at first use, in the loop's thread.
pub(crate) fn of_loop(event_loop: &Bound<'_, PyAny>) -> PyResult<Arc<Queue>> {
    let key = event_loop.as_ptr() as usize;
    if let Some(queue) = QUEUES.lock().as_ref().and_then(|queues| queues.get(&key)?.upgrade()) {
        return Ok(queue);
    }
    let queue = watch(event_loop)?;
    let mut queues = QUEUES.lock();
    let queues = queues.get_or_insert_default();
    queues.retain(|_, queue| queue.strong_count() > 0);
    queues.insert(key, Arc::downgrade(&queue));
    Ok(queue)
}

fn watch(event_loop: &Bound<'_, PyAny>) -> PyResult<Arc<Queue>> {
    let py = event_loop.py();
    #[cfg(unix)]
    {
        let bell = descriptor::Bell::new()?;
        let fd = bell.fd();
        let queue = Arc::new(Queue::new(Wake::Descriptor(bell)));
        let drain = drain_of(py, &queue)?;
        // In an empty context: a handle keeps its context, and with it whatever the first caller's
        // context variables hold, for as long as the loop lives.
        let context = py.import("contextvars")?.getattr("Context")?.call0()?;
        let add_reader = event_loop.getattr(intern!(py, "add_reader"))?;
        match context.call_method1(intern!(py, "run"), (add_reader, fd, drain)) {
            Ok(_) => return Ok(queue),
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyNotImplementedError>(py) => {}
            Err(error) => return Err(error),
        }
    }
    let wake = Wake::Threadsafe { event_loop: event_loop.clone().unbind(), drain: OnceLock::new() };
    let queue = Arc::new(Queue::new(wake));
    let drain = drain_of(py, &queue)?;
    if let Wake::Threadsafe { drain: slot, .. } = &queue.wake {
        let _ = slot.set(drain.unbind());
    }
    Ok(queue)
}

fn drain_of<'py>(py: Python<'py>, queue: &Arc<Queue>) -> PyResult<Bound<'py, PyAny>> {
    Bound::new(py, LoopBridge { queue: Arc::clone(queue) })?.into_any().getattr(intern!(py, "drain"))
}

/// A native call that can be cancelled from Python.
#[pyclass(frozen, module = "nanobot_tools._native")]
pub(crate) struct Cancel(Mutex<Option<Running>>);

#[pymethods]
impl Cancel {
    /// Ask the call to stop; later calls do nothing.
    fn cancel(&self) {
        let running = self.0.lock().take();
        if let Some(running) = running {
            running.cancel();
        }
    }
}

impl Cancel {
    pub(crate) fn new(running: Running) -> Self {
        Self(Mutex::new(Some(running)))
    }
}

/// An asyncio future for work of the runtime; cancelling it drops the work.
///
/// `show` makes the Python object, on the loop's thread.
pub(crate) fn spawn<T: Send + 'static>(
    py: Python<'_>,
    work: impl Future<Output = Result<T>> + Send + 'static,
    show: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Bound<'_, PyAny>> {
    let (event_loop, queue) = running(py)?;
    let future = new_future(&event_loop)?;
    let waiting = future.clone().unbind();
    let task = crate::spawn(async move {
        // A panic fails this one call; without an answer its future would wait for ever.
        let result = AssertUnwindSafe(work).catch_unwind().await;
        let result =
            result.unwrap_or_else(|panic| Err(crate::Error::Panic(crate::tool::panic_text(&*panic))));
        queue.push(Item::Call(Box::new(move |py| {
            let future = waiting.bind(py);
            let settled = (|| {
                if future.call_method0(intern!(py, "done"))?.is_truthy()? {
                    return Ok(());
                }
                match result.map_err(super::errors::to_py).and_then(|value| show(py, value)) {
                    Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
                    Err(error) => future.call_method1(intern!(py, "set_exception"), (error.value(py),))?,
                };
                Ok(())
            })();
            if let Err(error) = settled {
                PyErr::write_unraisable(error, py, Some(future));
            }
        })));
    });
    let running = Running::new(move || task.abort());
    future.setattr(intern!(py, "_call"), Bound::new(py, Cancel::new(running))?)?;
    Ok(future)
}

fn new_future<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = event_loop.py();
    let options = PyDict::new(py);
    options.set_item(intern!(py, "loop"), event_loop)?;
    CLASS.import(py, "nanobot_tools._future", "CallFuture")?.call((), Some(&options))
}

/// An asyncio future for a native call that `submit` starts.
///
/// Cancelling the future cancels the call.
pub(crate) fn future<'py>(
    event_loop: &Bound<'py, PyAny>,
    queue: &Arc<Queue>,
    name: &str,
    hinted: bool,
    submit: impl FnOnce(Completion) -> Running,
) -> PyResult<Bound<'py, PyAny>> {
    let py = event_loop.py();
    let future = new_future(event_loop)?;
    let (waiting, queue, name) = (future.clone().unbind(), Arc::clone(queue), Arc::from(name));
    let done = {
        let queue = Arc::clone(&queue);
        Completion::new(move |result| queue.push(Item::Settle { future: waiting, name, result, hinted }))
    };
    let running = queue.submit(event_loop, || submit(done))?;
    future.setattr(intern!(py, "_call"), Bound::new(py, Cancel::new(running))?)?;
    Ok(future)
}

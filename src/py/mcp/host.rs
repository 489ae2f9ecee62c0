//! How a server's questions and news reach the Python callbacks, and how the answers get back.
//!
//! Both ride the queue of the loop on which the connection was made, so that no native thread attaches
//! to Python or waits for it. `nanobot_tools.mcp._host.Host` does the work there: it makes a task of
//! each question, and answers through an [`Answer`]. When the server takes its question back, or the
//! connection ends, the task is cancelled. When the loop is gone, questions are declined; what the registry
//! must know and what servers log goes by way of the helper thread (see `log`).

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pyo3::{call::PyCallArgs, intern, prelude::*};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{
    BoxFuture,
    mcp::{Delegate, Event, Offered, RequestError},
    py::{
        bridge::{Item, Queue},
        convert, log,
    },
};

const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;

type Answered = std::result::Result<Value, RequestError>;

/// The Python callbacks of one connection.
pub(super) struct PyHost {
    host: Arc<Py<PyAny>>,
    queue: Weak<Queue>,
    offered: Offered,
}

impl PyHost {
    /// A host that is asked on the loop of `queue`; `offers` names the requests that it answers.
    pub(super) fn new(host: Py<PyAny>, queue: &Arc<Queue>, offers: &[String]) -> Self {
        let offers = |what: &str| offers.iter().any(|offer| offer == what);
        Self {
            host: Arc::new(host),
            queue: Arc::downgrade(queue),
            offered: Offered {
                sampling: offers("sampling"),
                elicitation_form: offers("elicitation"),
                elicitation_url: offers("elicitation"),
                roots: offers("roots"),
            },
        }
    }

    /// Call a method of the host on its loop, or elsewhere if that is gone.
    fn tell<A>(&self, method: &'static str, arguments: A)
    where
        A: for<'py> PyCallArgs<'py> + Send + 'static,
    {
        let host = Arc::clone(&self.host);
        let work = move |py: Python<'_>| {
            if let Err(error) = host.call_method1(py, method, arguments) {
                PyErr::write_unraisable(error, py, Some(host.bind(py)));
            }
        };
        match self.queue.upgrade() {
            Some(queue) => queue.push(Item::Call(Box::new(work))),
            // The registry goes on being kept, whoever made the connection.
            None => log::call(work),
        }
    }
}

impl Delegate for PyHost {
    fn offered(&self) -> Offered {
        self.offered
    }

    fn request(&self, _server: &str, method: &str, params: Value) -> BoxFuture<Answered> {
        let (send, receive) = oneshot::channel();
        let question =
            Arc::new(Question { stage: Mutex::new(Stage::Asked), queue: Weak::clone(&self.queue) });
        // The sender moves into the item: with the queue goes the sender, and the waiter is told.
        if let Some(queue) = self.queue.upgrade() {
            let (host, question, method) = (Arc::clone(&self.host), Arc::clone(&question), method.to_owned());
            queue.push(Item::Call(Box::new(move |py| question.put(py, &host, &method, &params, send))));
        }
        Box::pin(async move {
            let withdraw = Withdraw(question);
            let answered = receive.await;
            *withdraw.0.stage.lock() = Stage::Over;
            answered.unwrap_or_else(|_| {
                Err(RequestError::new(
                    INTERNAL_ERROR,
                    "nobody is there to answer: the client's loop has ended",
                ))
            })
        })
    }

    fn event(&self, server: &str, event: Event) {
        match event {
            Event::Log { level, logger, data } => log::of_server(server, &level, logger, &data),
            Event::ResourceUpdated { uri } => self.tell("resource_updated", (uri,)),
            Event::ListChanged(kind) => self.tell("list_changed", (kind.as_str(),)),
            Event::Offering => self.tell("offering_changed", ()),
            Event::State { state, failure } => self.tell("state_changed", (state.as_str(), failure)),
            Event::ElicitationComplete { id } => self.tell("elicitation_complete", (id,)),
        }
    }
}

/// A question of the server's on its way through Python.
struct Question {
    stage: Mutex<Stage>,
    queue: Weak<Queue>,
}

enum Stage {
    /// Waits in the queue.
    Asked,
    /// A task of the loop works on it, which this function ends.
    Running(Py<PyAny>),
    /// Answered or withdrawn.
    Over,
}

impl Question {
    /// Let the host make a task of the question; on the loop's thread.
    fn put(
        &self,
        py: Python<'_>,
        host: &Py<PyAny>,
        method: &str,
        params: &Value,
        send: oneshot::Sender<Answered>,
    ) {
        if matches!(*self.stage.lock(), Stage::Over) {
            return;
        }
        let params = match convert::to_python(py, params) {
            Ok(params) => params,
            Err(error) => {
                let _ = send.send(Err(RequestError::new(INVALID_PARAMS, error.value(py).to_string())));
                return;
            }
        };
        let asked = Bound::new(py, Answer(Mutex::new(Some(send))))
            .and_then(|answer| host.call_method1(py, intern!(py, "serve"), (method, params, answer)));
        match asked {
            Ok(withdraw) => {
                let mut stage = self.stage.lock();
                if matches!(*stage, Stage::Asked) {
                    *stage = Stage::Running(withdraw);
                    return;
                }
                // Withdrawn meanwhile.
                drop(stage);
                call(py, &withdraw);
            }
            // The answer is dropped with the error, which tells the waiter.
            Err(error) => PyErr::write_unraisable(error, py, Some(host.bind(py))),
        }
    }
}

fn call(py: Python<'_>, withdraw: &Py<PyAny>) {
    if let Err(error) = withdraw.call0(py) {
        PyErr::write_unraisable(error, py, Some(withdraw.bind(py)));
    }
}

/// Takes a question back when nobody waits for its answer any more.
struct Withdraw(Arc<Question>);

impl Drop for Withdraw {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut *self.0.stage.lock(), Stage::Over);
        if let Stage::Running(withdraw) = stage
            && let Some(queue) = self.0.queue.upgrade()
        {
            queue.push(Item::Call(Box::new(move |py| call(py, &withdraw))));
        }
    }
}

/// Takes the answer to one question of a server's. The first answer counts; without any, the server is
/// told that nobody answered.
#[pyclass(frozen, module = "nanobot_tools._native")]
pub(crate) struct Answer(Mutex<Option<oneshot::Sender<Answered>>>);

impl Answer {
    fn send(&self, answered: Answered) {
        let send = self.0.lock().take();
        if let Some(send) = send {
            // Nobody may wait any more.
            let _ = send.send(answered);
        }
    }
}

#[pymethods]
impl Answer {
    /// Answer with a result.
    ///
    /// Raises `TypeError` or `ValueError` when it is no JSON object; the question is still open then.
    fn result(&self, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = convert::to_value(result)?;
        if !value.is_object() {
            return Err(pyo3::exceptions::PyTypeError::new_err("the result must be an object"));
        }
        self.send(Ok(value));
        Ok(())
    }

    /// Answer with a JSON-RPC error.
    fn error(&self, code: i32, message: String) {
        self.send(Err(RequestError::new(code, message)));
    }
}

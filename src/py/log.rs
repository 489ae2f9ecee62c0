//! Log records of the core, handed to Python's `logging`.
//!
//! Native threads never wait for Python to log: records go to one helper thread, which attaches and
//! calls `logging.getLogger("nanobot_tools.<part>")`. It is started by the first record. Records below
//! `INFO` are dropped at the source unless `NBTOOLS_LOG` names a lower level (`debug`, `trace`).
//!
//! What MCP servers log goes the same way, at all levels, to a logger for each server. So many of their
//! messages may wait; a server that logs faster than Python takes it loses the rest, and that is said.

use std::{
    fmt::Write as _,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
};

use parking_lot::Mutex;
use pyo3::{intern, prelude::*, types::PyDict};
use serde_json::Value;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

enum Message {
    Record {
        level: u8,
        logger: String,
        text: String,
    },
    /// What an MCP server logs.
    Server {
        server: String,
        level: String,
        logger: Option<String>,
        text: String,
    },
    /// What is to be done in Python although no loop is there for it.
    Call(Box<dyn FnOnce(Python<'_>) + Send>),
    /// Answered when everything before it was logged.
    Flush(Sender<()>),
}

/// Do something in Python on the helper thread; for what must happen although its loop is gone.
pub(super) fn call(work: impl FnOnce(Python<'_>) + Send + 'static) {
    send(Message::Call(Box::new(work)));
}

static SENDER: Mutex<Option<(u32, Sender<Message>)>> = Mutex::new(None);

fn send(message: Message) {
    let pid = std::process::id();
    let mut slot = SENDER.lock();
    // After a fork the parent's thread does not exist.
    if slot.as_ref().is_none_or(|(owner, _)| *owner != pid) {
        let (sender, receiver) = channel();
        let started =
            std::thread::Builder::new().name("nanobot-tools-log".into()).spawn(move || deliver(&receiver));
        if started.is_err() {
            return; // no thread to be had: losing log records is the lesser evil
        }
        *slot = Some((pid, sender));
    }
    if let Some((_, sender)) = &*slot {
        let _ = sender.send(message);
    }
}

fn deliver(records: &Receiver<Message>) {
    while let Ok(message) = records.recv() {
        match message {
            Message::Flush(done) => {
                let _ = done.send(());
            }
            Message::Call(work) => {
                let _ = Python::try_attach(work);
            }
            Message::Server { server, level, logger, text } => {
                WAITING.fetch_sub(1, Ordering::Relaxed);
                let dropped = DROPPED.swap(0, Ordering::Relaxed);
                let _ = Python::try_attach(|py| -> PyResult<()> {
                    let target = py
                        .import("logging")?
                        .call_method1("getLogger", (format!("nanobot_tools.mcp.server.{server}"),))?;
                    if dropped > 0 {
                        let text = format!("{dropped} messages of MCP servers came too fast and are lost");
                        target.call_method1("log", (30, "%s", text))?;
                    }
                    let extra = PyDict::new(py);
                    extra.set_item("mcp_server", server)?;
                    extra.set_item("mcp_logger", logger)?;
                    extra.set_item("mcp_level", &level)?;
                    let options = PyDict::new(py);
                    options.set_item("extra", extra)?;
                    target.call_method(intern!(py, "log"), (severity(&level), "%s", text), Some(&options))?;
                    Ok(())
                });
            }
            Message::Record { level, logger, text } => {
                // None while the interpreter shuts down.
                let _ = Python::try_attach(|py| -> PyResult<()> {
                    let logger = py.import("logging")?.call_method1("getLogger", (logger,))?;
                    logger.call_method1("log", (level, "%s", text))?;
                    Ok(())
                });
            }
        }
    }
}

/// How many messages of servers wait for Python, and how many were dropped since the last one it took.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicUsize = AtomicUsize::new(0);
const MAX_WAITING: usize = 10_000;

/// What an MCP server logs, for `logging.getLogger("nanobot_tools.mcp.server.<server>")`.
pub(crate) fn of_server(server: &str, level: &str, logger: Option<String>, data: &Value) {
    if WAITING.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING {
        WAITING.fetch_sub(1, Ordering::Relaxed);
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
    send(Message::Server { server: server.to_owned(), level: level.to_owned(), logger, text });
}

/// The level of Python's `logging` for one of the protocol's, which are those of RFC 5424.
fn severity(level: &str) -> u8 {
    match level {
        "debug" => 10,
        "warning" => 30,
        "error" => 40,
        "critical" | "alert" | "emergency" => 50,
        // `info` and `notice`, and what is not known.
        _ => 20,
    }
}

/// Wait until the records so far were handed to `logging`; at most two seconds.
#[pyfunction]
pub(crate) fn flush_logs(py: Python<'_>) {
    py.detach(|| {
        if SENDER.lock().is_none() {
            return;
        }
        let (done, wait) = channel();
        send(Message::Flush(done));
        let _ = wait.recv_timeout(std::time::Duration::from_secs(2));
    });
}

struct ToLogging {
    max: Level,
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Subscriber for ToLogging {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.max && metadata.target().starts_with("nanobot_tools")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            Level::DEBUG => 10,
            Level::TRACE => 5,
        };
        let logger = event.metadata().target().replace("::", ".");
        send(Message::Record { level, logger, text: text.0 });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Send the core's records to Python from now on.
pub(crate) fn install() {
    let max = match std::env::var("NBTOOLS_LOG").as_deref() {
        Ok("trace") => Level::TRACE,
        Ok("debug") => Level::DEBUG,
        _ => Level::INFO,
    };
    // Fails when a Rust program around us has its own subscriber, which then stands.
    let _ = tracing::subscriber::set_global_default(ToLogging { max });
}

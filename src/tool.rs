//! The one seam of the runtime: the object-safe trait [`Tool`].
//!
//! Python tools, MCP tools, Rust tools and test closures implement it; the registry and the
//! executor cannot tell them apart. Arguments travel as an opaque [`Arguments`], so that Python
//! objects on their way to a Python tool are never copied into JSON.

use std::{
    any::Any,
    borrow::Cow,
    fmt,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use serde_json::{Map, Value, value::RawValue};

use crate::{
    cancel::Running,
    error::{Error, Result},
    registry::Definition,
    runtime,
};

/// A boxed future that owns what it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// What is constant about a tool.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    /// Name that the model uses: `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments as the model sees it; a plain object schema.
    pub parameters: Value,
    /// The schema that calls are cast and validated against, where it differs from `parameters`
    /// (a provider profile changes what the model sees, never what is accepted).
    pub original: Option<Value>,
    /// Whether a call has no side effect.
    pub read_only: bool,
    /// Whether a call must run alone.
    pub exclusive: bool,
    /// The MCP server that the tool belongs to; limits per server go by it.
    pub server: Option<Arc<str>>,
    /// The tool's own time limit for one call.
    pub timeout: Option<Duration>,
}

impl ToolSpec {
    /// A spec with the defaults: not read-only, not exclusive, no server, no time limit.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters,
            original: None,
            read_only: false,
            exclusive: false,
            server: None,
            timeout: None,
        }
    }

    /// Mark the tool as free of side effects.
    #[must_use]
    pub const fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Whether calls may run beside other concurrency-safe calls: read-only and not exclusive.
    #[must_use]
    pub const fn concurrency_safe(&self) -> bool {
        self.read_only && !self.exclusive
    }

    /// The schema that calls are checked against.
    #[must_use]
    pub fn checked_schema(&self) -> &Value {
        self.original.as_ref().unwrap_or(&self.parameters)
    }
}

/// A value held in another language's objects.
pub trait Foreign: Send + Sync {
    /// Append the value as JSON to `out`.
    ///
    /// # Errors
    /// When something in it has no JSON form.
    fn write_json(&self, out: &mut Vec<u8>) -> Result<()>;
    /// For the language that made them.
    fn as_any(&self) -> &dyn Any;
}

/// The arguments of one call.
pub enum Arguments {
    /// A JSON object.
    Json(Map<String, Value>),
    /// A JSON object that is serialised already.
    Raw(Vec<u8>),
    /// A handle on another language's mapping, converted on demand.
    Foreign(Box<dyn Foreign>),
}

impl Arguments {
    /// Append the arguments as a JSON object to `out`.
    ///
    /// # Errors
    /// [`Error::InvalidArguments`] when a foreign object has no JSON form.
    pub fn write_json(&self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Json(map) => serde_json::to_writer(out, map).map_err(|e| Error::Protocol(e.to_string())),
            Self::Raw(bytes) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            Self::Foreign(foreign) => foreign.write_json(out),
        }
    }

    /// The arguments as a JSON object, converted if need be.
    ///
    /// # Errors
    /// As [`write_json`](Self::write_json).
    pub fn to_json(&self) -> Result<Cow<'_, Map<String, Value>>> {
        match self {
            Self::Json(map) => Ok(Cow::Borrowed(map)),
            Self::Raw(bytes) => parse(bytes),
            Self::Foreign(foreign) => {
                let mut bytes = Vec::with_capacity(128);
                foreign.write_json(&mut bytes)?;
                parse(&bytes)
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Result<Cow<'static, Map<String, Value>>> {
    serde_json::from_slice(bytes).map(Cow::Owned).map_err(|e| Error::Protocol(e.to_string()))
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(map) => f.debug_tuple("Json").field(map).finish(),
            Self::Raw(bytes) => f.debug_tuple("Raw").field(&bytes.len()).finish(),
            Self::Foreign(_) => f.write_str("Foreign(..)"),
        }
    }
}

impl From<Map<String, Value>> for Arguments {
    fn from(map: Map<String, Value>) -> Self {
        Self::Json(map)
    }
}

/// A call as a model asks for it.
#[derive(Debug)]
pub struct ToolCall {
    /// The provider's id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, not yet cast or validated.
    pub arguments: Arguments,
}

/// A result held in another language's objects.
pub type ForeignPayload = Box<dyn Any + Send + Sync>;

/// What a tool returned.
pub enum Payload {
    /// Text for the model.
    Text(String),
    /// An object of another language, passed through untouched.
    Foreign(ForeignPayload),
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.debug_tuple("Text").field(text).finish(),
            Self::Foreign(_) => f.write_str("Foreign(..)"),
        }
    }
}

/// The result of a call that reached its tool.
#[derive(Debug)]
pub struct ToolOutput {
    /// What the model is shown.
    pub payload: Payload,
    /// Whether the tool reported a failure.
    pub is_error: bool,
    /// MCP `structuredContent`, as the server sent it.
    pub structured: Option<Box<RawValue>>,
}

impl ToolOutput {
    /// A success with this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { payload: Payload::Text(text.into()), is_error: false, structured: None }
    }

    /// A failure that the tool reports with this text.
    pub fn error(text: impl Into<String>) -> Self {
        Self { payload: Payload::Text(text.into()), is_error: true, structured: None }
    }

    /// The text, when the payload is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.payload {
            Payload::Text(text) => Some(text),
            Payload::Foreign(_) => None,
        }
    }
}

/// Progress that a running call reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Work done so far, in units of the tool's choice.
    pub progress: f64,
    /// All the work, if known.
    pub total: Option<f64>,
    /// A line for people.
    pub message: Option<String>,
}

/// Receives the progress of one call; called from any thread.
pub type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// What surrounds one call.
#[derive(Clone, Default)]
pub struct CallContext {
    /// When the call must have ended.
    pub deadline: Option<Instant>,
    /// The time limit that the deadline came from, for the text of a call that outlives it.
    pub limit: Option<Duration>,
    /// Where progress goes; without it nobody asks for progress.
    pub progress: Option<ProgressSink>,
    /// What an MCP server is told in `_meta`.
    pub meta: Option<Map<String, Value>>,
}

impl CallContext {
    /// A context whose deadline is `limit` from now.
    #[must_use]
    pub fn within(limit: Option<Duration>) -> Self {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        Self { deadline, limit, progress: None, meta: None }
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("deadline", &self.deadline)
            .field("limit", &self.limit)
            .field("progress", &self.progress.is_some())
            .field("meta", &self.meta)
            .finish()
    }
}

/// Takes the result of one submitted call, once, on any thread.
pub struct Completion(Option<Box<dyn FnOnce(Result<ToolOutput>) + Send>>);

impl Completion {
    /// A completion that calls `done`.
    pub fn new(done: impl FnOnce(Result<ToolOutput>) + Send + 'static) -> Self {
        Self(Some(Box::new(done)))
    }

    /// Deliver the result.
    pub fn complete(mut self, result: Result<ToolOutput>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl Drop for Completion {
    /// A call that waits always ends: a completion that is lost fails its call.
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Error::Panic("the call was dropped without a result".into())));
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completion").field(&self.0.is_some()).finish()
    }
}

/// Something that a model can call.
pub trait Tool: Any + Send + Sync {
    /// The constant part: name, description, schema, flags.
    fn spec(&self) -> Arc<ToolSpec>;

    /// Run the tool with arguments that were cast and validated.
    ///
    /// Dropping the future cancels the call. The deadline in `context` is kept by the caller
    /// unless the tool overrides [`submit`](Self::submit).
    fn call(self: Arc<Self>, arguments: Arguments, context: CallContext) -> BoxFuture<Result<ToolOutput>>;

    /// Start the tool and deliver its result to `done`, from any thread.
    ///
    /// The default runs [`call`](Self::call) on the runtime, turns a panic into that call's
    /// error and keeps the deadline. A tool that can do so cheaper (MCP: the calling thread writes
    /// the request and the reader completes it) overrides it.
    fn submit(self: Arc<Self>, arguments: Arguments, context: CallContext, done: Completion) -> Running {
        submit_call(self, arguments, context, done)
    }

    /// What the model sees, as the registry lists it.
    ///
    /// Read once when [`is_constant`](Self::is_constant), otherwise at each rebuild of the list.
    ///
    /// # Errors
    /// When user code fails to describe the tool; the tool is then left out of the list.
    fn definition(&self) -> Result<Arc<Definition>> {
        Ok(Arc::new(Definition::of(&self.spec())))
    }

    /// Whether calls may run beside other concurrency-safe calls.
    fn concurrency_safe(&self) -> bool {
        self.spec().concurrency_safe()
    }

    /// Whether [`definition`](Self::definition) always gives the same.
    fn is_constant(&self) -> bool {
        true
    }

    /// For code that knows a concrete kind of tool.
    fn as_any(&self) -> &dyn Any;
}

/// What [`Tool::submit`] does by default.
pub(crate) fn submit_call<T: Tool + ?Sized>(
    tool: Arc<T>,
    arguments: Arguments,
    context: CallContext,
    done: Completion,
) -> Running {
    let deadline = context.deadline;
    let limit = context.limit.or_else(|| deadline.map(|d| d.saturating_duration_since(Instant::now())));
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    runtime::spawn(async move {
        // The future is built inside, so that a panic in `call` itself is caught as well.
        let work = AssertUnwindSafe(async move { tool.call(arguments, context).await }).catch_unwind();
        let expired = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        let result = tokio::select! {
            biased;
            result = work => result.unwrap_or_else(|panic| Err(Error::Panic(panic_text(&*panic)))),
            () = stopped.cancelled() => Err(Error::Cancelled),
            () = expired => Err(timed_out(limit.unwrap_or_default())),
        };
        done.complete(result);
    });
    Running::new(move || stop.cancel())
}

/// The error of a call that outlived its limit.
pub(crate) fn timed_out(after: Duration) -> Error {
    Error::Timeout { after, text: format!("timed out after {}s", seconds(after)) }
}

/// A duration in seconds as Python's `%g` shows it: `30`, `0.5`.
pub(crate) fn seconds(duration: Duration) -> String {
    let rounded = (duration.as_secs_f64() * 1e3).round() / 1e3;
    format!("{rounded}")
}

/// The message of a caught panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_owned())
}

type Handler = dyn Fn(Map<String, Value>, CallContext) -> BoxFuture<Result<ToolOutput>> + Send + Sync;

/// A tool made of a spec and an async function; for Rust programs and tests.
pub struct FunctionTool {
    spec: Arc<ToolSpec>,
    handler: Box<Handler>,
}

impl FunctionTool {
    /// A tool that runs `handler` with the arguments as a JSON object.
    pub fn new<F, Fut>(spec: ToolSpec, handler: F) -> Self
    where
        F: Fn(Map<String, Value>, CallContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ToolOutput>> + Send + 'static,
    {
        Self { spec: Arc::new(spec), handler: Box::new(move |a, c| Box::pin(handler(a, c))) }
    }
}

impl fmt::Debug for FunctionTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTool").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl Tool for FunctionTool {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    fn call(self: Arc<Self>, arguments: Arguments, context: CallContext) -> BoxFuture<Result<ToolOutput>> {
        Box::pin(async move {
            let arguments = arguments.to_json()?.into_owned();
            (self.handler)(arguments, context).await
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

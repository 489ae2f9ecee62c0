//! A Python object as a [`Tool`].
//!
//! Any object with `name`, `description`, `parameters` and `execute` is a tool; `to_schema` alone will
//! do for being listed. What a class overrides (`cast_params`, `validate_params`, `to_schema`,
//! `concurrency_safe`) is honoured by calling it; only where the base class's own method stands does
//! the native path run instead. An object that carries a native tool (attribute `_native_tool`, as
//! `grep` and the MCP wrappers do) runs that one.

use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use pyo3::{
    exceptions::{PyRuntimeError, PyTypeError},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyString},
};
use serde_json::Value;

use super::{
    convert,
    native::NativeTool,
    outcome,
    validate::{self, PySchema},
};
use crate::{
    Arguments, BoxFuture, CallContext, Completion, Definition, Error, Foreign, Payload, Result, Running,
    Tool, ToolOutput, ToolSpec,
};

/// How a Python tool's `execute` is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `async def`: awaited on the loop.
    Coroutine = 0,
    /// Plain `def`: run in a thread; an awaitable that it returns is awaited on the loop.
    Thread = 1,
    /// Always called on the loop: nanobot's own classes expect that.
    Loop = 2,
}

/// A compiled schema and the object that it was made from.
pub(crate) struct Known {
    source: Py<PyAny>,
    pub(crate) compiled: PySchema,
}

/// A schema that never changes, for definitions: those need it long before any call does.
struct Constant {
    schema: Py<PyAny>,
    json: OnceLock<Vec<u8>>,
}

/// A registered Python object. See the module's text.
#[expect(clippy::struct_excessive_bools, reason = "what a class overrides, one flag for each method")]
pub(crate) struct PyTool {
    pub(crate) object: Py<PyAny>,
    pub(crate) native: Option<Arc<dyn Tool>>,
    pub(crate) mode: Mode,
    /// Whether the class casts, validates or describes itself in its own way.
    pub(crate) own_cast: bool,
    pub(crate) own_validate: bool,
    own_schema: bool,
    pub(crate) context_aware: bool,
    /// Whether `parameters` never changes, so that it is read once.
    is_constant: bool,
    constant: Mutex<Option<Arc<Constant>>>,
    known: Mutex<Option<Arc<Known>>>,
    /// The definition as it was last, if only its description can change.
    described: Mutex<Option<Arc<Definition>>>,
    spec: Arc<ToolSpec>,
    /// The loop that ran at registration, for calls from Rust.
    home: Option<pyo3_async_runtimes::TaskLocals>,
}

/// Whether `class.method` is the base class's own, of ours or of nanobot's.
fn inherits(class: &Bound<'_, PyAny>, method: &Bound<'_, PyString>, qualname: &str) -> PyResult<bool> {
    let py = class.py();
    let Some(function) = class.getattr_opt(method)? else { return Ok(true) };
    let attribute = |name| -> PyResult<Option<String>> {
        Ok(function.getattr_opt(name)?.and_then(|value: Bound<'_, PyAny>| value.extract().ok()))
    };
    let module = attribute(intern!(py, "__module__"))?;
    let own = attribute(intern!(py, "__qualname__"))?;
    Ok(matches!(module.as_deref(), Some("nanobot_tools.base" | "nanobot.agent.tools.base"))
        && own.as_deref() == Some(qualname))
}

impl PyTool {
    /// Look at an object once and say how it is called.
    ///
    /// # Errors
    /// `TypeError` when the object's name is not text; whatever reading the name raises.
    pub(crate) fn adopt(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        static MODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = object.py();
        let name = object.getattr(intern!(py, "name"))?;
        let name: String = name.extract().map_err(|_| {
            PyTypeError::new_err(format!(
                "a tool's name must be a string, got {}",
                name.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string())
            ))
        })?;
        let native = native_of(object)?;
        let class = object.get_type().into_any();
        // Our base class knows what of it was overridden; of nanobot's the steps are looked at here.
        let own_steps = match class.getattr_opt(intern!(py, "_casts_its_own_way"))? {
            Some(ask) => ask.call1((object,))?.is_truthy()?,
            None => {
                !(inherits(&class, intern!(py, "_cast_value"), "Tool._cast_value")?
                    && inherits(&class, intern!(py, "_cast_object"), "Tool._cast_object")?
                    && plain_type_map(&class)?)
            }
        };
        let mode = match MODE.import(py, "nanobot_tools._dispatch", "mode")?.call1((object,))?.extract()? {
            0u8 => Mode::Coroutine,
            2 => Mode::Loop,
            _ => Mode::Thread,
        };
        let flag = |attribute| -> PyResult<bool> {
            Ok(object
                .getattr_opt(attribute)?
                .is_some_and(|value: Bound<'_, PyAny>| value.is_truthy().unwrap_or(false)))
        };
        let mut spec = match &native {
            Some(tool) => (*tool.spec()).clone(),
            None => ToolSpec::new(name.clone(), String::new(), Value::Null),
        };
        spec.name = name;
        if native.is_none() {
            spec.read_only = flag(intern!(py, "read_only")).unwrap_or(false);
            spec.exclusive = flag(intern!(py, "exclusive")).unwrap_or(false);
            spec.timeout = object
                .getattr_opt(intern!(py, "timeout"))?
                .and_then(|value| value.extract::<f64>().ok())
                .and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok());
            spec.server = object
                .getattr_opt(intern!(py, "_server_name"))?
                .and_then(|value| value.extract::<String>().ok())
                .map(Into::into);
        }
        Ok(Self {
            native,
            mode,
            own_cast: own_steps || !inherits(&class, intern!(py, "cast_params"), "Tool.cast_params")?,
            own_validate: !inherits(&class, intern!(py, "validate_params"), "Tool.validate_params")?,
            own_schema: !inherits(&class, intern!(py, "to_schema"), "Tool.to_schema")?,
            context_aware: object.hasattr(intern!(py, "set_context"))?,
            is_constant: constant_parameters(&class)?,
            constant: Mutex::new(None),
            known: Mutex::new(None),
            described: Mutex::new(None),
            spec: Arc::new(spec),
            home: pyo3_async_runtimes::TaskLocals::with_running_loop(py).ok(),
            object: object.clone().unbind(),
        })
    }

    /// The compiled schema of the arguments, made anew only when `parameters` changed.
    pub(crate) fn schema(&self, py: Python<'_>) -> PyResult<Arc<Known>> {
        let known = self.known.lock().clone();
        if let Some(known) = &known
            && (self.is_constant || self.native.is_some())
        {
            return Ok(Arc::clone(known));
        }
        if let Some(native) = &self.native {
            let schema = native.spec().checked_schema().clone();
            let compiled = PySchema::compile(&schema);
            let warning = compiled.warning().map(str::to_owned);
            return Ok(self.remember(&py.None().into_bound(py), compiled, warning));
        }
        if self.is_constant {
            let schema = self.constant(py)?.schema.clone_ref(py).into_bound(py);
            let (compiled, warning) = validate::compile(&schema);
            return Ok(self.remember(&schema, compiled, warning));
        }
        let object = self.object.bind(py);
        // A wrapper may show the model another schema than calls are checked against. Asked of the
        // class: a mock has any attribute.
        let checked = intern!(py, "_checked_schema");
        let attribute = if object.get_type().hasattr(checked)? { checked } else { intern!(py, "parameters") };
        let source = match object.getattr_opt(attribute)? {
            Some(source) => source,
            None => PyDict::new(py).into_any(),
        };
        if let Some(known) = known
            && (source.is(known.source.bind(py)) || source.eq(known.source.bind(py)).unwrap_or(false))
        {
            return Ok(known);
        }
        // No parameters at all are those of a tool that takes none in particular.
        let (compiled, warning) = validate::compile(&source);
        // A copy: an object that is changed in place must not equal what was compiled.
        let source = py.import("copy")?.call_method1("deepcopy", (&source,)).unwrap_or(source);
        Ok(self.remember(&source, compiled, warning))
    }

    /// The schema of a class that has it from `tool_parameters`.
    fn constant(&self, py: Python<'_>) -> PyResult<Arc<Constant>> {
        if let Some(known) = self.constant.lock().clone() {
            return Ok(known);
        }
        let object = self.object.bind(py);
        // Our decorator leaves the schema itself on the class; nanobot's getter copies it.
        let schema = match object.get_type().getattr_opt(intern!(py, "_constant_parameters"))? {
            Some(schema) => schema,
            None => object.getattr(intern!(py, "parameters"))?,
        };
        let constant = Arc::new(Constant { schema: schema.unbind(), json: OnceLock::new() });
        let old = self.constant.lock().replace(Arc::clone(&constant));
        drop(old);
        Ok(constant)
    }

    /// Read `parameters` again at the next call.
    pub(crate) fn forget(&self) {
        let known = (self.known.lock().take(), self.described.lock().take(), self.constant.lock().take());
        drop(known);
    }

    fn remember(&self, source: &Bound<'_, PyAny>, compiled: PySchema, warning: Option<String>) -> Arc<Known> {
        if let Some(warning) = warning {
            tracing::warn!(tool = self.spec.name, warning, "schema not usable as it is");
        }
        let known = Arc::new(Known { source: source.clone().unbind(), compiled });
        // The old one is dropped outside the lock: it holds Python objects.
        let old = self.known.lock().replace(Arc::clone(&known));
        drop(old);
        known
    }

    fn describe(&self, py: Python<'_>) -> PyResult<Arc<Definition>> {
        let object = self.object.bind(py);
        let own = self.own_schema || (!self.is_constant && object.hasattr(intern!(py, "to_schema"))?);
        if own {
            let schema = object.call_method0(intern!(py, "to_schema"))?;
            let schema = schema
                .cast_into::<PyDict>()
                .map_err(|_| PyTypeError::new_err("to_schema() must return a dict"))?;
            let name = schema_name(&schema)?;
            let body = PyDefinition { dict: schema.unbind(), parts: None };
            return Ok(Arc::new(Definition::foreign(name, Box::new(body))));
        }
        // The registered name: a call under any other would find nothing.
        let name = PyString::new(py, &self.spec.name);
        let description = object.getattr(intern!(py, "description"))?;
        // With a constant schema only the description can have changed.
        let described = self.described.lock().clone();
        if let Some(definition) = described
            && let Some(body) =
                definition.as_foreign().and_then(|body| body.as_any().downcast_ref::<PyDefinition>())
            && let Some(parts) = &body.parts
            && (description.is(&parts.description) || description.eq(&parts.description).unwrap_or(false))
        {
            return Ok(definition);
        }
        let (parameters, json) = if self.is_constant {
            let constant = self.constant(py)?;
            (constant.schema.bind(py).clone(), Some(constant))
        } else {
            (object.getattr(intern!(py, "parameters"))?, None)
        };
        let function = PyDict::new(py);
        function.set_item(intern!(py, "name"), &name)?;
        function.set_item(intern!(py, "description"), &description)?;
        function.set_item(intern!(py, "parameters"), parameters)?;
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "type"), intern!(py, "function"))?;
        dict.set_item(intern!(py, "function"), function)?;
        let lasting = json.is_some();
        let parts = json.map(|constant| Parts {
            name: name.clone().into_any().unbind(),
            description: description.unbind(),
            constant,
        });
        let body = PyDefinition { dict: dict.unbind(), parts };
        let definition = Arc::new(Definition::foreign(self.spec.name.clone(), Box::new(body)));
        if lasting {
            let old = self.described.lock().replace(Arc::clone(&definition));
            drop(old);
        }
        Ok(definition)
    }
}

fn native_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<dyn Tool>>> {
    let py = object.py();
    if let Ok(tool) = object.cast::<NativeTool>() {
        return Ok(Some(Arc::clone(tool.get().tool())));
    }
    // A subclass that overrides `execute` is run as it says.
    let execute = object.get_type().getattr_opt(intern!(py, "execute"))?;
    let marked = match execute {
        Some(execute) => execute.getattr_opt(intern!(py, "_runs_native_tool"))?.is_some(),
        None => false,
    };
    if !marked {
        return Ok(None);
    }
    Ok(object
        .getattr_opt(intern!(py, "_native_tool"))?
        .and_then(|tool| tool.cast::<NativeTool>().ok().map(|tool| Arc::clone(tool.get().tool()))))
}

/// Whether the class got its schema from `tool_parameters`, of ours or of nanobot's.
fn constant_parameters(class: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = class.py();
    let Some(descriptor) = class.getattr_opt(intern!(py, "parameters"))? else { return Ok(false) };
    let Some(getter) = descriptor.getattr_opt(intern!(py, "fget"))? else { return Ok(false) };
    let qualname: Option<String> =
        getter.getattr_opt(intern!(py, "__qualname__"))?.and_then(|q| q.extract().ok());
    let module: Option<String> =
        getter.getattr_opt(intern!(py, "__module__"))?.and_then(|q| q.extract().ok());
    Ok(qualname.as_deref() == Some("tool_parameters.<locals>.decorator.<locals>.parameters")
        && matches!(module.as_deref(), Some("nanobot_tools.base" | "nanobot.agent.tools.base")))
}

/// Whether the class casts by the usual table of types.
fn plain_type_map(class: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = class.py();
    let Some(map) = class.getattr_opt(intern!(py, "_TYPE_MAP"))? else { return Ok(true) };
    let base = py.import("nanobot_tools.base")?.getattr("_JSON_TYPE_MAP")?;
    Ok(map.is(&base) || map.eq(&base)?)
}

fn schema_name(schema: &Bound<'_, PyDict>) -> PyResult<String> {
    let py = schema.py();
    let name_in = |dict: &Bound<'_, PyDict>| -> PyResult<Option<String>> {
        Ok(dict.get_item(intern!(py, "name"))?.and_then(|name| name.extract().ok()))
    };
    if let Some(function) = schema.get_item(intern!(py, "function"))?
        && let Ok(function) = function.cast::<PyDict>()
        && let Some(name) = name_in(function)?
    {
        return Ok(name);
    }
    Ok(name_in(schema)?.unwrap_or_default())
}

/// A definition as the dict that Python gets.
pub(crate) struct PyDefinition {
    pub(crate) dict: Py<PyDict>,
    parts: Option<Parts>,
}

/// A constant schema is serialised once; only name and description are written anew.
struct Parts {
    name: Py<PyAny>,
    description: Py<PyAny>,
    constant: Arc<Constant>,
}

impl Foreign for PyDefinition {
    fn write_json(&self, out: &mut Vec<u8>) -> Result<()> {
        Python::attach(|py| {
            let Some(parts) = &self.parts else {
                return convert::write_json(self.dict.bind(py).as_any(), out);
            };
            out.extend_from_slice(br#"{"type":"function","function":{"name":"#);
            convert::write_json(parts.name.bind(py), out)?;
            out.extend_from_slice(br#","description":"#);
            convert::write_json(parts.description.bind(py), out)?;
            out.extend_from_slice(br#","parameters":"#);
            if let Some(json) = parts.constant.json.get() {
                out.extend_from_slice(json);
            } else {
                let mut json = Vec::with_capacity(512);
                convert::write_json(parts.constant.schema.bind(py), &mut json)?;
                out.extend_from_slice(parts.constant.json.get_or_init(|| json));
            }
            out.extend_from_slice(b"}}");
            Ok(())
        })
        .map_err(|error| Error::Tool(error.to_string()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Tool for PyTool {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    /// Await the tool on the loop that was running when it was registered.
    fn call(self: Arc<Self>, arguments: Arguments, context: CallContext) -> BoxFuture<Result<ToolOutput>> {
        if let Some(native) = &self.native {
            return Arc::clone(native).call(arguments, context);
        }
        Box::pin(async move {
            let coroutine = Python::attach(|py| -> PyResult<_> {
                let arguments = arguments.to_json().map_err(super::errors::to_py)?;
                let arguments = convert::to_python(py, &Value::Object(arguments.into_owned()))?;
                let run = py.import("nanobot_tools._dispatch")?.getattr("run_tool")?;
                let coroutine = run.call1((self.object.bind(py), arguments, self.mode as u8))?;
                let Some(home) = &self.home else {
                    return Err(PyRuntimeError::new_err("the tool was registered outside an event loop"));
                };
                pyo3_async_runtimes::into_future_with_locals(home, coroutine)
            });
            let outcome = match coroutine {
                Ok(future) => future.await,
                Err(error) => Err(error),
            };
            Python::attach(|py| match outcome {
                Ok(object) => {
                    let is_error = outcome::is_error_result(object.bind(py)).unwrap_or(false);
                    let payload = Payload::Foreign(Box::new(object));
                    Ok(ToolOutput { payload, is_error, structured: None })
                }
                Err(error) => Err(Error::Tool(error.value(py).to_string())),
            })
        })
    }

    fn submit(self: Arc<Self>, arguments: Arguments, context: CallContext, done: Completion) -> Running {
        match &self.native {
            Some(native) => Arc::clone(native).submit(arguments, context, done),
            None => crate::tool::submit_call(self, arguments, context, done),
        }
    }

    fn definition(&self) -> Result<Arc<Definition>> {
        if let Some(native) = &self.native {
            return native.definition();
        }
        Python::attach(|py| self.describe(py).map_err(|error| Error::Tool(error.to_string())))
    }

    fn is_constant(&self) -> bool {
        self.native.is_some()
    }

    fn concurrency_safe(&self) -> bool {
        if self.native.is_some() {
            return self.spec.concurrency_safe();
        }
        Python::attach(|py| {
            self.object
                .bind(py)
                .getattr_opt(intern!(py, "concurrency_safe"))
                .and_then(|flag| flag.map_or(Ok(false), |flag| flag.is_truthy()))
                // A property that raises promises nothing.
                .unwrap_or(false)
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

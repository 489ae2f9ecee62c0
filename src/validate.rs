//! Casting and validating arguments, written once for every representation of JSON.
//!
//! A [`CompiledSchema`] is made once per tool and never fails: a schema that is odd is repaired as
//! far as possible, one that is beyond repair lets calls pass, and [`warning`](CompiledSchema::warning)
//! says so. [`prepare`](CompiledSchema::prepare_node) is the whole way of a call's arguments: unwrap,
//! cast, drop optional nulls, validate. Values are read in place and copied only where a cast
//! changes them. Nothing here panics, fetches, or recurses deeper than [`MAX_DEPTH`], whatever is sent.
//!
//! The texts are the reference's for what it checks; see `docs/decisions/0002-argument-differences.md`.

mod cast;
mod explain;
mod plan;
mod rebuild;
mod render;
mod repair;

use std::{
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
};

use jsonschema::{
    Validator,
    json::{Node as _, Object as _, SerdeJson},
};
use serde_json::{Map, Value};

pub use self::rebuild::{Edit, Edits, Kind, Name, Rebuild, Unreadable};
#[cfg(feature = "python")]
pub(crate) use self::render::python_float;
pub(crate) use self::render::quote;
use self::{cast::Caster, plan::Plans};
use crate::error::Error;

/// Arguments may nest this deep: as deep as JSON parsers commonly go.
pub const MAX_DEPTH: usize = 128;
/// A text names this many failures at most.
const MAX_LISTED: usize = 50;
/// How many faulty keywords the validator may point out one after the other.
const MAX_REPAIRS: usize = 16;

/// One way in which arguments do not fit their schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// JSON Pointer to the offending value; `""` is the arguments as a whole.
    pub pointer: String,
    /// The JSON Schema keyword that failed.
    pub keyword: String,
    /// The text shown to the model.
    pub message: String,
}

/// The arguments of one call after preparing.
#[derive(Debug)]
pub struct Prepared<O> {
    /// The arguments as cast; `None` when they are as they were.
    pub arguments: Option<O>,
    /// Why the call cannot be made.
    pub error: Option<Error>,
}

/// A schema made ready for casting and validating.
pub struct CompiledSchema<R: Rebuild> {
    schema: Value,
    /// Absent when the schema cannot be compiled: then everything is valid.
    validator: Option<Validator<R>>,
    plans: Plans<R>,
    warning: Option<String>,
    required: Vec<String>,
    /// Whether `arguments` is a parameter of the tool's own.
    owns_arguments: bool,
    arguments_key: R::PreparedKey,
    /// Whether the schema admits objects at all.
    takes_object: bool,
}

impl<R: Rebuild> std::fmt::Debug for CompiledSchema<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledSchema").field("warning", &self.warning).finish_non_exhaustive()
    }
}

impl<R: Rebuild> CompiledSchema<R> {
    /// Make a schema ready; it is repaired where it has to be.
    pub fn compile(schema: &Value) -> Self {
        let repair::Repaired { mut schema, mut notes } = repair::repair(schema);
        let validator = build(&mut schema, &mut notes);
        let mut warning = (!notes.is_empty()).then(|| {
            render::clip(format!("these parts of the schema are ignored: {}", notes.join(", ")), 2_000)
        });
        if let Err(why) = &validator {
            warning = Some(render::clip(
                format!("the schema cannot be compiled, arguments pass unvalidated: {why}"),
                2_000,
            ));
        }
        let takes_object = match schema.get("type") {
            Some(Value::String(name)) => name == "object",
            Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
            _ => true,
        };
        if !takes_object && warning.is_none() {
            warning = Some("the schema is not for objects, arguments pass unvalidated".to_owned());
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let required = required.filter_map(|name| name.as_str().map(str::to_owned)).collect();
        let owns_arguments = schema.pointer("/properties/arguments").is_some();
        Self {
            plans: Plans::of(&schema),
            schema,
            validator: validator.ok(),
            warning,
            required,
            owns_arguments,
            arguments_key: R::prepare_key("arguments"),
            takes_object,
        }
    }

    /// What is wrong with the schema itself, for the log.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// The schema as it is checked, after repairs.
    pub const fn schema(&self) -> &Value {
        &self.schema
    }

    /// The value with the schema's casts applied; `None` when nothing changes.
    pub fn cast(&self, value: &R::Node<'_>) -> Option<R::Owned> {
        self.casting(value, false)
    }

    fn casting(&self, value: &R::Node<'_>, drop_nulls: bool) -> Option<R::Owned> {
        Caster::new(&self.plans, drop_nulls).cast(value)
    }

    /// Whether the schema is for objects, as that of a tool must be.
    pub const fn takes_object(&self) -> bool {
        self.takes_object
    }

    /// All failures of a value; empty when it is valid. `path` is put before the names in texts.
    pub fn validate(&self, value: &R::Node<'_>, path: &str) -> Vec<Failure> {
        if R::exceeds_depth(value, MAX_DEPTH) {
            return vec![too_deep(path)];
        }
        self.check(value, path)
    }

    /// As [`validate`](Self::validate), for a value known to be shallow enough.
    fn check(&self, value: &R::Node<'_>, path: &str) -> Vec<Failure> {
        let Some(validator) = &self.validator else { return Vec::new() };
        // A defect of the validator must cost no more than its verdict.
        let verdict = catch_unwind(AssertUnwindSafe(|| {
            if let Some(failures) = self.judge(validator, value, path) {
                return Ok(failures);
            }
            let readable = R::readable(value)?;
            let failures = self.judge(validator, &R::view(&readable, value), path);
            Ok(failures.unwrap_or_else(|| vec![failure("", "parameters cannot be read")]))
        }));
        match verdict {
            Ok(Ok(failures)) => failures,
            Ok(Err(Unreadable { pointer, message })) => {
                let label = label(path, &pointer);
                vec![Failure { pointer, keyword: "type".to_owned(), message: format!("{label} {message}") }]
            }
            Err(panic) => {
                tracing::error!(panic = crate::tool::panic_text(&*panic), "the validator panicked");
                vec![failure("", "parameters could not be validated")]
            }
        }
    }

    /// The failures; `None` when the value holds something that the validator cannot read.
    fn judge(&self, validator: &Validator<R>, value: &R::Node<'_>, path: &str) -> Option<Vec<Failure>> {
        if R::is_valid(validator, value)? {
            return Some(Vec::new());
        }
        if !Caster::<R>::new(&self.plans, false).is_bounded(value) {
            return Some(vec![failure("", "parameters do not fit the schema, in too many ways to tell")]);
        }
        let failures = explain::explain::<R>(&self.schema, value, path, &R::errors(validator, value)?);
        Some(if failures.is_empty() {
            vec![failure("", "parameters do not fit the schema")]
        } else {
            failures
        })
    }

    /// Make a call's arguments ready for the tool: unwrap, cast, drop optional nulls, validate.
    pub fn prepare_node(&self, tool: &str, value: &R::Node<'_>) -> Prepared<R::Owned> {
        let (arguments, malformed) = self.unwrapped(value);
        match arguments {
            None => self.prepare_unwrapped(tool, value, malformed),
            Some(owned) => {
                let prepared = self.prepare_unwrapped(tool, &R::view(&owned, value), malformed);
                Prepared { arguments: prepared.arguments.or(Some(owned)), error: prepared.error }
            }
        }
    }

    /// The first step of [`prepare_node`](Self::prepare_node) alone, for tools that cast or validate in
    /// their own way: what is given back is an object of bounded depth, unless there is an error.
    pub fn unwrap_node(&self, tool: &str, value: &R::Node<'_>) -> Prepared<R::Owned> {
        let (arguments, malformed) = self.unwrapped(value);
        let check = |value: &R::Node<'_>| {
            if R::kind(value) != Kind::Object {
                return Some(self.no_object(tool, &R::type_name(value), malformed));
            }
            if R::exceeds_depth(value, MAX_DEPTH) { invalid(tool, vec![too_deep("")]) } else { None }
        };
        let error = match &arguments {
            Some(owned) => check(&R::view(owned, value)),
            None => check(value),
        };
        Prepared { arguments, error }
    }

    /// The last step alone: validate arguments, with the error that a call gets.
    pub fn finish_node(&self, tool: &str, value: &R::Node<'_>) -> Option<Error> {
        invalid(tool, self.validate(value, ""))
    }

    fn prepare_unwrapped(
        &self,
        tool: &str,
        value: &R::Node<'_>,
        malformed: Option<String>,
    ) -> Prepared<R::Owned> {
        if R::kind(value) != Kind::Object {
            let error = Some(self.no_object(tool, &R::type_name(value), malformed));
            return Prepared { arguments: None, error };
        }
        if R::exceeds_depth(value, MAX_DEPTH) {
            return Prepared { arguments: None, error: invalid(tool, vec![too_deep("")]) };
        }
        if !self.takes_object {
            // No arguments could ever be valid; the reference raises, which no schema may do here.
            return Prepared { arguments: None, error: None };
        }
        match self.casting(value, true) {
            None => Prepared { arguments: None, error: invalid(tool, self.check(value, "")) },
            Some(cast) => {
                // JSON text that was decoded may have brought any depth.
                let failures = self.validate(&R::view(&cast, value), "");
                Prepared { arguments: Some(cast), error: invalid(tool, failures) }
            }
        }
    }

    /// Nothing means no arguments, JSON text is decoded, and so is what alone stands under `arguments`.
    /// Besides: why a text that looks like JSON is none.
    fn unwrapped(&self, value: &R::Node<'_>) -> (Option<R::Owned>, Option<String>) {
        match R::kind(value) {
            Kind::Object => self.inner_of_object(value),
            _ => match decoded::<R>(value, true) {
                Ok(None) => (None, None),
                Ok(Some(owned)) => {
                    let (inner, malformed) = self.inner_of_object(&R::view(&owned, value));
                    (inner.or(Some(owned)), malformed)
                }
                Err(why) => (None, Some(why)),
            },
        }
    }

    fn inner_of_object(&self, value: &R::Node<'_>) -> (Option<R::Owned>, Option<String>) {
        if self.owns_arguments || R::kind(value) != Kind::Object {
            return (None, None);
        }
        let Some(object) = value.as_object().filter(|object| object.len() == 1) else { return (None, None) };
        let Some(arguments) = object.get(&self.arguments_key) else { return (None, None) };
        match decoded::<R>(&arguments, true) {
            Ok(decoded) => (decoded.or_else(|| Some(R::own(&arguments))), None),
            Err(why) => (Some(R::own(&arguments)), Some(why)),
        }
    }

    fn no_object(&self, tool: &str, type_name: &str, malformed: Option<String>) -> Error {
        let mut text = format!(
            "Error: Tool '{tool}' parameters must be a JSON object, got {type_name}. Use named parameters like \
             tool_name(param1=\"value1\", param2=\"value2\") matching the tool schema."
        );
        if let Some(why) = malformed {
            let _ = write!(text, " The arguments are not valid JSON: {}.", render::clip(why, 200));
        }
        if !self.required.is_empty() {
            let _ = write!(text, " Required parameters: {}.", render::clip(self.required.join(", "), 1_000));
        }
        Error::InvalidArguments { tool: tool.to_owned(), text, failures: Vec::new() }
    }
}

impl CompiledSchema<SerdeJson> {
    /// The arguments ready for the tool.
    ///
    /// # Errors
    /// [`Error::InvalidArguments`] when they do not fit the schema.
    pub fn prepare(&self, tool: &str, arguments: Value) -> Result<Map<String, Value>, Error> {
        let Prepared { arguments: changed, error } = self.prepare_node(tool, &&arguments);
        match (error, changed.unwrap_or(arguments)) {
            (Some(error), _) => Err(error),
            (None, Value::Object(members)) => Ok(members),
            (None, other) => Err(self.no_object(tool, &SerdeJson::type_name(&&other), None)),
        }
    }
}

/// The reference's rule for a value that should be an object: null and blank text are `{}`, JSON text
/// is what it says. `Ok(None)` leaves it as it is.
fn decoded<R: Rebuild>(value: &R::Node<'_>, again: bool) -> Result<Option<R::Owned>, String> {
    match R::kind(value) {
        Kind::Null => Ok(Some(R::empty_object(value))),
        Kind::String => {
            let Some(text) = R::text(value) else { return Ok(None) };
            let text = text.trim();
            match text.as_bytes().first() {
                None => Ok(Some(R::empty_object(value))),
                Some(b'{' | b'[') => match R::decode(value, text) {
                    Ok(owned) => Ok(Some(owned)),
                    Err(why) if text.ends_with(['}', ']']) => Err(why),
                    Err(why) => Err(format!("{why}; the text seems to be cut off")),
                },
                // One layer of encoding too many: the text of a text.
                Some(b'"') if again => {
                    let Ok(inner) = R::decode(value, text) else { return Ok(None) };
                    let view = R::view(&inner, value);
                    if R::kind(&view) == Kind::String { decoded::<R>(&view, false) } else { Ok(None) }
                }
                Some(_) => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// Compile a repaired schema, leaving out what the validator still objects to.
fn build<R: Rebuild>(schema: &mut Value, notes: &mut Vec<String>) -> Result<Validator<R>, String> {
    let mut why = String::new();
    for _ in 0..MAX_REPAIRS {
        let built = catch_unwind(AssertUnwindSafe(|| {
            jsonschema::options_for::<R>()
                .offline()
                .with_draft(jsonschema::Draft::Draft202012)
                .should_validate_formats(false)
                .build(schema)
        }));
        let error = match built {
            Ok(Ok(validator)) => return Ok(validator),
            Ok(Err(error)) => error,
            Err(panic) => return Err(crate::tool::panic_text(&*panic)),
        };
        why = render::clip(error.masked().to_string(), 300);
        let at = error.instance_path().as_str().to_owned();
        let Some((parent, keyword)) = at.rsplit_once('/') else { break };
        let keyword = keyword.replace("~1", "/").replace("~0", "~");
        let removed = schema
            .pointer_mut(parent)
            .and_then(Value::as_object_mut)
            .and_then(|keywords| keywords.shift_remove(&keyword));
        if removed.is_none() {
            break;
        }
        notes.push(at);
    }
    Err(why)
}

fn invalid(tool: &str, failures: Vec<Failure>) -> Option<Error> {
    if failures.is_empty() {
        return None;
    }
    let listed: Vec<&str> =
        failures.iter().take(MAX_LISTED).map(|failure| failure.message.as_str()).collect();
    let mut text = format!("Error: Invalid parameters for tool '{tool}': {}", listed.join("; "));
    if failures.len() > MAX_LISTED {
        text.push_str("; and more");
    }
    Some(Error::InvalidArguments { tool: tool.to_owned(), text, failures })
}

fn failure(keyword: &str, message: &str) -> Failure {
    Failure { pointer: String::new(), keyword: keyword.to_owned(), message: message.to_owned() }
}

fn too_deep(path: &str) -> Failure {
    let label = if path.is_empty() { "parameters" } else { path };
    failure("depth", &format!("{label} must not be nested more than {MAX_DEPTH} levels deep"))
}

/// The reference's way to name a place, without the value at hand.
fn label(path: &str, pointer: &str) -> String {
    let mut out = path.to_owned();
    for segment in pointer.split('/').skip(1) {
        let name = segment.replace("~1", "/").replace("~0", "~");
        if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
            let _ = write!(out, "[{name}]");
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&render::clip(name, 100));
        }
    }
    if out.is_empty() { "parameter".to_owned() } else { out }
}

//! Turns the validator's errors into [`Failure`]s: the reference's wording, in its order.
//!
//! The reference walks the value: at each object first its own faults, then missing members, then
//! the members in the order sent; a value of a wrong type is not looked into. Keywords that it does
//! not know get texts in its style. Of `anyOf` and `oneOf` the branch that was meant is
//! explained, or what the branches want. No text holds what the caller sent, only names of members.

use std::collections::HashSet;

use jsonschema::{
    ValidationError,
    error::ValidationErrorKind as Kind,
    json::{Array as _, Node as JsonNode, Object as _},
};
use serde_json::Value;

use super::{
    Failure,
    plan::{resolve, type_names},
    rebuild::Rebuild,
    render::{clip, python, python_float, quote},
    repair::{WRITTEN_ENUM, escaped},
};

/// Faults of one value after which its members are looked at, in the reference's order.
const VALUES: u8 = 1;
const LOWER: u8 = 2;
const UPPER: u8 = 3;
const OTHER: u8 = 4;
const REQUIRED: u8 = 5;
const MEMBERS: u8 = 6;
const BRANCHES: u8 = 7;

/// More errors are not looked at: finding a place in a long array takes its length.
const MAX_ERRORS: usize = 200;
/// More of a member's name is not shown.
const MAX_NAME: usize = 100;

/// All failures of a value, in order, each once.
pub(super) fn explain<R: Rebuild>(
    schema: &Value,
    root: &R::Node<'_>,
    path: &str,
    errors: &[ValidationError<'static>],
) -> Vec<Failure> {
    let mut explainer = Explainer::<R> { schema, root, path, found: Vec::new() };
    for error in errors.iter().take(MAX_ERRORS) {
        explainer.error(error, 0);
    }
    explainer.finish()
}

struct Found {
    order: Vec<(u8, usize)>,
    failure: Failure,
}

/// The position of a member in the order sent.
fn position<R: Rebuild>(node: Option<&R::Node<'_>>, name: &str) -> usize {
    let Some(object) = node.and_then(JsonNode::as_object) else { return usize::MAX };
    object.members().position(|(member, _)| member.as_ref() == name).unwrap_or(usize::MAX)
}

/// Where in the value an error is.
struct Place<N> {
    pointer: String,
    path: String,
    order: Vec<(u8, usize)>,
    node: Option<N>,
}

impl<N> Place<N> {
    fn label(&self) -> &str {
        if self.path.is_empty() { "parameter" } else { &self.path }
    }

    fn member(&self, name: &str) -> String {
        let name = clip(name.to_owned(), MAX_NAME);
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }
}

/// The errors of the one branch that was meant: whose type is right and whose constants fit.
fn meant<'c>(
    at: &str,
    context: &'c [Vec<ValidationError<'static>>],
) -> Option<&'c Vec<ValidationError<'static>>> {
    let typed: Vec<_> = context
        .iter()
        .filter(|branch| {
            !branch.iter().any(|error| {
                let here = error.instance_path().as_str() == at;
                here && matches!(error.kind(), Kind::Type { .. } | Kind::FalseSchema)
            })
        })
        .collect();
    let tagged = typed.iter().filter(|branch| {
        !branch.iter().any(|error| {
            let below = error.instance_path().as_str() != at;
            below && matches!(error.kind(), Kind::Constant { .. } | Kind::Enum { .. })
        })
    });
    let tagged: Vec<_> = tagged.copied().collect();
    match (typed.as_slice(), tagged.as_slice()) {
        ([only], _) | (_, [only]) => Some(*only),
        _ => None,
    }
}

struct Explainer<'e, 'a, R: Rebuild> {
    schema: &'e Value,
    root: &'e R::Node<'a>,
    path: &'e str,
    found: Vec<Found>,
}

impl<'a, R: Rebuild> Explainer<'_, 'a, R> {
    fn place(&self, pointer: &str) -> Place<R::Node<'a>> {
        let mut place = Place {
            pointer: pointer.to_owned(),
            path: self.path.to_owned(),
            order: Vec::new(),
            node: Some(self.root.clone()),
        };
        for segment in pointer.split('/').skip(1) {
            let name = segment.replace("~1", "/").replace("~0", "~");
            let array = place.node.as_ref().and_then(JsonNode::as_array);
            if let (Some(array), Ok(index)) = (array, name.parse::<usize>()) {
                place.path = format!("{}[{index}]", place.path);
                place.order.push((MEMBERS, index));
                place.node = array.elements().nth(index);
            } else {
                place.path = place.member(&name);
                let index = position::<R>(place.node.as_ref(), &name);
                place.order.push((MEMBERS, index));
                let object = place.node.as_ref().and_then(JsonNode::as_object);
                place.node = object.and_then(|object| object.get(&R::prepare_key(&name)));
            }
        }
        place
    }

    fn push(&mut self, place: &Place<R::Node<'a>>, stage: u8, keyword: &str, message: String) {
        let mut order = place.order.clone();
        order.push((stage, 0));
        let failure = Failure { pointer: place.pointer.clone(), keyword: keyword.to_owned(), message };
        self.found.push(Found { order, failure });
    }

    fn unexpected(&mut self, place: &Place<R::Node<'a>>, keyword: &str, name: &str) {
        let mut order = place.order.clone();
        order.push((MEMBERS, position::<R>(place.node.as_ref(), name)));
        let failure = Failure {
            pointer: format!("{}/{}", place.pointer, escaped(name)),
            keyword: keyword.to_owned(),
            message: format!("unexpected parameter {}", place.member(name)),
        };
        self.found.push(Found { order, failure });
    }

    fn error(&mut self, error: &ValidationError<'_>, depth: usize) {
        let place = self.place(error.instance_path().as_str());
        let label = place.label();
        let keyword = error.kind().keyword().to_owned();
        let (stage, message) = match error.kind() {
            Kind::Type { .. } => (VALUES, self.wrong_type(&place, error)),
            Kind::Enum { options } => {
                (VALUES, format!("{label} must be one of {}", python(self.written(error).unwrap_or(options))))
            }
            Kind::Constant { expected_value } => {
                (VALUES, format!("{label} must be {}", python(expected_value)))
            }
            Kind::Minimum { limit } => (LOWER, format!("{label} must be >= {}", python(limit))),
            Kind::ExclusiveMinimum { limit } => (LOWER, format!("{label} must be > {}", python(limit))),
            Kind::Maximum { limit } => (UPPER, format!("{label} must be <= {}", python(limit))),
            Kind::ExclusiveMaximum { limit } => (UPPER, format!("{label} must be < {}", python(limit))),
            Kind::MultipleOf { multiple_of } => {
                let divisor = python_float(*multiple_of);
                (
                    OTHER,
                    format!(
                        "{label} must be a multiple of {}",
                        divisor.strip_suffix(".0").unwrap_or(&divisor)
                    ),
                )
            }
            Kind::MinLength { limit } => (LOWER, format!("{label} must be at least {limit} chars")),
            Kind::MaxLength { limit } => (UPPER, format!("{label} must be at most {limit} chars")),
            Kind::Pattern { pattern } => {
                let mut quoted = String::new();
                quote(&clip(pattern.clone(), 500), &mut quoted);
                (OTHER, format!("{label} must match pattern {quoted}"))
            }
            Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
                (OTHER, format!("{label} could not be matched against its pattern"))
            }
            Kind::MinItems { limit } => (LOWER, format!("{label} must have at least {limit} items")),
            Kind::MaxItems { limit } => (UPPER, format!("{label} must be at most {limit} items")),
            Kind::AdditionalItems { limit } => (UPPER, format!("{label} must be at most {limit} items")),
            Kind::UniqueItems => (OTHER, format!("{label} must have unique items")),
            Kind::Contains => (OTHER, format!("{label} must contain {}", self.contained(error))),
            Kind::MinProperties { limit } => (LOWER, format!("{label} must have at least {limit} members")),
            Kind::MaxProperties { limit } => (UPPER, format!("{label} must have at most {limit} members")),
            Kind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                // The validator says so too of a member that was sent, but is not allowed.
                let object = place.node.as_ref().and_then(JsonNode::as_object);
                if object.is_some_and(|object| object.get(&R::prepare_key(name)).is_some()) {
                    return;
                }
                (REQUIRED, format!("missing required {}", place.member(name)))
            }
            Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                for name in unexpected {
                    self.unexpected(&place, &keyword, name);
                }
                return;
            }
            Kind::UnevaluatedItems { .. } => (OTHER, format!("{label} has unexpected items")),
            Kind::PropertyNames { error: inner } => {
                let name = clip(inner.instance().as_str().unwrap_or_default().to_owned(), MAX_NAME);
                (OTHER, format!("{} is not an allowed name in {label}", place.member(&name)))
            }
            Kind::FalseSchema => (VALUES, format!("{label} is not allowed")),
            Kind::Not { schema } => (BRANCHES, format!("{label} must not be {}", self.wanted(schema, 0))),
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
                match meant(&place.pointer, context).filter(|_| depth < 8) {
                    Some(branch) => {
                        for error in branch {
                            self.error(error, depth + 1);
                        }
                        return;
                    }
                    None => (BRANCHES, self.branches(&place, error, context)),
                }
            }
            Kind::OneOfMultipleValid { .. } => {
                (BRANCHES, format!("{label} must fit exactly one of its alternatives, but fits several"))
            }
            _ => (OTHER, format!("{label} does not satisfy {keyword}")),
        };
        self.push(&place, stage, &keyword, message);
    }

    fn wrong_type(&self, place: &Place<R::Node<'a>>, error: &ValidationError<'_>) -> String {
        let label = place.label();
        let names: Vec<&str> = match self.schema.pointer(error.schema_path().as_str()) {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let wanted: Vec<&str> = names.iter().copied().filter(|name| *name != "null").collect();
        if place.node.as_ref().is_some_and(R::is_non_finite) && wanted.contains(&"number") {
            return format!("{label} must be finite");
        }
        let wanted = if wanted.is_empty() { "null".to_owned() } else { wanted.join(" or ") };
        format!("{label} should be {wanted}")
    }

    /// The values of an `enum` as its author wrote them.
    fn written(&self, error: &ValidationError<'_>) -> Option<&Value> {
        let at = error.schema_path().as_str();
        self.schema.pointer(at.strip_suffix("/enum")?)?.get(WRITTEN_ENUM)
    }

    fn contained(&self, error: &ValidationError<'_>) -> String {
        let schema = self.schema.pointer(error.schema_path().as_str());
        schema.map_or_else(|| "a matching item".to_owned(), |schema| self.wanted(schema, 0))
    }

    /// What the branches want, when none can be said to be meant.
    fn branches(
        &self,
        place: &Place<R::Node<'a>>,
        error: &ValidationError<'_>,
        context: &[Vec<ValidationError<'static>>],
    ) -> String {
        let label = place.label();
        let wants = self.wants(error);
        if wants.is_empty() {
            return format!("{label} fits none of {} alternatives", context.len());
        }
        format!("{label} should be {wants}")
    }

    fn wants(&self, error: &ValidationError<'_>) -> String {
        let branches = self.schema.pointer(error.schema_path().as_str()).and_then(Value::as_array);
        let mut wants: Vec<String> = Vec::new();
        for branch in branches.into_iter().flatten() {
            let want = self.wanted(branch, 0);
            if !wants.contains(&want) {
                wants.push(want);
            }
        }
        clip(wants.join(" or "), 1_000)
    }

    /// A few words for what a schema wants.
    fn wanted(&self, schema: &Value, depth: usize) -> String {
        let Value::Object(keywords) = schema else { return "anything".to_owned() };
        if depth > 4 {
            return "a matching value".to_owned();
        }
        if let Some(value) = keywords.get("const") {
            return python(value);
        }
        if let Some(values) = keywords.get(WRITTEN_ENUM).or_else(|| keywords.get("enum")) {
            return format!("one of {}", python(values));
        }
        let names: Vec<&str> = type_names(keywords).collect();
        let object = names == ["object"] || (names.is_empty() && keywords.contains_key("properties"));
        if object {
            let required: Vec<&str> = keywords
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            return if required.is_empty() {
                "object".to_owned()
            } else {
                format!("object with {}", required.join(", "))
            };
        }
        if names == ["array"] {
            return match keywords.get("items") {
                Some(items @ Value::Object(_)) => format!("array of {}", self.wanted(items, depth + 1)),
                _ => "array".to_owned(),
            };
        }
        if !names.is_empty() {
            let pattern = keywords.get("pattern").and_then(Value::as_str);
            let extra = pattern.map_or_else(String::new, |pattern| {
                let mut quoted = String::new();
                quote(&clip(pattern.to_owned(), 200), &mut quoted);
                format!(" that matches {quoted}")
            });
            return format!("{}{extra}", names.join(" or "));
        }
        if let Some(target) =
            keywords.get("$ref").and_then(Value::as_str).and_then(|r| resolve(self.schema, r))
        {
            return self.wanted(target, depth + 1);
        }
        if let Some(Value::Array(branches)) = keywords.get("anyOf").or_else(|| keywords.get("oneOf")) {
            let wants: Vec<String> = branches.iter().map(|branch| self.wanted(branch, depth + 1)).collect();
            return wants.join(" or ");
        }
        if let Some(Value::Array(required)) = keywords.get("required") {
            let names: Vec<&str> = required.iter().filter_map(Value::as_str).collect();
            return format!("object with {}", names.join(", "));
        }
        "a matching value".to_owned()
    }

    fn finish(mut self) -> Vec<Failure> {
        let mistyped: HashSet<String> = self
            .found
            .iter()
            .filter(|found| found.failure.keyword == "type")
            .map(|found| found.failure.pointer.clone())
            .collect();
        // Of a value of a wrong type nothing else is said.
        self.found
            .retain(|found| found.failure.keyword == "type" || !mistyped.contains(&found.failure.pointer));
        self.found.sort_by(|a, b| a.order.cmp(&b.order));
        let mut failures: Vec<Failure> = Vec::with_capacity(self.found.len().min(64));
        let mut seen = HashSet::new();
        for found in self.found {
            if seen.insert(found.failure.message.clone()) {
                failures.push(found.failure);
            }
        }
        failures
    }
}

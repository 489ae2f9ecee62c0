//! The check of `structuredContent` against a tool's `outputSchema`.
//!
//! What does not fit is worth a warning and never fails a call: the model may well make sense of
//! it. A schema is compiled at the first result; an odd one is repaired or ignored, as those of
//! arguments are (`validate`).

use std::sync::OnceLock;

use jsonschema::json::SerdeJson;
use serde_json::{Value, value::RawValue};

use super::wire;
use crate::validate::CompiledSchema;

/// Failures that a warning names.
const MAX_NAMED: usize = 5;
/// Longest warning, in bytes, before the mark that it is cut.
const MAX_WARNING: usize = 1000;

/// The `outputSchema` of one tool.
#[derive(Debug)]
pub struct OutputSchema {
    schema: Value,
    compiled: OnceLock<CompiledSchema<SerdeJson>>,
}

impl OutputSchema {
    /// The check for `schema`; `None` when it is not even an object.
    #[must_use]
    pub fn new(schema: &Value) -> Option<Self> {
        schema.is_object().then(|| Self { schema: schema.clone(), compiled: OnceLock::new() })
    }

    /// The schema itself.
    #[must_use]
    pub const fn schema(&self) -> &Value {
        &self.schema
    }

    /// What is wrong with a result, if anything: for the log, not for the model.
    ///
    /// A result that reports a failure needs no `structuredContent`.
    #[must_use]
    pub fn check(&self, structured: Option<&RawValue>, is_error: bool) -> Option<String> {
        let Some(structured) = structured.filter(|raw| raw.get() != "null") else {
            return (!is_error)
                .then(|| "the tool has an outputSchema, and its result has no structuredContent".to_owned());
        };
        let value: Value = match wire::from_str(structured.get()) {
            Ok(value) => value,
            Err(error) => return Some(format!("structuredContent cannot be checked: {error}")),
        };
        let compiled = self.compiled.get_or_init(|| CompiledSchema::compile(&self.schema));
        let failures = compiled.validate(&&value, "structuredContent");
        if failures.is_empty() {
            return None;
        }
        let mut text = "structuredContent does not fit the outputSchema: ".to_owned();
        for (index, failure) in failures.iter().take(MAX_NAMED).enumerate() {
            text.push_str(if index > 0 { "; " } else { "" });
            text.push_str(&failure.message);
        }
        if failures.len() > MAX_NAMED {
            text.push_str("; ...");
        }
        if text.len() > MAX_WARNING {
            text.truncate(super::render::floor_boundary(&text, MAX_WARNING));
            text.push_str("...");
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, structured: Option<&str>) -> Option<String> {
        let raw = structured.map(|json| RawValue::from_string(json.to_owned()).unwrap());
        OutputSchema::new(schema).unwrap().check(raw.as_deref(), false)
    }

    #[test]
    fn what_fits_is_not_warned_about() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        assert_eq!(check(&schema, Some(r#"{"n": 1}"#)), None);
        assert_eq!(check(&json!({}), Some("[1]")), None);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let schema =
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "m"]});
        let warning = check(&schema, Some(r#"{"n": "secret"}"#)).unwrap();
        assert!(warning.contains("structuredContent.n should be integer"), "{warning}");
        assert!(warning.contains("structuredContent.m") && !warning.contains("secret"), "{warning}");
        let many = json!({"items": {"type": "integer"}, "type": "array"});
        let warning = check(&many, Some(&json!(vec!["x"; 40]).to_string())).unwrap();
        assert!(warning.ends_with("; ...") && warning.len() <= MAX_WARNING + 3, "{warning}");
    }

    #[test]
    fn a_missing_structured_content_is_worth_a_warning_unless_the_call_failed() {
        let schema = OutputSchema::new(&json!({"type": "object"})).unwrap();
        assert!(schema.check(None, false).unwrap().contains("no structuredContent"));
        assert!(check(&json!({}), Some("null")).is_some());
        assert_eq!(schema.check(None, true), None);
    }

    #[test]
    fn no_schema_and_no_content_raises() {
        assert!(OutputSchema::new(&json!("x")).is_none());
        for schema in [
            json!({"type": 7, "required": null, "properties": {"a": true}}),
            json!({"$ref": "#"}),
            json!({"$ref": "https://example.com/x"}),
            json!({"pattern": "("}),
            json!({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            json!({"type": "string"}),
        ] {
            for content in ["{}", "1e999", "\"\\ud800\"", "[[[]]]"] {
                let _ = check(&schema, Some(content));
            }
        }
        let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
        assert!(
            check(
                &json!({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}),
                Some(&deep)
            )
            .is_some()
        );
    }
}

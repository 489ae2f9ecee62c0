//! Reading arguments that the schema has admitted already.
//!
//! A caller who skips validation gets an error text instead of a surprise.

use serde_json::{Map, Value};

/// The arguments of one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Args<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Args<'a> {
    fn get(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(self, name: &str) -> Result<Option<&'a str>, String> {
        self.get(name).map(|v| v.as_str().ok_or_else(|| wrong(name, "a string"))).transpose()
    }

    pub(super) fn flag(self, name: &str) -> Result<bool, String> {
        self.get(name).map_or(Ok(false), |v| v.as_bool().ok_or_else(|| wrong(name, "a boolean")))
    }

    pub(super) fn number(self, name: &str) -> Result<Option<usize>, String> {
        self.get(name)
            .map(|v| {
                v.as_u64()
                    .and_then(|n| usize::try_from(n).ok())
                    .ok_or_else(|| wrong(name, "an integer that is not negative"))
            })
            .transpose()
    }
}

fn wrong(name: &str, expected: &str) -> String {
    format!("Error: {name} must be {expected}")
}

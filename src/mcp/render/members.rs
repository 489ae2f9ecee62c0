//! JSON objects read member by member, however odd: duplicates, wrong types, deep nesting.
//!
//! Values stay the text that they are until one is asked for, so that data of many megabytes is
//! not copied on the way to its file, and nesting costs no stack.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The members of an object, in the server's order.
#[derive(Debug, Default)]
pub(super) struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A string that is borrowed unless it has escapes.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'a> Members<'a> {
    /// The members of an object; `None` for anything else.
    pub(super) fn of(json: &'a str) -> Option<Self> {
        // Telling what it is must not cost a pass over it.
        if !json.trim_start().starts_with('{') {
            return None;
        }
        serde_json::from_str(json).ok()
    }

    /// A member that is not null; of several with one name the last counts.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value.get()).filter(|json| *json != "null")
    }

    /// A member that is a string.
    pub(super) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(text)
    }
}

/// A JSON string's content; `None` for anything else.
pub(super) fn text(json: &str) -> Option<Cow<'_, str>> {
    if !json.trim_start().starts_with('"') {
        return None;
    }
    serde_json::from_str::<Text<'_>>(json).ok().map(|text| text.0)
}

/// The items of a JSON array; `None` for anything else.
pub(super) fn items(json: &str) -> Option<Vec<&RawValue>> {
    if !json.trim_start().starts_with('[') {
        return None;
    }
    serde_json::from_str(json).ok()
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(4);
                while let Some((Text(key), value)) = map.next_entry()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Str;
        impl<'de> Visitor<'de> for Str {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }

            fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<Self::Value, E> {
                Err(E::custom("a string is expected"))
            }
        }
        deserializer.deserialize_str(Str).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_objects_are_read_as_far_as_they_can_be() {
        let members = Members::of(r#" {"a":1,"a":"x","b":null,"\u0063":"\n"}"#).unwrap();
        assert_eq!(members.get("a"), Some("\"x\""));
        assert_eq!((members.get("b"), members.get("z")), (None, None));
        assert_eq!(members.text("c").as_deref(), Some("\n"));
        assert_eq!(members.text("a"), Some(Cow::Borrowed("x")));
        assert!(Members::of("[1]").is_none() && Members::of("{").is_none() && Members::of("").is_none());
    }

    #[test]
    fn nesting_costs_no_stack() {
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert_eq!(Members::of(&deep).unwrap().get("a").map(str::len), Some(2_000_000));
    }
}

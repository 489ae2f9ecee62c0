//! What casting needs of a JSON representation beyond reading it.
//!
//! [`Rebuild`] extends jsonschema's `Json`: values can be told apart (also those that are no JSON),
//! made, and containers rebuilt with some members exchanged. Nothing is copied unless something
//! changes. This file also implements it for `serde_json`; Python's objects are `py`'s business.

use std::borrow::Cow;

use jsonschema::{
    ValidationError, Validator,
    json::{Json, SerdeJson},
};
use serde_json::{Map, Number, Value};

/// How a value looks to casting; finer than JSON's types where the reference is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `null`.
    Null,
    /// A boolean.
    Boolean,
    /// A number written as an integer.
    Integer,
    /// Any other number, finite or not.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
    /// Something of the host language that is no JSON value.
    Other,
}

/// What happens to one member of an object that is rebuilt.
#[derive(Debug)]
pub enum Edit<O> {
    /// It gets this value.
    Set(O),
    /// It goes.
    Remove,
}

/// A member's name: prepared with the schema, or made for the occasion.
#[derive(Debug)]
pub enum Name<'p, K> {
    /// Prepared with the schema.
    Prepared(&'p K),
    /// Made for the occasion.
    Made(K),
}

impl<K> Name<'_, K> {
    /// The name itself.
    pub const fn key(&self) -> &K {
        match self {
            Self::Prepared(key) => key,
            Self::Made(key) => key,
        }
    }
}

/// What changes in an object that is rebuilt, member by member.
pub type Edits<'p, R> = Vec<(Name<'p, <R as Json>::PreparedKey>, Edit<<R as Rebuild>::Owned>)>;

/// A value that has no JSON form, so that it cannot be validated.
#[derive(Debug)]
pub struct Unreadable {
    /// JSON Pointer to the value.
    pub pointer: String,
    /// What should be there instead, as in `should be a JSON value, got set`.
    pub message: String,
}

/// A representation whose values can be rebuilt.
pub trait Rebuild: Json {
    /// A value that outlives the node it was read from.
    type Owned;

    /// What the value is.
    fn kind(node: &Self::Node<'_>) -> Kind;
    /// Keep the value.
    fn own(node: &Self::Node<'_>) -> Self::Owned;
    /// Read a value that was kept or made; `like` is any node of the same document.
    fn view<'b, 'a: 'b>(owned: &'b Self::Owned, like: &Self::Node<'a>) -> Self::Node<'b>;
    /// The content of a [`Kind::String`]; `None` when it is no Unicode text.
    fn text<'a>(node: &'a Self::Node<'_>) -> Option<Cow<'a, str>>;
    /// The type's name in the host language, for error texts.
    fn type_name(node: &Self::Node<'_>) -> String;
    /// Whether the value is a number, but NaN or infinite.
    fn is_non_finite(node: &Self::Node<'_>) -> bool;

    /// Make a boolean.
    fn make_boolean(like: &Self::Node<'_>, value: bool) -> Self::Owned;
    /// Make an integer of a sign and ASCII digits; `None` when it cannot be held exactly.
    fn make_integer(like: &Self::Node<'_>, digits: &str) -> Option<Self::Owned>;
    /// Make a float; `None` when it cannot be held.
    fn make_float(like: &Self::Node<'_>, value: f64) -> Option<Self::Owned>;
    /// The integer that a number without a fraction stands for; `None` when there is none.
    fn to_integer(node: &Self::Node<'_>) -> Option<Self::Owned>;
    /// The string that stands for a scalar, or the JSON text of a container; `None` when there is none.
    fn to_text(node: &Self::Node<'_>) -> Option<Self::Owned>;
    /// What a JSON text says; `Err` tells why it is no JSON.
    fn decode(like: &Self::Node<'_>, text: &str) -> Result<Self::Owned, String>;
    /// An object without members.
    fn empty_object(like: &Self::Node<'_>) -> Self::Owned;
    /// A copy of an object with some members changed.
    fn with_members(node: &Self::Node<'_>, edits: Edits<'_, Self>) -> Self::Owned;
    /// A copy of an array with some elements changed.
    fn with_elements(node: &Self::Node<'_>, edits: Vec<(usize, Self::Owned)>) -> Self::Owned;

    /// Whether containers are nested deeper than `limit`, or too numerous to look at.
    fn exceeds_depth(node: &Self::Node<'_>, limit: usize) -> bool;
    /// Run the validator; `None` when the value holds something that it cannot read.
    fn is_valid(validator: &Validator<Self>, node: &Self::Node<'_>) -> Option<bool>;
    /// The validator's errors; `None` when the value holds something that it cannot read.
    fn errors(validator: &Validator<Self>, node: &Self::Node<'_>) -> Option<Vec<ValidationError<'static>>>;
    /// A copy of the value that the validator can read.
    ///
    /// # Errors
    /// When something in it has no JSON form.
    fn readable(node: &Self::Node<'_>) -> Result<Self::Owned, Unreadable>;
}

impl Rebuild for SerdeJson {
    type Owned = Value;

    fn kind(node: &&Value) -> Kind {
        match node {
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Boolean,
            Value::Number(number) if number.is_f64() => Kind::Number,
            Value::Number(_) => Kind::Integer,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
            Value::Object(_) => Kind::Object,
        }
    }

    fn own(node: &&Value) -> Value {
        (*node).clone()
    }

    fn view<'b, 'a: 'b>(owned: &'b Value, _like: &&'a Value) -> &'b Value {
        owned
    }

    fn text<'a>(node: &'a &Value) -> Option<Cow<'a, str>> {
        node.as_str().map(Cow::Borrowed)
    }

    fn type_name(node: &&Value) -> String {
        // Python's names, as the reference's texts have them.
        match Self::kind(node) {
            Kind::Null | Kind::Other => "NoneType",
            Kind::Boolean => "bool",
            Kind::Integer => "int",
            Kind::Number => "float",
            Kind::String => "str",
            Kind::Array => "list",
            Kind::Object => "dict",
        }
        .to_owned()
    }

    fn is_non_finite(_node: &&Value) -> bool {
        false
    }

    fn make_boolean(_like: &&Value, value: bool) -> Value {
        Value::Bool(value)
    }

    fn make_integer(_like: &&Value, digits: &str) -> Option<Value> {
        let digits = digits.strip_prefix('+').unwrap_or(digits);
        let number =
            digits.parse::<i64>().map(Number::from).or_else(|_| digits.parse::<u64>().map(Number::from));
        number.ok().map(Value::Number)
    }

    fn make_float(_like: &&Value, value: f64) -> Option<Value> {
        Number::from_f64(value).map(Value::Number)
    }

    fn to_integer(node: &&Value) -> Option<Value> {
        let value = node.as_f64()?;
        // 2^63 as a float is exact; everything below it fits.
        if value.fract() != 0.0 || value.abs() >= 9_223_372_036_854_775_808.0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
        Some(Value::from(value as i64))
    }

    fn to_text(node: &&Value) -> Option<Value> {
        let text = match node {
            Value::Null | Value::String(_) => return None,
            Value::Bool(true) => "True".to_owned(),
            Value::Bool(false) => "False".to_owned(),
            other => other.to_string(),
        };
        Some(Value::String(text))
    }

    fn decode(_like: &&Value, text: &str) -> Result<Value, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    fn empty_object(_like: &&Value) -> Value {
        Value::Object(Map::new())
    }

    fn with_members(node: &&Value, edits: Edits<'_, Self>) -> Value {
        let mut copy = (*node).clone();
        if let Some(members) = copy.as_object_mut() {
            for (name, edit) in edits {
                match edit {
                    Edit::Set(value) => {
                        members.insert(name.key().clone(), value);
                    }
                    Edit::Remove => {
                        members.shift_remove(name.key());
                    }
                }
            }
        }
        copy
    }

    fn with_elements(node: &&Value, edits: Vec<(usize, Value)>) -> Value {
        let mut copy = (*node).clone();
        if let Some(elements) = copy.as_array_mut() {
            for (index, value) in edits {
                if let Some(slot) = elements.get_mut(index) {
                    *slot = value;
                }
            }
        }
        copy
    }

    fn exceeds_depth(node: &&Value, limit: usize) -> bool {
        match node {
            Value::Array(elements) => {
                limit == 0 || elements.iter().any(|e| Self::exceeds_depth(&e, limit - 1))
            }
            Value::Object(members) => {
                limit == 0 || members.values().any(|v| Self::exceeds_depth(&v, limit - 1))
            }
            _ => false,
        }
    }

    fn is_valid(validator: &Validator<Self>, node: &&Value) -> Option<bool> {
        Some(validator.is_valid(node))
    }

    fn errors(validator: &Validator<Self>, node: &&Value) -> Option<Vec<ValidationError<'static>>> {
        Some(validator.iter_errors(node).map(ValidationError::to_owned).collect())
    }

    fn readable(node: &&Value) -> Result<Value, Unreadable> {
        Ok((*node).clone())
    }
}

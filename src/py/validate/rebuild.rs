//! Python objects as a representation that casting can rebuild.
//!
//! jsonschema reads them in place; here is what it does not do: telling apart what the reference
//! tells apart (subclasses of `str` and `int` count as their base), making values, and copying what
//! it cannot read. Whatever a user's object raises here means that it cannot be cast.

use std::borrow::Cow;

use jsonschema::{
    ValidationError, Validator,
    json::{Pyo3, inspect, object_values, stock_enum_value},
};
use pyo3::{
    Borrowed, intern,
    prelude::*,
    types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};

use crate::{
    py::convert,
    validate::{Edit, Edits, Kind, Rebuild, Unreadable},
};

type Node<'a> = Borrowed<'a, 'a, PyAny>;

/// How many values are looked at when the depth is measured; shared containers multiply.
const BUDGET: usize = 10_000_000;

fn kind_of(obj: &Bound<'_, PyAny>) -> Kind {
    if obj.is_exact_instance_of::<PyString>() {
        Kind::String
    } else if obj.is_exact_instance_of::<PyInt>() {
        Kind::Integer
    } else if obj.is_none() {
        Kind::Null
    } else if obj.is_exact_instance_of::<PyDict>() {
        Kind::Object
    } else if obj.is_exact_instance_of::<PyList>() {
        Kind::Array
    } else if obj.is_exact_instance_of::<PyBool>() {
        Kind::Boolean
    } else if obj.is_exact_instance_of::<PyFloat>() {
        Kind::Number
    } else {
        subclass_kind(obj)
    }
}

fn subclass_kind(obj: &Bound<'_, PyAny>) -> Kind {
    if obj.is_instance_of::<PyString>() {
        Kind::String
    } else if obj.is_instance_of::<PyInt>() {
        Kind::Integer
    } else if obj.is_instance_of::<PyFloat>() {
        Kind::Number
    } else if obj.is_instance_of::<PyDict>() {
        Kind::Object
    } else if obj.is_instance_of::<PyList>() || obj.is_instance_of::<PyTuple>() {
        Kind::Array
    } else {
        Kind::Other
    }
}

impl Rebuild for Pyo3 {
    type Owned = Py<PyAny>;

    fn kind(node: &Node<'_>) -> Kind {
        kind_of(node)
    }

    fn own(node: &Node<'_>) -> Py<PyAny> {
        (**node).clone().unbind()
    }

    fn view<'b, 'a: 'b>(owned: &'b Py<PyAny>, like: &Node<'a>) -> Node<'b> {
        owned.bind_borrowed(like.py())
    }

    fn text<'a>(node: &'a Node<'_>) -> Option<Cow<'a, str>> {
        let any: &'a Bound<'_, PyAny> = node;
        let text = any.cast::<PyString>().ok()?;
        text.to_str().ok().map(Cow::Borrowed)
    }

    fn type_name(node: &Node<'_>) -> String {
        node.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
    }

    fn is_non_finite(node: &Node<'_>) -> bool {
        node.cast::<PyFloat>().is_ok_and(|float| !float.value().is_finite())
    }

    fn make_boolean(like: &Node<'_>, value: bool) -> Py<PyAny> {
        PyBool::new(like.py(), value).to_owned().into_any().unbind()
    }

    fn make_integer(like: &Node<'_>, digits: &str) -> Option<Py<PyAny>> {
        let py = like.py();
        if let Ok(small) = digits.parse::<i64>() {
            return small.into_pyobject(py).ok().map(|integer| integer.into_any().unbind());
        }
        py.get_type::<PyInt>().call1((digits,)).ok().map(Bound::unbind)
    }

    fn make_float(like: &Node<'_>, value: f64) -> Option<Py<PyAny>> {
        Some(PyFloat::new(like.py(), value).into_any().unbind())
    }

    fn to_integer(node: &Node<'_>) -> Option<Py<PyAny>> {
        let value = node.cast::<PyFloat>().ok()?.value();
        if !value.is_finite() || value.fract() != 0.0 {
            return None;
        }
        let py = node.py();
        py.get_type::<PyInt>().call1((PyFloat::new(py, value),)).ok().map(Bound::unbind)
    }

    fn to_text(node: &Node<'_>) -> Option<Py<PyAny>> {
        let py = node.py();
        match kind_of(node) {
            Kind::Null | Kind::String => None,
            Kind::Boolean | Kind::Integer | Kind::Number => {
                node.str().ok().map(|text| text.into_any().unbind())
            }
            Kind::Array | Kind::Object => json_text(node),
            Kind::Other => {
                if node.is_instance_of::<PyBytes>() || node.is_instance_of::<PyByteArray>() {
                    return None;
                }
                // An enum member stands for its value, which the validator reads.
                if stock_enum_value(*node).is_some() {
                    return None;
                }
                if node.hasattr(intern!(py, "model_dump")).ok()? {
                    return json_text(node);
                }
                // Paths, dates, UUIDs, ... have a text of their own; a mere repr is not one.
                let own = node.get_type().getattr(intern!(py, "__str__")).ok()?;
                let default = py.get_type::<PyAny>().getattr(intern!(py, "__str__")).ok()?;
                if own.is(&default) { None } else { node.str().ok().map(|text| text.into_any().unbind()) }
            }
        }
    }

    fn decode(like: &Node<'_>, text: &str) -> Result<Py<PyAny>, String> {
        let py = like.py();
        convert::loads(py, text).map(Bound::unbind).map_err(|error| {
            error.value(py).str().map_or_else(|_| "it cannot be parsed".to_owned(), |why| why.to_string())
        })
    }

    fn empty_object(like: &Node<'_>) -> Py<PyAny> {
        PyDict::new(like.py()).into_any().unbind()
    }

    fn with_members(node: &Node<'_>, edits: Edits<'_, Self>) -> Py<PyAny> {
        let copied = node.cast::<PyDict>().map_err(PyErr::from).and_then(|dict| {
            let copy = dict.copy()?;
            for (name, edit) in edits {
                match edit {
                    Edit::Set(value) => copy.set_item(name.key(), value)?,
                    Edit::Remove => copy.del_item(name.key())?,
                }
            }
            Ok(copy.into_any().unbind())
        });
        copied.unwrap_or_else(|_| Self::own(node))
    }

    fn with_elements(node: &Node<'_>, edits: Vec<(usize, Py<PyAny>)>) -> Py<PyAny> {
        let copy = match (node.cast::<PyList>(), node.cast::<PyTuple>()) {
            (Ok(list), _) => list.get_slice(0, list.len()),
            (_, Ok(tuple)) => tuple.to_list(),
            _ => return Self::own(node),
        };
        for (index, value) in edits {
            // The list may have shrunk meanwhile; the element is gone then.
            if index < copy.len() && copy.set_item(index, value).is_err() {
                return Self::own(node);
            }
        }
        copy.into_any().unbind()
    }

    fn exceeds_depth(node: &Node<'_>, limit: usize) -> bool {
        let mut budget = BUDGET;
        exceeds(*node, limit, &mut budget)
    }

    fn is_valid(validator: &Validator<Self>, node: &Node<'_>) -> Option<bool> {
        inspect(*node, false, || validator.is_valid(*node)).ok()
    }

    fn errors(validator: &Validator<Self>, node: &Node<'_>) -> Option<Vec<ValidationError<'static>>> {
        inspect(*node, false, || validator.iter_errors(*node).map(ValidationError::to_owned).collect()).ok()
    }

    fn readable(node: &Node<'_>) -> Result<Py<PyAny>, Unreadable> {
        readable(node, crate::validate::MAX_DEPTH).map(Bound::unbind)
    }
}

fn json_text(node: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
    let mut json = Vec::new();
    convert::write_json(node, &mut json).ok()?;
    let text = std::str::from_utf8(&json).ok()?;
    Some(PyString::new(node.py(), text).into_any().unbind())
}

/// Reads borrowed values, since no code of the user's runs meanwhile.
fn exceeds(node: Node<'_>, limit: usize, budget: &mut usize) -> bool {
    let mut below = |value: Node<'_>| {
        *budget = budget.saturating_sub(1);
        *budget == 0 || exceeds(value, limit - 1, budget)
    };
    match kind_of(&node) {
        Kind::Object => {
            let Ok(dict) = node.cast::<PyDict>() else { return false };
            limit == 0 || object_values(dict).any(below)
        }
        Kind::Array => {
            if limit == 0 {
                return true;
            }
            match (node.cast::<PyList>(), node.cast::<PyTuple>()) {
                (Ok(list), _) => list.iter().any(|value| below(value.as_borrowed())),
                (_, Ok(tuple)) => tuple.iter_borrowed().any(&mut below),
                _ => false,
            }
        }
        // The validator sees through enum members.
        Kind::Other => stock_enum_value(node).is_some_and(|value| limit == 0 || below(value.as_borrowed())),
        _ => false,
    }
}

/// A copy of plain types: what the validator reads.
fn readable<'py>(obj: &Bound<'py, PyAny>, limit: usize) -> Result<Bound<'py, PyAny>, Unreadable> {
    let py = obj.py();
    let unreadable = || Unreadable {
        pointer: String::new(),
        message: format!("should be a JSON value, got {}", Pyo3::type_name(&obj.as_borrowed())),
    };
    let Some(limit) = limit.checked_sub(1) else { return Err(unreadable()) };
    match kind_of(obj) {
        Kind::Null | Kind::Boolean => Ok(obj.clone()),
        Kind::String => {
            let text = obj.cast::<PyString>().map_err(|_| unreadable())?;
            let text = text.to_str().map_or_else(|_| convert::lossy(text), |text| Ok(text.to_owned()));
            text.map(|text| PyString::new(py, &text).into_any()).map_err(|_| unreadable())
        }
        Kind::Integer => {
            obj.cast::<PyInt>().map_err(PyErr::from).and_then(convert::plain_int).map_err(|_| unreadable())
        }
        Kind::Number => {
            let float = obj.cast::<PyFloat>().map_err(|_| unreadable())?;
            Ok(PyFloat::new(py, float.value()).into_any())
        }
        Kind::Array => {
            let copy = PyList::empty(py);
            for (index, value) in obj.try_iter().map_err(|_| unreadable())?.enumerate() {
                let value = readable(&value.map_err(|_| unreadable())?, limit)
                    .map_err(|inner| below(&index.to_string(), inner))?;
                copy.append(value).map_err(|_| unreadable())?;
            }
            Ok(copy.into_any())
        }
        Kind::Object => {
            let dict = obj.cast::<PyDict>().map_err(|_| unreadable())?;
            let copy = PyDict::new(py);
            for (key, value) in dict
                .items()
                .iter()
                .filter_map(|item| item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>().ok())
            {
                let Ok(key) = key.cast::<PyString>() else {
                    let name = Pyo3::type_name(&key.as_borrowed());
                    let message = format!("should have text as keys, got {name}");
                    return Err(Unreadable { pointer: String::new(), message });
                };
                let name = convert::lossy(key).map_err(|_| unreadable())?;
                let value = readable(&value, limit).map_err(|inner| below(&name, inner))?;
                copy.set_item(name, value).map_err(|_| unreadable())?;
            }
            Ok(copy.into_any())
        }
        Kind::Other => match stock_enum_value(obj.as_borrowed()) {
            Some(value) => readable(&value, limit),
            None if Pyo3::type_name(&obj.as_borrowed()) == "Decimal" => Ok(obj.clone()),
            None => Err(unreadable()),
        },
    }
}

fn below(segment: &str, inner: Unreadable) -> Unreadable {
    let segment = segment.replace('~', "~0").replace('/', "~1");
    Unreadable { pointer: format!("/{segment}{}", inner.pointer), message: inner.message }
}

//! Schemas of tools as providers accept them, from and to Python objects.
//!
//! A schema made in Python may hold anything. What has no JSON form becomes null, keys that are no texts are
//! written as `json.dumps` does or left out, and what is nested too deeply, or in itself, becomes empty, so
//! that nothing but an unknown profile raises. Integers beyond 64 bits, which a JSON value cannot hold here,
//! travel as floats that stand for them and come back as they were.

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};
use serde_json::{Map, Number, Value};

use super::convert;
use crate::schema::normalise::{Profile, normalise};

/// Containers may nest this deep; below, they are empty.
const MAX_DEPTH: usize = 200;
/// Values in one schema; further ones are null. One list may stand in many places.
const MAX_VALUES: usize = 1_000_000;
/// As many of the greatest floats stand for integers.
const STAND_INS: u64 = 1 << 32;

/// `schema` in the form that `profile` asks for, as new objects.
///
/// Raises `ValueError` for a profile that does not exist; nothing else raises.
#[pyfunction]
pub(crate) fn normalize_schema<'py>(
    schema: &Bound<'py, PyAny>,
    profile: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let profile: Profile = profile.parse().map_err(|error| PyValueError::new_err(format!("{error}")))?;
    let mut reader = Reader { numbers: Vec::new(), inside: Vec::new(), left: MAX_VALUES };
    let value = normalise(&reader.value(schema, MAX_DEPTH), profile);
    write(schema.py(), &value, &reader.numbers)
}

/// Python objects to JSON; anything goes.
struct Reader<'py> {
    /// Numbers that something stands for.
    numbers: Vec<Bound<'py, PyAny>>,
    /// The containers that are being read, by their addresses.
    inside: Vec<usize>,
    /// Values that may still be read.
    left: usize,
}

impl<'py> Reader<'py> {
    fn value(&mut self, obj: &Bound<'py, PyAny>, depth: usize) -> Value {
        let address = obj.as_ptr().addr();
        let Some(left) = self.left.checked_sub(1) else { return Value::Null };
        self.left = left;
        let depth = if self.inside.contains(&address) { 0 } else { depth };
        self.inside.push(address);
        let value = self.read(obj, depth);
        self.inside.pop();
        value
    }

    fn read(&mut self, obj: &Bound<'py, PyAny>, depth: usize) -> Value {
        if obj.is_none() {
            Value::Null
        } else if let Ok(text) = obj.cast::<PyString>() {
            Value::String(string(text))
        } else if let Ok(boolean) = obj.cast::<PyBool>() {
            Value::Bool(boolean.is_true())
        } else if let Ok(integer) = obj.cast::<PyInt>() {
            match (integer.extract::<i64>(), integer.extract::<u64>()) {
                (Ok(small), _) => small.into(),
                (_, Ok(small)) => small.into(),
                _ => self.stand_in(obj, integer.lt(0).unwrap_or(false)),
            }
        } else if let Ok(float) = obj.cast::<PyFloat>() {
            let float = float.value();
            if index(float).is_some() {
                return self.stand_in(obj, float < 0.0);
            }
            Number::from_f64(float).map_or(Value::Null, Value::Number)
        } else if let Ok(dict) = obj.cast::<PyDict>() {
            let mut map = Map::new();
            if let Some(depth) = depth.checked_sub(1) {
                // A copy: an object's own conversion may change the dict.
                for item in dict.items() {
                    if let Ok((name, value)) = item.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()
                        && let Some(name) = key(&name)
                    {
                        map.insert(name, self.value(&value, depth));
                    }
                }
            }
            Value::Object(map)
        } else if let Ok(list) = obj.cast::<PyList>() {
            self.list(list.iter(), depth)
        } else if let Ok(tuple) = obj.cast::<PyTuple>() {
            self.list(tuple.iter(), depth)
        } else {
            convert::to_value_leniently(obj).unwrap_or(Value::Null)
        }
    }

    fn list(&mut self, items: impl Iterator<Item = Bound<'py, PyAny>>, depth: usize) -> Value {
        let depth = depth.checked_sub(1);
        Value::Array(
            depth.map_or_else(Vec::new, |depth| items.map(|item| self.value(&item, depth)).collect()),
        )
    }

    fn stand_in(&mut self, obj: &Bound<'py, PyAny>, negative: bool) -> Value {
        let place = self.numbers.len() as u64;
        let float = f64::from_bits(f64::MAX.to_bits() - place.min(STAND_INS - 1));
        self.numbers.push(obj.clone());
        Number::from_f64(if negative { -float } else { float }).map_or(Value::Null, Value::Number)
    }
}

/// Which number `float` stands for, if it is one that stands for others.
fn index(float: f64) -> Option<usize> {
    let place = f64::MAX.to_bits().checked_sub(float.abs().to_bits())?;
    usize::try_from(place).ok().filter(|_| place < STAND_INS)
}

fn string(text: &Bound<'_, PyString>) -> String {
    match text.to_str() {
        Ok(text) => text.to_owned(),
        Err(_) => convert::lossy(text).unwrap_or_default(),
    }
}

/// The name of a member, as `json.dumps` writes it; `None` for what it refuses.
fn key(key: &Bound<'_, PyAny>) -> Option<String> {
    if let Ok(text) = key.cast::<PyString>() {
        return Some(string(text));
    }
    if key.is_none() {
        return Some("null".to_owned());
    }
    if let Ok(boolean) = key.cast::<PyBool>() {
        return Some(boolean.is_true().to_string());
    }
    if key.is_instance_of::<PyInt>() || key.is_instance_of::<PyFloat>() {
        return key.str().ok().map(|text| string(&text));
    }
    None
}

fn write<'py>(py: Python<'py>, value: &Value, numbers: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(boolean) => PyBool::new(py, *boolean).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(integer), _, _) => integer.into_pyobject(py)?.into_any(),
            (_, Some(integer), _) => integer.into_pyobject(py)?.into_any(),
            (_, _, float) => {
                let float = float.unwrap_or(0.0);
                match index(float).and_then(|place| numbers.get(place)) {
                    Some(number) => number.clone(),
                    None => PyFloat::new(py, float).into_any(),
                }
            }
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(write(py, value, numbers)?)?;
            }
            list.into_any()
        }
        Value::Object(members) => {
            let dict = PyDict::new(py);
            for (name, value) in members {
                dict.set_item(name, write(py, value, numbers)?)?;
            }
            dict.into_any()
        }
    })
}

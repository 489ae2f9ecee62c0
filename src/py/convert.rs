//! Between Python objects and JSON: the one place that converts.
//!
//! [`write_json`] writes straight from the objects, in the form of
//! `json.dumps(obj, ensure_ascii=False, separators=(",", ":"))`: integers keep every digit, NaN and
//! Infinity are refused, lone surrogates become U+FFFD. Beyond `json.dumps` it takes enums,
//! dataclasses, pydantic models, paths, dates and sets. Depth is bounded everywhere, which also ends
//! self-referencing containers. JSON text is read by Python's own `json.loads`, which is exact too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::{
    exceptions::{PyRuntimeError, PyTypeError, PyValueError},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBool, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple, PyType},
};
use serde_json::Value;

use crate::validate::python_float;

/// Containers may nest this deep on their way to or from JSON.
const MAX_DEPTH: usize = 255;
/// Python refuses to write longer integers at once.
const DIGITS: usize = 4_000;

/// Append a Python object as compact JSON.
///
/// # Errors
/// `TypeError` for an object without a JSON form, `ValueError` for NaN, Infinity, and nesting that is
/// too deep or circular; whatever the object's own conversion raises.
pub(crate) fn write_json(obj: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    write(obj, out, false)
}

/// A Python object as a JSON value; integers beyond 64 bits become floats there.
///
/// # Errors
/// As [`write_json`].
#[allow(dead_code, reason = "the registry and tools take it")]
pub(crate) fn to_value(obj: &Bound<'_, PyAny>) -> PyResult<Value> {
    let mut json = Vec::with_capacity(256);
    write(obj, &mut json, false)?;
    serde_json::from_slice(&json).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// As [`to_value`], but what has no JSON form becomes null: for schemas, which may be odd.
///
/// # Errors
/// When the object is nested too deeply or refers to itself.
pub(crate) fn to_value_leniently(obj: &Bound<'_, PyAny>) -> PyResult<Value> {
    let mut json = Vec::with_capacity(1024);
    write(obj, &mut json, true)?;
    serde_json::from_slice(&json).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// As [`write_json`], but what has no JSON form becomes null: for what is only shown.
///
/// # Errors
/// When the object is nested too deeply or refers to itself.
pub(crate) fn write_json_leniently(obj: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    write(obj, out, true)
}

/// `obj` as compact JSON in UTF-8: `json.dumps(obj, ensure_ascii=False, separators=(",", ":"))`, and beyond
/// it enums, dataclasses, pydantic models, paths, dates and sets.
///
/// Raises `TypeError` for what has no JSON form, `ValueError` for NaN, Infinity and too deep nesting.
#[pyfunction]
pub(crate) fn to_json<'py>(obj: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let mut json = Vec::with_capacity(256);
    write_json(obj, &mut json)?;
    Ok(PyBytes::new(obj.py(), &json))
}

fn write(obj: &Bound<'_, PyAny>, out: &mut Vec<u8>, lenient: bool) -> PyResult<()> {
    // An object's own conversion may change a dict while it is iterated over, which pyo3 answers
    // with a panic.
    catch_unwind(AssertUnwindSafe(|| Writer { out, lenient }.value(obj, MAX_DEPTH)))
        .unwrap_or_else(|_| Err(PyRuntimeError::new_err("the object changed while it was converted to JSON")))
}

struct Writer<'o> {
    out: &'o mut Vec<u8>,
    lenient: bool,
}

impl Writer<'_> {
    fn value(&mut self, obj: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if obj.is_none() {
            self.out.extend_from_slice(b"null");
        } else if let Ok(text) = obj.cast::<PyString>() {
            self.string(text)?;
        } else if let Ok(boolean) = obj.cast::<PyBool>() {
            self.out.extend_from_slice(if boolean.is_true() { b"true" } else { b"false" });
        } else if let Ok(integer) = obj.cast::<PyInt>() {
            self.integer(integer)?;
        } else if let Ok(float) = obj.cast::<PyFloat>() {
            self.float(float.value())?;
        } else if let Ok(dict) = obj.cast::<PyDict>() {
            self.dict(dict, depth)?;
        } else if let Ok(list) = obj.cast::<PyList>() {
            self.sequence(list.iter(), depth)?;
        } else if let Ok(tuple) = obj.cast::<PyTuple>() {
            self.sequence(tuple.iter(), depth)?;
        } else {
            let start = self.out.len();
            if let Err(error) = self.foreign(obj, depth) {
                if !self.lenient {
                    return Err(error);
                }
                self.out.truncate(start);
                self.out.extend_from_slice(b"null");
            }
        }
        Ok(())
    }

    fn string(&mut self, text: &Bound<'_, PyString>) -> PyResult<()> {
        match text.to_str() {
            Ok(text) => self.text(text),
            Err(_) => self.text(&lossy(text)?),
        }
    }

    fn text(&mut self, text: &str) -> PyResult<()> {
        serde_json::to_writer(&mut *self.out, text).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn integer(&mut self, integer: &Bound<'_, PyInt>) -> PyResult<()> {
        if let Ok(small) = integer.extract::<i64>() {
            self.out.extend_from_slice(small.to_string().as_bytes());
            return Ok(());
        }
        self.out.extend_from_slice(digits(integer)?.as_bytes());
        Ok(())
    }

    fn float(&mut self, value: f64) -> PyResult<()> {
        if value.is_finite() {
            self.out.extend_from_slice(python_float(value).as_bytes());
        } else if self.lenient {
            self.out.extend_from_slice(b"null");
        } else {
            return Err(PyValueError::new_err("NaN and Infinity have no JSON form"));
        }
        Ok(())
    }

    fn dict(&mut self, dict: &Bound<'_, PyDict>, depth: usize) -> PyResult<()> {
        let depth = deeper(depth)?;
        self.out.push(b'{');
        let mut first = true;
        for (key, value) in dict.iter() {
            let start = self.out.len();
            if !first {
                self.out.push(b',');
            }
            if let Err(error) = self.key(&key) {
                if self.lenient {
                    self.out.truncate(start);
                    continue;
                }
                return Err(error);
            }
            first = false;
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// Keys that are no text are written as `json.dumps` does.
    fn key(&mut self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(text) = key.cast::<PyString>() {
            return self.string(text);
        }
        let scalar = key.is_none() || key.is_instance_of::<PyInt>() || key.is_instance_of::<PyFloat>();
        if !scalar {
            let name = key.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "keys of a JSON object must be str, int, float, bool or None, not {name}"
            )));
        }
        self.out.push(b'"');
        self.value(key, 1)?;
        self.out.push(b'"');
        Ok(())
    }

    fn sequence<'py>(
        &mut self,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<()> {
        let depth = deeper(depth)?;
        self.out.push(b'[');
        for (index, item) in items.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            self.value(&item, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    /// Objects that `json.dumps` would refuse.
    fn foreign(&mut self, obj: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        let py = obj.py();
        let depth = deeper(depth)?;
        let is_type = obj.is_instance_of::<PyType>();
        if !is_type && obj.is_instance(enum_class(py)?)? {
            return self.value(&obj.getattr(intern!(py, "value"))?, depth);
        }
        if !is_type && let Some(dump) = obj.getattr_opt(intern!(py, "model_dump"))? {
            let options = PyDict::new(py);
            options.set_item(intern!(py, "mode"), intern!(py, "json"))?;
            return self.value(&dump.call((), Some(&options))?, depth);
        }
        if !is_type && obj.hasattr(intern!(py, "__dataclass_fields__"))? {
            return self.dataclass(obj, depth);
        }
        if let Ok(set) = obj.cast::<PySet>() {
            return self.sequence(set.iter(), depth);
        }
        if let Ok(set) = obj.cast::<PyFrozenSet>() {
            return self.sequence(set.iter(), depth);
        }
        if let Some(path) = obj.getattr_opt(intern!(py, "__fspath__"))?.filter(|_| !is_type) {
            return self.value(&path.call0()?, depth);
        }
        if let Some(format) = obj.getattr_opt(intern!(py, "isoformat"))?.filter(|_| !is_type) {
            return self.value(&format.call0()?, depth);
        }
        let name = obj.get_type().name()?.to_string();
        if matches!(name.as_str(), "UUID" | "Decimal") {
            return self.string(&obj.str()?);
        }
        if !is_type && let Some(keys) = obj.getattr_opt(intern!(py, "keys"))? {
            let copy = PyDict::new(py);
            for key in keys.call0()?.try_iter()? {
                let key = key?;
                copy.set_item(&key, obj.get_item(&key)?)?;
            }
            return self.dict(&copy, depth);
        }
        Err(PyTypeError::new_err(format!("Object of type {name} is not JSON serializable")))
    }

    fn dataclass(&mut self, obj: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        static FIELDS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = obj.py();
        let copy = PyDict::new(py);
        for field in FIELDS.import(py, "dataclasses", "fields")?.call1((obj,))?.try_iter()? {
            let name = field?.getattr(intern!(py, "name"))?.cast_into::<PyString>()?;
            let value = obj.getattr(&name)?;
            copy.set_item(name, value)?;
        }
        self.dict(&copy, depth)
    }
}

fn deeper(depth: usize) -> PyResult<usize> {
    depth.checked_sub(1).ok_or_else(|| {
        PyValueError::new_err(format!("nested more than {MAX_DEPTH} levels deep, or referring to itself"))
    })
}

fn enum_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "enum", "Enum")
}

/// A text with lone surrogates replaced by U+FFFD.
pub(crate) fn lossy(text: &Bound<'_, PyString>) -> PyResult<String> {
    let py = text.py();
    // The class's own method: a subclass may have another.
    let encoded = py.get_type::<PyString>().call_method1(
        intern!(py, "encode"),
        (text, intern!(py, "utf-16-le"), intern!(py, "surrogatepass")),
    )?;
    let bytes = encoded.cast_into::<PyBytes>()?;
    let units = bytes.as_bytes().chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    Ok(char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

/// The same integer as an `int` of no subclass.
pub(crate) fn plain_int<'py>(integer: &Bound<'py, PyInt>) -> PyResult<Bound<'py, PyAny>> {
    let py = integer.py();
    py.get_type::<PyInt>().call_method1(intern!(py, "__index__"), (integer,))
}

/// All digits of an integer, also beyond the length that `str` refuses.
fn digits(integer: &Bound<'_, PyInt>) -> PyResult<String> {
    let py = integer.py();
    let mut rest = plain_int(integer)?;
    if let Ok(text) = rest.str() {
        return Ok(text.to_str()?.to_owned());
    }
    let negative = rest.lt(0)?;
    if negative {
        rest = rest.neg()?;
    }
    let base = 10_i64.into_pyobject(py)?.pow(DIGITS, py.None())?;
    let mut chunks = Vec::new();
    while rest.ge(&base)? {
        chunks.push(format!("{:0>DIGITS$}", rest.rem(&base)?.str()?.to_str()?));
        rest = rest.floor_div(&base)?;
    }
    let mut text = if negative { "-".to_owned() } else { String::new() };
    text.push_str(rest.str()?.to_str()?);
    text.extend(chunks.into_iter().rev());
    Ok(text)
}

/// What a JSON text says, as Python objects; integers of any size are exact.
///
/// # Errors
/// What `json.loads` raises.
pub(crate) fn loads<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    LOADS.import(py, "json", "loads")?.call1((text,))
}

/// A JSON value as Python objects.
///
/// # Errors
/// When it is nested too deeply.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    python_value(py, value, MAX_DEPTH)
}

fn python_value<'py>(py: Python<'py>, value: &Value, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(boolean) => PyBool::new(py, *boolean).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(integer), _, _) => integer.into_pyobject(py)?.into_any(),
            (_, Some(integer), _) => integer.into_pyobject(py)?.into_any(),
            (_, _, float) => PyFloat::new(py, float.unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(values) => {
            let depth = deeper(depth)?;
            let list = PyList::empty(py);
            for value in values {
                list.append(python_value(py, value, depth)?)?;
            }
            list.into_any()
        }
        Value::Object(members) => {
            let depth = deeper(depth)?;
            let dict = PyDict::new(py);
            for (name, value) in members {
                dict.set_item(name, python_value(py, value, depth)?)?;
            }
            dict.into_any()
        }
    })
}

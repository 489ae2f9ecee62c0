//! What MCP servers are told in the `_meta` of calls beside what the protocol wants: the host's trace.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::prelude::*;
use serde_json::{Map, Value};

use super::convert;

/// Whether there is a provider: asked for each call.
static IS_SET: AtomicBool = AtomicBool::new(false);
static PROVIDER: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Have `provider()` called on the calling thread for each request that goes to an MCP server.
///
/// The dict that it returns, if any, goes into `_meta`. Without a provider that ends.
#[pyfunction]
pub(crate) fn set_call_meta(provider: Option<Py<PyAny>>) {
    IS_SET.store(provider.is_some(), Ordering::Release);
    let old = std::mem::replace(&mut *PROVIDER.lock(), provider);
    drop(old); // outside of the lock
}

/// What the provider says now.
pub(crate) fn current(py: Python<'_>) -> Option<Map<String, Value>> {
    if !IS_SET.load(Ordering::Acquire) {
        return None;
    }
    let provider = PROVIDER.lock().as_ref().map(|provider| provider.clone_ref(py))?;
    match provider.call0(py).and_then(|meta| convert::to_value(meta.bind(py))) {
        Ok(Value::Object(meta)) => Some(meta),
        Ok(_) => None,
        Err(error) => {
            // A call does not fail because it cannot be traced.
            error.write_unraisable(py, Some(provider.bind(py)));
            None
        }
    }
}

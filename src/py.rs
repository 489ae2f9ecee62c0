//! Python bindings: the only place that names `pyo3`.

use pyo3::prelude::*;

/// The native half of `nanobot_tools`; private, wrapped by the Python modules beside it.
#[pymodule]
mod _native {
    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}

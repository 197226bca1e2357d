//! larder for Python: `larder.annotate` and `larder.Cache`.
//!
//! | module | task |
//! |---|---|
//! | [`mod@annotate`] | a run of `larder annotate`, as an Arrow C stream or as records |
//! | [`columns`] | the rows of a run as columns of Arrow |
//! | [`arguments`] | Python's values as settings |
//! | [`cache`] | the cache over [`engine::Map`] |
//! | [`listener`] | its function for removed values |
//! | [`walk`] | walks over it |
//! | [`bytes`] | Python's keys and values as bytes |
//!
//! `larder/__init__.pyi` is the interface for users. No thread of larder's own calls Python: only threads of Python do,
//! within a call for a load, a change or a listener.

mod annotate;
mod arguments;
mod bytes;
mod cache;
mod columns;
mod expiry;
mod listener;
mod walk;

use pyo3::prelude::*;

pyo3::create_exception!(
    larder,
    Error,
    pyo3::exceptions::PyException,
    "What larder could not do, and what to do next."
);

/// The module.
#[pymodule]
fn _larder(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(annotate::annotate, module)?)?;
    module.add_class::<annotate::Flows>()?;
    module.add_class::<annotate::Records>()?;
    module.add_class::<cache::Cache>()?;
    module.add_class::<walk::Walk>()
}

//! Python's keys and values as bytes: `bytes` or `str`, and which of them it was.
//!
//! A key or a value is a byte for its type, then its bytes. So `"a"` and `b"a"` are two keys, as in a `dict`, and a
//! value comes back as what it was.

use std::borrow::Cow;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::arguments::kind_of;

const BYTES: u8 = 0;
const TEXT: u8 = 1;

/// A value as the cache has it.
pub type Bytes = Cow<'static, [u8]>;

/// A key or a value of Python's; `what` says which, for the error.
pub fn from_python(what: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let of = |kind: u8, bytes: &[u8]| {
        let mut stored = Vec::with_capacity(1 + bytes.len());
        stored.push(kind);
        stored.extend_from_slice(bytes);
        stored
    };
    if let Ok(text) = given.cast::<PyString>() {
        let text: Cow<'_, str> = text.to_cow()?;
        return Ok(of(TEXT, text.as_bytes()));
    }
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(of(BYTES, bytes.as_bytes()));
    }
    if let Ok(bytes) = given.cast::<PyByteArray>() {
        return Ok(of(BYTES, &bytes.to_vec()));
    }
    let text = format!(
        "{what}: expected bytes or str, not {}; pickle.dumps makes bytes of most objects",
        kind_of(given)
    );
    Err(PyTypeError::new_err(text))
}

/// What the cache has, as Python gave it.
pub fn to_python<'py>(py: Python<'py>, stored: &[u8]) -> Bound<'py, PyAny> {
    match stored.split_first() {
        Some((&TEXT, text)) if let Ok(text) = str::from_utf8(text) => {
            PyString::new(py, text).into_any()
        }
        Some((_, bytes)) => PyBytes::new(py, bytes).into_any(),
        None => PyBytes::new(py, &[]).into_any(),
    }
}

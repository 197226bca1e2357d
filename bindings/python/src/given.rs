//! Python's values as settings: `cores=2`, `names=["dns", "sni"]`, `from_=datetime(...)`,
//! `tcp_idle=timedelta(minutes=5)`.

use std::ffi::OsString;
use std::path::PathBuf;

use larder_cli::embedded::Given;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyTuple};

/// One path, or some of them.
pub fn paths(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<PathBuf>> {
    let Some(given) = given else { return Ok(Vec::new()) };
    if let Ok(path) = given.extract::<PathBuf>() {
        return Ok(vec![path]);
    }
    let each = given.try_iter().map_err(|_| {
        let kind = kind_of(given);
        PyTypeError::new_err(format!("paths: expected a path or several, not {kind}"))
    })?;
    each.map(|path| path?.extract()).collect()
}

/// Keyword arguments. What is `None` is not given; `from_` is `from`, which is a word of Python's.
pub fn settings(given: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, Given)>> {
    let mut settings = Vec::new();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        let name = name.strip_suffix('_').unwrap_or(&name).to_owned();
        if !value.is_none() {
            let value = setting(&name, &value)?;
            settings.push((name, value));
        }
    }
    Ok(settings)
}

fn setting(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Given> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Given::Flag(flag.is_true()));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let words = value.try_iter()?.map(|value| word(name, &value?));
        return Ok(Given::Words(words.collect::<PyResult<_>>()?));
    }
    word(name, value).map(Given::Word)
}

fn word(name: &str, value: &Bound<'_, PyAny>) -> PyResult<OsString> {
    if value.is_instance_of::<PyInt>() {
        return Ok(value.str()?.to_string().into());
    }
    // A text or a path.
    if let Ok(path) = value.extract::<PathBuf>() {
        return Ok(path.into());
    }
    // A moment. Without a time zone it would be that of the machine, or of the capture.
    if value.hasattr("isoformat")? {
        if value.getattr_opt("tzinfo")?.is_none_or(|zone| zone.is_none()) {
            let text =
                format!("{name}: the time has no time zone; give it one, as tzinfo=timezone.utc");
            return Err(PyTypeError::new_err(text));
        }
        return Ok(value.call_method0("isoformat")?.extract::<String>()?.into());
    }
    if value.hasattr("total_seconds")? {
        let seconds: f64 = value.call_method0("total_seconds")?.extract()?;
        return Ok(format!("{}ms", (seconds * 1e3).round()).into());
    }
    let text = format!(
        "{name}: {} is no value of a setting; give a str, an int or a bool",
        kind_of(value)
    );
    Err(PyTypeError::new_err(text))
}

/// The name of a value's type, for error texts.
pub fn kind_of(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "this".to_owned(), |name| name.to_string())
}

//! Python's values as settings: `cores=2`, `names=["dns", "sni"]`, `from_=datetime(...)`,
//! `tcp_idle=timedelta(minutes=5)`. What its setting does not have is refused by the table.

use std::ffi::OsString;
use std::path::PathBuf;

use larder_cli::embedded::Given;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString};

/// One path, or some of them.
pub fn paths(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<PathBuf>> {
    let Some(given) = given else { return Ok(Vec::new()) };
    if let Some(path) = word(given)? {
        return Ok(vec![path.into()]);
    }
    let Some(each) = several(given)? else {
        let kind = kind_of(given);
        return Err(PyTypeError::new_err(format!("paths: expected a path or several, not {kind}")));
    };
    let path = |path: &Bound<'_, PyAny>| {
        let text = || format!("paths: expected a str or an os.PathLike, not {}", kind_of(path));
        Ok(word(path)?.ok_or_else(|| PyTypeError::new_err(text()))?.into())
    };
    each.iter().map(path).collect()
}

/// Keyword arguments. What is `None` is not given; `from_` is `from`, which is a word of Python's.
pub fn settings(given: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, Given)>> {
    let mut settings = Vec::new();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        let name = if name == "from_" { "from".to_owned() } else { name };
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
    if let Some(word) = word(value)? {
        return Ok(Given::Word(word));
    }
    if value.hasattr("__index__")? {
        return Ok(Given::Number(value.call_method0("__index__")?.extract()?));
    }
    if value.hasattr("utcoffset")? {
        if value.call_method0("utcoffset")?.is_none() {
            let text =
                format!("{name}: the time has no time zone; give it one, as tzinfo=timezone.utc");
            return Err(PyTypeError::new_err(text));
        }
        return Ok(Given::Moment(value.call_method0("isoformat")?.extract()?));
    }
    if value.hasattr("total_seconds")? {
        let ms = value.call_method0("total_seconds")?.extract::<f64>()? * 1e3;
        if ms.fract() != 0.0 {
            return Err(PyTypeError::new_err(format!("{name}: expected whole milliseconds")));
        }
        return Ok(Given::Milliseconds(ms as i128));
    }
    let Some(each) = several(value)? else { return Err(refused(name, value)) };
    let of_list = |value: &Bound<'_, PyAny>| word(value)?.ok_or_else(|| refused(name, value));
    Ok(Given::Words(each.iter().map(of_list).collect::<PyResult<_>>()?))
}

fn refused(name: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let kinds = "str, int, bool, a path, a datetime, a timedelta, or several str or paths";
    PyTypeError::new_err(format!(
        "{name}: {} is no value of a setting; give {kinds}",
        kind_of(value)
    ))
}

/// A text or a path; `None` for another object.
fn word(value: &Bound<'_, PyAny>) -> PyResult<Option<OsString>> {
    if value.is_instance_of::<PyString>() || value.hasattr("__fspath__")? {
        return Ok(Some(value.extract::<PathBuf>()?.into()));
    }
    Ok(None)
}

/// The elements of what can be walked; `None` for another object. Bytes and dictionaries are no lists.
fn several<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let is_no_list =
        value.is_instance_of::<PyBytes>() || value.hasattr("keys")? || value.hasattr("read")?;
    if is_no_list || !value.hasattr("__iter__")? {
        return Ok(None);
    }
    value.try_iter()?.collect::<PyResult<_>>().map(Some)
}

/// The name of a value's type, for error texts.
pub fn kind_of(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "this".to_owned(), |name| name.to_string())
}

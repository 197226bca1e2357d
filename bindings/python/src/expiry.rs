//! Times to live and to idle, as Python states them: seconds, or a `timedelta`.

use std::time::Duration;

use engine::{Expiry, Ttl};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt};

use crate::arguments::kind_of;

/// Seconds of a time, at most.
const SECONDS_MAX: u32 = u32::MAX;

/// A time to live. Whole seconds, other than as a float, need no memory; the rest is exact.
pub fn expiry_of(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Expiry>> {
    let time = given.map(|given| time_of("ttl", given)).transpose()?;
    Ok(time.map(|time| match time {
        Time::Whole(seconds) => Ttl::seconds(seconds).into(),
        Time::Exact(time) => Expiry::after(time),
    }))
}

/// A time to idle.
pub fn idle_of(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Expiry>> {
    let time = given.map(|given| time_of("idle", given)).transpose()?;
    Ok(time.map(|time| match time {
        Time::Whole(seconds) => Expiry::idle(Duration::from_secs(seconds.into())),
        Time::Exact(time) => Expiry::idle(time),
    }))
}

enum Time {
    Whole(u32),
    Exact(Duration),
}

fn time_of(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Time> {
    let refused = || {
        let text = format!("{name}: expected a time above 0 s, and of at most {SECONDS_MAX} s");
        PyValueError::new_err(text)
    };
    if given.is_instance_of::<PyInt>() && !given.is_instance_of::<PyBool>() {
        let seconds = given.extract::<u32>().ok().filter(|seconds| *seconds > 0);
        return seconds.map(Time::Whole).ok_or_else(refused);
    }
    let is_float = given.is_instance_of::<PyFloat>();
    if !is_float && !given.hasattr("total_seconds")? {
        let kind = kind_of(given);
        let text = format!("{name}: expected seconds as a number, or a timedelta, not {kind}");
        return Err(PyTypeError::new_err(text));
    }
    let seconds: f64 =
        if is_float { given.extract()? } else { given.call_method0("total_seconds")?.extract()? };
    // Not a number is neither.
    if !(seconds > 0.0 && seconds <= f64::from(SECONDS_MAX)) {
        return Err(refused());
    }
    if !is_float && seconds.fract() == 0.0 {
        return Ok(Time::Whole(seconds as u32));
    }
    // Less than a nanosecond is still a time.
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| refused())?;
    Ok(Time::Exact(time.max(Duration::from_nanos(1))))
}

//! The function of a cache that is called for removed values.

use std::sync::{Mutex, PoisonError};

use engine::{Cause, Evicted, Map};
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::arguments::kind_of;
use crate::bytes::{Bytes, to_python};

/// The function that is called for removed values. Python's garbage collector may take it away.
pub struct Listener(Mutex<Option<Py<PyAny>>>);

impl Listener {
    /// With this function, or with none.
    pub fn new(function: Option<Bound<'_, PyAny>>) -> PyResult<Listener> {
        if let Some(function) = function.as_ref().filter(|function| !function.is_callable()) {
            let text = format!("on_removed: expected a function, not {}", kind_of(function));
            return Err(PyTypeError::new_err(text));
        }
        Ok(Listener(Mutex::new(function.map(Bound::unbind))))
    }

    /// True if there is a function.
    pub fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// For Python's garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A thread that has the lock is at work with the function, which so is no garbage.
        match self.0.try_lock() {
            Ok(function) => function.iter().try_for_each(|function| visit.call(function)),
            Err(_) => Ok(()),
        }
    }

    /// The same, when nothing else has the cache.
    pub fn clear(&self) {
        let function = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(function);
    }

    /// Calls the function, which gets Python's lock.
    pub fn call(&self, evicted: Evicted<'_>) {
        let Some((key, value)) = Map::<[u8], Bytes>::decode(evicted.key, evicted.value) else {
            return;
        };
        let cause = match evicted.cause {
            Cause::Budget => "budget",
            Cause::Expired => "expired",
            Cause::Removed => "removed",
            Cause::Replaced => "replaced",
            _ => "conflict",
        };
        // After the interpreter has ended, the event is dropped.
        Python::try_attach(|py| {
            let Some(function) = self.get(py) else { return };
            let called = function.call1(py, (to_python(py, &key), to_python(py, &value), cause));
            if let Err(error) = called {
                error.write_unraisable(py, Some(function.bind(py)));
            }
        });
    }

    fn get(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let function = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        function.as_ref().map(|function| function.clone_ref(py))
    }
}

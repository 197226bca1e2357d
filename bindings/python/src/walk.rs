//! Walks over the keys or entries of a cache.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use engine::{Iter, Map};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::bytes::{Bytes, to_python};
use crate::listener::Listener;

/// Entries that are copied while Python's lock is away.
const ENTRIES_TOGETHER: usize = 64;

self_cell::self_cell! {
    /// A walk, and the map that it borrows.
    struct Entries {
        owner: Map<[u8], Bytes>,
        #[not_covariant]
        dependent: Iter,
    }
}

/// Keys or entries of a cache. Threads that share a walk get different ones.
#[pyclass(frozen, module = "larder")]
pub struct Walk {
    /// The map keeps it, too, where Python's garbage collector does not see it.
    listener: Arc<Listener>,
    has_values: bool,
    state: Mutex<State>,
}

struct State {
    entries: Entries,
    ready: VecDeque<(Vec<u8>, Bytes)>,
}

impl Walk {
    /// A walk over the live entries of a cache.
    pub fn new(map: Map<[u8], Bytes>, listener: Arc<Listener>, has_values: bool) -> Walk {
        let entries = Entries::new(map, |map| map.cache().iter(map.now()));
        Walk { listener, has_values, state: Mutex::new(State { entries, ready: VecDeque::new() }) }
    }
}

#[pymethods]
impl Walk {
    fn __iter__(walk: Bound<'_, Self>) -> Bound<'_, Self> {
        walk
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.listener.traverse(&visit)
    }

    fn __clear__(&self) {
        self.listener.clear();
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let ready = || {
            self.state
                .lock_py_attached(py)
                .unwrap_or_else(PoisonError::into_inner)
                .ready
                .pop_front()
        };
        let next = ready().or_else(|| {
            py.detach(|| self.state.lock().unwrap_or_else(PoisonError::into_inner).fill())
        });
        let Some((key, value)) = next else { return Ok(None) };
        let key = to_python(py, &key);
        if !self.has_values {
            return Ok(Some(key));
        }
        Ok(Some((key, to_python(py, &value)).into_pyobject(py)?.into_any()))
    }
}

impl State {
    /// Copies some entries that have not expired meanwhile, and takes the first.
    fn fill(&mut self) -> Option<(Vec<u8>, Bytes)> {
        let State { entries, ready } = self;
        entries.with_dependent_mut(|map, entries| {
            let now = map.now();
            let live = entries.filter(|entry| entry.expires().is_none_or(|expires| expires > now));
            let decoded =
                live.filter_map(|entry| Map::<[u8], Bytes>::decode(entry.key(), entry.value()));
            ready.extend(decoded.take(ENTRIES_TOGETHER));
        });
        ready.pop_front()
    }
}

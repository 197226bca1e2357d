//! `larder.Cache`: [`engine::Map`] with keys and values of Python.
//!
//! A call for one entry keeps Python's lock: it takes less time than to give the lock away. Calls for many entries,
//! loads, changes and walks give it away, and take it again for a function of the caller.
//!
//! Invariant: while a call holds a lock of the cache's, it does not wait for Python's. So neither order of the two
//! locks can block.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use engine::{Change, Clock, Expiry, Map};
use pyo3::exceptions::{PyException, PyKeyError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::Error;
use crate::bytes::{Bytes, from_python, to_python};
use crate::expiry::{expiry_of, idle_of};
use crate::listener::Listener;
use crate::walk::Walk;

/// Pairs that are stored at once.
const PAIRS_TOGETHER: usize = 1 << 10;

fn failed(error: engine::Error) -> PyErr {
    Error::new_err(error.to_string())
}

/// A cache of bytes and str under keys of bytes and str, which takes at most budget_bytes of memory. Any number of
/// threads may use it.
#[pyclass(frozen, module = "larder")]
pub struct Cache {
    map: Map<[u8], Bytes>,
    /// Of values that are stored without a time to live of their own.
    ttl: Expiry,
    /// Of all values.
    idle: Option<Expiry>,
    listener: Arc<Listener>,
}

#[pymethods]
impl Cache {
    #[new]
    #[pyo3(signature = (budget_bytes=67_108_864, *, ttl=None, idle=None, entry_bytes_mean=None, value_bytes_max=None,
        readers_max=None, shards=None, on_removed=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments")]
    fn new(
        py: Python<'_>,
        budget_bytes: u64,
        ttl: Option<&Bound<'_, PyAny>>,
        idle: Option<&Bound<'_, PyAny>>,
        entry_bytes_mean: Option<usize>,
        value_bytes_max: Option<usize>,
        readers_max: Option<usize>,
        shards: Option<usize>,
        on_removed: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Cache> {
        let mut builder = Map::<[u8], Bytes>::builder().budget(budget_bytes);
        if let Some(bytes) = entry_bytes_mean {
            builder = builder.entry_bytes_mean(bytes);
        }
        if let Some(bytes) = value_bytes_max {
            // Before each value there is its kind.
            builder = builder.value_bytes_max(bytes.saturating_add(1));
        }
        if let Some(readers) = readers_max {
            builder = builder.readers_max(readers);
        }
        if let Some(shards) = shards {
            builder = builder.shards(shards);
        }
        let listener = Arc::new(Listener::new(on_removed)?);
        if listener.is_set() {
            let listener = Arc::clone(&listener);
            builder = builder.on_removed(move |evicted| listener.call(evicted));
        }
        let ttl = expiry_of(ttl)?.unwrap_or(Expiry::NEVER);
        let idle = idle_of(idle)?;
        let map = py.detach(|| Map::build(builder, Clock::system())).map_err(failed)?;
        Ok(Cache { map, ttl, idle, listener })
    }

    /// The value of a key, or the default.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(key)?.or(default))
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.find(key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.map.contains(&*from_python("key", key)?))
    }

    /// Stores a value, for at most ttl: seconds, or a timedelta.
    #[pyo3(signature = (key, value, ttl=None))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let ttl = self.ttl_of(ttl)?;
        let (key, value) = (from_python("key", key)?, from_python("value", value)?);
        self.map.insert_ttl(&*key, Cow::Owned(value), ttl).map_err(failed)
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(key, value, None)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let there = self.map.take(&*from_python("key", key)?).map_err(failed)?;
        there.map(drop).ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    /// Removes a value and returns it, or the default.
    #[pyo3(signature = (key, default=None))]
    fn pop<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let there = self.map.take(&*from_python("key", key)?).map_err(failed)?;
        Ok(there.map(|value| to_python(key.py(), &value)).or(default))
    }

    /// The values of many keys, in their order, None for a miss.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let keys =
            keys.try_iter()?.map(|key| from_python("key", &key?)).collect::<PyResult<Vec<_>>>()?;
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        // All values in one buffer: their objects are made once Python's lock is there again.
        let (mut all, mut ends) = (Vec::new(), Vec::with_capacity(keys.len()));
        py.detach(|| {
            self.map.with_many(&keys, |_, value| {
                all.extend_from_slice(value.unwrap_or_default());
                ends.push(value.map(|_| all.len()));
            });
        });
        let mut begin = 0;
        let values = ends.into_iter().map(|end| {
            let end = end?;
            let value = to_python(py, &all[begin..end]);
            begin = end;
            Some(value)
        });
        PyList::new(py, values.collect::<Vec<_>>())
    }

    /// Stores the pairs of a dict, or of an iterable.
    #[pyo3(signature = (entries, ttl=None))]
    fn put_many(&self, entries: &Bound<'_, PyAny>, ttl: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let ttl = self.ttl_of(ttl)?;
        let is_mapping = entries.hasattr("items")?;
        let pairs = if is_mapping { entries.call_method0("items")? } else { entries.clone() };
        let store = |pairs: Vec<_>| {
            entries.py().detach(|| self.map.insert_many(pairs, ttl)).map_err(failed)
        };
        let mut together = Vec::with_capacity(PAIRS_TOGETHER);
        for pair in pairs.try_iter()? {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
            together.push((from_python("key", &key)?, Cow::Owned(from_python("value", &value)?)));
            if together.len() == PAIRS_TOGETHER {
                store(std::mem::replace(&mut together, Vec::with_capacity(PAIRS_TOGETHER)))?;
            }
        }
        store(together)
    }

    /// The value of a key; on a miss the result of load(key), which is stored. Of many threads that miss a key at
    /// once, one loads and the others wait.
    #[pyo3(signature = (key, load, ttl=None))]
    fn get_or_load<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        load: &Bound<'py, PyAny>,
        ttl: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, ttl) = (key.py(), self.ttl_of(ttl)?);
        let (stored_key, key, load) =
            (from_python("key", key)?, key.clone().unbind(), load.clone().unbind());
        let load = || {
            Python::attach(|py| {
                let loaded = load.call1(py, (key,)).and_then(|value| {
                    Ok((Cow::Owned(from_python("the loaded value", value.bind(py))?), ttl))
                });
                match loaded {
                    // Of this thread alone: Ctrl-C, or the end of the thread. Another one loads.
                    Err(error) if !error.is_instance_of::<PyException>(py) => {
                        resume_unwind(Box::new(error))
                    }
                    loaded => loaded,
                }
            })
        };
        let find = || self.map.try_get_or_insert_ttl_with::<[u8], Expiry, PyErr>(&stored_key, load);
        match catch_unwind(AssertUnwindSafe(|| py.detach(find))) {
            Ok(Ok(value)) => Ok(to_python(py, &value)),
            Ok(Err(error)) => Err(error.clone_ref(py)),
            Err(panic) => {
                Err(*panic.downcast::<PyErr>().unwrap_or_else(|panic| resume_unwind(panic)))
            }
        }
    }

    /// Replaces the value of a key by change(value), as one step, and returns that; None stands for no value.
    #[pyo3(signature = (key, change, ttl=None))]
    fn compute<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        change: &Bound<'py, PyAny>,
        ttl: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, is_given, expiry) = (key.py(), ttl.is_some(), self.ttl_of(ttl)?);
        let (key, change) = (from_python("key", key)?, change.clone().unbind());
        let mut result: Option<Py<PyAny>> = None;
        let mut decide = |py: Python<'_>, there: Option<&Bytes>| -> PyResult<Change<Bytes>> {
            let old = there.map(|there| to_python(py, there));
            let new = change.call1(py, (old.as_ref(),))?;
            result = (!new.is_none(py)).then(|| new.clone_ref(py));
            if new.is_none(py) {
                return Ok(if there.is_some() { Change::Remove } else { Change::Keep });
            }
            if old.as_ref().is_some_and(|old| new.is(old)) && !is_given {
                return Ok(Change::Keep);
            }
            let value = Cow::Owned(from_python("the new value", new.bind(py))?);
            let keeps = there.is_some() && !is_given;
            Ok(if keeps { Change::Update(value) } else { Change::Insert(value, expiry) })
        };
        let mut refused = None;
        let changed = py.detach(|| {
            self.map.compute(&*key, |there| {
                Python::attach(|py| decide(py, there)).unwrap_or_else(|error| {
                    refused = Some(error);
                    Change::Keep
                })
            })
        });
        if let Some(error) = refused {
            return Err(error);
        }
        changed.map_err(failed)?;
        Ok(result.map(|value| value.into_bound(py)))
    }

    /// Makes a value expire ttl from now; False if there is none.
    #[pyo3(signature = (key, ttl=None))]
    fn touch(&self, key: &Bound<'_, PyAny>, ttl: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.map.touch(&*from_python("key", key)?, self.ttl_of(ttl)?).map_err(failed)
    }

    /// The seconds that a value has left; None if it does not expire.
    fn ttl(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
        let there = self.map.get_with_expiry(&*from_python("key", key)?).map_err(failed)?;
        let (_, expires) = there.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))?;
        Ok(expires.map(|expires| expires.0.saturating_sub(self.map.now().0)))
    }

    /// Removes all values.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.map.clear()).map_err(failed)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let len = py.detach(|| self.map.len()).map_err(failed)?;
        Ok(usize::try_from(len).unwrap_or(usize::MAX))
    }

    // Otherwise Python would count the entries for each `if cache:`, and an empty cache were false.
    fn __bool__(&self) -> bool {
        true
    }

    fn __iter__(&self) -> Walk {
        self.walk(false)
    }

    /// The keys, in no order. What is changed meanwhile may come once, twice or not at all.
    fn keys(&self) -> Walk {
        self.walk(false)
    }

    /// Keys and values, as keys() walks.
    fn items(&self) -> Walk {
        self.walk(true)
    }

    /// Figures: entries, hits, misses, evicted and others.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = py.detach(|| self.map.stats()).map_err(failed)?;
        let figures = PyDict::new(py);
        for (name, figure) in [
            ("budget_bytes", stats.budget_bytes),
            ("entries", stats.entries),
            ("entries_bytes", stats.charge_bytes),
            ("entries_bytes_max", stats.charge_bytes_max),
            ("hits", stats.hits),
            ("misses", stats.misses),
            ("inserted", stats.inserted),
            ("updated", stats.updated),
            ("removed", stats.removed),
            ("evicted", stats.evicted),
            ("evicted_expired", stats.evicted_expired),
            ("conflicts", stats.conflicts),
        ] {
            figures.set_item(name, figure)?;
        }
        Ok(figures)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.listener.traverse(&visit)
    }

    fn __clear__(&self) {
        self.listener.clear();
    }
}

impl Cache {
    fn find<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        Ok(self.map.with(&*from_python("key", key)?, |value| to_python(py, value)))
    }

    /// The time to live of a call, or that of the cache; and the cache's time to idle.
    fn ttl_of(&self, given: Option<&Bound<'_, PyAny>>) -> PyResult<Expiry> {
        let ttl = expiry_of(given)?.unwrap_or(self.ttl);
        Ok(self.idle.map_or(ttl, |idle| idle.and(ttl)))
    }

    fn walk(&self, has_values: bool) -> Walk {
        Walk::new(self.map.clone(), Arc::clone(&self.listener), has_values)
    }
}

//! `larder.annotate`: settings to flows, and runs over them.
//!
//! [`Flows`] has checked its settings and read no packet. Each iterator and each Arrow stream of it is a run of its
//! own, which ends when its reader is dropped. That of a stream begins with the first batch that is asked for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::RecordBatchReader;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, SchemaRef};
use larder_cli::embedded::fields::FIELDS;
use larder_cli::embedded::rows::{self, Cell};
use larder_cli::embedded::{self, Ended, Next, Run};
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use pyo3::types::{PyCapsule, PyDict, PyList, PyString};

use crate::columns::{Columns, schema, text_of};
use crate::{Error, arguments};

/// The longest wait between two looks for Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(50);

/// The flows in these captures (pcap or pcapng, also compressed), read as one in order of time, with names.
///
/// The settings are those of `larder annotate`, with _ for -; larder/__init__.pyi lists them, and from_ is --from. No
/// packet is read before the result is used.
#[pyfunction]
#[pyo3(signature = (paths=None, /, **settings))]
pub fn annotate(
    paths: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Flows> {
    let (paths, settings) = (arguments::paths(paths)?, arguments::settings(settings)?);
    let flows = embedded::Flows::new(&paths, &settings).map_err(Error::new_err)?;
    Ok(Flows { flows, last: Arc::default() })
}

/// Flows of captures, as a table for readers of Arrow data, or as records. Each use reads the captures again.
#[pyclass(frozen, module = "larder")]
pub struct Flows {
    flows: embedded::Flows,
    last: Arc<Last>,
}

/// How the last run ended that came to its end.
#[derive(Default)]
struct Last(Mutex<Option<Ended>>);

impl Last {
    fn set(&self, ended: Option<Ended>) {
        if ended.is_some() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ended;
        }
    }

    fn get(&self) -> Option<Ended> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[pymethods]
impl Flows {
    fn __iter__(&self) -> PyResult<Records> {
        let run = self.flows.start().map_err(Error::new_err)?;
        Ok(Records { run, last: Arc::clone(&self.last), chunk: Mutex::default() })
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*schema());
        let schema = schema.map_err(|error| Error::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The consumer casts, if it asks for another schema: the protocol allows that.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let stream = FFI_ArrowArrayStream::new(Box::new(Batches::new(self)));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The counters of the last run that came to its end, as --stats writes them; None before that.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let parse = |ended: Ended| py.import("json")?.call_method1("loads", (ended.stats,));
        self.last.get().map(parse).transpose()
    }

    /// The lines that the program prints at the end of a run: packets, names, damage; None before that.
    #[getter]
    fn summary(&self) -> Option<String> {
        self.last.get().map(|ended| ended.text)
    }
}

/// The batches of a run, for an Arrow stream. No call of it needs Python.
struct Batches {
    flows: embedded::Flows,
    last: Arc<Last>,
    /// `None` before the first batch.
    run: Option<Run>,
    columns: Columns,
    schema: SchemaRef,
    chunk: Chunk,
    has_ended: bool,
}

/// Rows, and how many bytes of them are taken.
#[derive(Default)]
struct Chunk {
    rows: Vec<u8>,
    taken: usize,
    /// Later rows are dropped.
    is_closed: bool,
}

impl Chunk {
    fn rest(&self) -> &[u8] {
        &self.rows[self.taken..]
    }

    /// Takes all but the last `rest_bytes`.
    fn advance(&mut self, rest_bytes: usize) {
        self.taken = self.rows.len() - rest_bytes;
    }

    fn append(&mut self, rows: Vec<u8>) {
        if self.is_closed {
            return;
        }
        if self.rest().is_empty() {
            (self.rows, self.taken) = (rows, 0);
        } else {
            self.rows.extend_from_slice(&rows);
        }
    }

    fn close(&mut self) {
        *self = Chunk { is_closed: true, ..Chunk::default() };
    }

    /// The bytes of the next row, if there is one.
    fn row(&mut self) -> Result<Option<Vec<u8>>, larder_cli::embedded::Error> {
        let mut rest = self.rest();
        if rest.is_empty() {
            return Ok(None);
        }
        for field in FIELDS {
            rows::next(field.kind, &mut rest)?;
        }
        let (begin, left) = (self.taken, rest.len());
        self.advance(left);
        Ok(Some(self.rows[begin..self.taken].to_vec()))
    }
}

impl Batches {
    fn new(flows: &Flows) -> Batches {
        let schema = schema();
        Batches {
            flows: flows.flows.clone(),
            last: Arc::clone(&flows.last),
            run: None,
            columns: Columns::new(schema.clone()),
            schema,
            chunk: Chunk::default(),
            has_ended: false,
        }
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, String> {
        if self.run.is_none() {
            self.run = Some(self.flows.start()?);
        }
        let Some(run) = &self.run else { return Ok(None) };
        loop {
            let mut rest = self.chunk.rest();
            while !rest.is_empty() && !self.columns.is_full() {
                self.columns.take(&mut rest).map_err(|error| error.to_string())?;
            }
            let left = rest.len();
            self.chunk.advance(left);
            if self.columns.is_full() {
                break;
            }
            match run.next(Duration::from_secs(1))? {
                Next::Rows(rows) => self.chunk.append(rows),
                Next::NotYet => {}
                Next::End(ended) => {
                    self.last.set(ended);
                    self.has_ended = true;
                    break;
                }
            }
        }
        self.columns.finish().transpose().map_err(|error| error.to_string())
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let batch = self.next_batch();
        self.has_ended |= batch.is_err();
        let error = |text: String| ArrowError::IoError(text.clone(), std::io::Error::other(text));
        batch.map_err(error).transpose()
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// The flows as dictionaries; a field that is absent is not in its dictionary. Times are ns since 1970 UTC.
#[pyclass(frozen, module = "larder")]
pub struct Records {
    run: Run,
    last: Arc<Last>,
    chunk: Mutex<Chunk>,
}

#[pymethods]
impl Records {
    fn __iter__(records: Bound<'_, Self>) -> Bound<'_, Self> {
        records
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        loop {
            if let Some(record) = self.take(py)? {
                return Ok(Some(record));
            }
            match py.detach(|| self.run.next(PATIENCE)).map_err(Error::new_err)? {
                Next::Rows(rows) => self.chunk(py).append(rows),
                Next::NotYet => py.check_signals()?,
                Next::End(ended) => {
                    self.last.set(ended);
                    // Another thread may have added rows meanwhile.
                    return self.take(py);
                }
            }
        }
    }

    /// Ends the run. The records that it has are dropped.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.run.stop());
        self.chunk(py).close();
    }

    fn __enter__(records: Bound<'_, Self>) -> Bound<'_, Self> {
        records
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

impl Records {
    /// The next record of the chunk. Its object is made without the chunk's lock: Python may then call anything, also
    /// these records.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let row = self.chunk(py).row().map_err(|error| Error::new_err(error.to_string()))?;
        row.map(|row| record(py, &row)).transpose()
    }

    /// Waits without Python's lock.
    fn chunk(&self, py: Python<'_>) -> MutexGuard<'_, Chunk> {
        self.chunk.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

/// A row as a dictionary; what is absent is not in it.
fn record<'py>(py: Python<'py>, mut row: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let names = names(py);
    let record = PyDict::new(py);
    for (field, name) in FIELDS.iter().zip(names) {
        let cell =
            rows::next(field.kind, &mut row).map_err(|error| Error::new_err(error.to_string()))?;
        match cell {
            None => {}
            Some(Cell::Number(number)) => record.set_item(name, number)?,
            Some(Cell::Flag(flag)) => record.set_item(name, flag)?,
            Some(Cell::Text(text)) => record.set_item(name, text_of(text))?,
            Some(Cell::List(list)) => {
                record.set_item(name, PyList::new(py, list.map(text_of).collect::<Vec<_>>())?)?
            }
        }
    }
    Ok(record)
}

/// The names of the fields, made once.
fn names(py: Python<'_>) -> &'static [Py<PyString>] {
    static NAMES: PyOnceLock<Vec<Py<PyString>>> = PyOnceLock::new();
    NAMES.get_or_init(py, || {
        FIELDS.iter().map(|field| PyString::intern(py, field.name).unbind()).collect()
    })
}

//! Parquet: the schema, a column a field, for DuckDB, Polars, ClickHouse, Spark.
//!
//! Every column is optional; absent is null. Times are `TIMESTAMP(NANOS, UTC)`, lists are `LIST`,
//! addresses, words and names are strings, names in the `\xHH` spelling (a Parquet string must be
//! UTF-8, and readers print it). Pages are compressed with Snappy.
//!
//! Columns can't be written by many workers, but nearly all of the work can be done by them: they render
//! [`rows`](super::rows), and [`Writer`], one a file, takes them apart into columns.
//!
//! Memory is flat with the size of the file: a row group is written when it holds [`ROWS_MAX`] rows
//! or [`GROUP_BYTES_MAX`] bytes of rows; with the columns being encoded that came to 150 MB. The
//! metadata of finished groups stays until the end, some 10 KiB each.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type as Node, TypePtr};

use super::fields::FIELDS;
use super::rows::{self, Cell};
use super::schema::{Field, Type};
use crate::Error;

/// Most rows in a row group.
pub const ROWS_MAX: usize = 122_880;

/// Bytes of rows at which a row group is closed.
pub const GROUP_BYTES_MAX: usize = 64 << 20;

/// Writes a Parquet file.
///
/// Call [`Writer::finish`] at the end: a Parquet file without its footer cannot be read. After an
/// error the file cannot be continued.
pub struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Column>,
    rows: usize,
    bytes: usize,
}

impl<W: Write + Send> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// [`Error::Output`], [`Error::ClosedPipe`]: see there.
    pub fn new(out: W) -> Result<Writer<W>, Error> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("larder ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let file = SerializedFileWriter::new(out, message().map_err(failed)?, Arc::new(properties))
            .map_err(failed)?;
        let columns = FIELDS.iter().map(|field| Column::of(field.kind)).collect();
        Ok(Writer { file, columns, rows: 0, bytes: 0 })
    }

    /// Adds any number of [rows](super::rows).
    ///
    /// # Errors
    /// [`Error::Output`], [`Error::ClosedPipe`]: see there. Damaged rows are an output error too: a
    /// temporary file was damaged.
    pub fn push_rows(&mut self, mut rows: &[u8]) -> Result<(), Error> {
        while !rows.is_empty() {
            let before = rows.len();
            for (column, field) in self.columns.iter_mut().zip(FIELDS) {
                column.push(rows::next(field.kind, &mut rows)?);
            }
            self.rows += 1;
            self.bytes += before - rows.len();
            if self.rows >= ROWS_MAX || self.bytes >= GROUP_BYTES_MAX {
                self.close_group()?;
            }
        }
        Ok(())
    }

    /// Writes the rest, and the footer; returns the output.
    ///
    /// # Errors
    /// [`Error::Output`], [`Error::ClosedPipe`]: see there.
    pub fn finish(mut self) -> Result<W, Error> {
        if self.rows > 0 {
            self.close_group()?;
        }
        self.file.into_inner().map_err(failed)
    }

    fn close_group(&mut self) -> Result<(), Error> {
        let mut group = self.file.next_row_group().map_err(failed)?;
        for column in &mut self.columns {
            let mut writer = group
                .next_column()
                .map_err(failed)?
                .expect("the file has as many columns as the schema has fields");
            column.write(&mut writer).map_err(failed)?;
            writer.close().map_err(failed)?;
        }
        group.close().map_err(failed)?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

/// Converts an error; a closed pipe is distinguished, as everywhere.
fn failed(error: ParquetError) -> Error {
    if let ParquetError::External(source) = &error
        && let Some(io) = source.downcast_ref::<io::Error>()
        && io.kind() == io::ErrorKind::BrokenPipe
    {
        return Error::ClosedPipe;
    }
    Error::Output {
        what: "Parquet".to_owned(),
        why: format!("{error}: make room, or name another place with -o"),
    }
}

/// The values of one field in the current row group.
struct Column {
    values: Values,
    /// A definition level for each row (a list: for each element): see [`node`].
    definitions: Vec<i16>,
    /// Lists only: 0 where a row begins.
    repetitions: Vec<i16>,
}

enum Values {
    Numbers(Vec<i64>),
    Flags(Vec<bool>),
    Strings(Strings),
    Lists(Strings),
}

/// Strings one after another: one allocation for all of a column.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Column {
    fn of(kind: Type) -> Column {
        let values = match kind {
            Type::Date | Type::Long => Values::Numbers(Vec::new()),
            Type::Boolean => Values::Flags(Vec::new()),
            Type::Keyword | Type::Ip | Type::Id => Values::Strings(Strings::default()),
            Type::Keywords | Type::Ips => Values::Lists(Strings::default()),
        };
        Column { values, definitions: Vec::new(), repetitions: Vec::new() }
    }

    /// Adds this field's value in a row.
    fn push(&mut self, value: Option<Cell<'_>>) {
        if let Values::Lists(strings) = &mut self.values {
            let before = self.definitions.len();
            if let Some(Cell::List(list)) = value {
                list.for_each(|string| {
                    strings.push(string);
                    self.definitions.push(2);
                    self.repetitions.push(i16::from(self.definitions.len() > before + 1));
                });
            }
            if self.definitions.len() == before {
                self.definitions.push(0);
                self.repetitions.push(0);
            }
            return;
        }
        self.definitions.push(value.is_some().into());
        match (&mut self.values, value) {
            (Values::Numbers(numbers), Some(Cell::Number(number))) => numbers.push(number),
            (Values::Flags(flags), Some(Cell::Flag(flag))) => flags.push(flag),
            (Values::Strings(strings), Some(Cell::Text(string))) => strings.push(string),
            (_, value) => debug_assert!(value.is_none(), "a cell has the type of its field"),
        }
    }

    /// Writes the values, and clears them.
    fn write(&mut self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let definitions = Some(self.definitions.as_slice());
        match &mut self.values {
            Values::Numbers(numbers) => {
                writer.typed::<Int64Type>().write_batch(numbers, definitions, None)?;
                numbers.clear();
            }
            Values::Flags(flags) => {
                writer.typed::<BoolType>().write_batch(flags, definitions, None)?;
                flags.clear();
            }
            Values::Strings(strings) => {
                let strings = strings.take_all();
                writer.typed::<ByteArrayType>().write_batch(&strings, definitions, None)?;
            }
            Values::Lists(strings) => {
                let strings = strings.take_all();
                let repetitions = Some(self.repetitions.as_slice());
                writer.typed::<ByteArrayType>().write_batch(&strings, definitions, repetitions)?;
            }
        }
        self.definitions.clear();
        self.repetitions.clear();
        Ok(())
    }
}

impl Strings {
    fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    /// All strings, as views of one buffer.
    fn take_all(&mut self) -> Vec<ByteArray> {
        let bytes = ByteArray::from(std::mem::take(&mut self.bytes));
        let mut start = 0;
        let strings = self.ends.drain(..).map(|end| {
            let string = bytes.slice(start, end - start);
            start = end;
            string
        });
        strings.collect()
    }
}

/// The schema in Parquet's terms.
fn message() -> Result<TypePtr, ParquetError> {
    let fields = FIELDS.iter().map(node).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(Node::group_type_builder("flow").with_fields(fields).build()?))
}

/// One field in Parquet's terms. A list is the three-level structure of the format's
/// LogicalTypes.md, whose elements are required: an absent list is level 0, an element level 2.
fn node(field: &Field) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match field.kind {
        Type::Date => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
        Type::Long => (Physical::INT64, None),
        Type::Boolean => (Physical::BOOLEAN, None),
        Type::Keyword | Type::Keywords | Type::Ip | Type::Ips | Type::Id => {
            (Physical::BYTE_ARRAY, Some(LogicalType::String))
        }
    };
    let value = |name, repetition| {
        Node::primitive_type_builder(name, physical)
            .with_logical_type(logical.clone())
            .with_repetition(repetition)
            .build()
            .map(Arc::new)
    };
    if !field.kind.is_list() {
        return value(field.name, Repetition::OPTIONAL);
    }
    let list = Node::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![value("element", Repetition::REQUIRED)?])
        .build()?;
    let outer = Node::group_type_builder(field.name)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(list)])
        .build()?;
    Ok(Arc::new(outer))
}

//! The rows of a run as columns of Arrow: the types of `--format parquet`.
//!
//! Every column may have nulls: what is absent is null. Times are timestamps in nanoseconds, UTC; words, names and
//! addresses are strings; lists are lists of strings. Cost: a copy of each value into its column; then the columns
//! pass to their reader without another.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Int64Builder, ListBuilder, StringBuilder,
    TimestampNanosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use larder_cli::embedded::Error;
use larder_cli::embedded::fields::FIELDS;
use larder_cli::embedded::rows::{self, Cell};
use larder_cli::embedded::schema::Type;

/// Rows of a batch, at most.
const ROWS_MAX: usize = 1 << 14;

const ZONE: &str = "UTC";

/// The schema of all runs.
pub fn schema() -> SchemaRef {
    let fields = FIELDS.iter().map(|field| Field::new(field.name, data_type(field.kind), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn data_type(kind: Type) -> DataType {
    match kind {
        Type::Date => DataType::Timestamp(TimeUnit::Nanosecond, Some(ZONE.into())),
        Type::Long => DataType::Int64,
        Type::Boolean => DataType::Boolean,
        Type::Keyword | Type::Ip | Type::Id => DataType::Utf8,
        Type::Keywords | Type::Ips => {
            DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
        }
    }
}

/// A batch that is being made.
pub struct Columns {
    columns: Vec<Column>,
    schema: SchemaRef,
    rows: usize,
}

enum Column {
    Times(TimestampNanosecondBuilder),
    Numbers(Int64Builder),
    Flags(BooleanBuilder),
    Strings(StringBuilder),
    Lists(ListBuilder<StringBuilder>),
}

impl Columns {
    /// An empty batch.
    pub fn new(schema: SchemaRef) -> Columns {
        let columns = FIELDS.iter().map(|field| Column::of(field.kind)).collect();
        Columns { columns, schema, rows: 0 }
    }

    /// Takes one row from the front of `rows`.
    pub fn take(&mut self, rows: &mut &[u8]) -> Result<(), Error> {
        for (column, field) in self.columns.iter_mut().zip(FIELDS) {
            column.push(rows::next(field.kind, rows)?);
        }
        self.rows += 1;
        Ok(())
    }

    /// True if the batch takes no more rows.
    pub fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX
    }

    /// The batch, unless it has no rows. The next one is empty.
    pub fn finish(&mut self) -> Option<Result<RecordBatch, ArrowError>> {
        if self.rows == 0 {
            return None;
        }
        self.rows = 0;
        let columns = self.columns.iter_mut().map(Column::finish).collect();
        Some(RecordBatch::try_new(self.schema.clone(), columns))
    }
}

impl Column {
    fn of(kind: Type) -> Column {
        match kind {
            Type::Date => Column::Times(TimestampNanosecondBuilder::new().with_timezone(ZONE)),
            Type::Long => Column::Numbers(Int64Builder::new()),
            Type::Boolean => Column::Flags(BooleanBuilder::new()),
            Type::Keyword | Type::Ip | Type::Id => Column::Strings(StringBuilder::new()),
            Type::Keywords | Type::Ips => Column::Lists(ListBuilder::new(StringBuilder::new())),
        }
    }

    fn push(&mut self, cell: Option<Cell<'_>>) {
        match (self, cell) {
            (Column::Times(times), Some(Cell::Number(ns))) => times.append_value(ns),
            (Column::Times(times), _) => times.append_null(),
            (Column::Numbers(numbers), Some(Cell::Number(number))) => numbers.append_value(number),
            (Column::Numbers(numbers), _) => numbers.append_null(),
            (Column::Flags(flags), Some(Cell::Flag(flag))) => flags.append_value(flag),
            (Column::Flags(flags), _) => flags.append_null(),
            (Column::Strings(strings), Some(Cell::Text(text))) => {
                strings.append_value(text_of(text))
            }
            (Column::Strings(strings), _) => strings.append_null(),
            (Column::Lists(lists), Some(Cell::List(list))) => {
                list.for_each(|text| lists.values().append_value(text_of(text)));
                lists.append(true);
            }
            (Column::Lists(lists), _) => lists.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        let builder: &mut dyn ArrayBuilder = match self {
            Column::Times(builder) => builder,
            Column::Numbers(builder) => builder,
            Column::Flags(builder) => builder,
            Column::Strings(builder) => builder,
            Column::Lists(builder) => builder,
        };
        builder.finish()
    }
}

/// Text of a row, which is ASCII.
pub fn text_of(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or_default()
}

//! The Parquet format, read back by the reader of the same crate (other readers are tested
//! elsewhere).
#![cfg(feature = "parquet")]

mod format_records;

use std::io::{self, Write};

use bytes::Bytes;
use format_records::{HOSTILE, all, hostile, web};
use larder_annotate::Error;
use larder_annotate::format::Format;
use larder_annotate::format::fields::FIELDS;
use larder_annotate::format::parquet::{ROWS_MAX, Writer};
use larder_annotate::options::OutputFormat;
use larder_annotate::record::FlowRecord;
use larder_wire::Name;
use parquet::basic::{LogicalType, TimeUnit};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

fn read_back(file: Vec<u8>) -> SerializedFileReader<Bytes> {
    SerializedFileReader::new(Bytes::from(file)).expect("a Parquet file")
}

/// A writer of rows of these records.
fn written(records: &[FlowRecord]) -> Writer<Vec<u8>> {
    let mut writer = Writer::new(Vec::new()).expect("memory takes everything");
    writer.push_rows(&rows(records)).expect("memory takes everything");
    writer
}

fn rows(records: &[FlowRecord]) -> Vec<u8> {
    let format = Format::new(OutputFormat::Parquet, false).expect("built with the feature");
    let mut rows = Vec::new();
    records.iter().for_each(|record| format.writer().record(record, &mut rows));
    rows
}

/// The portions in which rows reach the writer do not change the file.
#[test]
fn portions_of_rows_make_the_same_file() {
    let records = all();
    let mut by_portions = written(&records[..1]);
    by_portions.push_rows(&rows(&records[1..])).expect("memory takes everything");
    let file = by_portions.finish().expect("memory takes everything");
    assert_eq!(file, written(&records).finish().expect("memory takes everything"));
    assert_eq!(read_back(file).metadata().file_metadata().num_rows(), records.len() as i64);
}

/// Columns have the names and types that the schema says; times are instants in nanoseconds.
#[test]
fn columns() {
    let writer = Writer::new(Vec::new()).expect("memory takes everything");
    let reader = read_back(writer.finish().expect("memory takes everything"));
    let schema = reader.metadata().file_metadata().schema_descr();
    assert_eq!(schema.num_columns(), FIELDS.len());
    let names = schema.root_schema().get_fields().iter().map(|field| field.name());
    assert!(names.eq(FIELDS.iter().map(|field| field.name)));
    let expected = LogicalType::timestamp(true, TimeUnit::NANOS);
    assert_eq!(schema.column(0).logical_type_ref(), Some(&expected));
}

/// Hostile names stay within their value, in the escaped spelling.
#[test]
fn hostile_names() {
    let writer = written(&[hostile()]);
    let reader = read_back(writer.finish().expect("memory takes everything"));
    let row = reader.get_row_iter(None).expect("rows").next().expect("a row").expect("a row");
    let at = |name| FIELDS.iter().position(|field| field.name == name).expect("a field");
    let mut escaped = Vec::new();
    Name::write_escaped(HOSTILE, &mut escaped);
    let domain = row.get_string(at("destination.domain")).expect("a string");
    assert_eq!(domain.as_bytes(), escaped);
    let candidates = row.get_list(at("larder.destination.candidates")).expect("a list");
    assert_eq!(candidates.len(), 3);
}

/// A long log is cut into row groups, so that memory stays flat, and no row is lost at the cuts.
#[test]
fn row_groups_are_bounded() {
    let row = rows(&[web()]);
    let mut writer = Writer::new(Vec::new()).expect("memory takes everything");
    for _ in 0..=ROWS_MAX {
        writer.push_rows(&row).expect("memory takes everything");
    }
    let reader = read_back(writer.finish().expect("memory takes everything"));
    let groups = reader.metadata().row_groups();
    let rows: Vec<_> = groups.iter().map(|group| group.num_rows()).collect();
    assert!(rows.len() >= 2, "{rows:?}");
    assert_eq!(rows.iter().sum::<i64>(), ROWS_MAX as i64 + 1);
}

/// A closed pipe is reported differently from a full disk.
#[test]
fn errors_of_the_output() {
    struct Failing(io::ErrorKind);
    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }
    let outcome = |kind| {
        let mut writer = Writer::new(Failing(kind))?;
        writer.push_rows(&rows(&[web()]))?;
        writer.finish().map(|_| ())
    };
    assert!(matches!(outcome(io::ErrorKind::BrokenPipe), Err(Error::ClosedPipe)));
    assert!(matches!(outcome(io::ErrorKind::StorageFull), Err(Error::Output { .. })));
}

//! The schema: that the formats made from it agree, and that the guide describes it.

mod format_records;

use std::collections::HashSet;
use std::path::PathBuf;

use format_records::{all, full, log, ping, web};
use larder_annotate::format::fields::FIELDS;
use larder_annotate::format::schema::{Type, Value};
use larder_annotate::options::OutputFormat;
use larder_annotate::record::FlowRecord;

/// Names are unique, in both spellings, and `@timestamp` comes first and is always there.
/// Invariant 1 of `schema`.
#[test]
fn names_are_unique() {
    let names: HashSet<_> = FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(names.len(), FIELDS.len());
    let zeek: Vec<_> = FIELDS.iter().filter_map(|field| field.zeek).collect();
    assert_eq!(zeek.iter().collect::<HashSet<_>>().len(), zeek.len());
    assert_eq!(FIELDS[0].name, "@timestamp");
    assert!(all().iter().all(|record| matches!((FIELDS[0].get)(record), Value::Time(_))));
}

/// Every value has its field's type, and every field but the reasons for no name has a value when
/// everything is known. Invariant 2 of `schema`.
#[test]
fn values_have_their_types() {
    for record in &all() {
        for field in FIELDS {
            let sound = match (field.get)(record) {
                Value::Absent => true,
                Value::Time(_) => field.kind == Type::Date,
                Value::Word(_) | Value::Name(_) | Value::CommunityId(_) | Value::Uid(_) => {
                    field.kind == Type::Keyword
                }
                Value::Words(_) => field.kind == Type::Keywords,
                Value::Names(names) => field.kind == Type::Keywords && !names.is_empty(),
                Value::Ip(_) => field.kind == Type::Ip,
                Value::Ips(_) => field.kind == Type::Ips,
                Value::Id(_) => field.kind == Type::Id,
                Value::Number(number) => field.kind == Type::Long && number <= i64::MAX as u64,
                Value::Flag(_) => field.kind == Type::Boolean,
            };
            assert!(sound, "{}", field.name);
        }
    }
    for field in FIELDS {
        let absent = matches!((field.get)(&full()), Value::Absent);
        assert_eq!(absent, field.name.ends_with("unnamed_reason"), "{}", field.name);
    }
}

/// Sizes beyond what a `long` holds are cut to it, not wrapped.
#[test]
fn numbers_saturate() {
    let mut record = web();
    record.source.ip_bytes = u64::MAX;
    (record.start_ns, record.end_ns) = (i64::MIN, i64::MAX);
    for name in ["source.bytes", "network.bytes", "event.duration"] {
        let field = FIELDS.iter().find(|field| field.name == name).expect("a field");
        let Value::Number(number) = (field.get)(&record) else { panic!("{name}") };
        assert_eq!(number, i64::MAX as u64, "{name}");
    }
}

/// A record as pairs of name and plain text, whatever format it was read from.
type Plain = Vec<(String, String)>;

fn plain_ecs(records: &[FlowRecord]) -> Vec<Plain> {
    let text = log(OutputFormat::Ecs, false, records).expect("a line format");
    let plain = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(list) => {
            let words: Vec<_> = list.iter().filter_map(|word| word.as_str()).collect();
            words.join(" ")
        }
        other => other.to_string(),
    };
    text.lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let value = |name| line.get(name).map_or(String::new(), plain);
            FIELDS.iter().map(|field| (field.name.to_owned(), value(field.name))).collect()
        })
        .collect()
}

fn plain_csv(records: &[FlowRecord]) -> Vec<Plain> {
    let text = log(OutputFormat::Csv, false, records).expect("a line format");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().expect("a header").clone();
    reader
        .records()
        .map(|row| {
            let row = row.expect("as many cells as the header has");
            header.iter().map(str::to_owned).zip(row.iter().map(str::to_owned)).collect()
        })
        .collect()
}

#[cfg(feature = "parquet")]
fn plain_parquet(records: &[FlowRecord]) -> Vec<Plain> {
    use larder_annotate::format::RecordWriter as _;
    use larder_annotate::format::parquet::Writer;
    use larder_annotate::format::rows::Rows;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    // The API of rows has no nanoseconds; it gives times as numbers.
    let rfc3339 = |ns: i64| {
        let record = FlowRecord { start_ns: ns, ..web() };
        plain_csv(&[record])[0][0].1.clone()
    };
    let plain = |name: &str, field: &Field| match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Bool(flag) => flag.to_string(),
        Field::Long(ns)
            if matches!(
                name,
                "@timestamp" | "event.start" | "event.end" | "larder.continued_since"
            ) =>
        {
            rfc3339(*ns)
        }
        Field::Long(number) => number.to_string(),
        Field::ListInternal(list) => {
            let words = list.elements().iter().map(|element| match element {
                Field::Str(text) => text.as_str(),
                other => panic!("{other:?} in a list of strings"),
            });
            words.collect::<Vec<_>>().join(" ")
        }
        other => panic!("{other:?} is of no type of ours"),
    };
    let mut rows = Vec::new();
    records.iter().for_each(|record| Rows.record(record, &mut rows));
    let mut writer = Writer::new(Vec::new()).expect("memory");
    writer.push_rows(&rows).expect("memory");
    let file = bytes::Bytes::from(writer.finish().expect("memory"));
    let reader = SerializedFileReader::new(file).expect("a Parquet file");
    let rows = reader.get_row_iter(None).expect("rows");
    rows.map(|row| {
        let row = row.expect("a row");
        row.get_column_iter().map(|(name, field)| (name.clone(), plain(name, field))).collect()
    })
    .collect()
}

/// The structured formats have the same value for every field, read back by other readers.
#[test]
fn formats_agree() {
    // Hostile names are spelled differently by design (JSON has escapes of its own).
    let records = [web(), full(), ping()];
    let ecs = plain_ecs(&records);
    assert_eq!(ecs, plain_csv(&records));
    #[cfg(feature = "parquet")]
    assert_eq!(ecs, plain_parquet(&records));
}

/// The guide has exactly the table's rows. With `LARDER_BLESS=1` the test writes them instead.
#[test]
fn guide_lists_every_field() {
    const BEGIN: &str = "<!-- fields: checked by the test guide_lists_every_field -->\n";
    const END: &str = "<!-- end of fields -->\n";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/fields.md");
    let guide = std::fs::read_to_string(&path).expect("the guide is part of the repository");
    let (before, rest) = guide.split_once(BEGIN).expect("the table begins");
    let (table, after) = rest.split_once(END).expect("the table ends");

    let mut expected = String::from(
        "| Field | Type | Unit | Zeek column | Meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for field in FIELDS {
        let list = if field.kind.is_list() { " list" } else { "" };
        let zeek = field.zeek.map_or(String::new(), |zeek| format!("`{zeek}`"));
        let (name, kind, unit, doc) = (field.name, field.kind.ecs(), field.unit, field.doc);
        expected.push_str(&format!("| `{name}` | {kind}{list} | {unit} | {zeek} | {doc} |\n"));
    }
    if std::env::var_os("LARDER_BLESS").is_some() {
        let guide = format!("{before}{BEGIN}{expected}{END}{after}");
        return std::fs::write(&path, guide).expect("the guide can be written");
    }
    assert_eq!(table, expected, "run this test with LARDER_BLESS=1, and read the change");
}

/// A row has every value of its record, and one that is cut anywhere is an error.
#[test]
fn rows_are_whole_or_an_error() {
    use larder_annotate::format::rows::{self, Rows};
    use larder_annotate::format::{RecordWriter as _, schema::Type};

    let read = |mut row: &[u8]| {
        for field in FIELDS {
            if let Some(rows::Cell::List(list)) = rows::next(field.kind, &mut row)? {
                assert!(field.kind.is_list() && list.count() > 0, "{}", field.name);
            }
        }
        assert!(row.is_empty());
        Ok::<_, larder_annotate::Error>(())
    };
    for record in all() {
        let mut row = Vec::new();
        Rows.record(&record, &mut row);
        read(&row).expect("whole");
        for len in 0..row.len() {
            assert!(read(&row[..len]).is_err(), "cut at {len}");
        }
        // Bytes that say something else: an error or other values.
        for at in 0..row.len() {
            let mut wrong = row.clone();
            wrong[at] ^= 0xff;
            let mut rest = &wrong[..];
            let _ = FIELDS.iter().try_for_each(|field| rows::next(field.kind, &mut rest).map(drop));
        }
    }
    assert!(FIELDS.iter().any(|field| field.kind == Type::Ips));
}

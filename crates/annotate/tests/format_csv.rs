//! The CSV format, read back by the `csv` crate.

mod format_records;

use format_records::{HOSTILE, all, hostile, log, web};
use larder_annotate::format::fields::FIELDS;
use larder_annotate::options::OutputFormat;
use larder_wire::Name;

fn read_back(text: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().expect("a header").iter().map(str::to_owned).collect();
    let rows = reader.records().map(|row| {
        let row = row.expect("as many cells as the header has");
        row.iter().map(str::to_owned).collect()
    });
    (header, rows.collect())
}

/// A line, whole, so that a change of any cell is seen.
#[test]
fn golden() {
    let text = log(OutputFormat::Csv, false, &[web()]).expect("a line format");
    let expected = concat!(
        "2024-01-02T03:04:05.123456789Z,8.17.0,event,network,connection,",
        "larder.flow,larder,Cm03nOU5yCMeZsFI9f,larder,sensor,",
        env!("CARGO_PKG_VERSION"),
        ",2024-01-02T03:04:05.123456789Z,2024-01-02T03:04:17.469135578Z,12345678789,",
        "tcp,ipv4,tls,1:WFu5YQGJptNO6IrtaHnl24qBbd0=,,,,35801,40,",
        "10.0.0.5,49152,,1234,11,93.184.216.34,443,www.example.com,example.com,34567,29,",
        ",,dns_pair,www.example.com cdn.example.net,,,,,,,,,,,,local,98,",
        "250,true,false,true,false,,false,false,false,false,,",
        "www.example.com,true,,,,,,10.0.0.5 93.184.216.34,www.example.com cdn.example.net",
    );
    assert_eq!(text.lines().nth(1), Some(expected));
}

/// The header is the schema, and every record has a cell for each field.
#[test]
fn header() {
    let (header, rows) = read_back(&log(OutputFormat::Csv, false, &all()).expect("a line format"));
    assert!(header.iter().eq(FIELDS.iter().map(|field| field.name)));
    assert_eq!(rows.len(), all().len());
}

/// A hostile name stays in its cell, no spreadsheet runs it, and it is read back in the escaped
/// spelling once the leading `'` is removed.
#[test]
fn hostile_names() {
    let text = log(OutputFormat::Csv, false, &[hostile()]).expect("a line format");
    assert!(text.bytes().all(|byte| matches!(byte, b'\n' | 0x20..0x7f)), "{text}");
    let (header, rows) = read_back(&text);
    let cell = |name: &str| {
        let at = header.iter().position(|title| title == name).expect("a field");
        rows[0][at].as_str()
    };
    let mut escaped = Vec::new();
    Name::write_escaped(HOSTILE, &mut escaped);
    let escaped = String::from_utf8(escaped).expect("ASCII");
    assert_eq!(cell("destination.domain"), format!("'{escaped}"));
    assert_eq!(cell("larder.destination.candidates"), format!("'{escaped} - ."));
    assert_eq!(cell("url.domain"), "'@sum(a1),b");
}

/// Each first byte that makes a spreadsheet see a formula gets a `'` before it, and so does the `'`
/// itself; other names are unchanged.
#[test]
fn formulas() {
    for (host, expected) in [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@a", "'@a"),
        ("'a", "''a"),
        ("a=1", "a=1"),
        ("\ta", r"\x09a"),
        ("\ra", r"\x0da"),
    ] {
        let mut record = web();
        record.http_host = Some(format_records::name(host.as_bytes()));
        let text = log(OutputFormat::Csv, false, &[record]).expect("a line format");
        let (header, rows) = read_back(&text);
        let at = header.iter().position(|title| title == "url.domain").expect("a field");
        assert_eq!(rows[0][at], expected);
    }
}

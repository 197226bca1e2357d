//! What no name may do, for any bytes in it and in every line format.

mod format_records;

use format_records::{full, log, name};
use larder_annotate::format::fields::FIELDS;
use larder_annotate::options::OutputFormat;
use larder_annotate::record::FlowRecord;
use proptest::prelude::*;

/// Bytes as hostile clients choose them: random ones, and the ones that formats give a meaning.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let special = prop::sample::select(b"=+-@'\",;\\\t\r\n\x00\x1b\x7f\x9b (){}[]#.".to_vec());
    prop::collection::vec(prop_oneof![any::<u8>(), special], 1..40)
}

fn record_with(bytes: &[Vec<u8>; 4]) -> FlowRecord {
    let mut record = full();
    let [source, destination, server_name, host] = bytes.each_ref().map(|bytes| name(bytes));
    if let Some(naming) = &mut record.source.naming {
        naming.name = source;
    }
    if let Some(naming) = &mut record.destination.naming {
        naming.name = destination;
    }
    (record.tls_server_name, record.http_host) = (Some(server_name), Some(host));
    record
}

proptest! {
    /// Whatever the names are, a record is one line of printable ASCII (and tabs, in Zeek) that
    /// has as many values as the format's header says.
    /// Invariant 1 of `format`, and invariant 2 of `text`.
    #[test]
    fn a_record_stays_a_line(names in [any_bytes(), any_bytes(), any_bytes(), any_bytes()]) {
        let records = [record_with(&names)];
        for output in [OutputFormat::Text, OutputFormat::Ecs, OutputFormat::Zeek, OutputFormat::Csv] {
            let text = log(output, false, &records).expect("a line format");
            let tabs = output == OutputFormat::Zeek;
            let harmless = |byte| {
                matches!(byte, b'\n' | 0x20..0x7f) || tabs && byte == b'\t'
            };
            prop_assert!(text.bytes().all(harmless), "{}", text);
            let headers = match output {
                OutputFormat::Ecs => 0,
                OutputFormat::Zeek => 9,
                _ => 1,
            };
            prop_assert_eq!(text.lines().count(), headers + 1);
            let line = text.lines().find(|line| !line.starts_with('#') && !line.starts_with("@time"));
            let line = line.expect("a record");
            match output {
                OutputFormat::Text => prop_assert_eq!(line.split_ascii_whitespace().count(), 16),
                OutputFormat::Zeek => prop_assert_eq!(line.split('\t').count(), 61),
                OutputFormat::Csv => {
                    let mut reader = csv::ReaderBuilder::new();
                    let mut reader = reader.has_headers(false).from_reader(line.as_bytes());
                    let row = reader.records().next().expect("a row").expect("sound CSV");
                    prop_assert_eq!(row.len(), FIELDS.len());
                    prop_assert!(row.iter().all(|cell| !cell.starts_with(['=', '+', '-', '@'])));
                }
                _ => {
                    let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
                    prop_assert!(line["destination.domain"].is_string());
                }
            }
        }
    }

    /// A name is spelled in JSON as in every other format, and names that differ are spelled
    /// differently.
    #[test]
    fn json_spells_names_as_others_do(one in any_bytes(), other in any_bytes()) {
        let spelled = |bytes: &Vec<u8>| {
            let record = record_with(&[vec![b'a'], bytes.clone(), vec![b'b'], vec![b'c']]);
            let text = log(OutputFormat::Ecs, false, &[record]).expect("a line format");
            let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            line["destination.domain"].as_str().expect("a string").to_owned()
        };
        prop_assert_eq!(spelled(&one), name(&one).to_string());
        prop_assert_eq!(one == other, spelled(&one) == spelled(&other));
    }
}

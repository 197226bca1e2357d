use super::*;
use crate::page::history::Sample;
use crate::record::NameSource;
use larder_io::access::Access;

fn parse(bytes: &[u8]) -> Result<Saved, String> {
    saved::parse(bytes, MAGIC, read)
}

/// A history and names, with hostile ones.
fn filled() -> (History, Seen) {
    let (mut history, mut seen) = (History::default(), Seen::default());
    for second in 1_000..1_300 {
        let sample = Sample { seconds: 1, packets: second << 20, delay_ms: 3, ..Sample::default() };
        history.push(second, sample);
        history.add_traffic(Some("<script>.example"), second);
        history.add_traffic(None, 1);
    }
    history.end_minute();
    seen.advance(1_300);
    for (at, name) in [&b"a.example"[..], b"\xff\x1b[31m.example"].into_iter().enumerate() {
        seen.known.is_new(name, at as u32);
        let (name, client) = (Name::from_canonical(name), Addr::v4([192, 0, 2, 1]));
        seen.new_names.push_back(NewName { name, first_ns: -5, client });
    }
    assert_eq!(NameSource::ALL.len(), seen.sources.len());
    (history, seen)
}

fn parsed(bytes: &[u8]) -> Saved {
    parse(bytes).expect("a sound file")
}

/// What is saved is read again, in a new file and over an old one, which only its user may read.
#[test]
fn what_is_saved_is_read() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history");
    assert!(load(&path).expect("no error").is_none());
    let (history, seen) = filled();
    for begun_s in [7, 8] {
        let bytes = bytes_of(begun_s, &history, &seen);
        saved::write(&path, &bytes, Access::PRIVATE).expect("written");
        let saved = load(&path).expect("sound").expect("a file");
        assert_eq!((saved.begun_s, &saved.history), (begun_s, &history));
        assert_eq!(saved.known.first_day(b"\xff\x1b[31m.example"), Some(1));
        assert_eq!(Vec::from(seen.new_names.clone()), saved.new_names);
    }
    assert_eq!(std::fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

/// Invariant 1: each byte that is changed or missing is noticed.
#[test]
fn damage_is_reported() {
    let (history, seen) = filled();
    let bytes = bytes_of(7, &history, &seen);
    parsed(&bytes);
    for at in (0..bytes.len()).step_by(37) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert!(parse(&damaged).is_err(), "byte {at}");
        assert!(parse(&bytes[..at]).is_err(), "cut at {at}");
    }
    assert_eq!(parse(b"\x7fELF").expect_err("foreign"), "it is not a history of this program");
}

/// Invariant 1: with a right checksum too, no bytes are believed.
#[test]
fn lengths_are_not_believed() {
    let sealed = |body: &[u8]| {
        let sum = crc32fast::hash(body).to_le_bytes();
        parse(&[MAGIC, body, &sum].concat()).map(drop)
    };
    let (history, seen) = filled();
    let bytes = bytes_of(7, &history, &seen);
    let body = &bytes[MAGIC.len()..bytes.len() - 4];
    assert_eq!(sealed(body), Ok(()));
    for at in 0..body.len().min(4_000) {
        for value in [0, 0x7f, 0xff] {
            let mut changed = body.to_vec();
            changed[at] = value;
            // Some changes are another sound file.
            let _ = sealed(&changed);
        }
    }
    let wrong = Err("its content is not valid".to_owned());
    for body in [&[][..], &[0xff; 30], &[0, 0xff, 0xff, 3], &[0, 1, 0xff], &[0; 200]] {
        assert_eq!(sealed(body), wrong, "{body:?}");
    }
}

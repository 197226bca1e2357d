//! Every format of traces: what its sample says, cut at every byte, compressed, damaged; and streams made up.

mod samples;

use std::io::{Cursor, Read, Write};

use larder_sim::request::Request;
use larder_sim::trace::{BATCH_REQUESTS, Damage, Error, Format, Source, Spec, read};
use larder_testkit::captures;
use proptest::prelude::*;
use samples::{Sample, samples};

/// All that a source gives. Batches are never much longer than they may be.
fn drain(mut source: Box<dyn Source>) -> (Vec<Request>, Damage) {
    let (mut batch, mut all) = (Vec::new(), Vec::new());
    loop {
        source.next(&mut batch).expect("readers count what they cannot read");
        assert!(batch.len() < BATCH_REQUESTS * 2);
        if batch.is_empty() {
            return (all, source.damage());
        }
        all.extend_from_slice(&batch);
    }
}

fn read_all(bytes: &[u8], format: Format, name: &str) -> Result<(Vec<Request>, Damage), Error> {
    read(Cursor::new(bytes.to_vec()), format, name).map(drain)
}

/// Each format reads its own sample to the last request, undamaged, told the format or not; none is missing.
#[test]
fn every_format_reads_its_sample() {
    let samples = samples();
    assert_eq!(samples.len(), Format::ALL.len() - 1);
    for sample in &samples {
        for format in [sample.format, Format::Auto] {
            let (requests, damage) = read_all(&sample.bytes, format, sample.name).unwrap();
            assert_eq!(requests, sample.requests, "{} read as {format}", sample.format);
            assert_eq!(damage, Damage::default(), "{} read as {format}", sample.format);
        }
    }
}

/// A byte order mark before a text, as spreadsheets write it, says nothing, whether the format is told or not;
/// keys without a frame may begin with the same bytes.
#[test]
fn a_mark_before_text_is_skipped() {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let mut texts = 0;
    for sample in samples().iter().filter(|sample| !sample.bytes.contains(&0)) {
        texts += 1;
        for format in [sample.format, Format::Auto] {
            let marked = [MARK, &sample.bytes].concat();
            let (requests, damage) = read_all(&marked, format, sample.name).unwrap();
            assert_eq!(requests, sample.requests, "{} read as {format}", sample.format);
            assert_eq!(damage, Damage::default(), "{} read as {format}", sample.format);
        }
    }
    assert_eq!(texts, 8);
    let key_first = read_all(b"\xef\xbb\xbfkey,time\na,1\n", Format::Auto, "x").unwrap().0;
    assert_eq!(key_first, read_all(b"key,time\na,1\n", Format::Csv, "x").unwrap().0);
    let (requests, damage) = read_all(MARK, Format::Keys, "x").unwrap();
    assert_eq!((requests, damage), (vec![], Damage::default()));
    let (requests, _) = read_all(b"\xef\xbb\xbf\x01", Format::Be32, "x").unwrap();
    assert_eq!(requests, [Request::get(0xef_bb_bf_01)]);
}

/// A trace cut at any byte gives the requests before the cut (the one at it may be another: half a number is
/// a number), and says so where a record was cut.
#[test]
fn cut_anywhere() {
    for Sample { format, name, bytes, requests } in &samples() {
        let mut reported = 0;
        for cut in 0..bytes.len() {
            let Ok((part, damage)) = read_all(&bytes[..cut], *format, name) else {
                // The header of a capture, and the line that names columns, must be whole.
                assert!(
                    matches!(format, Format::PcapDns | Format::Csv) && cut < 24,
                    "{format} {cut}"
                );
                continue;
            };
            let sure = part.len().saturating_sub(1);
            assert_eq!(part[..sure], requests[..sure], "{format} cut at {cut}");
            // In what is left of a cut packet, the search for the next may see one that is cut again.
            let most = if *format == Format::PcapDns { 2 } else { 1 };
            assert!(damage.records <= most, "{format} cut at {cut}: {damage:?}");
            let binary = bytes.contains(&0);
            let place = if binary { "byte " } else { "line " };
            assert!(damage.first.is_none_or(|first| first.starts_with(place)), "{format} {cut}");
            reported += damage.records;
        }
        let silent = matches!(format, Format::Lirs | Format::Keys);
        assert_eq!(reported == 0, silent, "{format}: {reported}");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// A compressed trace gives the same. One that is cut gives what comes out before the cut and counts the cut,
/// wherever it is, once a format is known.
#[test]
fn compressed_and_cut() {
    for Sample { format, name, bytes, requests } in &samples() {
        let (all, damage) = read_all(&gzip(bytes), Format::Auto, name).unwrap();
        assert_eq!((&all, damage.records), (requests, 0), "{format}");
    }
    let keys: Vec<u8> = (0..50_000u64).flat_map(|at| (at * at % 1009).to_be_bytes()).collect();
    let packed = gzip(&keys);
    let mut longest = 0;
    for cut in (6..packed.len()).step_by(packed.len() / 40) {
        let (part, damage) = read_all(&packed[..cut], Format::Be64, "x").unwrap();
        let expected = (0..).map(|at: u64| at * at % 1009);
        assert!(part.iter().zip(expected).all(|(request, key)| request.key == key));
        // What comes out last may be half a record besides.
        assert!((1..=2).contains(&damage.records), "{cut}: {damage:?}");
        assert!(damage.first.is_some_and(|first| first.starts_with("byte ")));
        longest = longest.max(part.len());
    }
    assert!((30_000..50_000).contains(&longest), "{longest}");
    let nothing = read_all(&packed[..8], Format::Auto, "x").unwrap_err();
    assert!(matches!(nothing, Error::Unreadable { .. }), "{nothing}");
}

/// Lines and records that make no sense are counted, the first with its place, and what is around them counts.
#[test]
fn damage_has_a_place() {
    let long = "9".repeat(1 << 20);
    let arc = "1 2\n1\n1 x\n1 99999999\n18446744073709551615 2\n7 1";
    let twitter = "line 1: not the seven columns of Twitter's traces";
    for (format, bytes, count, requests, first) in [
        (Format::Lirs, format!("1\nx\n2\n-3\n4 5\n{long}\n6"), 4, 3, "line 2: no number"),
        (Format::Arc, arc.to_owned(), 4, 3, "line 2: no count of blocks"),
        (Format::AdaptSize, "1 1\n1 1 1\nx 1 1\n".to_owned(), 2, 1, "line 1: no size"),
        (Format::Keys, format!("a b\n{long}\nb"), 1, 2, "line 2: longer than 262144 bytes"),
        (Format::Csv, "1,2,3\n1,,3\n4,5,x\n".to_owned(), 2, 1, "line 2: no key"),
        (Format::Twitter, "1,2,3\n".to_owned(), 1, 0, twitter),
        (
            Format::ZeekDns,
            "1.0\ta\n{\"ts\":\n".to_owned(),
            2,
            0,
            "line 1: a row before any #fields",
        ),
        (Format::Be32, "abcdef".to_owned(), 1, 1, "byte 4: cut short, 2 of 4 bytes"),
    ] {
        let (read, damage) = read_all(bytes.as_bytes(), format, "x").unwrap();
        assert_eq!((read.len(), damage.records), (requests, count), "{format}");
        assert_eq!(damage.first.as_deref(), Some(first));
    }
}

/// A damaged place in a capture costs what is in it, and reading goes on behind it; so does a DNS message
/// that can't be read.
#[test]
fn a_capture_with_a_hole() {
    let Sample { bytes, requests, .. } = samples::capture();
    let captured_bytes = u32::from_le_bytes(*bytes[32..].first_chunk().unwrap());
    let second = 24 + 16 + captured_bytes as usize;
    let mut holed = bytes.clone();
    holed[second..second + 16].fill(0xff);
    let (rest, damage) = read_all(&holed, Format::PcapDns, "x").unwrap();
    assert_eq!(damage.records, 1);
    let place = format!("byte {second}: capture_record_length");
    assert_eq!(damage.first, Some(place));
    assert_eq!(rest, [&requests[..1], &requests[2..]].concat());
    let mut garbled = bytes.clone();
    let label = bytes.windows(8).position(|window| window == b"\x07example").unwrap();
    garbled[label] = 0x80;
    let (rest, damage) = read_all(&garbled, Format::PcapDns, "x").unwrap();
    assert_eq!((rest, damage.records), (requests[1..].to_vec(), 1));
}

/// Gives a few bytes at a time.
struct Trickle(Cursor<Vec<u8>>, usize);

impl Read for Trickle {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = out.len().min(self.1);
        self.0.read(&mut out[..count])
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the bytes, no reader panics, time never goes back, no entry is of no bytes, and it does not
    /// matter how the bytes arrive. Samples with bytes changed reach what random ones do not.
    #[test]
    fn any_bytes(
        which in 0..13usize,
        as_format in 0..Format::ALL.len(),
        same in any::<bool>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        random in proptest::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        step in 1..50usize,
    ) {
        let Sample { format, name, mut bytes, .. } = samples().swap_remove(which);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let at = at.index(bytes.len());
        bytes.splice(at..at, random);
        let format = if same { format } else { Format::ALL[as_format] };
        let whole = read_all(&bytes, format, name);
        let parts = read(Trickle(Cursor::new(bytes), step), format, name).map(drain);
        match (whole, parts) {
            (Ok(whole), Ok(parts)) => {
                prop_assert_eq!(&whole, &parts);
                prop_assert!(whole.0.windows(2).all(|pair| pair[0].time_s <= pair[1].time_s));
                prop_assert!(whole.0.iter().all(|request| request.bytes > 0));
                prop_assert_eq!(whole.1.records == 0, whole.1.first.is_none());
            }
            (whole, parts) => {
                let text = |result: Result<_, Error>| result.err().map(|error| error.to_string());
                prop_assert_eq!(text(whole), text(parts));
            }
        }
    }
}

/// A trace far longer than what a reader may hold goes through: zeros without an end, and one endless line.
#[test]
fn long_rubbish_streams() {
    for byte in [0, b'x'] {
        for format in Format::ALL {
            let rubbish = std::io::repeat(byte).take(12 << 20);
            let fixed = [Format::Be32, Format::Le32, Format::Be64, Format::OracleGeneral];
            match read(rubbish, format, "x.be64").map(drain) {
                Ok(_) if fixed.contains(&format) || (byte == 0 && format == Format::Auto) => {}
                Ok((requests, damage)) => {
                    assert_eq!((requests.len(), damage.records), (0, 1), "{format}");
                }
                Err(error) => assert!(matches!(error, Error::Content { .. }), "{error}"),
            }
        }
    }
}

/// A stream that is made up is the same whenever it is opened, as long as it says, and another by another seed.
#[test]
fn streams_are_made_again() {
    let open =
        |name: &str, seed| drain(Spec::parse(name).unwrap().open(Format::Auto, seed).unwrap()).0;
    for (name, requests, by_seed) in [
        ("zipf:0.9:1000:100000", 100_000, true),
        ("zipf:1:1000:1000:50", 1000, true),
        ("uniform:10:70000", 70_000, true),
        ("loop:3:7", 7, true),
        ("dns:4:70000", 70_000, false),
    ] {
        let first = open(name, 1);
        assert_eq!(first.len(), requests, "{name}");
        assert!(first == open(name, 1), "{name}");
        assert_eq!(first != open(name, 2), by_seed, "{name}");
    }
    let keys: Vec<u64> = open("loop:3:7", 1).iter().map(|request| request.key).collect();
    assert!(keys[..3] == keys[3..6] && keys[6] == keys[0] && keys[0] != keys[1]);
}

/// Of every public trace, the format is found out, all is sound, and requests and distinct keys are as many as
/// a script of a few lines in another language counts.
#[test]
fn public_traces() {
    let Some(folder) = captures::public_traces("public_traces") else { return };
    for (name, format, requests, distinct) in [
        ("adaptsize-request.trace.xz", Format::Auto, 66_987, 36_815),
        ("arc-OLTP.lis.zst", Format::Auto, 914_145, 186_880),
        ("arc-P3.lis.zst", Format::Auto, 3_912_296, 762_543),
        ("corda-vaultservice.gz", Format::Auto, 135_702, 90_468),
        ("lirs-2_pools.trace.gz", Format::Auto, 100_000, 9_939),
        ("lirs-sprite.trace.gz", Format::Auto, 133_996, 7_075),
        ("scarab-recs.trace.xz", Format::Auto, 1_245_184, 258_368),
        ("web07.trace.xz", Format::Auto, 76_118, 20_484),
        // Names, types and classes; and names alone.
        ("wrccdc2018-dns-first-half.log.gz", Format::Auto, 26_807, 1_391),
        ("wrccdc2018-dns-first-half.log.gz", Format::DnsLog, 26_807, 1_092),
    ] {
        let source = Spec::File(folder.join(name)).open(format, 0).unwrap();
        let (all, damage) = drain(source);
        let mut keys: Vec<u64> = all.iter().map(|request| request.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!((all.len(), keys.len(), damage.records), (requests, distinct, 0), "{name}");
    }
}

//! Names on disk: any file is read or refused, and what was read is saved as it was.

use larder_annotate::names::{Names, Recall};
use larder_annotate::names_file::{escaped, load, save, unescaped};
use larder_annotate::options::Rules;

/// Room for some hundred names: an engine is made for each input, and a small one is made sooner.
const BUDGET_BYTES: u64 = 256 << 10;

/// The input is a names file; or, without its first line, lines of one, to which the first and the
/// last are added.
pub fn names_file(input: &[u8]) {
    let mut text = Vec::new();
    escaped(input, &mut text);
    assert!(text.iter().all(|byte| (0x21..0x7f).contains(byte)));
    assert_eq!(unescaped(&text).as_deref(), Some(input));
    let _ = unescaped(input);

    if input.starts_with(b"#larder-names") {
        return round_trip(input);
    }
    let facts =
        input.split_inclusive(|&byte| byte == b'\n').filter(|line| !line.starts_with(b"#")).count();
    let mut whole = b"#larder-names 1\n".to_vec();
    whole.extend_from_slice(input.strip_suffix(b"\n").unwrap_or(input));
    whole.extend_from_slice(format!("\n#end {facts}\n").as_bytes());
    round_trip(&whole);
}

/// What was learned from a file is saved; learned from that, it is saved as the same bytes, also as one of the files
/// that are joined.
fn round_trip(file: &[u8]) {
    for recall in [Recall::AsSaved, Recall::Joined] {
        let Some(first) = through(file, recall) else { return };
        let second = through(&first, recall).expect("what was saved can be read");
        assert_eq!(first, second, "{}\n{}", first.escape_ascii(), second.escape_ascii());
    }
}

fn through(mut file: &[u8], recall: Recall) -> Option<Vec<u8>> {
    let (mut names, _) =
        Names::new(BUDGET_BYTES, 1, 1, 4, Rules::all()).expect("a budget that does");
    load(&mut names, &mut file, false, recall, &mut || ()).ok()?;
    match recall {
        Recall::AsSaved => drop(names.commit().expect("an engine that works")),
        Recall::Joined => names.settle(&mut || ()).expect("an engine that works"),
    }
    let mut saved = Vec::new();
    save(&names, &mut saved).expect("memory can be written");
    Some(saved)
}

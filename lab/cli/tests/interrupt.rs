//! Ctrl-C in the middle of a replay.
#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use common::Scratch;
use larder_testkit::process::{has_thread, signal};

/// Runs the program on a pipe with these bytes, interrupts it while the pipe is open, and closes
/// that once the program says that it stops: exit code, standard output and error.
fn interrupted(scratch: &Scratch, line: &str, bytes: &[u8]) -> (Option<i32>, String, String) {
    let mut command = scratch.lab();
    command.args(line.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // The handlers are set before the thread that waits for signals starts.
    while !has_thread(child.id(), "signals") {
        std::thread::yield_now();
    }
    // More than the reader's window and the pipe hold: once it is written, some of it was taken.
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(bytes).expect("the program reads");
    signal(child.id(), "-INT");
    let mut pipe = BufReader::new(child.stderr.take().expect("piped"));
    let [mut out, mut err] = [String::new(), String::new()];
    pipe.read_line(&mut err).expect("UTF-8");
    drop(stdin);
    pipe.read_to_string(&mut err).expect("UTF-8");
    child.stdout.take().expect("piped").read_to_string(&mut out).expect("UTF-8");
    (child.wait().expect("ends").code(), out, err)
}

/// A replay that is interrupted prints what was replayed, of a sample too, or says that there is
/// nothing.
#[test]
fn a_replay_is_left() {
    let scratch = Scratch::new();
    let keys: String = (0..300_000).map(|at| format!("{}\n", at % 5_000)).collect();
    let run = |line: &str| interrupted(&scratch, line, keys.as_bytes());
    let sim = "sim hit-ratio --trace - --trace-format keys --policy lru --capacity";
    for (line, what) in [
        (format!("{sim} 1000"), "different keys"),
        (format!("{sim} 1000 --sample 50%"), "a sample of 50 % of the keys"),
        ("model --trace - --trace-format keys --cache-size 1000".to_owned(), "lookups"),
    ] {
        let (code, out, err) = run(&line);
        assert_eq!(code, Some(130), "{line}: {err}");
        assert!(out.contains(what) && out.contains("lru"), "{line}: {out}");
        assert!(err.contains("stopping") && err.contains("stopped after "), "{line}: {err}");
    }
    for line in [
        format!("{sim} 50%"),
        format!("{sim} 50% --sample 50%"),
        format!("{sim} 1000 --sample auto"),
        "model --trace - --trace-format keys --cache-size 50%".to_owned(),
    ] {
        let (code, out, err) = run(&line);
        assert_eq!((code, out.as_str()), (Some(130), ""), "{line}: {err}");
        assert!(err.contains("nothing of it is printed"), "{line}: {err}");
    }
}

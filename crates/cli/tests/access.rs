//! Permissions of the files that the program writes.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Run, Scratch, TestCapture};

/// Runs the program under this umask.
fn run(scratch: &Scratch, umask: &str, line: &str) -> Run {
    let larder = scratch.larder();
    let mut command = Command::new("sh");
    let text = format!("umask {umask}; exec \"$0\" {line}");
    command.env_clear().current_dir(scratch.path("")).arg("-c").arg(text).arg(larder.get_program());
    Run::of(&mut command)
}

/// All files and folders within a folder, with their modes and groups.
fn all_below(folder: &Path, out: &mut Vec<(PathBuf, u32, u32)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let about = fs::symlink_metadata(&path).expect("there");
        if about.is_symlink() {
            continue;
        }
        out.push((path.clone(), about.mode() & 0o7777, about.gid()));
        if about.is_dir() {
            all_below(&path, out);
        }
    }
}

/// Only the user can read larder's output, or also the group of --group, whatever the umask. This
/// covers logs (also rotated and compressed), dns.log, names, statistics, captures, stored packets
/// and their indexes.
#[test]
fn what_is_written_is_private() {
    let mut capture = TestCapture::new();
    capture.dns_answer(&TestCapture::answer("www.example"));
    (0..200).for_each(|host| capture.flow_to([198, 51, 100, host]));
    let own = fs::metadata("/proc/self").expect("there");
    // Root may give its files to any group, other users only to their own.
    let group = if own.uid() == 0 { 4711 } else { own.gid() };
    for (umask, more, mode, folder_mode, gid) in [
        ("022", String::new(), 0o600, 0o700, None),
        ("000", String::new(), 0o600, 0o700, None),
        ("077", format!("--group {group}"), 0o640, 0o750, Some(group)),
    ] {
        let scratch = Scratch::new();
        scratch.write("in/a.pcap", &capture.bytes);
        let lines = [
            "annotate -r in/a.pcap --quiet -o out.log -w out.pcapng -d deep/folder --names-save names",
            "annotate -r in/a.pcap --quiet -o rolled.log --rotate-size 2KiB --compress -w kept --store 1MiB",
        ];
        for line in lines {
            let done = run(&scratch, umask, &format!("{line} {more}"));
            assert_eq!(done.code, Some(0), "{}", done.err);
        }
        let found = run(&scratch, umask, "find -q -d kept 192.0.2.1 -w found.pcapng");
        assert_eq!(found.code, Some(0), "{}", found.err);
        let mut all = Vec::new();
        all_below(&scratch.path(""), &mut all);
        all.retain(|(path, ..)| !path.starts_with(scratch.path("in")));
        for ending in ["log", "gz", "pcapng", "idx", "json", "names", "lock"] {
            let has = |(path, ..): &(PathBuf, u32, u32)| path.to_string_lossy().ends_with(ending);
            assert!(all.iter().any(has), "no {ending} among {all:?}");
        }
        for (path, found, of_group) in all {
            let is_of_find = path.ends_with("found.pcapng");
            let expected = match path.is_dir() {
                true => folder_mode,
                false if is_of_find => 0o600,
                false => mode,
            };
            assert_eq!(found, expected, "{} {found:o}", path.display());
            if let Some(gid) = gid.filter(|_| !is_of_find) {
                assert_eq!(of_group, gid, "{}", path.display());
            }
        }
    }
}

/// larder restricts the mode of an existing log that all could read when it writes it again. It
/// does not change the mode of a device. It rejects an unknown group before it writes anything.
#[test]
fn what_was_there_before() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let mut capture = TestCapture::new();
    capture.flow_to([198, 51, 100, 1]);
    scratch.write("a.pcap", &capture.bytes);
    let log = scratch.write("log", "old");
    fs::set_permissions(&log, fs::Permissions::from_mode(0o644)).expect("ours");
    assert_eq!(scratch.run("annotate -r a.pcap --quiet -o log").code, Some(0));
    assert_eq!(fs::metadata(&log).expect("there").mode() & 0o777, 0o600);
    let device = || fs::metadata("/dev/null").expect("there").mode();
    let before = device();
    assert_eq!(scratch.run("annotate -r a.pcap --quiet -o /dev/null").code, Some(0));
    assert_eq!(device(), before);
    let refused = scratch.run("annotate -r a.pcap --quiet -o new --group no-such-group");
    refused.refused(&["--group no-such-group", "GID"]);
    assert!(!scratch.path("new").exists());
}

/// larder checks the settings of --serve before it captures anything.
#[test]
fn settings_of_serve_are_checked() {
    let scratch = Scratch::new();
    scratch.write("empty", "\n");
    scratch.write("two", "a b\n");
    for (line, texts) in [
        ("--serve-token two", ["--serve-token", "add --serve"]),
        ("--serve-hosts a.example", ["--serve-hosts", "add --serve"]),
        ("--serve 127.0.0.1:1 --serve-hosts http://a.example", ["--serve-hosts", "without scheme"]),
        ("--serve 127.0.0.1:1 --serve-token nowhere", ["--serve-token nowhere", "base64"]),
        ("--serve 127.0.0.1:1 --serve-token empty", ["--serve-token empty", "one line"]),
        ("--serve 127.0.0.1:1 --serve-token two", ["--serve-token two", "without spaces"]),
        ("--serve unix:", ["unix:", "no path"]),
        ("--serve nothing", ["ADDR:PORT", "unix:PATH"]),
        ("--store-free 100%", ["--store-free", "99%"]),
    ] {
        scratch.run(&format!("annotate -i lo -w kept --store 1MiB {line}")).refused(&texts);
    }
}

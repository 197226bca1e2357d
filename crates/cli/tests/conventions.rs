//! Rules of every command: exit codes, output streams, precedence of settings, error messages.

mod common;

use std::io::BufRead;

use common::{Run, Scratch, TestCapture};
use larder_testkit::skip::skip;

/// The value and the layer of a setting in the output of `show-config`.
fn shown(run: &Run, key: &str) -> (String, String) {
    assert_eq!(run.code, Some(0), "{run:?}");
    let line = run.out.lines().find(|line| line.starts_with(&format!("{key} = ")));
    let line = line.expect("the setting is shown");
    let (assignment, layer) = line.split_once('#').expect("a layer");
    let value = assignment.split_once('=').expect("a value").1;
    (value.trim().to_owned(), layer.trim().to_owned())
}

/// A flag overrides the environment, which overrides the file, which overrides the default; through
/// the whole program.
#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let scratch = Scratch::new();
    let layer = |run: &Run| shown(run, "linger");
    assert_eq!(layer(&scratch.run("show-config")), ("\"5s\"".into(), "default".into()));
    scratch.write("larder.toml", "[annotate]\nlinger = \"6s\"\n");
    let file = layer(&scratch.run("show-config"));
    assert_eq!(file, ("\"6s\"".into(), "file \"larder.toml\"".into()));
    let mut command = scratch.larder();
    command.env("LARDER_ANNOTATE_LINGER", "7s");
    let environment = layer(&Run::of(command.arg("show-config")));
    assert_eq!(environment, ("\"7s\"".into(), "environment LARDER_ANNOTATE_LINGER".into()));
    let flag = layer(&Run::of(command.args(["--linger", "8s"])));
    assert_eq!(flag, ("\"8s\"".into(), "flag".into()));
}

/// The first existing configuration file is used: --config, $LARDER_CONFIG, ./, XDG, then
/// ~/.config.
#[test]
fn files_are_found_in_order() {
    let scratch = Scratch::new();
    let mut command = scratch.larder();
    command.arg("show-config").env("HOME", scratch.path("home"));
    let expect = |command: &mut std::process::Command, seconds: &str| {
        assert_eq!(shown(&Run::of(command), "linger").0, format!("\"{seconds}\""));
    };
    let text = |seconds: &str| format!("[annotate]\nlinger = \"{seconds}\"\n");
    scratch.write("home/.config/larder/larder.toml", text("10s"));
    expect(&mut command, "10s");
    scratch.write("xdg/larder/larder.toml", text("11s"));
    expect(command.env("XDG_CONFIG_HOME", scratch.path("xdg")), "11s");
    scratch.write("larder.toml", text("12s"));
    expect(&mut command, "12s");
    let named = scratch.write("named.toml", text("13s"));
    expect(command.env("LARDER_CONFIG", named), "13s");
    scratch.write("flag.toml", text("14s"));
    expect(command.args(["--config", "flag.toml"]), "14s");
}

/// A named file must exist and be valid; for an unknown key the error suggests the nearest known
/// name.
#[test]
fn wrong_configuration_is_refused() {
    let scratch = Scratch::new();
    scratch.run("show-config --config no.toml").refused(&["no.toml", "--config"]);
    scratch.write("larder.toml", "[annotate]\nnames_bugdet = 1\n");
    for line in ["show-config", "annotate -r x.pcap"] {
        scratch.run(line).refused(&["names_bugdet", "did you mean 'names_budget'?"]);
    }
    scratch.write("larder.toml", "[annotate]\ncores = 0\n");
    scratch.run("annotate -r x.pcap").refused(&["cores", "from 1 to 1024"]);
    let mut command = Scratch::new().larder();
    command.current_dir("/").env("LARDER_ANNOTATE_CORES", "many");
    Run::of(command.args(["annotate", "-r", "x"])).refused(&["LARDER_ANNOTATE_CORES", "unset"]);
    command.env_remove("LARDER_ANNOTATE_CORES").env("LARDER_ANNOTATE_CORE", "2");
    Run::of(&mut command).refused(&["did you mean 'LARDER_ANNOTATE_CORES'?"]);
}

/// Unknown commands, flags and values are usage errors that name the nearest match or the range.
#[test]
fn usage_errors_help() {
    let scratch = Scratch::new();
    scratch.run("anotate").refused(&["'annotate'", "--help"]);
    scratch.run("resolve").refused(&["resolve", "--help"]);
    scratch.run("").refused(&["annotate", "demo"]);
    scratch.run("man --markdown -o pages").refused(&["remove -o"]);
    scratch.run("annotate --nams dns").refused(&["--names"]);
    scratch.run("annotate -r x --format jsn").refused(&["ecs", "zeek"]);
    scratch.run("annotate -r x --names-budget 1").refused(&["from 1MiB"]);
    scratch.run("annotate -r x --names dsn").refused(&["did you mean 'dns'?"]);
    scratch.run("annotate -r x --tcp-idle 5ms").refused(&["a duration from 1s"]);
    scratch.run("annotate -r").refused(&["-r", "value"]);
}

/// Without -r, larder does not assume standard input.
#[test]
fn an_input_must_be_named() {
    Scratch::new().run("annotate").refused(&["-r FILE", "-r -"]);
}

/// larder reports an error in an interface, a filter or the packet store's path before it creates
/// any output.
#[test]
fn live_input_is_refused_before_output() {
    let scratch = Scratch::new();
    scratch.run("annotate -i nowhere0 -o out").refused(&["nowhere0", "lo"]);
    scratch.run("annotate -i lo -r a.pcap -o out").refused(&["not both"]);
    scratch.run("annotate -r a.pcap --store 1GiB -o out").refused(&["-w DIR"]);
    scratch.run("annotate -o out -- port 53").refused(&["the filter has no input", "-r FILE"]);
    scratch.run("annotate -i lo -o out port nowhere").refused(&["nowhere"]);
    scratch.run("annotate -i lo --serve 127.0.0.1:1 -o out").refused(&["--store"]);
    scratch.run("annotate -r a.pcap --rings 2 -o out").refused(&["add --interface IFACE"]);
    scratch.write("eve.json", b"{}\n");
    let log = "annotate --eve eve.json -o out";
    scratch.run(&format!("{log} -c 3")).refused(&["no packets to count"]);
    scratch.run(&format!("{log} -w kept --store 1GiB")).refused(&["no packets to store"]);
    assert!(!scratch.path("out").exists());
}

/// The first word after the files of -r that is not a file begins a filter, and so do words that
/// follow no flag. A word that is neither a file nor a filter is rejected as both, before any
/// output is created.
#[test]
fn a_filter_stands_behind_the_files() {
    let scratch = Scratch::new();
    let mut capture = TestCapture::new();
    (0..10).for_each(|host| capture.flow_to([198, 51, 100, host]));
    scratch.write("a.pcap", &capture.bytes);
    scratch.write("b.pcap", &capture.bytes);
    scratch.write("port", &capture.bytes);
    for (line, took) in [
        ("-r a.pcap host 198.51.100.7", "took 1 of 10 packets"),
        ("-r a.pcap b.pcap host 198.51.100.7 or host 198.51.100.8", "took 4 of 20 packets"),
        ("-r a.pcap -r b.pcap udp -o log", "took 20 of 20 packets"),
        ("-r a.pcap -o log not udp", "took 0 of 10 packets"),
        ("udp port 9999 -r a.pcap --cores 2", "took 10 of 10 packets"),
        // A word is a file name before it is a filter, unless `--` marks the filter's begin.
        ("-r a.pcap port", "packets    20 "),
        ("-r a.pcap -- port 9999", "took 10 of 10 packets"),
        ("-r a.pcap b.pcap", "packets    20 "),
    ] {
        let run = scratch.run(&format!("annotate {line}"));
        assert_eq!(run.code, Some(0), "{line}: {}", run.err);
        assert!(run.err.contains(took), "{line}: {}", run.err);
    }
    let both = &["no such file", "no filter begins there", "-r FILE FILTER"];
    scratch.run("annotate -r a.pcap missing.pcap -o out").refused(both);
    scratch.run("annotate -r a.pcap udp port nowhere -o out").refused(both);
    scratch.run("annotate -r missing.pcap udp -o out").refused(&["missing.pcap", "no such file"]);
    scratch.run("annotate -r a.pcap udp -o out port 53").refused(&["two filters"]);
    assert!(!scratch.path("out").exists());
}

/// larder rejects inputs that cannot be read before it creates any output.
#[test]
fn unreadable_inputs_make_no_output() {
    let scratch = Scratch::new();
    scratch.run("annotate -r no.pcap -o out").refused(&["no.pcap", "no such file"]);
    scratch.run("annotate -r . -o out").refused(&["is a directory", "/*"]);
    scratch.run("annotate -r - --zeek-log - -o out").refused(&["standard input"]);
    assert!(!scratch.path("out").exists());
}

/// A log never overwrites its input capture.
#[test]
fn a_log_does_not_overwrite_its_capture() {
    let scratch = Scratch::new();
    let path = scratch.write("a.pcap", "not a capture");
    for line in ["annotate -r a.pcap -o a.pcap", "annotate -r a.pcap -o out -w ./a.pcap"] {
        scratch.run(line).refused(&["this is an input"]);
    }
    assert_eq!(std::fs::read(path).expect("still there"), b"not a capture");
}

/// A file without read permission is rejected with advice.
#[cfg(unix)]
#[test]
fn a_file_without_permission_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let path = scratch.write("a.pcap", "x");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("set");
    if std::fs::File::open(&path).is_ok() {
        return skip("a_file_without_permission_is_refused", "root may read every file");
    }
    scratch.run("annotate -r a.pcap").refused(&["permission denied", "permissions"]);
}

/// File names are untrusted bytes: no control byte of a name reaches the terminal.
#[cfg(unix)]
#[test]
fn names_of_files_are_escaped() {
    let scratch = Scratch::new();
    let run = Run::of(scratch.larder().args(["annotate", "-r", "a\x1b[2Jb"]));
    run.refused(&["a\\u{1b}[2Jb"]);
    assert!(!run.err.contains('\x1b'));
}

/// When the reader of its output closes the pipe, the program ends quietly with 141.
#[test]
fn a_closed_pipe_is_quiet() {
    for line in ["man --markdown", "show-config --template", "completions bash", "--help"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let scratch = Scratch::new();
        let run = Run::of(scratch.larder().args(line.split_whitespace()).stdout(writer));
        assert_eq!((run.code, run.err.as_str()), (Some(141), ""), "{line}");
    }
}

/// Results are written only to standard output, so that help can be piped into a pager.
#[test]
fn help_goes_to_standard_output() {
    let run = Scratch::new().run("annotate --help");
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    assert!(run.out.as_bytes().lines().count() > 50);
    assert!(!run.out.contains('\x1b'), "no colour in a pipe");
}

/// Help wraps at the width of the terminal, and has colors on a terminal; in a pipe it has none.
#[test]
fn help_wraps_and_has_colors() {
    let scratch = Scratch::new();
    let help = |variable: &str, value: &str| {
        Run::of(scratch.larder().args(["annotate", "--help"]).env(variable, value)).out
    };
    let longest = |text: &str| text.lines().map(str::len).max();
    let (narrow, wide) = (help("COLUMNS", "60"), help("COLUMNS", "200"));
    assert!(narrow.lines().count() > wide.lines().count());
    assert!(longest(&narrow) < longest(&wide), "{narrow}");
    assert!(help("CLICOLOR_FORCE", "1").contains('\x1b'));
}

/// Without a server, the error of `larder top` names the program that it shows, and the command
/// that starts it.
#[test]
fn top_names_its_program() {
    Scratch::new().run("top --once --socket ctl").refused(&["larder annotate -i IFACE --ctl ctl"]);
}

/// `larder http` checks values with their own syntax before it serves. Each error names the value
/// and the valid ones.
#[test]
fn words_of_http_are_checked() {
    let scratch = Scratch::new();
    for (setting, said) in [
        ("--keep-status 404", "expected STATUS=TIME"),
        ("--keep-status 404=10s,600=1s", "\"600=1s\": neither a status"),
        ("--keep-status 401=1s", "for one request alone"),
        ("--keep-status 4xx=1ms", "expected a duration"),
        ("--abandoned maybe", "expected finish, drop or a size"),
    ] {
        scratch.run(&format!("http --origin http://127.0.0.1:9 {setting}")).refused(&[said]);
    }
}

/// A command that moved to `larder-lab` is rejected with one line that names `larder-lab`, whatever
/// its arguments.
#[test]
fn moved_commands_say_where_they_are() {
    let scratch = Scratch::new();
    for word in ["bench", "gen", "model", "sim"] {
        for line in [word.to_owned(), format!("{word} engine --help"), format!("{word} --nothing")]
        {
            let run = scratch.run(&line);
            let here = format!("{word} is a command of larder-lab now: larder-lab {word} ...");
            run.refused(&[&here, &format!("cargo run --release -p larder-lab -- {word} ...")]);
            assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        }
    }
    scratch.run("benchmark").refused(&["unrecognized subcommand"]);
}

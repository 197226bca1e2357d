//! Texts generated from the settings table: help, manual, completions, template, reference. The
//! tests run the built program, as a packager would.

mod common;

use std::collections::BTreeSet;

use common::Scratch;

/// Long flags of a command in the reference; each line of its table names one.
fn flags_of(reference: &str, command: &str) -> BTreeSet<String> {
    let section = reference.split("\n## ").find(|part| part.starts_with(&format!("{command}\n")));
    let section = section.expect("the command has a section");
    let word = |line: &str| {
        let cell = line.split('`').nth(1)?;
        let flag = cell.split_whitespace().find(|word| word.starts_with("--"))?;
        // An optional value follows in brackets.
        Some(flag.split('[').next()?.to_owned())
    };
    section.lines().filter(|line| line.starts_with('|')).filter_map(word).collect()
}

/// The program prints exactly the settings of the reference in the repository.
#[test]
fn the_reference_in_the_repository_is_the_programs() {
    let run = Scratch::new().run("man --markdown");
    assert_eq!(run.code, Some(0));
    let rows = |text: &str| -> BTreeSet<String> {
        text.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect()
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");
    let mut pages = BTreeSet::new();
    for command in run.out.lines().filter_map(|line| line.strip_prefix("## ")) {
        let path = format!("{folder}/{}.md", command.replace(' ', "-"));
        pages.extend(rows(&std::fs::read_to_string(path).expect("a page a command")));
    }
    assert!(rows(&run.out) == pages, "stale pages; UPDATE_DOCS=1 cargo test -p larder-cli");
}

/// Help, manual page and completions of `annotate` each cover every flag of the table. -h has one
/// line per flag.
#[test]
fn every_flag_is_in_help_manual_and_completions() {
    let scratch = Scratch::new();
    let flags = flags_of(&scratch.run("man --markdown").out, "larder annotate");
    assert!(flags.len() > 25, "{flags:?}");
    assert_eq!(scratch.run("man -o .").code, Some(0));
    let page = std::fs::read_to_string(scratch.path("larder-annotate.1")).expect("the page");
    let page = page.replace("\\-", "-");
    let sources = [
        ("-h", scratch.run("annotate -h").out),
        ("--help", scratch.run("annotate --help").out),
        ("man", page),
        ("bash", scratch.run("completions bash").out),
        ("zsh", scratch.run("completions zsh").out),
    ];
    for flag in flags {
        for (name, text) in &sources {
            assert!(text.contains(&flag), "{flag} is missing from {name}");
        }
    }
}

/// `man -o` writes a page for each command, each with a title; without a directory `man` prints the
/// main page.
#[test]
fn man_writes_a_page_a_command() {
    let scratch = Scratch::new();
    let main = scratch.run("man");
    assert_eq!(main.code, Some(0));
    assert!(main.out.contains(".TH LARDER 1 20"), "with a date: {}", main.out);
    assert_eq!(scratch.run("man -o .").code, Some(0));
    for name in ["larder", "larder-annotate", "larder-demo", "larder-show-config"] {
        let page = std::fs::read_to_string(scratch.path(&format!("{name}.1"))).expect(name);
        let title = name.to_ascii_uppercase();
        assert!(page.contains(&format!(".TH {title} 1 20")), "{name}");
    }
    scratch.run("man -o no/such/directory").refused(&["no such file", "name a directory"]);
}

/// Every shell of the table has completions; another shell gets an error.
#[test]
fn completions_for_every_shell() {
    let scratch = Scratch::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = scratch.run(&format!("completions {shell}"));
        assert_eq!(run.code, Some(0), "{shell}");
        assert!(run.out.contains("annotate"), "{shell}");
    }
    scratch.run("completions tcsh").refused(&["tcsh", "bash"]);
}

/// The program accepts its template as a file, which changes only the layer of values. The output
/// of `show-config` is also a valid file.
#[test]
fn template_and_show_config_are_files() {
    let scratch = Scratch::new();
    let values = |text: &str| -> Vec<String> {
        let assignment = |line: &str| line.split(" #").next().map(|part| part.trim().to_owned());
        text.lines().filter(|line| line.contains(" = ")).filter_map(assignment).collect()
    };
    let defaults = scratch.run("show-config");
    assert_eq!(defaults.code, Some(0));
    // Other lines are table headers.
    let is_all = |text: &str, layer: &str| {
        text.lines().all(|line| line.starts_with('[') || line.ends_with(layer))
    };
    assert!(is_all(&defaults.out, "# default"), "{defaults:?}");
    for source in ["show-config --template", "show-config"] {
        scratch.write("larder.toml", scratch.run(source).out);
        let again = scratch.run("show-config");
        assert_eq!(again.code, Some(0), "{}", again.err);
        assert_eq!(values(&again.out), values(&defaults.out));
        assert!(is_all(&again.out, "# file \"larder.toml\""), "{again:?}");
    }
}

/// The version is the package's.
#[test]
fn version_is_the_packages() {
    let run = Scratch::new().run("--version");
    assert_eq!(run.code, Some(0));
    assert_eq!(run.out, concat!("larder ", env!("CARGO_PKG_VERSION"), "\n"));
}

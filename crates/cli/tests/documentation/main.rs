//! Runs README and the guides: each command after a prompt, in the order of the page, and compares
//! the page's output with the real output.
//!
//! A page runs in an empty directory, in its own network, process and mount namespaces ([`world`]).
//! Stand-ins respond at the addresses that pages name. [`pages`] lists exceptions: commands that
//! are not run and why, commands with an exit status other than 0, output whose numbers depend on
//! the machine. Nothing is timed: a command that does not end, or a server that does not begin to
//! serve, fails after one minute.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
#[allow(dead_code)]
mod common;
mod output;
mod page;
mod pages;
mod session;
mod world;

use std::io::Write;
use std::process::Command;

use common::Scratch;
use larder_testkit::skip::{has, skip};
use page::{blocks, root, text};
use pages::PAGES;

/// The variable that has the directory of a page, in the process that runs the page in its
/// namespaces.
const INSIDE: &str = "LARDER_DOCUMENTATION";

/// Runs a page in its own process. The end of that process ends all that the page started.
fn run(file: &str) {
    let page = PAGES.iter().find(|page| page.file == file).expect("the page is in the list");
    if let Some(folder) = std::env::var_os(INSIDE) {
        return session::run(page, folder.into());
    }
    let own = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let tried = Command::new("unshare").args(own).arg("true").output();
    if !tried.is_ok_and(|run| run.status.success()) {
        return skip("documentation", "name spaces need root, and a container that permits them");
    }
    for program in ["ip", "unbound", "dig", "curl", "python3"] {
        if !has("documentation", program) {
            return;
        }
    }
    if text(file).contains("$ larder-lab") && !world::lab().is_file() {
        return skip("documentation", "larder-lab is not built");
    }
    let test = std::thread::current().name().expect("tests have names").to_owned();
    // The process has another ID in its namespace, so it cannot name its directory.
    let scratch = Scratch::new();
    let mut command = Command::new("unshare");
    command.args(own).arg(std::env::current_exe().expect("a path"));
    command.args(["--exact", &test, "--nocapture"]).env(INSIDE, scratch.path(""));
    let run = command.output().expect("unshare runs");
    let errors = String::from_utf8_lossy(&run.stderr);
    for line in errors.lines().filter(|line| line.starts_with("SKIP ")) {
        let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    }
    assert!(run.status.success(), "{}{errors}", String::from_utf8_lossy(&run.stdout));
}

/// A test for each page.
macro_rules! pages {
    ($($test:ident: $file:literal,)*) => {
        $(#[test]
        fn $test() {
            run($file);
        })*
    };
}

pages! {
    readme: "README.md",
    index: "docs/README.md",
    annotate: "docs/guide/annotate.md",
    dns_encrypted: "docs/guide/dns-encrypted.md",
    dns_recursion: "docs/guide/dns-recursion.md",
    dns_rules: "docs/guide/dns-rules.md",
    fields: "docs/guide/fields.md",
    dns_shadow: "docs/guide/dns-shadow.md",
    dns_xdp: "docs/guide/dns-xdp.md",
    dns: "docs/guide/dns.md",
    http_from: "docs/guide/http-from.md",
    http: "docs/guide/http.md",
    live: "docs/guide/live.md",
    model: "docs/guide/model.md",
    monitoring: "docs/guide/monitoring.md",
    sim: "docs/guide/sim.md",
}

/// Every page is in the list, and no prompt stands outside of a block. Each row of the list matches
/// a command, so rows of deleted commands must be removed.
#[test]
fn every_command_is_known() {
    let guides = std::fs::read_dir(root().join("docs/guide")).expect("the guides");
    let guides = guides.map(|entry| entry.expect("an entry").file_name().into_string());
    let guides = guides.map(|name| format!("docs/guide/{}", name.expect("UTF-8")));
    for file in guides.chain(["README.md", "docs/README.md"].map(str::to_owned)) {
        let text = text(&file);
        let prompts = text.lines().filter(|line| line.starts_with("$ ")).count();
        let commands: Vec<_> = blocks(&text).into_iter().flatten().collect();
        let found = commands.iter().filter(|command| {
            text.lines().nth(command.line - 1).is_some_and(|line| line.starts_with("$ "))
        });
        assert_eq!(found.count(), prompts, "{file}: a prompt outside of a block, or in an output");
        let page = PAGES.iter().find(|page| page.file == file);
        assert_eq!(
            page.is_some(),
            !commands.is_empty(),
            "{file} is in the list, or has no command"
        );
        for (begin, _) in page.map_or(&[][..], |page| page.notes) {
            let known = commands.iter().any(|command| command.text.starts_with(begin));
            assert!(known, "{file} has no command '{begin}' any more: take it out of the list");
        }
    }
}

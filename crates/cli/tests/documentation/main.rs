//! README and the guides, run: each command after a prompt, page by page, in the order of the page, and what the page shows of its
//! output beside what came.
//!
//! A page runs in an empty directory, in a network, a process space and a file system of its own ([`world`]), where stand-ins
//! answer at the addresses that pages name. [`pages`] says of commands what the page leaves to the reader: which are not run
//! and why, which end with another status than 0, where figures are of the machine. Nothing is timed: a command that does not end,
//! or a server that does not begin to serve, fails after a minute.
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

/// Says in which directory the process is to run a page, in the spaces that were made for it.
const INSIDE: &str = "LARDER_DOCUMENTATION";

/// Runs a page: in a process of its own, whose end ends all that was started there.
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
    // The process has another number there, so it cannot name a directory of its own.
    let scratch = Scratch::new();
    let mut command = Command::new("unshare");
    command.args(own).arg(std::env::current_exe().expect("a path"));
    command.args(["--exact", &test, "--nocapture"]).env(INSIDE, scratch.path(""));
    let run = command.output().expect("unshare runs");
    let heard = String::from_utf8_lossy(&run.stderr);
    for line in heard.lines().filter(|line| line.starts_with("SKIP ")) {
        let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    }
    assert!(run.status.success(), "{}{heard}", String::from_utf8_lossy(&run.stdout));
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
    dns_shadow: "docs/guide/dns-shadow.md",
    dns_xdp: "docs/guide/dns-xdp.md",
    dns: "docs/guide/dns.md",
    http_from: "docs/guide/http-from.md",
    http: "docs/guide/http.md",
    live: "docs/guide/live.md",
    model: "docs/guide/model.md",
    sim: "docs/guide/sim.md",
}

/// No page is forgotten, no prompt stands outside of a block, and the list says nothing of commands that no page has, so that it
/// can only become shorter.
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

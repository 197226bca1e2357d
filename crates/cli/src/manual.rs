//! Man pages and completions, from the same definition as the flags.

use std::io;
use std::path::Path;

use clap_complete::Shell;

use crate::args;
use crate::exit::{self, Failure, Outcome};
use crate::settings::COMMANDS;
use crate::show::print;

/// The pages' date: the day of this version's entry in CHANGELOG.md, or of its last change. (The
/// day of the build would make two builds of one source differ.)
const CHANGED: &str = "2026-11-21";

/// Prints completions for a shell whose name is in the table.
pub fn print_completions(shell: &str) -> Outcome {
    let shell: Shell = shell.parse().expect("the table lists shells that clap_complete knows");
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut args::program(), "larder", &mut text);
    print(&String::from_utf8_lossy(&text))
}

/// Prints larder(1), or writes one page a command into `directory`.
pub fn write_manual(directory: Option<&Path>) -> Outcome {
    let Some(directory) = directory else {
        let page = render(&args::program(), "larder").map_err(|error| Failure::stdout(&error))?;
        return print(&String::from_utf8_lossy(&page));
    };
    let failed = |error: io::Error| {
        let what = format!("manual in {directory:?}");
        Failure::file(what, &error, "name a directory that exists and can be written to")
    };
    for (name, page) in pages().map_err(failed)? {
        std::fs::write(directory.join(name), page).map_err(failed)?;
    }
    Ok(exit::DONE)
}

/// File name and roff of every page.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut program = args::program();
    program.build();
    let mut pages = vec![("larder.1".to_owned(), render(&program, "larder")?)];
    for command in COMMANDS {
        let mut found = &program;
        for word in command.path {
            found = found.find_subcommand(word).expect("a test finds every command of the table");
        }
        let title = format!("larder-{}", command.path.join("-"));
        pages.push((format!("{title}.1"), render(found, &title)?));
    }
    Ok(pages)
}

fn render(command: &clap::Command, title: &str) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(title.to_uppercase())
        .date(CHANGED)
        .manual("larder manual")
        .source(concat!("larder ", env!("CARGO_PKG_VERSION")))
        .render(&mut page)?;
    Ok(page)
}

//! Man pages and completions, from the same definition as the flags.

use std::io;
use std::path::Path;

use clap_complete::Shell;

use crate::args::clap;
use crate::exit::{self, Failure, Outcome};
use crate::table::Program;
use crate::terminal::print;

/// Prints completions for a shell whose name is in the table.
pub fn print_completions(program: &'static Program, shell: &str) -> Outcome {
    let shell: Shell = shell.parse().expect("the table lists shells that clap_complete knows");
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut clap(program), program.name, &mut text);
    print(&String::from_utf8_lossy(&text))
}

/// Prints the page of the program, or writes one and one a command into `directory`.
pub fn write_manual(program: &'static Program, directory: Option<&Path>) -> Outcome {
    let Some(directory) = directory else {
        let page = render(program, &clap(program), program.name)
            .map_err(|error| Failure::stdout(&error))?;
        return print(&String::from_utf8_lossy(&page));
    };
    let failed = |error: io::Error| {
        let what = format!("manual in {directory:?}");
        Failure::file(what, &error, "name a directory that exists and is writable")
    };
    for (name, page) in pages(program).map_err(failed)? {
        std::fs::write(directory.join(name), page).map_err(failed)?;
    }
    Ok(exit::DONE)
}

/// File name and roff of every page.
fn pages(program: &'static Program) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut clap = clap(program);
    clap.build();
    let mut pages = vec![(format!("{}.1", program.name), render(program, &clap, program.name)?)];
    for command in program.commands {
        let mut found = &clap;
        for word in command.path {
            found = found.find_subcommand(word).expect("a test finds every command of the table");
        }
        let title = format!("{}-{}", program.name, command.path.join("-"));
        pages.push((format!("{title}.1"), render(program, found, &title)?));
    }
    Ok(pages)
}

fn render(program: &Program, command: &::clap::Command, title: &str) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(title.to_uppercase())
        .date(program.changed)
        .manual(format!("{} manual", program.name))
        .source(format!("{} {}", program.name, program.version))
        .render(&mut page)?;
    Ok(page)
}

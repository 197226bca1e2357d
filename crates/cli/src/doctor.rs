//! `larder doctor`: what the three programs need of this machine, checked before they run.
//!
//! ```text
//! settings of the programs (flags, environment, file) -> checks -> a line each -> exit status
//! ```
//!
//! A check does what the program will do, where that can be undone: it opens an interface and closes it, binds a port
//! and frees it. Otherwise it reads what the kernel shows. Each line that is not `ok` ends with what to do.
//!
//! | module | checks |
//! |---|---|
//! | `machine` | kernel, clock, memory, open files |
//! | `capture` | interfaces, the right to capture, directories and space for what is written |
//! | `serving` | ports, also of pages and metrics; files of certificates and caches |
//!
//! Cost: a second at most. Nothing is written, and a server that runs is not disturbed: its port is reported as taken.

mod capture;
mod machine;
mod serving;

use std::fmt::Write as _;

use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::program::Invocation;
use larder_settings::terminal::print;

use crate::settings::{Annotate, Doctor, Http, dns};

/// Whether what only Linux shows can be checked.
const IS_LINUX: bool = cfg!(target_os = "linux");

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// As it should be.
    Fine,
    /// The program runs, with less than it could have.
    Limited,
    /// The program does not run so.
    Failed,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    verdict: Verdict,
    /// What was checked.
    about: String,
    /// What is so, and behind a semicolon what to do.
    text: String,
}

impl Finding {
    fn fine(about: &str, text: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Fine, about: about.to_owned(), text: text.into() }
    }

    fn limited(about: &str, text: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Limited, about: about.to_owned(), text: text.into() }
    }

    fn failed(about: &str, text: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Failed, about: about.to_owned(), text: text.into() }
    }
}

/// Runs the command.
pub fn doctor(invocation: &Invocation) -> Outcome {
    let own: Doctor = invocation.settings_without_file()?.read();
    let is_wanted = |program: &str| own.program.is_none_or(|wanted| wanted == program);
    let mut findings = machine::kernel();
    findings.push(machine::clock());
    if is_wanted("annotate") {
        let settings: Annotate = invocation.settings_of(&crate::settings::ANNOTATE)?.read();
        findings.extend(machine::memory("annotate", capture::memory_bytes(&settings)));
        findings.extend(capture::checks(&settings, own.dir.as_deref(), own.store));
        findings.push(of_settings("annotate", own.program, crate::annotate::check(&settings)));
    }
    if is_wanted("dns") {
        let settings: dns::Dns = invocation.settings_of(&dns::DNS)?.read();
        findings.extend(machine::memory("dns", settings.serving.cache));
        findings.extend(serving::dns(&settings)?);
        findings.push(of_settings("dns", own.program, crate::dns::check(&settings)));
    }
    if is_wanted("http") {
        let settings: Http = invocation.settings_of(&crate::settings::HTTP)?.read();
        findings.extend(machine::memory("http", settings.memory));
        findings.extend(machine::open_files(
            "http",
            settings.clients_max + settings.origin_connections,
        ));
        findings.extend(serving::http(&settings)?);
        findings.push(of_settings("http", own.program, crate::http::check(&settings)));
    }
    print(&text(&findings))?;
    let worst = findings.iter().map(|finding| finding.verdict).max();
    Ok(if worst == Some(Verdict::Failed) { exit::DAMAGED } else { exit::DONE })
}

/// Whether the program would take its settings. Where no program is named, this one may not be wanted.
fn of_settings(program: &str, named: Option<&str>, checked: Result<(), Failure>) -> Finding {
    let about = format!("{program} settings");
    match checked {
        Ok(()) => Finding::fine(&about, "go together"),
        Err(Failure { message, .. }) if named.is_some() => Finding::failed(&about, message),
        Err(Failure { message, .. }) => Finding::limited(&about, message),
    }
}

/// Lines for people, and a last one that counts.
fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.about.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { verdict, about, text: what } in findings {
        let word = match verdict {
            Verdict::Fine => "ok",
            Verdict::Limited => "warn",
            Verdict::Failed => "FAIL",
        };
        let _ = writeln!(text, "{word:<5} {about:<width$}  {what}");
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (failed, limited) = (count(Verdict::Failed), count(Verdict::Limited));
    let _ = writeln!(text, "{} checks: {failed} failed, {limited} with limits", findings.len());
    text
}

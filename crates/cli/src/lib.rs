//! `larder`: flags, configuration, signals, wiring. Almost no logic. `larder_settings` makes flags, help
//! and reference from the table of settings.
//!
//! | module | duty |
//! |---|---|
//! | `settings` | the one table: every command and setting, with default and range |
//! | `reloading` | the table read again while a program runs |
//! | `annotate` | settings to a run of `larder_annotate`, and how it ends |
//! | `dns` | settings to a server of `larder_dns` |
//! | `http` | settings to a server of `larder_http` |
//! | `demo` | annotate on the capture inside the program, explained |
//! | `doctor`, `init` | what a program needs of the machine; its configuration, commented |
//! | `ctl` | requests to the control socket of a running server |
//! | `extract` | the packets of captures that teach names |
//! | [`embedded`] | annotate inside another program, such as Python |
//! | `find`, `top` | the packet store searched; a live view of `larder annotate` |
//! | `progress`, `summary`, `signals` | output of a run, and how it is stopped |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod addresses;
mod annotate;
mod ctl;
mod demo;
mod dns;
mod doctor;
pub mod embedded;
mod encrypted;
mod extract;
mod find;
mod http;
mod init;
mod live;
mod logs;
mod page;
mod progress;
mod queries;
mod reloading;
mod settings;
mod signals;
mod summary;
mod top;

use std::process::ExitCode;

use larder_settings::exit::{Failure, Outcome};
use larder_settings::program::Invocation;
use larder_settings::terminal::print;
use larder_settings::{manual, show};

use settings::{Completions, Man, PROGRAM, ShowConfig};

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    PROGRAM.main(run)
}

fn run(invocation: &Invocation) -> Outcome {
    // The commands that a configuration file has settings of.
    let again = || -> reloading::Again {
        let invocation = invocation.clone();
        Box::new(move || invocation.settings())
    };
    match invocation.command.path {
        ["annotate"] => return annotate::annotate(invocation.settings()?, again()),
        ["dns"] => return dns::dns(invocation.settings()?, again()),
        ["http"] => return http::http(invocation.settings()?, again()),
        _ => {}
    }
    if invocation.command.path == ["doctor"] {
        return doctor::doctor(invocation);
    }
    let settings = invocation.settings_without_file()?;
    match invocation.command.path {
        ["demo"] => demo::demo(&settings.read()),
        ["init"] => init::init(&settings.read()),
        ["extract"] => extract::extract(&settings.read()),
        ["find"] => find::find(&settings.read()),
        ["top"] => top::top(&settings.read()),
        ["ctl"] => ctl::ctl(&settings.read()),
        ["show-config"] if settings.read::<ShowConfig>().template => {
            print(&show::template(&PROGRAM))
        }
        ["show-config"] => show::print_values(invocation),
        ["completions"] => {
            manual::print_completions(&PROGRAM, settings.read::<Completions>().shell)
        }
        ["man"] => {
            let Man { output, markdown } = settings.read();
            if markdown && output.is_some() {
                return Err(Failure::usage(
                    "--markdown prints the table; remove -o, or --markdown",
                ));
            }
            if markdown {
                return print(&show::markdown(&PROGRAM));
            }
            manual::write_manual(&PROGRAM, output.as_deref())
        }
        _ => Err(Failure::usage("this command is in the table but not in the program")),
    }
}

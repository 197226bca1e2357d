//! `larder demo`: annotate the capture inside the program, and explain the names.
//!
//! The capture is a recording of real programs; `crates/cli/demo/` has it, and the script that records it.
//! The log is written to standard output, the explanation to standard error. With `--ui` it is
//! repeated for the page ([`looped`]).

mod looped;

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use larder_annotate::options::{Endpoint, NameSources, Summary};
use larder_annotate::{Options, Progress};
use larder_settings::exit::Outcome;
use larder_settings::value::cores;

use crate::annotate::{exit_code, failed, format};
use crate::settings::Demo;
use crate::summary::share;

static CAPTURE: &[u8] = include_bytes!("../demo/demo.pcapng");

/// Runs the command.
pub fn demo(settings: &Demo) -> Outcome {
    if settings.ui {
        return looped::run(settings);
    }
    let options = Options {
        read: vec![Endpoint::Bytes(CAPTURE)],
        format: format(settings.format),
        names: NameSources::all(),
        cores: cores(0),
        ..Options::default()
    };
    let started = Instant::now();
    let summary = larder_annotate::run(&options, &Arc::new(Progress::default())).map_err(failed)?;
    if !settings.quiet {
        let text = explanation(&summary, started.elapsed().as_secs_f64());
        let _ = write!(std::io::stderr(), "\n{text}");
    }
    Ok(exit_code(&summary, false))
}

/// Six lines about the log above. The facts are those of the recording (`demo/record.sh` describes
/// it); a test compares them with the log.
fn explanation(summary: &Summary, seconds: f64) -> String {
    format!(
        "{} packets, {} flows, {:.2} s: {} of the destinations have a name.\n\
         203.0.113.10 is one CDN address with four names. Two clients connected to its port 5222, and \
         each line has the name that this client looked up; a reverse lookup has only edge-7.cdn.example.\n\
         git.code.example and mail.post.example send no name (SSH, IMAP): DNS responses had their \
         names, just before.\n\
         198.51.100.67 sends www.bank.example in TLS, but the client looked up cdn-update.example: the \
         flag is conflict.\n\
         No client looked up 198.51.100.66, port 4444. To list such flows: larder annotate \
         --unresolved.\n\
         Your traffic: larder annotate -r FILE    or: tcpdump -i eth0 -U -w - | larder annotate -r -\n",
        summary.packets,
        summary.flows,
        seconds,
        share(summary.flows_named, summary.flows_nameable),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The explanation is six lines.
    #[test]
    fn six_lines_explain() {
        let summary = Summary { flows_nameable: 12, flows_named: 10, ..Summary::default() };
        let text = explanation(&summary, 0.001);
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(text.contains("10 (83.3 %)"), "{text}");
    }

    /// The sample is a capture of at most 200 KB: it is in every copy of the program.
    #[test]
    fn the_sample_is_small() {
        assert_eq!(CAPTURE[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
        assert!(CAPTURE.len() <= 200 << 10);
    }
}

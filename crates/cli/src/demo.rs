//! `larder demo`: annotate on the capture inside the program, and what its names mean.
//!
//! The capture is a recording of real programs; the script that makes it again lies beside it in
//! `crates/cli/demo/`. The log goes to standard output, the explanation to standard error.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use larder_annotate::options::{Endpoint, NameSources, Summary};
use larder_annotate::record::NameSource;
use larder_annotate::{Options, Progress};

use crate::annotate::{cores, exit_code, format};
use crate::exit::Outcome;
use crate::layers::Resolved;
use crate::summary::share;

static CAPTURE: &[u8] = include_bytes!("../demo/demo.pcapng");

/// Runs the command.
pub fn demo(settings: &Resolved) -> Outcome {
    let options = Options {
        read: vec![Endpoint::Bytes(CAPTURE)],
        format: format(settings.choice("format")),
        names: NameSources::all(),
        cores: cores(0),
        ..Options::default()
    };
    let started = Instant::now();
    let summary = larder_annotate::run(&options, &Arc::new(Progress::default()))?;
    if !settings.switch("quiet") {
        let text = explanation(&summary, started.elapsed().as_secs_f64());
        let _ = write!(std::io::stderr(), "\n{text}");
    }
    Ok(exit_code(&summary, false))
}

/// Six lines for a newcomer, from what the run counted.
fn explanation(summary: &Summary, seconds: f64) -> String {
    let by = |source: NameSource| summary.flows_named_by.get(&source).copied().unwrap_or(0);
    let own = by(NameSource::Sni) + by(NameSource::QuicSni) + by(NameSource::HttpHost);
    let pair = by(NameSource::DnsPair);
    let other = summary.flows_named.saturating_sub(own + pair);
    let unnamed = summary.flows_nameable.saturating_sub(summary.flows_named);
    format!(
        "{} packets, {} flows, {:.0} ms: {} of their destinations now have a name.\n\
         {own} said their name themselves (TLS, QUIC, HTTP); {pair} were looked up by the very \
         client that then connected; {other} by others.\n\
         {} go to an address that serves several names: larder shows the one that this client \
         asked for, as it asked, not the CDN's.\n\
         {} say another name than DNS gave, {} use a name past its time, {} were named only by a \
         later answer: each is marked.\n\
         {unnamed} nobody looked up. For a hunter that is the product: larder annotate \
         --unresolved.\n\
         Now yours: larder annotate -r FILE    or: tcpdump -i eth0 -U -w - | larder annotate -r -\n",
        summary.packets,
        summary.flows,
        seconds * 1e3,
        share(summary.flows_named, summary.flows_nameable),
        summary.ambiguous,
        summary.conflicts,
        summary.stale,
        summary.late,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The explanation is six lines, and its shares add up to the flows that have a name.
    #[test]
    fn six_lines_explain() {
        let summary = Summary {
            flows_nameable: 12,
            flows_named: 10,
            flows_named_by: [
                (NameSource::Sni, 4),
                (NameSource::HttpHost, 1),
                (NameSource::DnsPair, 3),
                (NameSource::DnsAddress, 2),
            ]
            .into(),
            ..Summary::default()
        };
        let text = explanation(&summary, 0.001);
        assert_eq!(text.lines().count(), 6, "{text}");
        for said in ["10 (83.3 %)", "5 said", "3 were looked up", "2 by others", "\n2 nobody"] {
            assert!(text.contains(said), "{said} is missing from\n{text}");
        }
    }

    /// The sample is a capture of at most 200 KB: it is in every copy of the program.
    #[test]
    fn the_sample_is_small() {
        assert_eq!(CAPTURE[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
        assert!(CAPTURE.len() <= 200 << 10);
    }
}

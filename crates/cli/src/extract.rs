//! `larder extract`: the packets of captures that teach names.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use larder_annotate::extract::Extracted;
use larder_annotate::options::Endpoint;
use larder_annotate::{Options, Progress, Summary};
use larder_serve::log::Log;
use larder_settings::amounts::{grouped, size};
use larder_settings::exit::{Failure, Outcome};

use crate::annotate::{check_inputs, check_outputs, exit_code, failed};
use crate::progress::bar;
use crate::settings::Extract;
use crate::{signals, summary};

/// Runs the command.
pub fn extract(settings: &Extract) -> Outcome {
    let options = options(settings);
    check_inputs(&options, false)?;
    check_outputs(&options)?;
    if options.output == Endpoint::Pipe && std::io::stdout().is_terminal() {
        return Err(Failure::usage("-o -: standard output is a terminal; add -o FILE"));
    }
    let progress = Arc::new(Progress::default());
    let log = Log::default();
    let stopping = (!settings.quiet).then(|| log.clone());
    signals::stop_on_signals(&progress, stopping).map_err(|error| {
        Failure::file("signals", &error, "free some file descriptors or threads")
    })?;
    let started = Instant::now();
    let (counts, extracted) = {
        let _printer = crate::logs::print(&log)?;
        let _bar = bar(&progress, !settings.quiet);
        let result = larder_annotate::extract::extract(&options, &progress);
        signals::finish();
        result.map_err(failed)?
    };
    if !settings.quiet {
        let text = text(&counts, extracted, started);
        let _ = write!(std::io::stderr(), "{text}");
    }
    if let Some(why) = counts.failure {
        return Err(Failure::usage(why));
    }
    Ok(exit_code(&counts, settings.strict))
}

fn options(settings: &Extract) -> Options {
    let read = |path: &PathBuf| Endpoint::from(path.clone());
    Options {
        read: settings.read.iter().map(read).collect(),
        output: settings.output.clone().into(),
        stats: settings.stats.clone(),
        cores: settings.cores,
        ignore_vlan: settings.ignore_vlan,
        flows_max: settings.flows_max,
        tcp_idle_s: settings.tcp_idle,
        udp_idle_s: settings.udp_idle,
        linger_s: settings.linger,
        ..Options::default()
    }
}

/// The summary.
fn text(counts: &Summary, extracted: Extracted, started: Instant) -> String {
    let Extracted { packets, bytes } = extracted;
    let percent = |part: u64, all: u64| part as f64 / all.max(1) as f64 * 100.0;
    format!(
        "{}extracted  {} packets ({:.1} %), {} of frames ({:.1} % of the input)\n{}",
        summary::packets_read(counts, started.elapsed()),
        grouped(packets),
        percent(packets, counts.packets),
        size(bytes),
        percent(bytes, counts.input_bytes),
        summary::troubles(counts)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PROGRAM;

    /// The defaults are those of annotate, so that both see the same flows.
    #[test]
    fn defaults_are_those_of_annotate() {
        let line = ["larder", "extract", "-r", "a.pcap"];
        let settings = PROGRAM.parse(line).expect("sound flags").settings_with("").expect("sound");
        let ours = options(&settings.read());
        let theirs = Options { cores: ours.cores, read: ours.read.clone(), ..Options::default() };
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    /// Every flag arrives.
    #[test]
    fn flags_arrive() {
        let line = "larder extract -r a.pcap b.pcap -o out --stats s --cores 3 --ignore-vlan \
                    --flows-max 2000 --tcp-idle 7s --udp-idle 8s --linger 9s";
        let settings = PROGRAM.parse(line.split(' ')).expect("sound flags");
        let options = options(&settings.settings_with("").expect("sound").read());
        assert_eq!(options.read.len(), 2);
        assert_eq!(options.output, Endpoint::Path("out".into()));
        assert_eq!(options.stats, Some("s".into()));
        assert!(options.ignore_vlan);
        let numbers = (options.cores, options.flows_max);
        assert_eq!(numbers, (3, 2000));
        assert_eq!((options.tcp_idle_s, options.udp_idle_s, options.linger_s), (7, 8, 9));
    }
}

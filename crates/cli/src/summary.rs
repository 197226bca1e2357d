//! The summary at the end of a run, for people; `stats.json` has the same for programs.
//!
//! File names in it are hostile text as far as the terminal is concerned: control characters are
//! escaped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use larder_annotate::options::{Damage, Summary};
use larder_settings::amounts::grouped;
use larder_settings::amounts::{scaled, size};

/// Exporters of flows with a line of their own.
const EXPORTERS_LISTED: usize = 8;

/// What a summary without packets says of a range of time.
pub const OUT_OF_RANGE: &str =
    "range      no packet is between --from and --to; check their dates and time zones";

/// The summary, several lines, each with its line feed.
pub fn text(summary: &Summary, elapsed: Duration) -> String {
    let mut text = packets_read(summary, elapsed);
    if summary.packets_for_names > 0 {
        let count = grouped(summary.packets_for_names);
        let _ = writeln!(text, "for names  {count} more packets, which are not in the log");
    }
    if let Some(all) = summary.filtered_of {
        let (some, all) = (grouped(summary.packets), grouped(all));
        let _ = writeln!(text, "filter     took {some} of {all} packets");
    }
    captured(&mut text, summary);
    exporters(&mut text, summary);
    named(&mut text, summary);
    if summary.flows_evicted > 0 {
        let _ = writeln!(
            text,
            "evicted    {} flows ended early because the table was full; raise --flows-max",
            grouped(summary.flows_evicted)
        );
    }
    text + &troubles(summary)
}

/// The line of the packets that were read.
pub fn packets_read(summary: &Summary, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    format!(
        "packets    {} ({}) in {seconds:.2} s, {} packets/s\n",
        grouped(summary.packets),
        size(summary.input_bytes),
        scaled(summary.packets as f64 / seconds.max(1e-6))
    )
}

/// What was wrong with the input, or ended it.
pub fn troubles(summary: &Summary) -> String {
    let mut text = String::new();
    if !summary.skipped.is_empty() {
        let skipped = listed(summary.skipped.iter().map(|(kind, count)| (*kind, *count)));
        let _ = writeln!(text, "skipped    valid, but not supported{skipped}");
    }
    damage(&mut text, &summary.damaged);
    if summary.input_damaged && summary.damaged.is_empty() {
        text.push_str("damaged    the input ended too early\n");
    }
    if summary.interrupted && !summary.is_endless {
        text.push_str("stopped    before the end of the input; what was read is written\n");
    }
    text
}

/// Packets of live interfaces, and packets stored.
fn captured(text: &mut String, summary: &Summary) {
    for one in &summary.captured {
        let _ = writeln!(
            text,
            "captured   {} from {}, {} dropped (ring full)",
            grouped(one.received),
            one.interface.escape_debug(),
            grouped(one.dropped)
        );
    }
    if let Some(kept) = &summary.kept {
        let count = |name| kept.iter().find(|(other, _)| *other == name).map_or(0, |one| one.1);
        let _ = writeln!(
            text,
            "stored     {} packets ({}); dropped: {} buffer full, {} disk errors",
            grouped(count("packets")),
            size(count("bytes")),
            grouped(count("packets_dropped")),
            grouped(count("packets_lost"))
        );
    }
}

/// Flows, their names and why others have none.
fn named(text: &mut String, summary: &Summary) {
    let _ = writeln!(
        text,
        "flows      {}, {} with a destination that can have a name",
        grouped(summary.flows),
        grouped(summary.flows_nameable)
    );
    let _ = writeln!(
        text,
        "named      {}{}",
        share(summary.flows_named, summary.flows_nameable),
        listed(summary.flows_named_by.iter().map(|(source, count)| (source.as_str(), *count)))
    );
    let unnamed = summary.flows_nameable.saturating_sub(summary.flows_named);
    let _ = writeln!(
        text,
        "unnamed    {}{}",
        share(unnamed, summary.flows_nameable),
        listed(summary.flows_unnamed_by.iter().map(|(reason, count)| (*reason, *count)))
    );
    let _ = writeln!(
        text,
        "responses  {} with names; {} names known, {} evicted",
        grouped(summary.answers),
        grouped(summary.names_known),
        grouped(summary.names_evicted)
    );
    let _ = writeln!(
        text,
        "doubtful   ambiguous {}, stale {}, late {}, conflicts {}, unsolicited {}, one-sided {}, \
         unconfirmed {}, claimed {}",
        grouped(summary.ambiguous),
        grouped(summary.stale),
        grouped(summary.late),
        grouped(summary.conflicts),
        grouped(summary.unsolicited),
        grouped(summary.one_sided),
        grouped(summary.unconfirmed),
        grouped(summary.claimed)
    );
}

fn exporters(text: &mut String, summary: &Summary) {
    for (exporter, counts) in summary.exporters.iter().take(EXPORTERS_LISTED) {
        let counts = counts.iter().map(|(kind, count)| (*kind, *count));
        let _ = writeln!(text, "exporter   {exporter}{}", listed(counts));
    }
    let more = summary.exporters.len().saturating_sub(EXPORTERS_LISTED);
    if more > 0 {
        let more = grouped(more as u64);
        let _ = writeln!(text, "exporter   and {more} more; -d DIR writes all to stats.json");
    }
}

fn damage(text: &mut String, damaged: &BTreeMap<&'static str, Damage>) {
    for (kind, damage) in damaged {
        let _ = writeln!(
            text,
            "damaged    {} {kind}, the first at byte {} of {}",
            grouped(damage.count),
            damage.first_offset,
            damage.first_file.escape_debug()
        );
    }
}

/// `281 (87.5 %)`.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return grouped(part);
    }
    format!("{} ({:.1} %)", grouped(part), part as f64 / whole as f64 * 100.0)
}

/// `: sni 12, dns_pair 3`, most first; nothing when nothing was counted.
fn listed<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    let mut counts: Vec<(&str, u64)> = counts.filter(|(_, count)| *count > 0).collect();
    // Stable: equal counts stay in the order of preference.
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let words: Vec<String> =
        counts.iter().map(|(word, count)| format!("{word} {}", grouped(*count))).collect();
    if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_annotate::record::NameSource;

    /// Everything that a run counted is reported, and the terminal gets no control byte of a file name.
    #[test]
    fn everything_counted_is_reported() {
        let summary = Summary {
            packets: 1_234_567,
            flows: 400,
            flows_nameable: 320,
            flows_named: 280,
            flows_named_by: BTreeMap::from([(NameSource::Sni, 30), (NameSource::DnsPair, 250)]),
            flows_unnamed_by: BTreeMap::from([("no_lookup_seen", 40)]),
            flows_evicted: 3,
            damaged: BTreeMap::from([(
                "packet_truncated",
                Damage { count: 2, first_offset: 4096, first_file: "a\x1b[2J.pcap".to_owned() },
            )]),
            interrupted: true,
            ..Summary::default()
        };
        let text = text(&summary, Duration::from_millis(500));
        for expected in [
            "1,234,567",
            "0.50 s, 2.5 M packets/s",
            "280 (87.5 %): dns_pair 250, sni 30",
            "40 (12.5 %): no_lookup_seen 40",
            "3 flows ended early",
            "2 packet_truncated, the first at byte 4096 of a\\u{1b}[2J.pcap",
            "stopped",
        ] {
            assert!(text.contains(expected), "{expected} is missing from\n{text}");
        }
        assert!(!text.contains('\x1b'));
    }

    /// An empty run divides by nothing and lists nothing.
    #[test]
    fn an_empty_run_is_calm() {
        let text = text(&Summary::default(), Duration::ZERO);
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(!text.contains("NaN"));
    }
}

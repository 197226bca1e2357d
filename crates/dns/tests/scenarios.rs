//! Scenarios: each rule of the server, with scripted clients, upstreams and clock.
//!
//! The scenarios are the files in `tests/scenarios`; `tests/scenario/script.rs` describes their
//! syntax. Each is a separate test.

mod scenario;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

fn run_file(name: &str) {
    let path = folder().join(format!("{name}.scenario"));
    let text = std::fs::read_to_string(&path).unwrap();
    if let Err(fault) = scenario::run(&text) {
        let line = text.lines().nth(fault.line - 1).unwrap_or_default();
        panic!("\n{name}.scenario:{}: {line}\n  {}\n", fault.line, fault.why);
    }
}

/// A test for each scenario, and their list. `match_*` check invariant 1 of `core`, and `limit_*`
/// invariant 3 of `core`.
macro_rules! scenarios {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run_file(stringify!($name));
            }
        )*

        const SCENARIOS: &[&str] = &[$(stringify!($name)),*];
    };
}

scenarios! {
    acl_default
    acl_dropped
    acl_refused
    ad_believed
    ad_not_believed
    alias_asked_for
    alias_loop
    alias_of_a_zone
    alias_out
    alias_out_changed
    alias_out_failure
    alias_out_loop
    alias_out_negative
    alias_too_long
    backend
    backend_fails
    backend_hedged
    any_is_small
    asleep
    block_allowed
    block_nxdomain
    block_refused
    block_rpz
    block_zero
    cache_only
    chaos_texts
    class_chaos
    cookies
    cookies_malformed
    cookies_not_stored
    cookies_off
    dnssec_only_if_asked
    dnssec_proofs
    down_all
    down_and_probed
    duplicates
    edns_badvers_from_upstream
    edns_unknown_is_remembered
    edns_unknown_to_a_question
    edns_unknown_to_one
    edns_unknown_to_upstream
    edns_unknown_waits_anew
    edns_version
    failure_is_kept
    failure_without_question
    fastest_is_preferred
    hedge
    key_case
    key_flags
    key_long
    key_type
    late
    limit_questions
    limit_time
    limit_waiters
    limit_waiters_each
    local_hosts
    local_rd_zero
    local_zones
    malformed
    match_case
    match_case_by_stream
    match_case_is_lost
    match_id
    match_question
    match_socket
    merged
    merged_in_a_batch
    meta_types
    negative_alias
    negative_limit
    negative_minimum
    negative_nodata
    negative_without_soa
    nxdomain_cut
    nxdomain_cut_validated
    opt_hop_by_hop
    out_of_reach
    over_tcp
    policy_reload_blocks
    policy_reload_in_flight
    policy_reload_views
    prefetch
    prefetch_failure
    prefetch_off
    probe_answers_first
    rate_limit
    rate_limit_silent
    rd_zero
    records_in_order
    records_minimal
    records_unrelated
    reload_keeps_cache
    responses_are_dropped
    retry_after_failure
    retry_another
    retry_attempts
    retry_duplicate_failure
    retry_fast_upstream
    retry_first_packet_counts
    retry_reasons_are_told
    retry_reasons_come_late
    retry_same
    retry_useless
    retry_useless_late
    retry_waits_for_the_other
    size_by_client
    size_by_server
    size_huge
    size_whole_sets
    special_names
    spoof_flood
    spoof_leads_to_stream
    spoof_socket
    stale_nxdomain
    stale_off
    stale_on_failure
    stale_on_timer
    stale_only_on_failure
    stale_outdated
    stale_ttls
    stale_while_prefetched
    stale_window
    stream_fails
    stream_of_another
    stream_plain
    stream_says_nonsense
    truncated_by_stream
    truncated_damaged
    truncated_to_first_packet
    truncated_upstream_is_kept
    truncated_zone_is_kept
    ttl_ageing
    ttl_limits
    ttl_zero
    unreachable
    unreachable_stream
    views
    zones
}

/// Each query of a batch gets the response that it would get alone, hit or miss. Batches have sizes
/// around those of the core.
#[test]
fn batches_of_any_length() {
    for count in [1, 31, 32, 33, 64, 65, 100] {
        let mut text = String::new();
        let lines = |text: &mut String, line: &dyn Fn(u32) -> String| {
            (1..=count).for_each(|at| text.push_str(&line(at)));
        };
        let query = |at: u32| {
            let also = if at == 1 { "" } else { "also " };
            format!("{also}client {at} asks n{at}.example A\n")
        };
        let response = |at: u32| {
            format!("client {at} gets NOERROR\n  answer n{at}.example 60 A 192.0.2.{at}\n")
        };
        lines(&mut text, &query);
        lines(&mut text, &|at| format!("upstream 1 gets n{at}.example A\n"));
        lines(&mut text, &|at| {
            let answer = format!("  answer n{at}.example 60 A 192.0.2.{at}\n");
            format!("upstream 1 answers NOERROR to n{at}.example A\n{answer}")
        });
        lines(&mut text, &response);
        text.push_str("client 999 asks other.example A class CH\nclient 999 gets REFUSED\n");
        lines(&mut text, &query);
        lines(&mut text, &response);
        assert_eq!(scenario::run(&text), Ok(()), "{count} questions");
    }
}

/// Each scenario of the folder is in the list.
#[test]
fn all_are_run() {
    let files = std::fs::read_dir(folder()).unwrap();
    let names: BTreeSet<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .map(|name| name.strip_suffix(".scenario").expect("a scenario").to_owned())
        .collect();
    assert_eq!(names, SCENARIOS.iter().map(|name| (*name).to_owned()).collect());
}

/// The guide's tables list each scenario once and no others, with the RFCs that its first lines
/// name.
#[test]
fn the_guide_has_all() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/dns-rules.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let mut listed = Vec::new();
    for row in guide.lines().filter(|line| line.contains(".scenario)")) {
        let [_, rule, rfcs, link, _] = row.split('|').collect::<Vec<_>>()[..] else {
            panic!("a row has a rule, RFCs and a scenario: {row}")
        };
        assert!(!rule.trim().is_empty(), "{row}");
        let name = link.split('`').nth(1).expect("a name");
        let target = format!("[`{name}`](../../crates/dns/tests/scenarios/{name}.scenario)");
        assert_eq!(link.trim(), target);
        let scenario = std::fs::read_to_string(folder().join(format!("{name}.scenario"))).unwrap();
        let head: Vec<&str> = scenario.lines().take_while(|line| line.starts_with('#')).collect();
        let head = head.join(" ");
        let mut numbers: Vec<&str> = Vec::new();
        for number in head.split("RFC ").skip(1) {
            let number = number.split(|digit: char| !digit.is_ascii_digit()).next().unwrap();
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        let stated: Vec<&str> = rfcs.split(',').map(str::trim).collect();
        let stated: Vec<&str> =
            stated.into_iter().filter(|each| each.parse::<u32>().is_ok()).collect();
        assert_eq!(stated, numbers, "{name}");
        listed.push(name);
    }
    listed.sort_unstable();
    let mut scenarios = SCENARIOS.to_vec();
    scenarios.sort_unstable();
    assert_eq!(listed, scenarios);
}

/// An error in a scenario is reported with its line. Errors are unknown words, missing packets,
/// packets without a line, other responses than stated, and clients that wait at the end.
#[test]
fn faults_are_found() {
    let query = "client 1 asks a.example A\n";
    let gets = "upstream 1 gets a.example A\n";
    let answers = "upstream 1 answers NOERROR\n  answer a.example 60 A 192.0.2.1\n";
    let response = "client 1 gets NOERROR\n  answer a.example 60 A 192.0.2.1\n";
    let whole = [query, gets, answers, response].concat();
    assert_eq!(scenario::run(&whole), Ok(()));
    for (text, line, why) in [
        ("client 1 knows", 1, "what is knows?"),
        ("client 1 asks a.example A loudly", 1, "what is loudly?"),
        ("client 1 asks a.example", 1, "something is missing"),
        ("client 1 asks a.example A\n  answer a.example", 2, "here option is missing"),
        ("  answer a.example 60 A 192.0.2.1", 1, "nothing stands above"),
        ("# only\n\nserver ttl-max 60", 3, "here s is missing"),
        ("server speed 9", 1, "no setting"),
        (&[query, "server attempts 1"].concat(), 2, "before the first thing"),
        (&[query, "after 1 s"].concat(), 2, "unsaid by the scenario: upstream 1 got"),
        (query, 1, "unsaid by the scenario: upstream 1 got"),
        (&[query, gets].concat(), 2, "client 1 waits"),
        (&[query, "upstream 2 gets a.example A"].concat(), 2, "it gets nothing; but upstream 1"),
        (&[query, "upstream 1 gets a.example AAAA"].concat(), 2, "not what it got"),
        (&[query, "upstream 1 gets a.example A do"].concat(), 2, "not what it got"),
        (&[query, gets, answers, "client 1 gets NXDOMAIN"].concat(), 5, "the code is not NXDOMAIN"),
        (&[query, gets, answers, "client 1 gets NOERROR"].concat(), 5, "the answer section"),
        (&[query, gets, answers, "client 1 gets NOERROR ad"].concat(), 5, "AD is not as told"),
        (&[&whole[..], "client 1 gets NOERROR"].concat(), 7, "it gets nothing"),
        ("client 1 is ignored", 1, "it is not"),
        ("policy\n  access all allow", 1, "write a network as"),
        ("policy\n  block kids:a.example", 1, "no views"),
        ("policy\n  block <html>", 1, "no domain name"),
        ("policy\n  pray a.example", 1, "no part of a policy"),
        ("client 1 asks a.example A\n  cookie back", 1, "got no cookie"),
    ] {
        let fault = scenario::run(text).expect_err(text);
        assert_eq!(fault.line, line, "{text}: {}", fault.why);
        assert!(fault.why.contains(why), "{text}: {}", fault.why);
    }
}

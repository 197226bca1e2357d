use std::net::IpAddr;

use larder_serve::history::Range;
use larder_serve::page_thread::{Sampler, now_s};
use larder_serve::pages::Pages;
use larder_serve::server_page::Taker;

use super::seen::tests::note;
use super::*;
use crate::core::Source;
use crate::metrics;

/// Figures of a server without traffic.
fn figures() -> Arc<Figures> {
    let cache = larder::Cache::builder().budget(1 << 20).readers_max(1).build().expect("a cache");
    Arc::new(Figures {
        cache,
        clock: Clock::start(),
        published: Arc::new(metrics::Shared::new(1, std::iter::empty())),
        meters: Vec::new(),
        backends: Vec::new(),
        beside: None,
    })
}

fn shared(prefix: Option<Prefix>) -> Arc<DnsPage> {
    let listen = vec!["127.0.0.1:53".to_owned()];
    Arc::new(ServerPage::new(DnsShown { figures: figures(), listen, prefix }, 7))
}

fn json(shared: &DnsPage, path: &str) -> Value {
    serde_json::from_slice(&shared.get(path).expect(path).content).expect("JSON")
}

/// All texts are JSON before the first query, too.
#[test]
fn texts_are_json() {
    let shared = shared(None);
    for path in ["/api/stats", "/api/recent", "/api/lists", "/api/history/1m", "/api/history/30d"] {
        assert!(json(&shared, path).is_object(), "{path}");
    }
    let metrics = shared.get("/metrics").expect("metrics").content;
    assert!(metrics.starts_with(b"# HELP larder_build_info"));
}

/// The document is whole: style and script are in it, and its policy allows nothing else.
#[test]
fn the_document_is_whole() {
    let page = shared(None).get("/").expect("a page");
    let html = String::from_utf8(page.content.to_vec()).expect("UTF-8");
    assert!(html.contains("color-scheme") && html.contains("function showTail"));
    for absent in ["<style></style>", "<script></script>", "innerHTML", "http://", "onclick=\""] {
        // The name space of SVG is an address that nothing loads.
        let html = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!html.contains(absent), "{absent}");
    }
    assert!(page.headers.contains("script-src 'sha256-") && !page.headers.contains("unsafe"));
}

/// Invariant 2: names with markup, escapes of terminals and marks that turn text are printable ASCII.
#[test]
fn hostile_names_are_text() {
    let shared = shared(None);
    let names: [&[u8]; 4] = [
        b"\x1e<script>alert(1)</script>.x\"'\x07example\x00",
        b"\x05\x1b[31m\x07example\x00",
        "\x03\u{202e}\x07example\x00".as_bytes(),
        b"\x02\x00\n\x00",
    ];
    for name in names {
        shared.state().kept.seen.take(note(name, Source::Miss, 1), now_s());
        shared.state().kept.seen.take(note(name, Source::Blocked, 1), now_s());
    }
    for (path, list) in
        [("/api/lists", "names"), ("/api/lists", "blocked"), ("/api/recent", "tail")]
    {
        let value = json(&shared, path);
        let rows = value[list].as_array().expect("rows");
        assert!(rows.len() >= 4, "{path}");
        for row in rows {
            let name = row["name"].as_str().expect("a name");
            assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?}");
            assert!(name.ends_with('.') && !name.contains('"'), "{name:?}");
        }
        assert!(rows.iter().any(|row| row["name"] == "\\027[31m.example."), "{value}");
    }
}

/// Counters become rates, shares and times; notes become rows.
#[test]
fn counters_become_numbers() {
    let shared = shared(None);
    let (sender, received) = channel();
    let mut taker = Taker::new(Arc::clone(&shared), received);
    let mut counts =
        Counts { queries_udp: 10, answers_noerror: 8, answers_servfail: 2, ..Counts::default() };
    (counts.hits, counts.misses, counts.local_answers_blocked) = (6, 3, 1);
    counts.miss.note_many(1_000, 3);
    shared.shown.figures.published.counts.publish(0, &counts);
    let mut notes = Notes::new(sender, Clock::start());
    let client = crate::core::Client::Stream { stream: 0, peer: ([10, 0, 0, 7], 1).into() };
    notes.describe(Source::Hit, Some(0));
    notes.answered(&client, b"\0\0\x81\x80\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01");
    notes.flush();
    taker.take_notes();
    assert!(!taker.sample(119, 1));
    let stats = json(&shared, "/api/stats");
    assert_eq!((&stats["queries_s"], &stats["queries"]), (&10.0.into(), &10.into()));
    assert_eq!((&stats["hit_percent"], &stats["servfail_percent"]), (&66.7.into(), &20.0.into()));
    assert_eq!(
        (&stats["miss_us"]["p99"], &stats["blocked_percent"]),
        (&1_024.into(), &10.0.into())
    );
    assert!(stats["hit_us"]["p50"].is_u64(), "{stats}");
    let recent = json(&shared, "/api/recent");
    assert_eq!(
        (&recent["tail"][0]["name"], &recent["tail"][0]["source"]),
        (&"a.".into(), &"hit".into())
    );
    assert_eq!(json(&shared, "/api/lists")["clients"][0]["address"], "10.0.0.7");
    assert!(taker.sample(120, 1), "a minute is over");
    let chart = shared.state().history.chart(Range::Minute, 120);
    assert_eq!((&chart["queries"][58], &chart["queries"][59]), (&10.0.into(), &0.0.into()));
    assert_eq!(chart["miss_us_p99"][58], 1_024.0);
}

/// With a prefix, the page shows networks instead of clients.
#[test]
fn clients_are_networks() {
    let shared = shared(Some(Prefix { v4: 24, v6: 56 }));
    let (sender, received) = channel();
    let mut taker = Taker::new(Arc::clone(&shared), received);
    let mut notes = Notes::new(sender, Clock::start());
    for address in ["10.1.2.3", "10.1.2.4", "2001:db8:1:2::7"] {
        let address: IpAddr = address.parse().expect("an address");
        let client = crate::core::Client::Stream { stream: 0, peer: (address, 1).into() };
        notes.answered(&client, b"\0\0\x81\x80\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01");
    }
    notes.flush();
    taker.take_notes();
    let lists = json(&shared, "/api/lists");
    let clients = lists["clients"].as_array().expect("rows");
    let addresses: Vec<&str> = clients.iter().filter_map(|row| row["address"].as_str()).collect();
    assert_eq!(addresses, ["10.1.2.0/24", "2001:db8:1::/56"]);
    assert!(!lists.to_string().contains("10.1.2.4"));
}

/// Each number of a sample has its place.
#[test]
fn series_have_their_places() {
    let mut counts = Counts { answers_refused: 5, dropped_queries: 3, ..Counts::default() };
    counts.rate_limited_dropped = 1;
    let sample = of_counts(&counts, &Counts::default(), &Durations::default());
    let of = |name: &str| sample[place(&SERIES, name)];
    assert_eq!((of("refused"), of("dropped"), of("miss_us_p50"), of("queries")), (5, 4, 0, 0));
    assert_eq!(place(&SERIES, "entries"), 18);
}

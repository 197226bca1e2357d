use larder_serve::page_thread::Sampler;
use larder_serve::pages::Pages;
use larder_serve::server_page::Taker;

use super::*;
use crate::notes::tests::exchange;
use crate::options::{Options, OriginAddress};
use crate::server::Running;

/// A server without traffic, which serves at a free port.
fn running() -> Running {
    let origin = OriginAddress {
        address: ([127, 0, 0, 1], 9).into(),
        name: "origin.example".to_owned(),
        is_secure: false,
    };
    let listen = vec![([127, 0, 0, 1], 0).into()];
    Running::start(&Options { loops: 1, ..Options::new(listen, vec![origin]) }).expect("a server")
}

fn shared(running: &Running) -> Arc<HttpPage> {
    let listen = vec!["127.0.0.1:80".to_owned()];
    Arc::new(ServerPage::new(HttpShown { figures: running.figures(), listen }, 7))
}

fn json(shared: &HttpPage, path: &str) -> Value {
    serde_json::from_slice(&shared.get(path).expect(path).content).expect("JSON")
}

/// All texts are JSON before the first request, too; the document is whole.
#[test]
fn texts_are_json() {
    let running = running();
    let shared = shared(&running);
    for path in ["/api/stats", "/api/recent", "/api/lists", "/api/history/1m", "/api/history/30d"] {
        assert!(json(&shared, path).is_object(), "{path}");
    }
    let stats = json(&shared, "/api/stats");
    assert_eq!((&stats["origins"], &stats["hit_percent"]), (&1.into(), &Value::Null));
    assert!(stats["memory_bytes_max"].as_u64() > Some(1 << 20), "{stats}");
    assert_eq!(json(&shared, "/api/recent")["origins"][0]["name"], "origin.example");
    let metrics = shared.get("/metrics").expect("metrics").content;
    assert!(metrics.starts_with(b"# HELP larder_build_info"));
    let page = shared.get("/").expect("a page");
    let html = String::from_utf8(page.content.to_vec()).expect("UTF-8");
    assert!(html.contains("color-scheme") && html.contains("function showTail"));
    for absent in ["<style></style>", "<script></script>", "innerHTML", "http://", "onclick=\""] {
        // The name space of SVG is an address that nothing loads.
        let html = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!html.contains(absent), "{absent}");
    }
    assert!(page.headers.contains("script-src 'sha256-") && !page.headers.contains("unsafe"));
}

/// Invariant 2: URLs with markup, escapes of terminals and marks that turn text are printable ASCII.
#[test]
fn hostile_urls_are_text() {
    let running = running();
    let shared = shared(&running);
    let (sender, received) = channel();
    let (mut notes, mut taker) = (Notes::new(sender), Taker::new(Arc::clone(&shared), received));
    for target in
        [&b"/<script>alert(1)</script>"[..], b"/\x1b[31m", "/\u{202e}gnp".as_bytes(), b"/\\x41\0\n"]
    {
        notes.record(&exchange(target, Some("uri-miss")), 1);
    }
    notes.flush();
    taker.take_notes();
    for (path, list) in [("/api/lists", "urls"), ("/api/lists", "missed"), ("/api/recent", "tail")]
    {
        let value = json(&shared, path);
        let rows = value[list].as_array().expect("rows");
        assert_eq!(rows.len(), 4, "{path}");
        for row in rows {
            let url = row["url"].as_str().expect("a URL");
            assert!(url.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{url:?}");
        }
        let has = |url: &str| rows.iter().any(|row| row["url"] == url);
        assert!(has("www.example.org/\\x1B[31m") && has("www.example.org/\\x5Cx41\\x00\\x0A"));
    }
}

/// Counters become rates, shares and times; notes become rows.
#[test]
fn counters_become_numbers() {
    let running = running();
    let shared = shared(&running);
    let (sender, received) = channel();
    let mut taker = Taker::new(Arc::clone(&shared), received);
    let mut counts = Counts { requests: 10, hits: 5, hits_stale: 1, ..Counts::default() };
    (counts.misses, counts.collapsed, counts.passed) = (2, 1, 1);
    (counts.responses_2xx, counts.responses_5xx) = (8, 2);
    (counts.sent_bytes, counts.received_bytes) = (1_000, 250);
    counts.origin.note_many(1_000, 3);
    let sample = of_counts(&counts, &Counts::default(), &counts.origin);
    assert_eq!(
        (sample[place(&SERIES, "hits")], sample[place(&SERIES, "origin_us_p99")]),
        (6, 1_024)
    );
    let mut sample = sample;
    sample[0] = 1;
    shared.state().history.push(119, sample);
    let mut notes = Notes::new(sender);
    notes.record(&exchange(b"/a", Some("hit")), 2);
    notes.flush();
    taker.take_notes();
    let stats = json(&shared, "/api/stats");
    assert_eq!((&stats["requests_s"], &stats["hit_percent"]), (&10.0.into(), &66.7.into()));
    assert_eq!((&stats["byte_hit_percent"], &stats["error_percent"]), (&75.0.into(), &20.0.into()));
    assert_eq!((&stats["hit_us"]["p50"], &stats["weight_max"]), (&128.into(), &2.into()));
    let lists = json(&shared, "/api/lists");
    assert_eq!(
        (&lists["urls"][0]["requests"], &lists["statuses"][0]["status"]),
        (&2.into(), &200.into())
    );
    assert_eq!(
        (&lists["clients"][0]["address"], &lists["missed"]),
        (&"192.0.2.1".into(), &Value::Array(vec![]))
    );
}

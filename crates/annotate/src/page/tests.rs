use std::path::PathBuf;

use larder_io::access::Access;
use larder_serve::log::Log;

use super::*;

/// A page without a run.
fn shared() -> Shared {
    let progress = Arc::new(Progress::default());
    let options = Options::default();
    Shared {
        figures: Arc::new(Figures::new(&progress, Box::new(|_| ()))),
        facts: Facts::of(&options, None, None),
        progress,
        catalog: Arc::default(),
        state: Mutex::default(),
        texts: Texts::default(),
        demand: Demand::default(),
    }
}

/// Invariant 2: all texts are JSON before the first packet, too; unknown paths are none; clients get the same bytes.
#[test]
fn texts_are_json() {
    let shared = shared();
    for path in ["/api/stats", "/api/lists", "/api/history/1m", "/api/history/30d"] {
        let page = shared.get(path).expect(path);
        let value: serde_json::Value = serde_json::from_slice(&page.content).expect("JSON");
        assert!(value.is_object(), "{path}");
        assert!(Arc::ptr_eq(&page.content, &shared.get(path).expect(path).content), "{path}");
        assert!(!shared.is_public(path));
    }
    assert!(shared.is_public("/") && !shared.is_public("/metrics"));
    for path in ["/api/history/2h", "/api/history/", "/api", "/segments", ""] {
        assert!(shared.get(path).is_none(), "{path}");
    }
    let metrics = shared.get("/metrics").expect("metrics");
    assert!(metrics.content.starts_with(b"# HELP larder_build_info"));
}

/// The document is whole: style and script are in it, and its policy allows nothing else.
#[test]
fn the_document_is_whole() {
    let page = shared().get("/").expect("a page");
    let html = String::from_utf8(page.content.to_vec()).expect("UTF-8");
    assert!(html.contains("color-scheme") && html.contains("function showLists"));
    for absent in ["<style></style>", "<script></script>", "innerHTML", "http://", "onclick=\""] {
        // The name space of SVG is an address that nothing loads.
        let html = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!html.contains(absent), "{absent}");
    }
    assert!(page.headers.contains("script-src 'sha256-") && !page.headers.contains("unsafe"));
}

/// Invariant 3: a damaged file is replaced.
#[test]
fn a_damaged_file_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history");
    std::fs::write(&path, "larderh1 and nonsense").expect("written");
    let of = |path: PathBuf| HistoryFile::new(path, Access::PRIVATE, Log::default());
    let (mut state, mut file) = (State::default(), of(path.clone()));
    state.load(&file, 9);
    assert_eq!((state.history, state.begun_s), (History::default(), 0));
    file.save(&Taker::new(Arc::new(shared())).bytes());
    assert!(saved::load(&path).expect("sound").is_some());
}

/// Notes and samples of a run become rows, rates and a minute.
#[test]
fn a_run_becomes_numbers() {
    let page = Arc::new(shared());
    let live = &page.progress.live_stats;
    live.observe();
    let mut taker = Taker::new(Arc::clone(&page));
    page.progress.packets.store(500, Ordering::Relaxed);
    live.totals.ip_bytes.store(1_000, Ordering::Relaxed);
    let mut notes = vec![crate::seen::Noted::of(&crate::record::FlowRecord::blank(), 0, true)];
    live.note(&mut notes);
    taker.take_notes();
    assert!(!taker.sample(119, 1));
    page.progress.packets.store(600, Ordering::Relaxed);
    assert!(taker.sample(120, 1), "a minute is over");
    let state = page.state();
    let seconds = &state.history.samples.seconds;
    let samples: Vec<Sample> = seconds.iter().map(|(_, sample)| Sample::of(*sample)).collect();
    let packets: Vec<u64> = samples.iter().map(|sample| sample.packets).collect();
    assert_eq!((packets, samples[0].bytes), (vec![500, 100], 1_000));
    assert_eq!(state.history.samples.minutes.len(), 1);
    assert_eq!(state.seen.unresolved.merged(119, 9).len(), 1);
}

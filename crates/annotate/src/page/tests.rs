use super::*;

/// Invariant 2: clients of which there are many wait longer, so that their requests together stay few; a text is
/// made once for all of them.
#[test]
fn many_clients_come_less_often() {
    assert_eq!([0, 1, 50, 51, 1_000].map(texts::poll_ms), [1_000, 1_000, 1_000, 2_000, 20_000]);
    assert_eq!(texts::poll_ms(u64::MAX), 60_000);
    for clients in [1, 200, 1_000] {
        // As many as ask at this pause are found again.
        let requests = clients * 1_000 / texts::poll_ms(clients);
        let found = (requests * texts::poll_ms(clients)).div_ceil(1_000);
        assert!(found.abs_diff(clients) <= 1, "{clients}: {found}");
    }
}

/// A page without a run.
fn shared(file: Option<PathBuf>) -> Shared {
    let progress = Arc::new(Progress::default());
    let options = Options::default();
    Shared {
        figures: Arc::new(Figures::new(&progress, Box::new(|_| ()))),
        facts: Facts::of(&options, None, None),
        progress,
        catalog: Arc::default(),
        state: Mutex::default(),
        texts: Mutex::default(),
        requests: AtomicU64::new(0),
        ends: AtomicBool::new(false),
        file,
        access: Access::PRIVATE,
        log: Log::default(),
    }
}

/// All texts are JSON before the first packet, too; unknown paths are none; clients get the same bytes.
#[test]
fn texts_are_json() {
    let shared = shared(None);
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
    assert_eq!(shared.requests.load(Ordering::Relaxed), 2);
}

/// The document is whole: style and script are in it, and its policy allows nothing else.
#[test]
fn the_document_is_whole() {
    let page = shared(None).get("/").expect("a page");
    let html = String::from_utf8(page.content.to_vec()).expect("UTF-8");
    assert!(html.contains("color-scheme") && html.contains("function showLists"));
    for absent in ["<style></style>", "<script></script>", "innerHTML", "http://", "onclick=\""] {
        // The name space of SVG is an address that nothing loads.
        let html = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!html.contains(absent), "{absent}");
    }
    assert!(page.headers.contains("script-src 'sha256-") && !page.headers.contains("unsafe"));
}

/// Invariant 3: a damaged file is reported and replaced; a folder in its place is reported once.
#[test]
fn a_damaged_file_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history");
    std::fs::write(&path, "larderh1 and nonsense").expect("written");
    let mut state = State::default();
    state.load(&path, 9, &Log::default());
    assert_eq!((state.history, state.begun_s), (History::default(), 0));
    let page = shared(Some(path.clone()));
    assert!(page.save(true));
    assert!(saved::load(&path).expect("sound").is_some());
    let page = shared(Some(folder.path().to_owned()));
    assert!(!page.save(true));
}

/// Notes and samples of a run become rows, rates and a minute.
#[test]
fn a_run_becomes_numbers() {
    let page = shared(None);
    let live = &page.progress.live_stats;
    live.observe();
    let mut totals = page.totals().0;
    page.progress.packets.store(500, Ordering::Relaxed);
    live.totals.ip_bytes.store(1_000, Ordering::Relaxed);
    let mut notes = vec![crate::seen::Noted::of(&crate::record::FlowRecord::blank(), 0, true)];
    live.note(&mut notes);
    page.take_notes(&mut notes);
    assert!(!page.sample(119, 1.02, &mut totals));
    page.progress.packets.store(600, Ordering::Relaxed);
    assert!(page.sample(120, 0.98, &mut totals), "a minute is over");
    let state = page.state();
    let packets: Vec<u64> = state.history.seconds.iter().map(|(_, one)| one.packets).collect();
    assert_eq!((packets, state.history.seconds[0].1.bytes), (vec![500, 100], 1_000));
    assert_eq!(state.history.minutes.len(), 1);
    assert_eq!(state.seen.unresolved.merged(119, 9).len(), 1);
}

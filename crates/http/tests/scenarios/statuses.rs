//! Responses without cache directives that are fresh by an operator's rule for their status.

use crate::support::{Client, Connection, Scenario, answer, scenario};

fn with(rules: &'static [(&'static str, u64)]) -> Scenario {
    scenario().with(move |it| {
        for (word, fresh_s) in rules {
            it.rules.statuses.add(word.parse().unwrap(), *fresh_s);
        }
    })
}

/// Sends a request, and lets the origin respond; returns the `Cache-Status`.
fn missed(client: &mut Client, origin: &mut Connection, path: &str, bytes: &[u8]) -> String {
    client.get(path);
    origin.asked(&format!("GET {path}"));
    origin.send(bytes);
    client.response().head.cache_status().to_owned()
}

/// A 404 without directives is stored by its rule, and Cache-Status reports that. One that forbids
/// it, or sets cookies, is not stored; statuses without a rule are as usual.
#[test]
fn kept_by_rule() {
    with(&[("404", 600), ("5xx", 600)]).loops(&[1, 2]).tell(|world| {
        let mut client = world.client();
        client.get("/none");
        let mut origin = world.asked("GET /none");
        origin.answers("404 Not Found", &[], "no");
        let came = client.response();
        let detail = ";detail=keep-status";
        assert!(came.head.cache_status().ends_with(&format!(";stored{detail}")), "{came:?}");
        for _ in 0..2 {
            let hit = client.fetch("/none");
            assert_eq!((hit.status(), hit.text()), (404, "no"));
            let status = hit.head.cache_status();
            assert!(status.contains("hit;ttl=") && status.ends_with(detail), "{hit:?}");
        }
        let said = answer("404 Not Found", &["Cache-Control: max-age=60"], "no");
        let status = missed(&mut client, &mut origin, "/said", &said);
        assert!(status.contains("stored") && !status.contains("detail"), "{status}");
        for fields in [&["Cache-Control: no-store"][..], &["Set-Cookie: a=b"], &["Vary: *"]] {
            for _ in 0..2 {
                let bytes = answer("404 Not Found", fields, "no");
                let status = missed(&mut client, &mut origin, "/not", &bytes);
                assert!(!status.contains("stored") && !status.contains("detail"), "{status}");
            }
        }
        // An oversized or odd request of one client must not become an error for all.
        for _ in 0..2 {
            let bytes = answer("400 Bad Request", &[], "no");
            missed(&mut client, &mut origin, "/bad", &bytes);
        }
        world.origin().is_idle();
    });
}

/// A stored error is served for its time; then the origin gets a request again, also if stale
/// responses may be served on errors. The new error is then stored.
#[test]
fn errors() {
    let scenario = scenario().with(|it| {
        it.rules.statuses.add("5xx".parse().unwrap(), 1);
        it.rules.stale_if_error_s = 3_600;
    });
    scenario.tell(|world| {
        world.origin().answers_by(|_| answer("503 Service Unavailable", &[], "busy"));
        let mut client = world.client();
        let (mut kept, mut hits) = (0, 0);
        while kept < 3 || hits == 0 {
            let response = client.fetch("/page");
            assert_eq!((response.status(), response.text()), (503, "busy"), "{response:?}");
            kept += usize::from(response.head.cache_status().contains("stored"));
            hits += usize::from(response.head.cache_status().contains("hit"));
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(world.server.counts().stale_on_error, 0, "an error is no answer to an error");
    });
}

//! Valid but rare messages, and invalid ones that occur.

use crate::support::{KEPT, UNKEPT, scenario};

/// An unknown status is forwarded, and not cached.
#[test]
fn unknown_statuses() {
    scenario().run(|world| {
        let mut client = world.client();
        let mut known = Vec::new();
        for status in [600, 999, 999] {
            client.get("/page");
            let mut origin = world.with_request(&mut known);
            origin.receive("GET /page");
            origin.answers(&format!("{status} Odd"), &[KEPT], "odd");
            let response = client.response();
            assert_eq!((response.status(), response.text()), (status, "odd"));
            known.push(origin);
        }
    });
}

/// An origin that sends a 304 or a partial response to an unconditional request gives no valid
/// response: 502. The next request is sent as usual.
#[test]
fn unsolicited() {
    let part = "Content-Range: bytes 0-3/9";
    for (status, field, text) in
        [("304 Not Modified", "ETag: \"a\"", ""), ("206 Partial Content", part, "0123")]
    {
        for method in ["GET", "POST"] {
            scenario().run(|world| {
                let mut client = world.client();
                client.request(
                    method,
                    "/page",
                    &["Content-Length: 0"][..usize::from(method == "POST")],
                );
                world.receive(&format!("{method} /page")).answers(status, &[KEPT, field], text);
                assert_eq!(client.response().status(), 502);
                client = world.client();
                client.get("/page");
                world.receive("GET /page").answers("200 OK", &[KEPT], "whole");
                assert_eq!(client.response().text(), "whole");
            });
        }
    }
    // A stale response without a validator is not validated.
    scenario().run(|world| {
        let mut client = world.client();
        client.get("/page");
        let mut origin = world.receive("GET /page");
        let control = "Cache-Control: max-age=0, stale-if-error=0, stale-while-revalidate=0";
        origin.answers("200 OK", &[control, "Cache-Control: max-age=0"], "old");
        client.response();
        client.get("/page");
        assert!(!origin.receive("GET /page").has("if-none-match"));
        origin.answers("304 Not Modified", &[KEPT], "");
        assert_eq!(client.response().status(), 502);
    });
}

/// A client's own condition or range gets its 304 or its part.
#[test]
fn requested() {
    scenario().run(|world| {
        let mut client = world.client();
        client.get("/page");
        let mut origin = world.receive("GET /page");
        origin.answers("200 OK", &[UNKEPT, "ETag: \"a\""], "own");
        client.response();
        client.request("GET", "/page", &["If-None-Match: \"a\""]);
        origin.receive("GET /page");
        origin.answers("304 Not Modified", &[UNKEPT, "ETag: \"a\""], "");
        assert_eq!(client.response().status(), 304);
        client.request("GET", "/page", &["Range: bytes=0-3"]);
        origin.receive("GET /page");
        origin.answers("206 Partial Content", &["Content-Range: bytes 0-3/9"], "0123");
        assert_eq!(client.response().status(), 206);
    });
}

/// A client that requests another protocol gets 501, and the origin gets no request. One that only
/// offers HTTP/2 gets its response.
#[test]
fn upgrades() {
    scenario().run(|world| {
        let mut client = world.client();
        client.request("GET", "/chat", &["Connection: Upgrade", "Upgrade: websocket"]);
        let response = client.response();
        assert_eq!(response.status(), 501);
        assert!(response.text().contains("Upgrade"), "{response:?}");
        client.request("GET", "/page", &["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"]);
        let mut origin = world.receive("GET /page");
        origin.answers("200 OK", &[KEPT], "page");
        assert_eq!(client.response().text(), "page");
    });
}

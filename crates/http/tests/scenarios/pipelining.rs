//! Requests that do not wait for earlier responses.

use crate::support::{End, KEPT, UNKEPT, answer, assert_bytes, body, request, scenario};

/// The path of a request.
fn path(line: &str) -> &str {
    line.split(' ').nth(1).unwrap()
}

/// A hundred requests in one write: some are hits, some have long bodies, and some are misses. The
/// responses come in order.
#[test]
fn a_hundred() {
    scenario().loops(&[1, 2]).run(|world| {
        let bytes = |path: &str| if path.contains("long") { 100_000 } else { 10 };
        world.origin().answers_by(move |head| {
            let path = path(&head.line);
            let control = if path.contains("own") { UNKEPT } else { KEPT };
            answer("200 OK", &[control, &format!("X-Path: {path}")], body(bytes(path)))
        });
        let mut client = world.client();
        for kept in ["/kept", "/kept/long"] {
            client.fetch(kept);
        }
        let paths: Vec<String> = (0..100)
            .map(|number| match number % 7 {
                0 | 1 | 4 => "/kept".to_owned(),
                2 => "/kept/long".to_owned(),
                3 => format!("/own/{number}"),
                5 => format!("/long/{}", number / 2),
                _ => format!("/new/{}", number / 3),
            })
            .collect();
        let all: String = paths.iter().map(|path| request("GET", path, &[])).collect();
        client.send(all);
        for path in &paths {
            let response = client.response();
            assert_eq!(response.head.field("x-path"), Some(path.as_str()));
            assert_bytes(&response.body, &body(bytes(path)));
        }
        // The same in arbitrary pieces.
        let all: String = paths.iter().map(|path| request("GET", path, &[])).collect();
        for piece in all.as_bytes().chunks(37) {
            client.send(piece);
        }
        for path in &paths {
            let response = client.response();
            assert_eq!(response.head.field("x-path"), Some(path.as_str()));
            assert_bytes(&response.body, &body(bytes(path)));
        }
    });
}

/// More hits than may wait at once: the server stops reading from the client, and all get
/// responses.
#[test]
fn ten_thousand() {
    scenario().run(|world| {
        world.origin().answers_by(|_| answer("200 OK", &[KEPT], body(1000)));
        let mut client = world.client();
        client.fetch("/");
        let mut writer = client.stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            use std::io::Write as _;
            writer.write_all(request("GET", "/", &[]).repeat(10_000).as_bytes()).unwrap();
        });
        for _ in 0..10_000 {
            assert_eq!(client.response().body.len(), 1000);
        }
        sending.join().unwrap();
    });
}

/// A request with a body and the next one in the same write: the body belongs to the first, and the
/// next is a request.
#[test]
fn body_and_next() {
    scenario().run(|world| {
        for (framing, bytes) in [
            ("Content-Length: 4", "body"),
            ("Transfer-Encoding: chunked", "4\r\nbody\r\n0\r\n\r\n"),
        ] {
            let mut client = world.client();
            let post = request("POST", "/form", &[framing]);
            client.send(format!("{post}{bytes}{}", request("GET", "/page", &[])));
            let mut origin = world.origin().accept();
            let head = origin.receive("POST /form");
            assert_eq!(origin.try_body(&head).unwrap(), b"body");
            // The next one waits for the first one's response.
            world.origin().is_idle();
            origin.answers("200 OK", &[UNKEPT], "done");
            let mut origin = world.with_request(&mut vec![origin]);
            origin.receive("GET /page");
            origin.answers("200 OK", &[UNKEPT], "page");
            assert_eq!(client.response().text(), "done");
            assert_eq!(client.response().text(), "page");
        }
    });
}

/// Requests after one with `Connection: close` get no response; nor do those after a refused one.
#[test]
fn after_the_last() {
    scenario().run(|world| {
        world.origin().answers_by(|_| answer("200 OK", &[KEPT], "text"));
        let get = request("GET", "/", &[]);
        for last in [request("GET", "/", &["Connection: close"]), get.replace("1.1", "1.0")] {
            let mut client = world.client();
            client.send(format!("{get}{last}{get}{get}"));
            assert_eq!(client.response().text(), "text");
            let response = client.response();
            assert_eq!(response.text(), "text");
            assert_eq!(response.head.field("connection"), Some("close"));
            client.finish();
            assert_eq!(client.end(), End::Clean);
        }
        let mut client = world.client();
        client.send(format!("{get}GET nothing\r\n\r\n{get}"));
        assert_eq!(client.response().text(), "text");
        client.is_refused(400);
    });
}

//! Stale responses: revalidated, served during revalidation, served when the origin fails; and
//! responses invalidated meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};

use larder_http::key::tag;

use crate::support::{Client, Connection, Head, UNKEPT, World, answer, scenario};

const ETAG: &str = "ETag: \"a\"";
/// Stale from the beginning, and revalidated each time.
const STALE: &str = "Cache-Control: max-age=0";
const FRESH: &str = "Cache-Control: max-age=3600";

/// Stores a stale response; returns a client and the origin's connection.
fn kept(world: &World, control: &str, fields: &[&str], text: &str) -> (Client, Connection) {
    let mut client = world.client();
    client.get("/page");
    let mut origin = world.receive("GET /page");
    origin.answers("200 OK", &[&[control, ETAG][..], fields].concat(), text);
    assert_eq!(client.response().text(), text);
    (client, origin)
}

fn receive_validation(origin: &mut Connection) -> Head {
    let head = origin.receive("GET /page");
    assert_eq!(head.field("if-none-match"), Some("\"a\""), "{head:?}");
    head
}

/// Many clients request a stale response: the origin gets one conditional request, and its 304
/// serves all, with its fields.
#[test]
fn one_304_for_all() {
    scenario().loops(&[1, 2]).run(|world| {
        for text in ["short", &"long ".repeat(20_000)] {
            let path = format!("/page/{}", text.len());
            let mut client = world.client();
            client.get(&path);
            let mut origin = world.receive(&format!("GET {path}"));
            origin.answers("200 OK", &[STALE, ETAG, "X-Old: 1", "X-Both: 1"], text);
            client.response();
            let before = world.server.counts().collapsed;
            client.get(&path);
            let head = origin.receive(&format!("GET {path}"));
            assert_eq!(head.field("if-none-match"), Some("\"a\""));
            let mut others = world.clients(8);
            others.iter_mut().for_each(|it| it.get(&path));
            world.until_counts("all wait", |it| it.collapsed == before + 8);
            origin.answers("304 Not Modified", &[FRESH, ETAG, "X-Both: 2"], "");
            for client in others.iter_mut().chain([&mut client]) {
                let response = client.response();
                assert_eq!((response.status(), response.text()), (200, text));
                assert_eq!(response.head.field("x-old"), Some("1"));
                assert_eq!(response.head.field("x-both"), Some("2"));
            }
            // It is fresh now, with its new fields.
            let hit = others[0].fetch(&path);
            assert!(hit.head.cache_status().contains("hit"), "{hit:?}");
            assert_eq!((hit.head.field("x-both"), hit.text()), (Some("2"), text));
        }
        world.origin().is_idle();
    });
}

/// A stale response is served at once during one background revalidation, whose result is served
/// from then on.
#[test]
fn while_revalidating() {
    let control = "Cache-Control: max-age=0, stale-while-revalidate=600";
    for is_changed in [false, true] {
        scenario().loops(&[1, 2]).run(move |world| {
            let (mut client, mut origin) = kept(world, control, &[], "old");
            assert_eq!(client.fetch("/page").text(), "old");
            receive_validation(&mut origin);
            for mut other in world.clients(6) {
                assert_eq!(other.fetch("/page").text(), "old");
            }
            let text = if is_changed { "new" } else { "old" };
            if is_changed {
                origin.answers("200 OK", &[FRESH], text);
                world.until_counts("it was kept", |it| it.kept == 2);
            } else {
                origin.answers("304 Not Modified", &[FRESH, "X-New: 1"], "");
                world.until_counts("it was renewed", |it| it.renewed == 1);
            }
            for mut other in world.clients(6) {
                let hit = other.fetch("/page");
                assert_eq!(hit.text(), text);
                assert_eq!(hit.head.field("x-new").is_some(), !is_changed);
            }
            world.origin().is_idle();
        });
    }
}

/// A stale response is served if the origin fails, by a 503, a close or a timeout; if that is not
/// allowed, an error.
#[test]
fn if_error() {
    for may in [true, false] {
        let control = if may {
            "Cache-Control: max-age=0, stale-if-error=600"
        } else {
            "Cache-Control: max-age=0, must-revalidate"
        };
        scenario().with(|it| it.patience.first_byte_ms = 100).run(move |world| {
            let (mut client, mut origin) = kept(world, control, &[], "old");
            let expect = |client: &mut Client, status: u16| {
                let response = client.response();
                let expected = if may { 200 } else { status };
                assert_eq!(response.status(), expected, "{response:?}");
                assert_eq!(response.text() == "old", may, "{response:?}");
            };
            client.get("/page");
            receive_validation(&mut origin);
            origin.answers("503 Service Unavailable", &[UNKEPT], "busy");
            expect(&mut client, 503);
            if !may {
                return;
            }
            client.get("/page");
            receive_validation(&mut world.origin().accept());
            expect(&mut client, 502);
            client.get("/page");
            let mut silent = world.origin().accept();
            receive_validation(&mut silent);
            expect(&mut client, 504);
            silent.is_closed();
        });
    }
}

/// A stale response is served if no server listens at the origin's address any more.
#[test]
fn if_nobody_listens() {
    scenario().run(|world| {
        let control = "Cache-Control: max-age=0, stale-if-error=600";
        let (mut client, origin) = kept(world, control, &[], "old");
        drop(origin);
        world.origin().stop_listening();
        let response = client.fetch("/page");
        assert_eq!((response.status(), response.text()), (200, "old"));
        assert_eq!(client.fetch("/other").status(), 502);
    });
}

/// If an unsafe request succeeds during a revalidation, the result of the revalidation is not
/// stored.
#[test]
fn outdated_while_renewed() {
    for answer in ["304 Not Modified", "200 OK"] {
        for vary in [&[][..], &["Vary: X"]] {
            scenario().loops(&[1, 2]).run(|world| {
                let (mut client, mut origin) = kept(world, STALE, vary, "old");
                client.get("/page");
                receive_validation(&mut origin);
                let mut writer = world.client();
                writer.request("POST", "/page", &["Content-Length: 2"]);
                writer.send("hi");
                let mut second = world.receive("POST /page");
                assert_eq!(second.take(2), b"hi");
                second.answers("204 No Content", &[], "");
                assert_eq!(writer.response().status(), 204);
                let text = if answer.starts_with("304") { "" } else { "late" };
                origin.answers(answer, &[&[FRESH, ETAG][..], vary].concat(), text);
                let late = client.response();
                assert_eq!(late.text(), if text.is_empty() { "old" } else { text });
                // Later clients get the response from after the change.
                let mut next = world.client();
                next.get("/page");
                let mut third = world.with_request(&mut vec![origin, second]);
                assert!(!third.receive("GET /page").has("if-none-match"));
                third.answers("200 OK", &[FRESH], "new");
                assert_eq!(next.response().text(), "new");
            });
        }
    }
}

/// An object that is purged by its tag during its revalidation does not return; a purge of another
/// tag has no effect.
#[test]
fn purged_while_renewed() {
    for (word, is_purged) in [("red", true), ("blue", false)] {
        scenario().loops(&[1, 2]).run(move |world| {
            let (mut client, mut origin) = kept(world, STALE, &["Surrogate-Key: red round"], "old");
            client.get("/page");
            receive_validation(&mut origin);
            world.server.store().purge_tag(tag(word.as_bytes()), false);
            origin.answers("304 Not Modified", &[FRESH, ETAG], "");
            assert_eq!(client.response().text(), "old");
            client.get("/page");
            if is_purged {
                origin.receive("GET /page");
                origin.answers("200 OK", &[FRESH], "new");
            }
            assert_eq!(client.response().text(), if is_purged { "new" } else { "old" });
        });
    }
}

/// A client that got the response to a change sees the change, on any event loop.
#[test]
fn outdated_at_once() {
    scenario().loops(&[1, 2]).run(|world| {
        let changes = AtomicUsize::new(0);
        world.origin().answers_by(move |head| {
            if head.line.starts_with("DELETE") {
                changes.fetch_add(1, Ordering::SeqCst);
            }
            answer("200 OK", &[FRESH], changes.load(Ordering::SeqCst).to_string())
        });
        let (mut writer, mut readers) = (world.client(), world.clients(6));
        for change in 1..=50 {
            writer.request("DELETE", "/page", &[]);
            writer.response();
            for reader in &mut readers {
                assert_eq!(reader.fetch("/page").text(), change.to_string());
            }
        }
    });
}

//! Private responses: nothing that one client sends or gets may reach another, or change another's
//! response.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Client, Connection, KEPT, Scenario, UNKEPT, World, answer, chunk, scenario};

const ETAG: &str = "ETag: \"a\"";
const STALE: &str = "Cache-Control: max-age=0";
const MODIFIED: &str = "Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT";
const CREDENTIALS: &str = "Authorization: Basic eA==";

/// A stale page is cached, and one client's request revalidates it while others wait.
fn waiting(world: &World, control: &str, count: usize) -> (Client, Vec<Client>, Connection) {
    let mut first = world.client();
    first.get("/page");
    let mut origin = world.receive("GET /page");
    origin.answers("200 OK", &[control, ETAG], "page");
    first.response();
    first.get("/page");
    assert!(origin.receive("GET /page").has("if-none-match"));
    let mut others = world.clients(count);
    others.iter_mut().for_each(|it| it.get("/page"));
    world.until_counts("all wait", |it| it.collapsed == count as u64);
    (first, others, origin)
}

/// A 304 with fields that may not be stored is only for the client that requested it, which gets
/// the page with them. The others send their own requests and see none of the fields; later clients
/// do not wait for one another. Each directive is tested.
#[test]
fn fields_of_a_304() {
    let all: [(&str, &[&str]); 5] = [
        (STALE, &["Set-Cookie: id=1", "X-User: 1"]),
        (STALE, &["Cache-Control: private", "X-User: 1"]),
        (STALE, &["Cache-Control: no-store", "X-User: 1"]),
        (STALE, &["CDN-Cache-Control: private", "X-User: 1"]),
        // A page that was public when it was stored does not make the cookie of a 304 public.
        ("Cache-Control: public, max-age=0", &["Set-Cookie: id=1", "X-User: 1"]),
    ];
    for (control, own) in all {
        scenario().loops(&[1, 2]).run(|world| {
            let (mut first, mut others, mut origin) = waiting(world, control, 4);
            origin.answers("304 Not Modified", &[&[ETAG][..], own].concat(), "");
            let response = first.response();
            assert_eq!((response.status(), response.text()), (200, "page"), "{own:?}");
            assert_eq!(response.head.field("x-user"), Some("1"), "{own:?}");
            let mut known = vec![origin];
            for at in 0..others.len() {
                let mut origin = world.with_request(&mut known);
                assert!(!origin.receive("GET /page").has("if-none-match"));
                origin.answers("200 OK", &["Cache-Control: private"], format!("own {at}"));
                known.push(origin);
            }
            let mut texts = Vec::new();
            for other in &mut others {
                let response = other.response();
                assert!(!response.head.has("x-user") && !response.head.has("set-cookie"));
                texts.push(response.text().to_owned());
            }
            texts.sort();
            assert_eq!(texts, ["own 0", "own 1", "own 2", "own 3"]);
            // All at once: no client gets a response before all requests were sent.
            others.iter_mut().for_each(|it| it.get("/page"));
            let mut requests: Vec<Connection> =
                (0..others.len()).map(|_| world.with_request(&mut known)).collect();
            for origin in &mut requests {
                origin.receive("GET /page");
                origin.answers("200 OK", &["Cache-Control: private"], "own");
            }
            others.iter_mut().for_each(|it| assert_eq!(it.response().text(), "own"));
        });
    }
}

/// A 304 that may be stored is for all waiting clients, also if it is again public and sets a
/// cookie.
#[test]
fn a_304_for_all() {
    scenario().loops(&[1, 2]).run(|world| {
        let (mut first, mut others, mut origin) = waiting(world, STALE, 4);
        let fields = ["Cache-Control: public, max-age=9", "Set-Cookie: all=1", ETAG];
        origin.answers("304 Not Modified", &fields, "");
        for client in others.iter_mut().chain([&mut first]) {
            let response = client.response();
            assert_eq!(response.text(), "page");
            assert_eq!(response.head.field("set-cookie"), Some("all=1"));
        }
        world.origin().is_idle();
    });
}

/// The response to a request with content may depend on it. It is not stored for the URL, it
/// removes no stored response, and it adds no variant.
#[test]
fn content_of_a_get() {
    scenario().run(|world| {
        let mut client = world.client();
        let bodies: [(&str, Vec<u8>); 2] = [
            ("Content-Length: 4", b"evil".into()),
            ("Transfer-Encoding: chunked", { [chunk(b"evil"), b"0\r\n\r\n".to_vec()].concat() }),
        ];
        let mut known = Vec::new();
        for method in ["GET", "HEAD"] {
            for (at, (field, bytes)) in bodies.iter().enumerate() {
                let path = format!("/{method}/{at}");
                client.request(method, &path, &[field]);
                client.send(bytes);
                let mut origin = world.with_request(&mut known);
                origin.receive(&format!("{method} {path}"));
                origin.take(bytes.len());
                let text = if method == "GET" { "evil" } else { "" };
                origin.answers("200 OK", &[KEPT, "Vary: X"], text);
                if method == "GET" {
                    client.response();
                } else {
                    client.head();
                }
                known.push(origin);
                let mut other = world.client();
                other.get(&path);
                let mut origin = world.with_request(&mut known);
                origin.receive(&format!("GET {path}"));
                origin.answers("200 OK", &[KEPT], "plain");
                known.push(origin);
                assert_eq!(other.response().text(), "plain");
                // Another request with content: the stored response stays.
                client.request(method, &path, &[field]);
                client.send(bytes);
                let mut origin = world.with_request(&mut known);
                origin.receive(&format!("{method} {path}"));
                origin.take(bytes.len());
                origin.answers("200 OK", &[KEPT, "Vary: X"], text);
                known.push(origin);
                if method == "GET" {
                    client.response();
                } else {
                    client.head();
                }
                let hit = other.fetch(&path);
                assert!(hit.text() == "plain" && hit.head.cache_status().contains("hit"));
            }
        }
    });
}

/// Variants are selected by the fields that the origin received: those named in `Connection`, and
/// conditions of one client, were not sent.
#[test]
fn variants_by_what_was_sent() {
    scenario().loops(&[1, 2]).run(|world| {
        world.origin().answers_by(|head| {
            let names: Vec<String> = ["x-user", "range", "te"]
                .iter()
                .map(|name| head.field(name).unwrap_or("none").to_owned())
                .collect();
            answer("200 OK", &[KEPT, "Vary: X-User, Range, TE"], names.join(" "))
        });
        let mut client = world.client();
        let text = |client: &mut Client, fields: &[&str]| {
            client.fetch_with("/page", fields).text().to_owned()
        };
        let cut = ["X-User: v", "Connection: x-user"];
        assert_eq!(text(&mut client, &cut), "none none none");
        assert_eq!(text(&mut client, &["X-User: v"]), "v none none");
        assert_eq!(text(&mut client, &["X-User: v"]), "v none none");
        assert_eq!(text(&mut client, &[]), "none none none");
        assert_eq!(text(&mut client, &cut), "none none none");
        assert_eq!(text(&mut client, &["TE: gzip"]), "none none none");
        assert_eq!(text(&mut client, &["TE: trailers"]), "none none trailers");
        let part = client.fetch_with("/page", &["Range: bytes=0-3"]);
        assert_eq!((part.status(), part.text()), (206, "none"));
        assert_eq!(world.origin().answered(), 3);
    });
}

/// `Vary: X-Forwarded-For` includes the address that larder adds, and not only the client's own
/// field.
#[test]
fn variants_by_address() {
    scenario().with(|it| it.expects_proxy = true).run(|world| {
        world.origin().answers_by(|head| {
            let named = head.fields.iter().filter(|(name, _)| name == "X-Forwarded-For");
            let text = named.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ");
            answer("200 OK", &[KEPT, "Vary: X-Forwarded-For"], text)
        });
        let client = |address: &str| {
            let mut client = world.client();
            client.send(format!("PROXY TCP4 {address} 192.0.2.99 9 80\r\n"));
            client
        };
        for address in ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.2"] {
            assert_eq!(client(address).fetch("/page").text(), address);
        }
        let forged = ["X-Forwarded-For: 192.0.2.1"];
        let text = client("192.0.2.2").fetch_with("/page", &forged).text().to_owned();
        assert_eq!(text, "192.0.2.1, 192.0.2.2");
        assert_eq!(world.origin().answered(), 3);
    });
}

/// Of clients that wait for one response, those with another address get the page for theirs.
#[test]
fn waiting_by_address() {
    scenario().with(|it| it.expects_proxy = true).loops(&[1, 2]).run(|world| {
        let fields = [KEPT, "Vary: X-Forwarded-For"];
        let mut known = Vec::new();
        let mut clients = world.clients(2);
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(format!("PROXY TCP4 192.0.2.{number} 192.0.2.99 9 80\r\n"));
            client.get("/page");
            if number == 0 {
                let mut origin = world.with_request(&mut known);
                assert_eq!(origin.receive("GET /page").field("x-forwarded-for"), Some("192.0.2.0"));
                known.push(origin);
            }
        }
        world.until_counts("one waits", |it| it.collapsed == 1);
        known[0].answers("200 OK", &fields, "0");
        let mut origin = world.with_request(&mut known);
        assert_eq!(origin.receive("GET /page").field("x-forwarded-for"), Some("192.0.2.1"));
        origin.answers("200 OK", &fields, "1");
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.response().text(), number.to_string());
        }
    });
}

/// Writes to other URLs, however many, do not prevent a fetch from being stored; a write to the URL
/// itself does.
#[test]
fn writes_elsewhere() {
    const PAGES: usize = 20;
    const WRITES: usize = 2_000;
    scenario().loops(&[1, 2]).run(|world| {
        let mut readers = world.clients(PAGES);
        let mut origins = Vec::new();
        for (at, reader) in readers.iter_mut().enumerate() {
            reader.get(&format!("/{at}"));
            origins.push(world.receive(&format!("GET /{at}")));
        }
        world.origin().answers_by(|_| answer("200 OK", &[KEPT], "again"));
        let mut writer = world.client();
        for at in 0..WRITES {
            writer.request("DELETE", &format!("/other/{at}"), &[]);
            writer.response();
        }
        writer.request("DELETE", "/7", &[]);
        writer.response();
        let answered = world.origin().answered();
        for (reader, origin) in readers.iter_mut().zip(&mut origins) {
            origin.answers("200 OK", &[KEPT, "Connection: close"], "page");
            assert_eq!(reader.response().text(), "page");
        }
        for at in 0..PAGES {
            let expected = if at == 7 { "again" } else { "page" };
            assert_eq!(world.client().fetch(&format!("/{at}")).text(), expected, "{at}");
        }
        assert_eq!(world.origin().answered(), answered + 1);
        world.until_counts("one was outdated", |it| it.outdated == 1);
    });
}

/// A fetch that begins after a write stays valid, though one from before is still in flight; that
/// one is invalidated.
#[test]
fn a_fetch_after_a_write() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut first = world.client();
        first.get("/page");
        let mut old = world.receive("GET /page");
        let mut known = Vec::new();
        let mut writer = world.client();
        writer.request("DELETE", "/page", &[]);
        let mut origin = world.with_request(&mut known);
        origin.receive("DELETE /page");
        origin.answers("200 OK", &[], "");
        writer.response();
        known.push(origin);
        let mut second = world.client();
        second.get("/page");
        let mut origin = world.with_request(&mut known);
        origin.receive("GET /page");
        origin.answers("200 OK", &[KEPT], "new");
        assert_eq!(second.response().text(), "new");
        old.answers("200 OK", &[KEPT], "old");
        assert_eq!(first.response().text(), "old");
        world.until_counts("one of two is kept", |it| it.outdated == 1 && it.kept == 1);
        assert_eq!(world.client().fetch("/page").text(), "new");
        world.origin().is_idle();
    });
}

/// A client with credentials, or with no-store, has a private response. The waiting clients then
/// share one new fetch, and later ones behave as usual. Clients with the same credentials send
/// their own requests at once.
#[test]
fn credentials_of_one() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut first = world.client();
        first.request("GET", "/page", &[CREDENTIALS]);
        let mut own = world.receive("GET /page");
        let (mut plain, mut alike) = (world.clients(6), world.clients(2));
        plain.iter_mut().for_each(|it| it.get("/page"));
        alike.iter_mut().for_each(|it| it.request("GET", "/page", &[CREDENTIALS]));
        world.until_counts("all wait", |it| it.collapsed == 8);
        // Its response is long in transit while the others are requested.
        own.begins("200 OK", &[KEPT], 200_000);
        let mut requests: Vec<(bool, Connection)> = (0..3)
            .map(|_| {
                let mut origin = world.origin().accept();
                let has_credentials = origin.receive("GET /page").has("authorization");
                (has_credentials, origin)
            })
            .collect();
        assert_eq!(requests.iter().filter(|(has_credentials, _)| *has_credentials).count(), 2);
        for (has_credentials, origin) in &mut requests {
            origin.answers("200 OK", &[KEPT], if *has_credentials { "own" } else { "page" });
        }
        plain.iter_mut().for_each(|it| assert_eq!(it.response().text(), "page"));
        alike.iter_mut().for_each(|it| assert_eq!(it.response().text(), "own"));
        own.send(vec![b'x'; 200_000]);
        assert_eq!(first.response().body.len(), 200_000);
        world.origin().is_idle();
    });
}

/// Stores a stale page if requested; returns the open connections to the origin.
fn stored(world: &World, is_stale: bool) -> Vec<Connection> {
    if !is_stale {
        return Vec::new();
    }
    let mut client = world.client();
    client.get("/page");
    let mut origin = world.receive("GET /page");
    origin.answers("200 OK", &[STALE, ETAG], "old");
    client.response();
    vec![origin]
}

/// A request of one client does not make the object uncacheable for others: after it, any number of
/// them share one fetch. Both for an object that is not stored yet, and for a stale one.
#[test]
fn marks_of_one() {
    let wishes = [CREDENTIALS, "Cache-Control: no-store"];
    for (wish, is_stale) in wishes.iter().flat_map(|it| [(it, false), (it, true)]) {
        scenario().loops(&[1, 2]).run(|world| {
            let mut known = stored(world, is_stale);
            let mut first = world.client();
            first.request("GET", "/page", &[wish]);
            let mut origin = world.with_request(&mut known);
            origin.receive("GET /page");
            origin.answers("200 OK", &[KEPT], "own");
            known.push(origin);
            assert_eq!(first.response().text(), "own");
            let before = world.server.counts().collapsed;
            let mut others = world.clients(8);
            others.iter_mut().for_each(|it| it.get("/page"));
            let mut origin = world.with_request(&mut known);
            origin.receive("GET /page");
            world.until_counts("all wait", |it| it.collapsed == before + 7);
            origin.answers("200 OK", &[KEPT], "page");
            others.iter_mut().for_each(|it| assert_eq!(it.response().text(), "page"));
            world.origin().is_idle();
        });
    }
}

/// No client waits for the response to a no-store request. Clients that come during it share a
/// separate fetch. Both for an object that is not stored yet, and for a stale one.
#[test]
fn nobody_waits_for_no_store() {
    for is_stale in [false, true] {
        scenario().loops(&[1, 2]).run(|world| {
            let mut known = stored(world, is_stale);
            let mut first = world.client();
            first.request("GET", "/page", &["Cache-Control: no-store"]);
            let mut own = world.with_request(&mut known);
            own.receive("GET /page");
            let mut others = world.clients(8);
            others.iter_mut().for_each(|it| it.get("/page"));
            let mut origin = world.with_request(&mut known);
            origin.receive("GET /page");
            world.until_counts("all wait", |it| it.collapsed == 7);
            origin.answers("200 OK", &[KEPT], "page");
            others.iter_mut().for_each(|it| assert_eq!(it.response().text(), "page"));
            own.answers("200 OK", &[UNKEPT], "own");
            assert_eq!(first.response().text(), "own");
            world.origin().is_idle();
        });
    }
}

/// A page that is private because of its cookie does not mark the URL for clients without one: any
/// number of them share one fetch.
#[test]
fn marks_of_a_cookie() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut known = Vec::new();
        let mut first = world.client();
        first.request("GET", "/page", &["Cookie: a=1"]);
        let mut origin = world.with_request(&mut known);
        origin.receive("GET /page");
        origin.answers("200 OK", &[MODIFIED], "own");
        assert_eq!(first.response().text(), "own");
        known.push(origin);
        let mut others = world.clients(8);
        others.iter_mut().for_each(|it| it.get("/page"));
        let mut origin = world.with_request(&mut known);
        assert!(!origin.receive("GET /page").has("cookie"));
        world.until_counts("all wait", |it| it.collapsed == 7);
        origin.answers("200 OK", &[KEPT], "page");
        others.iter_mut().for_each(|it| assert_eq!(it.response().text(), "page"));
        world.origin().is_idle();
    });
}

/// A request with credentials, or with no-store, does not start a background revalidation, whose
/// response could not be stored. The next request does.
#[test]
fn renewals_of_one() {
    scenario().run(|world| {
        let control = "Cache-Control: max-age=0, stale-while-revalidate=600";
        let mut client = world.client();
        client.get("/page");
        let mut origin = world.receive("GET /page");
        origin.answers("200 OK", &[control, ETAG], "old");
        client.response();
        for wish in [CREDENTIALS, "Cache-Control: no-store"] {
            assert_eq!(client.fetch_with("/page", &[wish]).text(), "old");
        }
        assert_eq!(client.fetch("/page").text(), "old");
        assert!(!origin.receive("GET /page").has("authorization"));
        origin.answers("200 OK", &[KEPT], "new");
        world.until_counts("it is stored", |it| it.kept == 2);
        assert_eq!(client.fetch("/page").text(), "new");
        world.origin().is_idle();
    });
}

fn by_cookie(world: &World, fields: &'static [&'static str]) {
    world.origin().answers_by(move |head| {
        let cookie = head.field("cookie").unwrap_or("none").to_owned();
        match head.field("if-modified-since") {
            // As a page that is generated for each client answers, whichever client asks.
            Some(_) if !head.has("if-none-match") => answer("304 Not Modified", fields, ""),
            _ => answer("200 OK", fields, cookie),
        }
    });
}

/// A page for a cookie that has only a modification time is given to that client alone, not to a
/// later one. An operator may change that.
#[test]
fn pages_by_cookie() {
    let guesses = || Scenario::with(scenario(), |it| it.rules.guesses_with_cookies = true);
    for (scenario, expected) in [(scenario(), "b=2"), (guesses(), "a=1")] {
        scenario.run(|world| {
            by_cookie(world, &[MODIFIED]);
            let mut client = world.client();
            assert_eq!(client.fetch_with("/page", &["Cookie: a=1"]).text(), "a=1");
            assert_eq!(client.fetch_with("/page", &["Cookie: b=2"]).text(), expected);
        });
    }
    scenario().run(|world| {
        by_cookie(world, &[MODIFIED]);
        let mut client = world.client();
        // Without a cookie it is a page for all.
        assert_eq!(client.fetch("/page").text(), "none");
        assert_eq!(client.fetch_with("/page", &["Cookie: a=1"]).text(), "none");
    });
    // With a tag it is stored, and validated at each use.
    scenario().run(|world| {
        let requests = std::sync::Arc::new(AtomicUsize::new(0));
        let validated = requests.clone();
        world.origin().answers_by(move |head| {
            let tag = head.field("cookie").unwrap_or("none").replace('=', "");
            let tag = format!("\"{tag}\"");
            if head.field("if-none-match") == Some(tag.as_str()) {
                validated.fetch_add(1, Ordering::SeqCst);
                return answer("304 Not Modified", &[&format!("ETag: {tag}")], "");
            }
            answer("200 OK", &[MODIFIED, &format!("ETag: {tag}")], tag)
        });
        let mut client = world.client();
        for cookie in ["a1", "a1", "b2", "b2"] {
            let field = format!("Cookie: {cookie}");
            let text = client.fetch_with("/page", &[&field]).text().to_owned();
            assert_eq!(text, format!("\"{cookie}\""));
        }
        assert_eq!(requests.load(Ordering::SeqCst), 2);
    });
}

/// If a private page was requested with a range, it is requested again with that range, and comes
/// as that range.
#[test]
fn ranges_of_one() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut client = world.client();
        client.request("GET", "/film", &["Range: bytes=0-3"]);
        let mut origin = world.receive("GET /film");
        origin.begins("200 OK", &["Cache-Control: private"], 5_000_000);
        let mut again = world.origin().accept();
        assert_eq!(again.receive("GET /film").field("range"), Some("bytes=0-3"));
        let fields = ["Cache-Control: private", "Content-Range: bytes 0-3/5000000"];
        again.answers("206 Partial Content", &fields, "0123");
        let response = client.response();
        assert_eq!((response.status(), response.text()), (206, "0123"));
        origin.end_of_rest();
    });
}

//! Responses that depend on more than their URL, and uncacheable ones.

use crate::support::{
    Client, Connection, Head, KEPT, UNKEPT, assert_bytes, body, pattern, scenario,
};

const BYTES: usize = 200_000;
const FIRST: usize = 50_000;
const VARY: &str = "Vary: Accept-Language";

fn language(head: &Head) -> String {
    head.field("accept-language").unwrap_or("none").to_owned()
}

fn request(client: &mut Client, language: &str) {
    client.request("GET", "/page", &[&format!("Accept-Language: {language}")]);
}

/// Clients wait with one whose response turns out to be another variant: each other variant is then
/// fetched once.
#[test]
fn waiting_for_another() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut readers = world.clients(12);
        let words = ["de", "fr", "it"];
        request(&mut readers[0], words[0]);
        let mut first = world.origin().accept();
        first.receive("GET /page");
        for (at, reader) in readers.iter_mut().enumerate().skip(1) {
            request(reader, words[at % 3]);
        }
        world.until_counts("all wait", |it| it.collapsed == 11);
        first.answers("200 OK", &[KEPT, VARY], words[0]);
        // Either event loop may send first, and connections are reused.
        let (mut languages, mut origins) = (Vec::new(), vec![first]);
        for _ in 0..2 {
            let mut origin = world.with_request(&mut origins);
            let head = origin.receive("GET /page");
            origin.answers("200 OK", &[KEPT, VARY], language(&head));
            languages.push(language(&head));
            origins.push(origin);
        }
        languages.sort();
        assert_eq!(languages, ["fr", "it"]);
        for (at, reader) in readers.iter_mut().enumerate() {
            assert_eq!(reader.response().text(), words[at % 3], "{at}");
        }
        world.origin().is_idle();
    });
}

/// A client that joins a variant in transit gets the bytes as they arrive, though its request did
/// not yet identify it as a variant.
#[test]
fn joining_one() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut first = world.client();
        request(&mut first, "de");
        let mut origin = world.receive("GET /page");
        origin.begins("200 OK", &[KEPT, VARY], BYTES);
        origin.send(body(FIRST));
        first.head();
        first.take(FIRST);
        let mut others = world.clients(6);
        for other in &mut others {
            request(other, "de");
            other.head();
            assert_bytes(&other.take(FIRST), &body(FIRST));
        }
        let mut french = world.client();
        request(&mut french, "fr");
        world.receive("GET /page").answers("200 OK", &[KEPT, VARY], "fr");
        assert_eq!(french.response().text(), "fr");
        origin.send(pattern(FIRST, BYTES - FIRST));
        for other in others.iter_mut().chain([&mut first]) {
            assert_bytes(&other.take(BYTES - FIRST), &pattern(FIRST, BYTES - FIRST));
        }
        world.origin().is_idle();
    });
}

/// HEAD gets the headers of a cached response. On a miss it fetches the complete response, for the
/// next client.
#[test]
fn only_looked_at() {
    scenario().run(|world| {
        let mut client = world.client();
        client.request("HEAD", "/film", &[]);
        let mut origin = world.receive("GET /film");
        origin.begins("200 OK", &[KEPT], BYTES);
        let head = client.head();
        assert_eq!((head.status(), head.length()), (200, Some(BYTES)));
        origin.send(body(BYTES));
        assert_bytes(&client.fetch("/film").body, &body(BYTES));
        client.request("HEAD", "/film", &[]);
        assert_eq!(client.head().length(), Some(BYTES));
        assert!(client.fetch("/film").head.cache_status().contains("hit"));
    });
}

/// Clients that wait with one whose response is uncacheable do not wait for each other. All
/// requests are sent at once, and so are later ones.
#[test]
fn not_shared() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut readers = world.clients(8);
        readers[0].get("/own");
        let mut first = world.receive("GET /own");
        readers[1..7].iter_mut().for_each(|it| it.get("/own"));
        world.until_counts("all wait", |it| it.collapsed == 6);
        first.begins("200 OK", &[UNKEPT], BYTES);
        // None of them gets its response before all requests were sent.
        let mut origins: Vec<Connection> = (1..7).map(|_| world.receive("GET /own")).collect();
        readers[7].get("/own");
        origins.push(world.receive("GET /own"));
        for (at, origin) in origins.iter_mut().enumerate() {
            origin.answers("200 OK", &[UNKEPT], format!("{at}"));
        }
        let mut texts: Vec<String> =
            readers[1..].iter_mut().map(|it| it.response().text().to_owned()).collect();
        texts.sort();
        assert_eq!(texts, ["0", "1", "2", "3", "4", "5", "6"]);
        first.send(body(BYTES));
        assert_bytes(&readers[0].response().body, &body(BYTES));
    });
}

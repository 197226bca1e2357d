//! A core's event loop with a backend in a plain thread: queries over UDP and TCP reach it, and
//! responses come back.

mod served;

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record};
use larder_dns::backend::{Backend, BackendQuery, Log};
use larder_dns::core::Settings;
use larder_dns::zones::{Answers, Upstream};
use larder_serve::lifecycle::Stage;
use larder_testkit::dns::{self, exchange_tcp};
use served::Served;

/// Passes queries to a thread.
#[derive(Debug)]
struct Scripted(Mutex<Sender<BackendQuery>>);

impl Backend for Scripted {
    fn start(&self, _: &Log) -> io::Result<()> {
        Ok(())
    }

    fn query(&self, query: BackendQuery) {
        self.0.lock().unwrap().send(query).unwrap();
    }

    fn stop(&self) {}
}

/// The thread's responses: most names have an address, `fails` has none. Queries that arrive
/// together get responses in reverse order.
fn answer_all() -> Arc<dyn Backend> {
    let (sender, queries) = channel::<BackendQuery>();
    thread::spawn(move || {
        while let Ok(first) = queries.recv() {
            thread::sleep(Duration::from_millis(2));
            let mut batch: Vec<BackendQuery> =
                [first].into_iter().chain(queries.try_iter()).collect();
            while let Some(query) = batch.pop() {
                let mut message = Message::from_vec(query.message()).unwrap();
                let name = message.queries[0].name.clone();
                if name.to_ascii() == "fails." {
                    continue;
                }
                message.metadata.message_type = MessageType::Response;
                message.add_answer(Record::from_rdata(name, 60, RData::A(A::new(192, 0, 2, 7))));
                query.answer(message.to_vec().unwrap());
            }
        }
    });
    Arc::new(Scripted(Mutex::new(sender)))
}

/// A server of one core, whose only upstream is a backend.
fn start(backend: Arc<dyn Backend>) -> Served {
    let answers = Answers { number: 0, wait_ms: 4_000, is_believed: false };
    Served::start(Upstream::Backend(answers), &[backend])
}

fn query(id: u16, name: &str) -> Vec<u8> {
    dns::query(id, name, dns::A)
}

/// Queries over UDP and TCP get responses through the backend, each with its own ID and name, in
/// any order. The core repeats a query that fails up to the limit of attempts, and then responds
/// with a failure. Responses are cached.
#[test]
fn through_the_bridge() {
    let server = start(answer_all());
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.connect(server.address).unwrap();
    for round in 0..2 {
        for id in 0..40 {
            client.send(&query(id, &format!("n{id}."))).unwrap();
        }
        let mut seen = [false; 40];
        for _ in 0..40 {
            let mut room = [0; 512];
            let length = client.recv(&mut room).unwrap();
            let message = Message::from_vec(&room[..length]).unwrap();
            let id = message.metadata.id;
            assert_eq!(message.queries[0].name.to_ascii(), format!("n{id}."));
            assert_eq!(message.answers[0].data, RData::A(A::new(192, 0, 2, 7)), "round {round}");
            assert!(!std::mem::replace(&mut seen[usize::from(id)], true));
        }
    }
    let bytes = exchange_tcp(server.address, &query(9, "fails"));
    let message = Message::from_vec(&bytes).unwrap();
    assert_eq!(message.metadata.response_code, ResponseCode::ServFail);
    let counts = server.end(Stage::Drains);
    let attempts = Settings::default().attempts_max as u64;
    assert_eq!((counts.hits, counts.misses), (40, 41));
    assert_eq!(counts.upstream_queries_backend, 40 + attempts);
    assert_eq!((counts.upstream_answers, counts.upstream_failures), (40, 1));
    assert_eq!(counts.upstream_queries_udp + counts.upstream_queries_tcp, 0);
}

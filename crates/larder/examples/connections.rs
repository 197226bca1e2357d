//! A table of connections: `cargo run -p larder --example connections`.
//!
//! A connection owns buffers. Created for each client they would be allocated and freed; in a
//! [`larder::Typed`] they are reset and reused, in place. Workers read the connections as `&T`, by
//! key or by the event loop's id, without a lock. Fields that change have their own lock.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use larder::{Cache, Seconds, Ttl, Typed};

/// One client's state: what is fixed while it is connected, and what is not.
struct Connection {
    peer: Option<SocketAddr>,
    requests: AtomicU64,
    input: Mutex<Vec<u8>>,
}

/// Buffers allocated in all.
static BUFFERS: AtomicUsize = AtomicUsize::new(0);

fn make() -> Connection {
    BUFFERS.fetch_add(1, Ordering::Relaxed);
    Connection {
        peer: None,
        requests: AtomicU64::new(0),
        input: Mutex::new(Vec::with_capacity(4096)),
    }
}

fn reset(connection: &mut Connection) {
    connection.peer = None;
    *connection.requests.get_mut() = 0;
    // A lock whose holder panicked guards nothing here: the buffer is cleared anyway.
    connection.input.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
}

fn main() -> Result<(), larder::Error> {
    let builder = Cache::builder().budget(256 << 10).readers_max(2).entry_bytes_mean(32);
    let connections = Typed::build(builder, make, reset)?;
    let mut worker = connections.reader()?;
    let mut now = Seconds(0);
    let idle = Ttl::seconds(30); // silent clients are evicted

    let clients = 20 * connections.objects_max();
    for client in 0..clients as u32 {
        let peer = SocketAddr::from((client.to_be_bytes(), 443));
        let key = client.to_be_bytes();
        let id = connections.insert(&key, idle, now, |connection| {
            assert!(connection.peer.is_none(), "an object is reset before it is used again");
            connection.peer = Some(peer);
        })?;
        worker.sync();

        // By key, as for a packet; and by id, as for the event loop.
        let connection = worker.get(&key, now).expect("it was just inserted");
        assert_eq!(connection.peer, Some(peer));
        assert_eq!(connection.requests.fetch_add(1, Ordering::Relaxed), 0);
        if let Ok(mut input) = connection.input.lock() {
            input.extend_from_slice(b"GET / HTTP/1.1\r\n");
        }
        assert!(std::ptr::eq(connection, worker.by_id(id).expect("it is still there")));

        if client % 3 == 0 {
            connections.remove(&key, now)?; // it hung up
        }
        now.0 += u32::from(client % 100 == 0);
    }
    let buffers = BUFFERS.load(Ordering::Relaxed);
    println!("{clients} clients were served from {buffers} buffers");
    assert!(buffers <= connections.objects_max());
    Ok(())
}

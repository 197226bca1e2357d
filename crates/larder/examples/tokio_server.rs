//! A cache server over TCP with Tokio: `cargo run -p larder --example tokio_server`.
//!
//! One line per request, one line per response:
//!
//! ```text
//! SET key seconds value...    OK, or ERR and why       (0 seconds: never expires)
//! GET key                     VALUE value..., or NONE
//! DEL key                     OK
//! LOAD key                    VALUE value..., or ERR and why; a miss asks the source, once for all
//!                             clients that ask for the key meanwhile
//! ```
//!
//! A [`larder::Map`] is cloned into every task. It holds nothing across an await point, so a task
//! that waits for its client blocks no other. The program is its own client, checks every response,
//! and ends.

use std::sync::atomic::{AtomicUsize, Ordering};

use larder::{Map, Ttl};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

type Store = Map<str, String>;

/// Longest line of a client. A longer one ends the connection, and takes no memory.
const LINE_BYTES_MAX: usize = 8 << 10;

fn answer(store: &Store, line: &str) -> String {
    let mut words = line.splitn(4, ' ');
    let (verb, key) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match (verb, words.next(), words.next()) {
        ("GET", None, None) => match store.get(key) {
            Some(value) => format!("VALUE {value}\n"),
            None => "NONE\n".into(),
        },
        ("SET", Some(seconds), Some(value)) => match seconds.parse() {
            Ok(0) => done(store.insert(key, value.into())),
            Ok(seconds) => done(store.insert_ttl(key, value.into(), Ttl::seconds(seconds))),
            Err(_) => "ERR the life is a number of seconds\n".into(),
        },
        ("DEL", None, None) => done(store.remove(key)),
        _ => "ERR say GET key, SET key seconds value, DEL key, or LOAD key\n".into(),
    }
}

/// How often the source was asked.
static LOADS: AtomicUsize = AtomicUsize::new(0);

/// A database would be asked here.
async fn source(key: &str) -> Result<String, String> {
    LOADS.fetch_add(1, Ordering::Relaxed);
    tokio::task::yield_now().await;
    if key.starts_with("no-") { Err(format!("there is no {key}")) } else { Ok(key.to_uppercase()) }
}

async fn load(store: &Store, key: &str) -> String {
    match store.try_get_or_insert_async(key, source(key)).await {
        Ok(value) => format!("VALUE {value}\n"),
        Err(error) => format!("ERR {error}\n"),
    }
}

fn done(outcome: Result<(), larder::Error>) -> String {
    match outcome {
        Ok(()) => "OK\n".into(),
        Err(error) => format!("ERR {error}\n"),
    }
}

/// Serves one client until it closes the connection, or sends something that is not a line of text.
async fn serve(store: Store, client: TcpStream) -> std::io::Result<()> {
    let mut client = BufReader::with_capacity(LINE_BYTES_MAX, client);
    loop {
        // A line is taken from the buffer whole, so nothing grows. (Half a line at the buffer's end
        // closes the connection; a production server would read on.)
        let buffered = client.fill_buf().await?;
        let Some(end) = buffered.iter().position(|&byte| byte == b'\n') else { return Ok(()) };
        let Ok(line) = str::from_utf8(&buffered[..end]) else { return Ok(()) };
        let line = line.trim_end_matches('\r');
        let answer = match line.strip_prefix("LOAD ") {
            Some(key) => load(&store, key).await,
            None => answer(&store, line),
        };
        client.consume(end + 1);
        client.get_mut().write_all(answer.as_bytes()).await?;
    }
}

async fn listen(store: Store, listener: TcpListener) {
    // An error means that the client closed its connection before it was accepted.
    while let Ok((client, _)) = listener.accept().await {
        let store = store.clone();
        tokio::spawn(async move {
            let _ = serve(store, client).await;
        });
    }
}

/// Sends one line, and compares the response.
async fn expect(
    client: &mut BufReader<TcpStream>,
    request: &str,
    expected: &str,
) -> std::io::Result<()> {
    client.get_mut().write_all(format!("{request}\n").as_bytes()).await?;
    let mut answer = String::new();
    client.read_line(&mut answer).await?;
    assert_eq!(answer.trim_end(), expected, "the answer to {request:?}");
    Ok(())
}

async fn check(address: std::net::SocketAddr, number: usize) -> std::io::Result<()> {
    let mut client = BufReader::new(TcpStream::connect(address).await?);
    for round in 0..50 {
        let key = format!("key-{number}-{round}");
        expect(&mut client, &format!("GET {key}"), "NONE").await?;
        expect(&mut client, &format!("SET {key} 60 value {round} of {number}"), "OK").await?;
        expect(&mut client, &format!("GET {key}"), &format!("VALUE value {round} of {number}"))
            .await?;
    }
    expect(&mut client, &format!("DEL key-{number}-0"), "OK").await?;
    expect(&mut client, &format!("GET key-{number}-0"), "NONE").await?;
    expect(&mut client, "SET k soon v", "ERR the life is a number of seconds").await?;
    expect(&mut client, "LOAD everybody's", "VALUE EVERYBODY'S").await?;
    expect(&mut client, "LOAD no-such-key", "ERR there is no no-such-key").await
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build()?;
    runtime.block_on(async {
        let store: Store = Map::new(16 << 20)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(listen(store.clone(), listener));

        let clients: Vec<_> = (0..8).map(|number| tokio::spawn(check(address, number))).collect();
        for client in clients {
            client.await??;
        }
        println!("8 clients had 1240 right answers from {address}; {} keys are left", store.len()?);
        assert_eq!(store.len()?, 8 * 49 + 1);
        // One client loaded the first key for all. An error is not stored: each may have asked.
        assert!((2..=9).contains(&LOADS.load(Ordering::Relaxed)));
        Ok(())
    })
}

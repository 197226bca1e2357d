//! `larder demo --ui`: the recording again and again, at the speed at which it was recorded, with the
//! time of day, for the page of larder annotate.
//!
//! ```text
//! thread "replay": the recording, paced -> a connection on loopback -> annotate -r tcp://.. --ui
//! ```
//!
//! Packets are stored in a folder of temporary files of at most [`STORE_BYTES`], which is deleted at
//! the end. Cost: ten packets a second.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use larder_annotate::options::{Endpoint, NameSources, Page};
use larder_annotate::{Options, Progress};
use larder_io::access::Access;
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::value::cores;
use larder_store::serve::{self, Listen};
use larder_wire::capture::{self, write};

use super::CAPTURE;
use crate::annotate::{failed, format};
use crate::settings::Demo;
use crate::{logs, signals};

/// Bytes of stored packets.
const STORE_BYTES: u64 = 64 << 20;

/// Between two repetitions.
const PAUSE_NS: i64 = 1_000_000_000;

/// How soon a stop is seen.
const LOOK: Duration = Duration::from_millis(100);

/// The folder of the packets; it is deleted when dropped.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Folder, Failure> {
        let path = std::env::temp_dir().join(format!("larder-demo-{}", std::process::id()));
        Access::PRIVATE.make_folder(&path).map_err(|error| {
            Failure::file(
                path.display(),
                &error,
                "set TMPDIR to a directory that can be written to",
            )
        })?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It holds nothing of the user's.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the command with `--ui`.
pub fn run(settings: &Demo) -> Outcome {
    let address: SocketAddr = settings.listen.parse().map_err(|_| {
        let word = settings.listen.escape_debug();
        Failure::usage(format!("--listen {word}: expected ADDR:PORT, such as 127.0.0.1:8080"))
    })?;
    if !address.ip().to_canonical().is_loopback() {
        return Err(Failure::usage(format!(
            "--listen {address}: the page of the demo has no token; expected a loopback address"
        )));
    }
    let log = logs::log("demo", ("info", "text"));
    let folder = Folder::make()?;
    let (listener, source) = listen()
        .map_err(|error| Failure::file("a port on loopback", &error, "free some descriptors"))?;
    let progress = Arc::new(Progress::default());
    let mut store = larder_store::Options::new(&folder.0, STORE_BYTES);
    store.log = log.of("store");
    let serve = serve::Options::new(Listen::Tcp(address));
    let options = Options {
        read: vec![Endpoint::Tcp(source.to_string())],
        format: format(settings.format),
        names: NameSources::all(),
        cores: cores(0),
        store: Some(store),
        page: Some(Page { serve, history: None }),
        log: log.clone(),
        ..Options::default()
    };
    let noted = (!settings.quiet).then(|| log.clone());
    signals::stop_on_signals(&progress, noted)
        .map_err(|error| Failure::file("signals", &error, "free some file descriptors"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&stop);
    let replay = move || {
        // The reader has ended, or there is no connection: both end the run.
        let _ = replay(&listener, &is_over);
    };
    let thread = thread::Builder::new().name("replay".to_owned()).spawn(replay);
    let thread = thread.map_err(|error| Failure::file("a thread", &error, "try again"))?;
    let run = {
        let _printer = logs::print(&log)?;
        let run = larder_annotate::run(&options, &progress);
        signals::finish();
        run
    };
    stop.store(true, Ordering::Release);
    // The run has closed the connection, or never made one.
    drop(TcpStream::connect_timeout(&source, LOOK));
    let _ = thread.join();
    run.map_err(failed)?;
    Ok(exit::DONE)
}

fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), 0))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// A packet of the recording, and how long after its beginning it came.
struct Packet {
    after_ns: i64,
    frame: Vec<u8>,
    original_len: u32,
}

/// The packets of the recording, and their link type.
fn packets(recording: &[u8]) -> (Vec<Packet>, u16) {
    let (mut packets, mut link_type, mut begun_ns) = (Vec::new(), 1, None);
    let records = capture::records(recording).into_iter().flatten();
    for (_, record) in records {
        let Ok(record) = record else { continue };
        link_type = record.link_type;
        let after_ns = record.ts_ns - *begun_ns.get_or_insert(record.ts_ns);
        let (frame, original_len) = (record.frame.to_vec(), record.original_len);
        packets.push(Packet { after_ns, frame, original_len });
    }
    (packets, link_type)
}

fn replay(listener: &TcpListener, is_over: &AtomicBool) -> io::Result<()> {
    let (mut socket, _) = listener.accept()?;
    let (packets, link_type) = packets(CAPTURE);
    let mut bytes = Vec::new();
    write::section(&mut bytes, "larder demo");
    write::interface(&mut bytes, link_type, 0);
    let last_ns = packets.last().map_or(0, |packet| packet.after_ns);
    let (started, now) = (Instant::now(), SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
    let now_ns = i64::try_from(now.as_nanos()).unwrap_or(0);
    for repetition in 0.. {
        for packet in &packets {
            let due_ns = repetition * (last_ns + PAUSE_NS) + packet.after_ns;
            let due = Duration::from_nanos(due_ns.unsigned_abs());
            while let Some(left) = due.checked_sub(started.elapsed()).filter(|left| !left.is_zero())
            {
                if is_over.load(Ordering::Acquire) {
                    return Ok(());
                }
                thread::sleep(left.min(LOOK));
            }
            write::packet(&mut bytes, 0, now_ns + due_ns, &packet.frame, packet.original_len);
            socket.write_all(&bytes)?;
            bytes.clear();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recording has packets of Ethernet in the order of their times, and lasts for seconds.
    #[test]
    fn the_recording_can_be_replayed() {
        let (packets, link_type) = packets(CAPTURE);
        assert_eq!((packets.len(), link_type), (197, 1));
        assert!(packets.is_sorted_by_key(|packet| packet.after_ns));
        let last = packets.last().expect("packets").after_ns;
        assert!((10_000_000_000..60_000_000_000).contains(&last), "{last}");
    }
}

//! A client that sends many queries at once, over UDP or TCP.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use larder_testkit::dns::{framed, read_framed};

/// The time to wait for a response before the query is sent again, and the number of sends.
const WAIT: Duration = Duration::from_secs(3);
const SENDS: usize = 4;

/// The pause after a server lost a TCP connection.
const AFTER_LOSS: Duration = Duration::from_millis(200);

/// Sends all queries at once over UDP, and waits for all responses; a query that never gets one has
/// an empty result. The IDs of the messages differ.
pub fn exchange(server: SocketAddr, messages: &[&[u8]]) -> io::Result<Vec<Vec<u8>>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(server)?;
    let id_of = |message: &[u8]| u16::from_be_bytes([message[0], message[1]]);
    let places: HashMap<u16, usize> =
        messages.iter().enumerate().map(|(at, message)| (id_of(message), at)).collect();
    let mut answers = vec![Vec::new(); messages.len()];
    let mut missing = messages.len();
    let mut bytes = vec![0; 65_536];
    for _ in 0..SENDS {
        for (message, _) in messages.iter().zip(&answers).filter(|(_, answer)| answer.is_empty()) {
            socket.send(message)?;
        }
        let begun = Instant::now();
        while missing > 0 {
            let Some(rest) = WAIT.checked_sub(begun.elapsed()).filter(|rest| !rest.is_zero())
            else {
                break;
            };
            socket.set_read_timeout(Some(rest))?;
            let Ok(length) = socket.recv(&mut bytes) else { continue };
            let at = bytes.get(..length).filter(|answer| answer.len() >= 12).map(id_of);
            let Some(&at) = at.and_then(|id| places.get(&id)) else { continue };
            if answers[at].is_empty() {
                answers[at] = bytes[..length].to_vec();
                missing -= 1;
            }
        }
        if missing == 0 {
            break;
        }
    }
    Ok(answers)
}

/// Sends all queries at once over one TCP connection (RFC 7766, section 6.2.1.1), and waits for all
/// responses in any order. If the connection is lost, another one sends the remaining queries after
/// a pause, up to `streams_max` connections.
pub fn exchange_tcp(
    server: SocketAddr,
    messages: &[&[u8]],
    streams_max: usize,
) -> io::Result<Vec<Vec<u8>>> {
    let mut answers = vec![Vec::new(); messages.len()];
    let mut streams = 1;
    while let Err(error) = exchange_rest_tcp(server, messages, &mut answers) {
        if streams == streams_max {
            return Err(error);
        }
        streams += 1;
        std::thread::sleep(AFTER_LOSS);
    }
    Ok(answers)
}

/// Sends the queries that have no response yet.
fn exchange_rest_tcp(
    server: SocketAddr,
    messages: &[&[u8]],
    answers: &mut [Vec<u8>],
) -> io::Result<()> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_nodelay(true)?;
    let mut left = 0;
    for (message, _) in messages.iter().zip(&*answers).filter(|(_, answer)| answer.is_empty()) {
        stream.write_all(&framed(message))?;
        left += 1;
    }
    for _ in 0..left {
        let answer = read_framed(&mut stream)?;
        let at = messages.iter().position(|message| answer.starts_with(&message[..2]));
        let at = at.ok_or_else(|| io::Error::other("an answer to no question"))?;
        answers[at] = answer;
    }
    Ok(())
}

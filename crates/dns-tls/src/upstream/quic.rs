//! A line over QUIC (RFC 9250): a query is a stream.
//!
//! The socket is opened and closed with the line, so each line has a port of its own. A stream that
//! is no longer needed is stopped with DOQ_REQUEST_CANCELLED.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, IdleTimeout, TransportConfig, VarInt,
};

use super::{Fault, IDLE, MESSAGE_BYTES_MAX, Shared, is_message};

/// Bytes of the length before a message.
const LENGTH_BYTES: usize = 2;

/// A line over QUIC.
#[derive(Debug, Clone)]
pub(super) struct Line {
    connection: Connection,
}

impl Line {
    pub(super) async fn connect(shared: &Shared) -> Result<Line, Fault> {
        let unreachable = |text: String| Fault::Unreachable(text);
        let crypto = QuicClientConfig::try_from(shared.tls.clone())
            .map_err(|error| unreachable(error.to_string()))?;
        let idle = IdleTimeout::try_from(IDLE).map_err(|error| unreachable(error.to_string()))?;
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None)
            .max_idle_timeout(Some(idle));
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        let address = shared.target.address;
        let any = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let local = SocketAddr::new(shared.source.unwrap_or(any), 0);
        let endpoint = Endpoint::client(local).map_err(|error| unreachable(error.to_string()))?;
        let name = shared.target.name_text();
        let connection = endpoint
            .connect_with(config, address, &name)
            .map_err(|error| unreachable(error.to_string()))?
            .await
            .map_err(|error| fault_of(&error))?;
        Ok(Line { connection })
    }

    pub(super) async fn query(&self, message: Vec<u8>) -> Result<Vec<u8>, Fault> {
        let (mut send, mut receive) = self.connection.open_bi().await.map_err(|_| Fault::Lost)?;
        let mut bytes = (message.len() as u16).to_be_bytes().to_vec();
        bytes.extend_from_slice(&message);
        send.write_all(&bytes).await.map_err(|_| self.fault())?;
        send.finish().map_err(|_| self.fault())?;
        let read = receive.read_to_end(LENGTH_BYTES + MESSAGE_BYTES_MAX).await;
        let mut answer = read.map_err(|_| self.fault())?;
        let length = answer.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
        if length.is_none_or(|length| length != answer.len() - LENGTH_BYTES) {
            return Err(Fault::Useless);
        }
        answer.drain(..LENGTH_BYTES);
        if is_message(&answer) { Ok(answer) } else { Err(Fault::Useless) }
    }

    /// Why a stream failed: with its connection, or by itself.
    fn fault(&self) -> Fault {
        if self.connection.close_reason().is_some() { Fault::Lost } else { Fault::Useless }
    }
}

/// Why there is no connection. If this side refuses the certificate, the error is a CRYPTO_ERROR
/// with an alert (RFC 9001, section 4.8). The alerts are those of RFC 8446 about certificates, and
/// decrypt_error, which means a wrong signature.
fn fault_of(error: &ConnectionError) -> Fault {
    const CRYPTO_ERROR: u64 = 0x100;
    let text = error.to_string();
    match error {
        ConnectionError::TransportError(error)
            if matches!(u64::from(error.code).checked_sub(CRYPTO_ERROR), Some(42..=48 | 51)) =>
        {
            Fault::Unproven(text)
        }
        _ => Fault::Unreachable(text),
    }
}

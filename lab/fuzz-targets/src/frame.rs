//! Messages in Ethernet frames: what is read lies in the frame, and an answer is a frame that its receiver can read.

use larder_wire::udp_frame::read;

use super::assert_inside;

/// A frame.
pub fn frame(input: &[u8]) {
    let Ok((ends, message)) = read(input) else { return };
    assert_inside(message, input);
    assert_eq!(ends.peer.is_ipv4(), ends.local.is_ipv4());
    let begins = ends.headers_bytes();
    let mut answer = vec![0xee; begins + message.len()];
    answer[begins..].copy_from_slice(message);
    let Some(bytes) = ends.seal(message.len(), &mut answer) else {
        assert!(message.len() + begins > 65_535, "there is room for it");
        return;
    };
    assert!(bytes >= begins + message.len() && bytes <= answer.len());
    // The client reads it, unless we have no address to respond from.
    if let Ok((back, echoed)) = read(&answer[..bytes]) {
        assert_eq!((back.peer, back.local), (ends.local, ends.peer));
        assert_eq!((back.peer_mac, back.local_mac), (ends.local_mac, ends.peer_mac));
        assert_eq!(echoed, message);
    }
}

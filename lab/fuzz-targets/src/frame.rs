//! Messages in Ethernet frames: what is read lies in the frame, and an answer is a frame that its receiver can read.

use larder_wire::frame::read;

use super::assert_inside;

/// A frame.
pub fn frame(input: &[u8]) {
    let Ok((letter, message)) = read(input) else { return };
    assert_inside(message, input);
    assert_eq!(letter.peer.is_ipv4(), letter.local.is_ipv4());
    let begins = letter.headers_bytes();
    let mut answer = vec![0xee; begins + message.len()];
    answer[begins..].copy_from_slice(message);
    let Some(bytes) = letter.seal(message.len(), &mut answer) else {
        assert!(message.len() + begins > 65_535, "there is room for it");
        return;
    };
    assert!(bytes >= begins + message.len() && bytes <= answer.len());
    // Who asked reads it, unless we are nobody to be answered ourselves.
    if let Ok((back, echoed)) = read(&answer[..bytes]) {
        assert_eq!((back.peer, back.local), (letter.local, letter.peer));
        assert_eq!((back.peer_mac, back.local_mac), (letter.local_mac, letter.peer_mac));
        assert_eq!(echoed, message);
    }
}

//! NRI's multiplexing: both directions of calls share one connection.
//!
//! Each frame is a connection's number, a length (both 32 bits, big-endian), and that many bytes of the connection's stream. A
//! message may be spread over frames, and a frame may have parts of several.

use std::io::{self, ErrorKind, Read, Write};

/// The connection on which the runtime calls the plugin.
pub const PLUGIN: u32 = 1;
/// The connection on which the plugin calls the runtime.
pub const RUNTIME: u32 = 2;

const HEADER: usize = 8;
/// Most bytes of a frame: the largest message and its header.
const LARGEST_FRAME: usize = crate::ttrpc::HEADER + crate::ttrpc::LARGEST;
/// Most bytes of a frame that we send. The runtime reads a frame into a buffer of 4096 bytes, and ends a connection whose frame does
/// not fit.
const LARGEST_SENT: usize = 4096;

/// Some bytes of one connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// The connection's number.
    pub connection: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Why no further frame can be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum FrameError {
    #[error("a frame of {0} bytes (at most {LARGEST_FRAME} are allowed)")]
    TooLarge(usize),
    #[error("the connection ended within a frame")]
    Truncated,
    #[error("cannot read from the connection")]
    Read(#[from] io::Error),
}

/// The next frame; None: the connection has ended.
pub fn receive(stream: &mut impl Read) -> Result<Option<Frame>, FrameError> {
    let mut header = [0; HEADER];
    match read_first(stream, &mut header)? {
        0 => return Ok(None),
        n => read_rest(stream, &mut header[n..])?,
    }
    let [a, b, c, d, length @ ..] = header;
    let (connection, length) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(length) as usize);
    if length > LARGEST_FRAME {
        return Err(FrameError::TooLarge(length));
    }
    let mut bytes = vec![0; length];
    read_rest(stream, &mut bytes)?;
    Ok(Some(Frame { connection, bytes }))
}

/// Sends bytes of a connection's stream.
pub fn send(stream: &mut impl Write, connection: u32, bytes: &[u8]) -> io::Result<()> {
    let mut frames = Vec::with_capacity(bytes.len() + HEADER);
    for part in bytes.chunks(LARGEST_SENT) {
        frames.extend(connection.to_be_bytes());
        frames.extend((part.len() as u32).to_be_bytes());
        frames.extend(part);
    }
    stream.write_all(&frames)
}

fn read_first(stream: &mut impl Read, header: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(header) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The other end has gone without having read everything.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(0),
            done => return done,
        }
    }
}

fn read_rest(stream: &mut impl Read, bytes: &mut [u8]) -> Result<(), FrameError> {
    stream.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => FrameError::Truncated,
        _ => FrameError::Read(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(bytes: &[u8]) -> Vec<Frame> {
        let mut rest = bytes;
        std::iter::from_fn(|| receive(&mut rest).expect("frames")).collect()
    }

    #[test]
    fn what_is_sent_is_received_in_frames_that_the_runtime_can_read() {
        let sent: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        let mut wire = Vec::new();
        send(&mut wire, RUNTIME, &sent).expect("sent");
        let received = frames(&wire);
        assert_eq!(received.iter().map(|frame| frame.bytes.len()).collect::<Vec<_>>(), [4096, 4096, 1808]);
        assert!(received.iter().all(|frame| frame.connection == RUNTIME));
        assert_eq!(received.into_iter().flat_map(|frame| frame.bytes).collect::<Vec<_>>(), sent);
    }

    #[test]
    fn an_empty_frame_is_one() {
        assert_eq!(frames(&[0, 0, 0, 1, 0, 0, 0, 0]), [Frame { connection: 1, bytes: vec![] }]);
    }

    #[test]
    fn a_frame_that_ends_early_is_an_error() {
        let mut whole = Vec::new();
        send(&mut whole, PLUGIN, b"abc").expect("sent");
        assert!(receive(&mut &whole[..0]).expect("the end").is_none());
        for length in 1..whole.len() {
            assert!(matches!(receive(&mut &whole[..length]), Err(FrameError::Truncated)), "{length} bytes");
        }
    }

    #[test]
    fn no_memory_is_taken_for_a_frame_that_is_too_large() {
        for length in [LARGEST_FRAME as u32 + 1, u32::MAX] {
            let header = [1u32.to_be_bytes(), length.to_be_bytes()].concat();
            assert!(matches!(receive(&mut &header[..]), Err(FrameError::TooLarge(_))), "{length}");
        }
    }
}

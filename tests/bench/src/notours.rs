//! The cost of calls on descriptors that are no TCP connection: pipe, file, unix socket, UDP, epoll.
//!
//! The calls go through libc's functions by name, so that a preloaded library gets to see them.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use crate::args::Args;
use crate::epoll::Epoll;
use crate::net;

const MESSAGE: usize = 64;
/// A file is written and read from the start again after this many messages.
const FILE_MESSAGES: u32 = 4096;

/// Does a few calls, and says how many with its first member.
type Work = (u64, Box<dyn FnMut() -> io::Result<()>>);

pub fn run(args: &Args) -> Result<(), String> {
    let kind: String = args.required("on")?;
    let wanted: u64 = args.get("calls", 1_000_000)?;
    args.finish()?;
    let (calls, mut work) = match kind.as_str() {
        "pipe" => pipe(),
        "file" => file(),
        "unix" => unix(),
        "udp" => udp(),
        "epoll" => epoll(),
        other => Err(format!("--on: '{other}' is none of pipe, file, unix, udp, epoll")),
    }?;
    (0..wanted / calls).try_for_each(|_| work()).map_err(|e| format!("{kind}: {e}"))
}

fn pipe() -> Result<Work, String> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(net::last("pipe2"));
    }
    // SAFETY: pipe2() has just given us both; nobody else owns them.
    let [out, into] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((2, Box::new(move || pass(into.as_raw_fd(), out.as_raw_fd()))))
}

fn file() -> Result<Work, String> {
    // SAFETY: the name is a terminated string.
    let fd = unsafe { libc::memfd_create(c"bench".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(net::last("memfd_create"));
    }
    // SAFETY: memfd_create() has just given us this descriptor; nobody else owns it.
    let into = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // A second open, not a dup: reading must not move the place of writing.
    let out = File::open(format!("/proc/self/fd/{fd}")).map_err(|e| format!("the file: {e}"))?;
    let mut count = 0;
    Ok((
        2,
        Box::new(move || {
            if count == FILE_MESSAGES {
                use std::io::Seek;
                (&into).rewind()?;
                (&out).rewind()?;
                count = 0;
            }
            count += 1;
            pass(into.as_raw_fd(), out.as_raw_fd())
        }),
    ))
}

fn unix() -> Result<Work, String> {
    let (into, out) = UnixStream::pair().map_err(|e| format!("socketpair: {e}"))?;
    Ok((2, Box::new(move || pass(into.as_raw_fd(), out.as_raw_fd()))))
}

fn udp() -> Result<Work, String> {
    let pair = || {
        let out = UdpSocket::bind("127.0.0.1:0")?;
        let into = UdpSocket::bind("127.0.0.1:0")?;
        into.connect(out.local_addr()?)?;
        Ok((into, out))
    };
    let (into, out) = pair().map_err(|e: io::Error| format!("UDP: {e}"))?;
    Ok((2, Box::new(move || pass(into.as_raw_fd(), out.as_raw_fd()))))
}

/// A wait that always finds a pipe's end readable.
fn epoll() -> Result<Work, String> {
    let (into, out) = UnixStream::pair().map_err(|e| format!("socketpair: {e}"))?;
    io::Write::write_all(&mut &into, b"x").map_err(|e| format!("write: {e}"))?;
    let mut set = Epoll::new(8)?;
    set.add(out.as_raw_fd(), 0)?;
    Ok((
        1,
        Box::new(move || {
            let (_, _) = (&into, &out); // both ends stay open
            set.wait().map(|_| ()).map_err(io::Error::other)
        }),
    ))
}

/// One message in, the same message out.
fn pass(into: RawFd, out: RawFd) -> io::Result<()> {
    let mut message = [0x42u8; MESSAGE];
    // SAFETY: the buffer is ours and MESSAGE bytes long.
    let written = unsafe { libc::write(into, message.as_ptr().cast(), MESSAGE) };
    // SAFETY: as above.
    let got = unsafe { libc::read(out, message.as_mut_ptr().cast(), MESSAGE) };
    if written == MESSAGE as isize && got == MESSAGE as isize {
        return Ok(());
    }
    Err(io::Error::other(format!("wrote {written}, read {got} of {MESSAGE}: {}", io::Error::last_os_error())))
}

//! A file server and its client: one connection, the same file asked for again and again.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use crate::args::{Args, Role};
use crate::{clock, net};

/// What the server reads from the file and writes to the socket at once.
const CHUNK: usize = 128 << 10;
/// A request has a fixed length; its content does not matter.
const REQUEST: [u8; 64] = *b"GET the file                                                   \n";

pub fn run(args: &Args) -> Result<(), String> {
    let role = args.role()?;
    let sockbuf: usize = args.get("sockbuf", 0)?;
    match role {
        Role::Server => {
            let path: String = args.required("file")?;
            args.finish()?;
            let file = File::open(&path).map_err(|e| format!("cannot open {path}: {e}"))?;
            let listener = net::listen(sockbuf)?;
            net::announce(&listener)?;
            serve(net::accept(&listener)?, file)
        }
        Role::Client => {
            let size: usize = args.required("size")?;
            let length = args.seconds()?;
            let mut stream = net::connect(args, sockbuf)?;
            args.finish()?;
            let mut buffer = vec![0u8; CHUNK];
            let times = clock::repeat(length, 1, || fetch(&mut stream, &mut buffer, size))?;
            let got = net::receive_buffer(stream.as_raw_fd());
            net::say(&format!("{{{},\"so_rcvbuf\":{got}}}", times.json_us()))
        }
    }
}

fn serve(mut stream: TcpStream, mut file: File) -> Result<(), String> {
    let mut request = REQUEST;
    let mut buffer = vec![0u8; CHUNK];
    loop {
        match stream.read_exact(&mut request) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(format!("read: {e}")),
        }
        file.rewind().map_err(|e| format!("the file: {e}"))?;
        loop {
            let count = file.read(&mut buffer).map_err(|e| format!("the file: {e}"))?;
            if count == 0 {
                break;
            }
            stream.write_all(&buffer[..count]).map_err(|e| format!("write: {e}"))?;
        }
    }
}

fn fetch(stream: &mut TcpStream, buffer: &mut [u8], size: usize) -> Result<(), String> {
    stream.write_all(&REQUEST).map_err(|e| format!("write: {e}"))?;
    let mut left = size;
    while left > 0 {
        let room = left.min(buffer.len());
        match stream.read(&mut buffer[..room]).map_err(|e| format!("read: {e}"))? {
            0 => return Err(format!("the file ended {left} bytes too early")),
            count => left -= count,
        }
    }
    Ok(())
}

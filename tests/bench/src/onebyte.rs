//! Reads a pipe byte by byte: as many calls as a program can make that have nothing to do with TCP.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::time::Instant;

use crate::args::Args;
use crate::net;

/// What a pipe holds.
const CHUNK: usize = 65536;

pub fn run(args: &Args) -> Result<(), String> {
    let reads: u64 = args.get("reads", 10_000_000)?;
    args.finish()?;
    let (out, into) = io::pipe().map_err(|e| format!("pipe: {e}"))?;
    let begin = Instant::now();
    let done = pass(&out, into, reads).map_err(|e| format!("pipe: {e}"))?;
    let each = begin.elapsed().as_nanos() as f64 / done as f64;
    net::say(&format!("{{\"reads\":{done},\"read_ns\":{each:.2}}}"))
}

/// At least `reads` of them.
fn pass(out: &PipeReader, mut into: PipeWriter, reads: u64) -> io::Result<u64> {
    let chunk = [0x42; CHUNK];
    let mut done = 0;
    while done < reads {
        into.write_all(&chunk)?;
        for _ in 0..CHUNK {
            one(out)?;
        }
        done += CHUNK as u64;
    }
    Ok(done)
}

fn one(out: &PipeReader) -> io::Result<()> {
    let mut byte = 0u8;
    // SAFETY: one byte of ours.
    match unsafe { libc::read(out.as_raw_fd(), (&raw mut byte).cast(), 1) } {
        1 if byte == 0x42 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

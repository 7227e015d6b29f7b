//! The first line of a script.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Most bytes of a `#!` line that the kernel reads.
const LONGEST_LINE: usize = 256;

/// The command of a `#!` line: a program and at most one argument. None: the file is no script.
pub fn interpreter_line(file: &File) -> io::Result<Option<String>> {
    let mut head = [0; LONGEST_LINE];
    let mut filled = 0;
    while filled < head.len() {
        match file.read_at(&mut head[filled..], filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let line = head[..filled].split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(line.strip_prefix(b"#!").map(|command| String::from_utf8_lossy(command).trim().to_owned()))
}

//! Reads a file to its end, within limits of time and length.

use crate::error::PluginError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Read;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The input's bytes. A runtime writes them at once, and closes the file.
pub fn read(mut from: impl Read + AsFd, most: u64, patience: Duration) -> Result<Vec<u8>, PluginError> {
    let until = Instant::now() + patience;
    let (mut all, mut part) = (Vec::new(), [0; 8192]);
    loop {
        wait(&from, until, patience)?;
        match from.read(&mut part).map_err(PluginError::Input)? {
            0 => return Ok(all),
            length => all.extend_from_slice(&part[..length]),
        }
        if all.len() as u64 > most {
            return Err(PluginError::Long(most));
        }
    }
}

fn wait(from: &impl AsFd, until: Instant, patience: Duration) -> Result<(), PluginError> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| PluginError::Late(patience))?;
        match poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(PluginError::Late(patience)),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(PluginError::Input(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn input_without_an_end_is_not_waited_for() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"{").unwrap();
        let error = read(reader, 100, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, PluginError::Late(_)), "{error}");
    }

    #[test]
    fn input_that_is_too_long_is_not_read_to_its_end() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::thread::scope(|scope| {
            // Fails once the reader has gone.
            scope.spawn(move || while writer.write_all(&[b' '; 4096]).is_ok() {});
            let error = read(reader, 100_000, Duration::from_secs(60)).unwrap_err();
            assert!(matches!(error, PluginError::Long(100_000)), "{error}");
        });
    }

    #[test]
    fn whole_input_is_read() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_all(&[b'a'; 70_000]).unwrap());
            assert_eq!(read(reader, 70_000, Duration::from_secs(60)).unwrap(), [b'a'; 70_000]);
        });
    }
}

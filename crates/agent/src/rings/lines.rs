//! A file to which another process adds lines, and which it renames when it is full, to begin another one.

use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Bytes that are read at a time: what is more waits.
const CHUNK: u64 = 256 * 1024;
/// Longer lines are passed over.
const LONGEST: usize = 8 * 1024;

pub struct Lines {
    path: PathBuf,
    open: Option<Open>,
}

struct Open {
    file: File,
    /// Bytes that have been read.
    position: u64,
    /// The beginning of a line whose end has not been written yet.
    rest: Vec<u8>,
    /// That line is too long.
    is_passing_over: bool,
}

impl Lines {
    /// The file need not be there yet.
    pub fn new(path: PathBuf) -> Lines {
        Lines { path, open: None }
    }

    /// Lines that have been added since the last call. Of a file that was there before the first one, all.
    pub fn next(&mut self) -> io::Result<Vec<String>> {
        // Before the reading: what is added to the old file later than that is not lost.
        let named = match self.path.symlink_metadata() {
            Ok(meta) => Some(meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut lines = Vec::new();
        if let Some(open) = &mut self.open {
            let is_at_its_end = open.read(&mut lines)?;
            if !is_at_its_end || open.is(named.as_ref())? {
                return Ok(lines);
            }
            self.open = None;
        }
        if named.is_some() {
            self.open.insert(Open::new(&self.path)?).read(&mut lines)?;
        }
        Ok(lines)
    }
}

impl Open {
    fn new(path: &PathBuf) -> io::Result<Open> {
        // A FIFO would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let meta = file.metadata()?;
        let is_trusted = [0, rustix::process::geteuid().as_raw()].contains(&meta.uid());
        if !meta.is_file() || !is_trusted {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "no regular file of root"));
        }
        Ok(Open { file, position: 0, rest: Vec::new(), is_passing_over: false })
    }

    /// Whether the file still has that name, and was not made shorter.
    fn is(&self, named: Option<&Metadata>) -> io::Result<bool> {
        let own = self.file.metadata()?;
        Ok(named.is_some_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino()))
            && own.len() >= self.position)
    }

    /// Returns whether the end was reached.
    fn read(&mut self, lines: &mut Vec<String>) -> io::Result<bool> {
        let mut chunk = Vec::new();
        let count = (&self.file).take(CHUNK).read_to_end(&mut chunk)? as u64;
        self.position += count;
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.add(piece, lines);
        }
        Ok(count < CHUNK)
    }

    fn add(&mut self, piece: &[u8], lines: &mut Vec<String>) {
        self.is_passing_over |= self.rest.len() + piece.len() > LONGEST;
        if self.is_passing_over {
            self.rest.clear();
        } else {
            self.rest.extend_from_slice(piece);
        }
        if piece.ends_with(b"\n") {
            let line = String::from_utf8(std::mem::take(&mut self.rest));
            lines.extend(line.ok().filter(|_| !self.is_passing_over));
            self.is_passing_over = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{remove_file, rename, write};
    use std::io::Write;

    struct Scene {
        place: tempfile::TempDir,
        lines: Lines,
    }

    impl Scene {
        fn new() -> Scene {
            let place = tempfile::tempdir().unwrap();
            let lines = Lines::new(place.path().join("events"));
            Scene { place, lines }
        }

        fn path(&self) -> PathBuf {
            self.place.path().join("events")
        }

        fn add(&self, text: impl AsRef<[u8]>) {
            let mut file = File::options().create(true).append(true).open(self.path()).unwrap();
            file.write_all(text.as_ref()).unwrap();
        }

        fn next(&mut self) -> Vec<String> {
            self.lines.next().unwrap()
        }
    }

    #[test]
    fn lines_are_read_once_and_whole() {
        let mut scene = Scene::new();
        assert!(scene.next().is_empty(), "there is no file yet");
        scene.add("a\nb\nc");
        assert_eq!(scene.next(), ["a\n", "b\n"]);
        assert!(scene.next().is_empty());
        scene.add("c\nd");
        assert_eq!(scene.next(), ["cc\n"]);
    }

    #[test]
    fn a_file_that_is_renamed_is_read_to_its_end() {
        let mut scene = Scene::new();
        scene.add("a\n");
        assert_eq!(scene.next(), ["a\n"]);
        scene.add("b\n");
        rename(scene.path(), scene.place.path().join("events.1")).unwrap();
        scene.add("c\n");
        assert_eq!(scene.next(), ["b\n", "c\n"]);
        remove_file(scene.path()).unwrap();
        assert!(scene.next().is_empty());
        scene.add("d\n");
        assert_eq!(scene.next(), ["d\n"]);
    }

    #[test]
    fn a_file_that_is_made_shorter_begins_anew() {
        let mut scene = Scene::new();
        scene.add("a\nb\n");
        assert_eq!(scene.next(), ["a\n", "b\n"]);
        write(scene.path(), "c\n").unwrap();
        assert_eq!(scene.next(), ["c\n"]);
    }

    #[test]
    fn what_is_no_line_is_passed_over_in_bounded_memory() {
        let mut scene = Scene::new();
        scene.add("x".repeat(LONGEST + 1) + "\na\n");
        scene.add(b"\xff\n");
        scene.add("b\n");
        assert_eq!(scene.next(), ["a\n", "b\n"]);
        scene.add(vec![b'y'; 3 * CHUNK as usize]);
        let lines: Vec<String> = (0..4).flat_map(|_| scene.next()).collect();
        assert!(lines.is_empty() && scene.lines.open.as_ref().unwrap().rest.len() <= LONGEST);
        scene.add("\nc\n");
        assert_eq!(scene.next(), ["c\n"]);
    }

    #[test]
    fn only_a_regular_file_is_read_and_nobody_waits() {
        let mut scene = Scene::new();
        rustix::fs::mknodat(rustix::fs::CWD, scene.path(), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(scene.lines.next().is_err());
        remove_file(scene.path()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", scene.path()).unwrap();
        assert!(scene.lines.next().is_err());
    }
}

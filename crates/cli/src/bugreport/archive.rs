//! The file, or standard output: a tar archive, compressed by gzip.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use tar::{Builder, Header};

/// Why the report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("{}: cannot be created; name another file by --output", path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("{place}: cannot be written")]
    Write { place: String, source: io::Error },
    #[error("--output -: standard output is a terminal; redirect it into a file")]
    Terminal,
}

/// Where the report goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    File(PathBuf),
    /// For a container without a place to write to: `kubectl exec` brings it to the operator.
    Stdout,
}

impl Place {
    fn shown(&self) -> String {
        match self {
            Place::File(path) => path.display().to_string(),
            Place::Stdout => "standard output".into(),
        }
    }

    /// A file that is there is not replaced. Only its owner can read the new one.
    fn open(&self) -> Result<Box<dyn Write>, ArchiveError> {
        match self {
            Place::File(path) => {
                let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
                let failed = |source| ArchiveError::Create { path: path.clone(), source };
                Ok(Box::new(opened.map_err(failed)?))
            }
            Place::Stdout if io::stdout().is_terminal() => Err(ArchiveError::Terminal),
            Place::Stdout => Ok(Box::new(io::stdout())),
        }
    }
}

/// A report that is being written. Without [`Archive::finish`] its file is removed.
pub struct Archive {
    place: Place,
    /// The folder in the archive.
    folder: String,
    builder: Option<Builder<GzEncoder<Box<dyn Write>>>>,
}

impl Archive {
    pub fn create(place: Place, folder: &str) -> Result<Archive, ArchiveError> {
        let builder = Builder::new(GzEncoder::new(place.open()?, Compression::default()));
        Ok(Archive { place, folder: folder.into(), builder: Some(builder) })
    }

    pub fn add(&mut self, name: &str, bytes: &[u8]) -> Result<(), ArchiveError> {
        let Some(builder) = &mut self.builder else { return Ok(()) };
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        let added = builder.append_data(&mut header, format!("{}/{name}", self.folder), bytes);
        added.map_err(|source| ArchiveError::Write { place: self.place.shown(), source })
    }

    /// Returns where the complete report is, for people.
    pub fn finish(mut self) -> Result<String, ArchiveError> {
        let done = self.builder.as_mut().map_or(Ok(()), |builder| {
            builder.finish()?;
            builder.get_mut().try_finish()?;
            builder.get_mut().get_mut().flush()
        });
        done.map_err(|source| ArchiveError::Write { place: self.place.shown(), source })?;
        self.builder = None;
        Ok(self.place.shown())
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if let (Some(_), Place::File(path)) = (&self.builder, &self.place) {
            // If this fails, a file that is no archive remains, and the error that led here names it.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_was_added_is_in_it_for_its_owner_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut archive = Archive::create(Place::File(directory.path().join("a.tar.gz")), "report").expect("created");
        archive.add("one.txt", b"first").expect("added");
        let path = archive.finish().expect("finished");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let mut tar = tar::Archive::new(GzDecoder::new(File::open(&path).expect("opened")));
        let mut entry = tar.entries().expect("entries").next().expect("one").expect("readable");
        assert_eq!(entry.path().expect("a name").display().to_string(), "report/one.txt");
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        assert_eq!(text, "first");
    }

    #[test]
    fn a_file_that_is_there_stays_and_half_a_report_does_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.tar.gz");
        std::fs::write(&path, "precious").expect("written");
        let error = Archive::create(Place::File(path.clone()), "report").err().expect("refused").to_string();
        assert!(error.contains("--output"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "precious");
        let half = directory.path().join("b.tar.gz");
        drop(Archive::create(Place::File(half.clone()), "report").expect("created"));
        assert!(!half.exists());
    }
}

//! The program with which a container begins: whether its loader would load the library.
//!
//! Everything here is hostile: paths lead through links that the image has made, and files are what the image says that they are.
//! Paths are resolved by the kernel below the container's root; nothing is opened that is not a regular file.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sidestep_injection::Reason;
use sidestep_program::{Elf, extra_rights, interpreter_line, read};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Most scripts whose interpreter is a script; the kernel has such a limit, too.
const DEEPEST: usize = 4;
/// Most directories of PATH in which the program is looked for.
const MOST_DIRECTORIES: usize = 64;
/// Where programs are looked for without a PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why the library has no effect in the program, if that is so. `path`: the container's PATH.
pub fn obstacle(root: BorrowedFd<'_>, program: &str, path: Option<&str>) -> Option<Reason> {
    let file = match find(root, program, path.unwrap_or(DEFAULT_PATH)) {
        Some(found) => open(root, &found),
        None => Err(Errno::NOENT.into()),
    };
    file.and_then(|file| look(root, file, DEEPEST)).unwrap_or(Some(Reason::UnknownProgram))
}

/// A name with a slash is a path; others are looked for. The working directory is not known: the root stands for it.
fn find(root: BorrowedFd<'_>, program: &str, path: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(Path::new("/").join(program));
    }
    let directories = path.split(':').take(MOST_DIRECTORIES);
    directories.map(|directory| Path::new("/").join(directory).join(program)).find(|path| is_executable(root, path))
}

fn is_executable(root: BorrowedFd<'_>, path: &Path) -> bool {
    let mode = locate(root, path).and_then(rustix::fs::fstat);
    mode.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o111 != 0)
}

/// The file without its content: nothing is asked of a device or a FIFO.
fn locate(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn open(root: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let found = locate(root, path)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let own = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(File::from(rustix::fs::open(own, flags, Mode::empty())?))
}

/// Linux ignores the setuid bits of a script.
fn look(root: BorrowedFd<'_>, file: File, depth: usize) -> io::Result<Option<Reason>> {
    if let Some(line) = interpreter_line(&file)? {
        let interpreter = line.split_ascii_whitespace().next().unwrap_or_default();
        return match depth {
            0 => Ok(Some(Reason::UnknownProgram)),
            _ => look(root, open(root, &Path::new("/").join(interpreter))?, depth - 1),
        };
    }
    let Ok(elf) = read(&file) else { return Ok(Some(Reason::UnknownProgram)) };
    Ok(unloadable(&elf).or(extra_rights(&file)?.map(|_| Reason::ExtraRights)))
}

fn unloadable(elf: &Elf) -> Option<Reason> {
    if elf.other_machine.is_some() {
        return Some(Reason::OtherMachine);
    }
    let Some(loader) = &elf.loader else { return Some(Reason::Static) };
    let name = loader.rsplit('/').next().unwrap_or_default();
    let is_known = name.starts_with("ld-linux-x86-64.so.") || name.starts_with("ld-musl-x86_64.so.");
    (!is_known).then_some(Reason::UnknownLibc)
}

#[cfg(test)]
mod tests;

//! Which file contains an address of a process.

use procfs::process::{MMapPath, MemoryMap, Process};
use std::path::{Path, PathBuf};

#[derive(Debug, PartialEq)]
pub enum Place {
    /// In the program's file, or in anonymous memory: code that was generated.
    Own,
    /// In a library, by the file's name.
    Library(String),
    /// The process has ended, or the memory is gone.
    Unknown,
}

/// The memory map of a process, as last read.
#[derive(Default)]
pub struct Code {
    program: PathBuf,
    maps: Vec<MemoryMap>,
}

impl Code {
    /// Reads the map again if it lacks the address: the process has loaded a library, or executed another program.
    pub fn place(&mut self, pid: u32, address: u64) -> Place {
        if self.find(address) == Place::Unknown
            && let Some(now) = Code::of(pid)
        {
            *self = now;
        }
        self.find(address)
    }

    fn of(pid: u32) -> Option<Code> {
        let process = Process::new(i32::try_from(pid).ok()?).ok()?;
        let maps = process.maps().ok()?.into_iter().collect();
        Some(Code { program: process.exe().ok()?, maps })
    }

    fn find(&self, address: u64) -> Place {
        let within = |map: &&MemoryMap| (map.address.0..map.address.1).contains(&address);
        self.maps.iter().find(within).map_or(Place::Unknown, |map| self.place_of(&map.pathname))
    }

    fn place_of(&self, file: &MMapPath) -> Place {
        match file {
            MMapPath::Path(path) if *path == self.program => Place::Own,
            MMapPath::Path(path) => Place::Library(name(path)),
            MMapPath::Vdso | MMapPath::Vsyscall => Place::Library("[vdso]".into()),
            _ => Place::Own,
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_this_process_is_its_own_or_a_librarys() {
        let (mut code, pid) = (Code::default(), std::process::id());
        let own = code_of_this_process_is_its_own_or_a_librarys as fn() as usize as u64;
        let library = getppid_of_libc();
        assert_eq!(code.place(pid, own), Place::Own);
        assert_eq!(code.place(pid, library), Place::Library("libc.so.6".into()));
        assert_eq!(code.place(pid, 8), Place::Unknown);
    }

    /// An address in libc's code, as /proc shows it.
    fn getppid_of_libc() -> u64 {
        let code = Code::of(std::process::id()).unwrap();
        let libc = |map: &&MemoryMap| matches!(&map.pathname, MMapPath::Path(path) if name(path) == "libc.so.6");
        code.maps.iter().find(libc).unwrap().address.0
    }
}

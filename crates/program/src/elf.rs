//! The headers of an ELF file.

use object::elf::{EM_AARCH64, EM_RISCV, EM_X86_64, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::read::{FileKind, ReadCache, ReadRef};
use object::{Endianness, Object};
use std::fs::File;
use std::ops::Range;

/// Most bytes of one part of a file that are read: program headers have 56 bytes each, and programs have about a dozen.
const LARGEST_PART: u64 = 64 * 1024;

/// How a program is loaded.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Set if the file is not for 64-bit x86; then nothing else is known.
    pub other_machine: Option<String>,
    /// The dynamic loader (PT_INTERP); None: the program is static.
    pub loader: Option<String>,
}

/// Why a file is not a program.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum ElfError {
    #[error("neither an ELF program nor a script")]
    Neither,
    #[error("damaged ELF file")]
    Damaged(#[from] object::Error),
}

/// A file of which only small parts are read. The file's headers say how large its parts are, and may lie.
#[derive(Clone, Copy)]
struct Bounded<'a>(&'a ReadCache<&'a File>);

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > LARGEST_PART { Err(()) } else { self.0.read_bytes_at(offset, size) }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}

/// Reads the headers of a regular file.
pub fn read(file: &File) -> Result<Elf, ElfError> {
    let cache = ReadCache::new(file);
    let data = Bounded(&cache);
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => {
            return Ok(Elf { other_machine: Some("a 32-bit machine".into()), ..Elf::default() });
        }
        _ => return Err(ElfError::Neither),
    }
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let machine = header.e_machine(endian);
    if machine != EM_X86_64 {
        return Ok(Elf { other_machine: Some(machine_name(machine)), ..Elf::default() });
    }
    for part in header.program_headers(endian, data)? {
        if let Some(loader) = part.interpreter(endian, data)? {
            return Ok(Elf { other_machine: None, loader: Some(String::from_utf8_lossy(loader).into_owned()) });
        }
    }
    Ok(Elf::default())
}

fn machine_name(machine: u16) -> String {
    match machine {
        EM_AARCH64 => "Aarch64".into(),
        EM_RISCV => "RISC-V".into(),
        other => format!("machine {other}"),
    }
}

/// Whether the Go tool chain built it. Reads all tables of the file, so only for files of which the reader is sure.
pub fn is_go(file: &File) -> bool {
    let data = ReadCache::new(file);
    // strip keeps these sections; notes and the symbol table may be gone.
    ElfFile64::<'_, Endianness, _>::parse(&data)
        .is_ok_and(|elf| elf.section_by_name(".go.buildinfo").is_some() || elf.section_by_name(".gopclntab").is_some())
}

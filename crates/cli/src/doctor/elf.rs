//! What an ELF file says about preloading.

use object::read::elf::{ElfFile64, ProgramHeader};
use object::read::{FileKind, ReadCache};
use object::{Architecture, Endianness, Object};
use std::fs::File;
use std::io;
use std::path::Path;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Set if the file is not for 64-bit x86; then nothing else is known.
    pub other_machine: Option<String>,
    /// The dynamic loader (PT_INTERP); None: the program is static.
    pub loader: Option<String>,
    /// Whether the Go tool chain built it.
    pub is_go: bool,
}

/// Why a file is not a program.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("cannot open it")]
    Open(#[from] io::Error),
    #[error("neither an ELF program nor a script")]
    Neither,
    #[error("damaged ELF file")]
    Damaged(#[from] object::Error),
}

pub fn read(path: &Path) -> Result<Elf, ElfError> {
    let file = File::open(path)?;
    // Reads only what is needed: programs may have hundreds of megabytes.
    let data = ReadCache::new(file);
    match FileKind::parse(&data) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => {
            return Ok(Elf { other_machine: Some("a 32-bit machine".into()), ..Elf::default() });
        }
        _ => return Err(ElfError::Neither),
    }
    let elf: ElfFile64<'_, Endianness, _> = ElfFile64::parse(&data)?;
    if elf.architecture() != Architecture::X86_64 {
        return Ok(Elf { other_machine: Some(format!("{:?}", elf.architecture())), ..Elf::default() });
    }
    let loader =
        elf.elf_program_headers().iter().find_map(|header| header.interpreter(elf.endian(), &data).ok().flatten());
    Ok(Elf {
        other_machine: None,
        loader: loader.map(|name| String::from_utf8_lossy(name).into_owned()),
        // strip keeps these sections; notes and the symbol table may be gone.
        is_go: elf.section_by_name(".go.buildinfo").is_some() || elf.section_by_name(".gopclntab").is_some(),
    })
}

//! The built `libsidestep.so`, and the libc of this machine.

use crate::built;
use crate::packages::Packages;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable};
use std::path::PathBuf;
use std::process::Command;

/// An ELF file in memory.
pub struct Library {
    bytes: Vec<u8>,
}

/// Builds the release library, unless it is there and new, and reads it.
pub fn sidestep() -> Library {
    read(build(Profile::Release))
}

/// Cargo's profiles, which link different code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// What is shipped.
    Release,
    /// Not optimised, and with debug assertions.
    Dev,
}

/// Builds the library, unless it is there and new. Its path.
pub fn build(profile: Profile) -> PathBuf {
    let target = Packages::load().target_directory;
    let (name, target, directory) = match profile {
        Profile::Release => ("release", target, "release"),
        // Builds for tests unwind, with std. This one ends as what is shipped does, and has a place of its own.
        Profile::Dev => ("dev", target.join("shape"), "debug"),
    };
    let library = target.join(directory).join("libsidestep.so");
    if built::is_current(&library, &["abi", "sys", "ring", "conn", "ready", "preload"]) {
        return library;
    }
    let out = Command::new(env!("CARGO"))
        .args(["build", "--profile", name, "--locked", "--package", "sidestep-preload"])
        .args(["--config", r#"profile.dev.panic="abort""#])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(crate::path("."))
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "libsidestep.so is not built: {}", String::from_utf8_lossy(&out.stderr));
    library
}

/// The libc that this very process uses.
pub fn libc() -> Library {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc/self/maps");
    let path = maps.lines().filter_map(|l| l.split_whitespace().nth(5)).find(|p| p.ends_with("/libc.so.6"));
    read(path.expect("a dynamically linked glibc").into())
}

/// Reads an ELF file.
pub fn read(path: PathBuf) -> Library {
    Library { bytes: std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())) }
}

impl Library {
    fn elf(&self) -> ElfFile64<'_> {
        ElfFile64::parse(&*self.bytes).expect("an ELF file")
    }

    /// Names of the dynamic symbols that are defined (or undefined) here, sorted.
    pub fn symbols(&self, defined: bool) -> Vec<String> {
        let elf = self.elf();
        let symbols = elf.dynamic_symbols().filter(|s| s.is_undefined() != defined);
        let mut names: Vec<String> = symbols.filter_map(|s| Some(s.name().ok()?.to_string())).collect();
        names.retain(|n| !n.is_empty());
        names.sort();
        names
    }

    /// Names of the undefined symbols that the dynamic linker must find, and of those that it need not, sorted.
    pub fn undefined(&self) -> (Vec<String>, Vec<String>) {
        let elf = self.elf();
        let undefined = elf.dynamic_symbols().filter(|s| s.is_undefined() && s.name().is_ok_and(|n| !n.is_empty()));
        let (weak, strong): (Vec<_>, Vec<_>) = undefined.partition(ObjectSymbol::is_weak);
        let names = |symbols: Vec<object::read::elf::ElfSymbol64<'_, '_>>| {
            let mut names: Vec<String> = symbols.iter().filter_map(|s| Some(s.name().ok()?.to_string())).collect();
            names.sort();
            names
        };
        (names(strong), names(weak))
    }

    /// Names of the symbols that dynamic relocations refer to: what the dynamic linker looks up, wherever it finds it.
    pub fn looked_up(&self) -> Vec<String> {
        let elf = self.elf();
        let relocations = elf.dynamic_relocations().expect("dynamic relocations");
        let symbols = relocations.filter_map(|(_, r)| match r.target() {
            object::RelocationTarget::Symbol(index) => elf.dynamic_symbol_table()?.symbol_by_index(index).ok(),
            _ => None,
        });
        let mut names: Vec<String> = symbols.filter_map(|s| Some(s.name().ok()?.to_string())).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Values of the dynamic entries with this tag.
    pub fn dynamic(&self, tag: i64) -> Vec<u64> {
        let elf = self.elf();
        let header: &FileHeader64<Endianness> = elf.elf_header();
        let e = elf.endian();
        let table = header.section_headers(e, &*self.bytes).expect("section headers");
        let entries =
            table.iter().find_map(|s| object::read::elf::SectionHeader::dynamic(s, e, &*self.bytes).ok().flatten());
        let (entries, _) = entries.expect("a dynamic section");
        entries.iter().filter(|d| d.tag(e) == tag).map(|d| d.d_val(e)).collect()
    }

    /// Libraries that it needs.
    pub fn needed(&self) -> Vec<String> {
        let strings = self.strings();
        let name = |at: u64| strings[at as usize..].split(|b| *b == 0).next().unwrap_or_default();
        self.dynamic(elf::DT_NEEDED).into_iter().map(|at| String::from_utf8_lossy(name(at)).into_owned()).collect()
    }

    fn strings(&self) -> Vec<u8> {
        let elf = self.elf();
        let section = elf.section_by_name(".dynstr").expect("a string table");
        section.data().expect("its bytes").to_vec()
    }

    /// Types of the dynamic relocations, each once.
    pub fn relocation_types(&self) -> Vec<u32> {
        let elf = self.elf();
        let relocations = elf.dynamic_relocations().expect("dynamic relocations");
        let types = relocations.filter_map(|(_, r)| match r.flags() {
            object::RelocationFlags::Elf { r_type } => Some(r_type),
            _ => None,
        });
        let mut types: Vec<u32> = types.collect();
        types.sort_unstable();
        types.dedup();
        types
    }

    /// Bytes of thread-local storage.
    pub fn tls_size(&self) -> u64 {
        let elf = self.elf();
        let segments = elf.elf_program_headers().iter();
        segments.filter(|p| p.p_type.get(elf.endian()) == elf::PT_TLS).map(|p| p.p_memsz.get(elf.endian())).sum()
    }
}

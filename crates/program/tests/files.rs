//! Crafted files: what they say, and that no file makes the reader panic, hang, or take much memory.

use proptest::prelude::*;
use sidestep_program::{Elf, ElfError, ExtraRights, extra_rights, interpreter_line, read};
use std::fs::{File, Permissions};
use std::io::{Seek, Write};
use std::os::unix::fs::PermissionsExt;

const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const X86_64: u16 = 62;
const AARCH64: u16 = 183;

/// Where the program headers begin, and how large each is.
const HEADERS: u64 = 64;
const HEADER: u64 = 56;

/// An ELF file for this machine type, whose program headers are `(type, offset, size)`.
fn elf(machine: u16, parts: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(2u16.to_le_bytes());
    bytes.extend(machine.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(HEADERS.to_le_bytes());
    bytes.extend([0; 12]);
    for word in [64, HEADER as u16, parts.len() as u16, 64, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    for (kind, offset, size) in parts {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        for word in [*offset, 0, 0, *size, *size, 0] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes
}

/// A dynamic program with this loader.
fn dynamic(loader: &[u8]) -> Vec<u8> {
    let after = HEADERS + 2 * HEADER;
    let mut bytes = elf(X86_64, &[(PT_LOAD, 0, 64), (PT_INTERP, after, loader.len() as u64)]);
    bytes.extend(loader);
    bytes
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).and_then(|()| file.rewind()).expect("written");
    file
}

fn loader_of(bytes: &[u8]) -> Option<String> {
    read(&file(bytes)).expect("a program").loader
}

#[test]
fn the_loader_is_named() {
    assert_eq!(loader_of(&dynamic(b"/lib64/ld-linux-x86-64.so.2\0")).as_deref(), Some("/lib64/ld-linux-x86-64.so.2"));
    assert_eq!(loader_of(&dynamic(b"/lib/ld-musl-x86_64.so.1\0")).as_deref(), Some("/lib/ld-musl-x86_64.so.1"));
    assert_eq!(loader_of(&elf(X86_64, &[(PT_LOAD, 0, 64)])), None, "static");
    assert_eq!(loader_of(&elf(X86_64, &[])), None, "static, without program headers");
}

#[test]
fn a_loader_at_the_end_of_a_large_file_is_found() {
    let at = 1 << 30;
    let sparse = file(&elf(X86_64, &[(PT_INTERP, at, 5)]));
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"/ld1\0", at).expect("written");
    assert_eq!(read(&sparse).expect("a program").loader.as_deref(), Some("/ld1"));
}

#[test]
fn real_programs_are_read() {
    let own = File::open("/proc/self/exe").expect("this test");
    let loader = read(&own).expect("a program").loader.expect("dynamic");
    assert!(loader.contains("ld-linux"), "{loader}");
}

#[test]
fn other_machines_are_named() {
    let other = |bytes: &[u8]| read(&file(bytes)).expect("a program").other_machine;
    assert_eq!(other(&elf(AARCH64, &[])).as_deref(), Some("Aarch64"));
    assert_eq!(other(&elf(9999, &[])).as_deref(), Some("machine 9999"));
    let mut narrow = elf(X86_64, &[]);
    narrow[4] = 1;
    assert_eq!(other(&narrow).as_deref(), Some("a 32-bit machine"));
}

#[test]
fn what_is_no_program_is_refused() {
    for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", b"MZ\x90\0", &[0; 4096]] {
        assert!(matches!(read(&file(bytes)), Err(ElfError::Neither)), "{bytes:?}");
    }
}

/// Each of these says that a part is larger than it is, or elsewhere.
#[test]
fn headers_that_lie_are_refused() {
    let huge = file(&elf(X86_64, &[(PT_INTERP, 0, 1 << 40)]));
    huge.set_len(1 << 41).expect("a sparse file");
    assert!(matches!(read(&huge), Err(ElfError::Damaged(_))), "a loader's name of a terabyte");

    let beyond = elf(X86_64, &[(PT_INTERP, 1 << 40, 10)]);
    assert!(matches!(read(&file(&beyond)), Err(ElfError::Damaged(_))), "a loader beyond the end");

    let overflow = elf(X86_64, &[(PT_INTERP, u64::MAX - 1, 10)]);
    assert!(matches!(read(&file(&overflow)), Err(ElfError::Damaged(_))), "an offset that overflows");

    let unterminated = dynamic(b"/lib64/ld-linux-x86-64.so.2");
    assert!(matches!(read(&file(&unterminated)), Err(ElfError::Damaged(_))), "a name without an end");

    let mut many = elf(X86_64, &[]);
    many[56..58].copy_from_slice(&65_534u16.to_le_bytes());
    let many = file(&many);
    many.set_len(1 << 41).expect("a sparse file");
    assert!(matches!(read(&many), Err(ElfError::Damaged(_))), "65,534 program headers");
}

#[test]
fn every_truncation_is_survived() {
    let whole = dynamic(b"/lib64/ld-linux-x86-64.so.2\0");
    for length in 0..whole.len() {
        assert!(read(&file(&whole[..length])).is_err(), "{length} bytes of {}", whole.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_bytes_are_survived(changes in prop::collection::vec((0usize..200, any::<u8>()), 1..12)) {
        let mut bytes = dynamic(b"/lib64/ld-linux-x86-64.so.2\0");
        for (at, value) in changes {
            let length = bytes.len();
            bytes[at % length] = value;
        }
        // Any answer will do.
        let _: Result<Elf, ElfError> = read(&file(&bytes));
    }
}

#[test]
fn interpreters_are_named() {
    let named = |bytes: &[u8]| interpreter_line(&file(bytes)).expect("read");
    assert_eq!(named(b"#!/bin/sh\necho").as_deref(), Some("/bin/sh"));
    assert_eq!(named(b"#! /usr/bin/env python3").as_deref(), Some("/usr/bin/env python3"));
    assert_eq!(named(b"#!\n").as_deref(), Some(""));
    assert_eq!(named(b"#"), None);
    assert_eq!(named(b""), None);
    assert_eq!(named(&[&b"#!"[..], &[b'x'; 5000]].concat()).expect("a line").len(), 254);
}

#[test]
fn rights_are_named() {
    let with_mode = |mode: u32| {
        let file = file(b"");
        file.set_permissions(Permissions::from_mode(mode)).expect("chmod");
        extra_rights(&file).expect("read")
    };
    assert_eq!(with_mode(0o755), None);
    assert_eq!(with_mode(0o4755), Some(ExtraRights::Setuid));
    assert_eq!(with_mode(0o2755), Some(ExtraRights::Setgid));
    assert_eq!(with_mode(0o2745), None, "mandatory locking");
}

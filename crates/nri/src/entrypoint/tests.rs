use super::*;
use std::fs::{Permissions, create_dir_all, set_permissions, write};
use std::os::unix::fs::{PermissionsExt, symlink};
use tempfile::TempDir;

/// An image's files; `musl`, `other` and so on are programs of that kind in /bin.
struct Image(TempDir);

/// A program for x86-64 with one program header: PT_INTERP, with this loader.
fn dynamic(loader: &str) -> Vec<u8> {
    let mut bytes = static_program(62);
    bytes[56] = 1;
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    let length = loader.len() as u64 + 1;
    for word in [120, 0, 0, length, length, 1] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(loader.bytes());
    bytes.push(0);
    bytes
}

/// The header of a program for this machine, without program headers.
fn static_program(machine: u16) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[16] = 2;
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[32] = 64;
    bytes[52] = 64;
    bytes[54] = 56;
    bytes
}

impl Image {
    fn new() -> Image {
        let image = Image(tempfile::tempdir().expect("a directory"));
        create_dir_all(image.path("bin")).and_then(|()| create_dir_all(image.path("opt"))).expect("directories");
        image.add("bin/glibc", &dynamic("/lib64/ld-linux-x86-64.so.2"), 0o755);
        image.add("bin/musl", &dynamic("/lib/ld-musl-x86_64.so.1"), 0o755);
        image.add("bin/other-libc", &dynamic("/system/bin/linker64"), 0o755);
        image.add("bin/static", &static_program(62), 0o755);
        image.add("bin/arm", &static_program(183), 0o755);
        image
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn add(&self, name: &str, content: &[u8], mode: u32) {
        let path = self.path(name);
        write(&path, content).and_then(|()| set_permissions(&path, Permissions::from_mode(mode))).expect("a file");
    }

    fn obstacle(&self, program: &str) -> Option<Reason> {
        let root = File::open(self.0.path()).expect("the root");
        super::obstacle(root.as_fd(), program, Some("/nowhere:/bin:opt"))
    }
}

#[test]
fn programs_are_told_apart() {
    let image = Image::new();
    for (program, expected) in [
        ("glibc", None),
        ("/bin/glibc", None),
        ("bin/glibc", None),
        ("musl", None),
        ("static", Some(Reason::Static)),
        ("arm", Some(Reason::OtherMachine)),
        ("other-libc", Some(Reason::UnknownLibc)),
        ("missing", Some(Reason::UnknownProgram)),
        ("/bin", Some(Reason::UnknownProgram)),
        ("", Some(Reason::UnknownProgram)),
        ("a\0b", Some(Reason::UnknownProgram)),
        (&"/x".repeat(5000), Some(Reason::UnknownProgram)),
    ] {
        assert_eq!(image.obstacle(program), expected, "{program}");
    }
}

#[test]
fn rights_of_a_file_count_but_not_those_of_a_script() {
    let image = Image::new();
    image.add("bin/su", &dynamic("/lib64/ld-linux-x86-64.so.2"), 0o4755);
    image.add("bin/script", b"#!/bin/glibc -x\n", 0o4755);
    assert_eq!(image.obstacle("su"), Some(Reason::ExtraRights));
    assert_eq!(image.obstacle("script"), None);
}

#[test]
fn scripts_lead_to_their_interpreters() {
    let image = Image::new();
    image.add("opt/run", b"#! /bin/musl\n", 0o755);
    image.add("opt/alone", b"#!/bin/static\n", 0o755);
    image.add("opt/loop", b"#!/opt/loop\n", 0o755);
    image.add("opt/lost", b"#!/bin/missing\n", 0o755);
    image.add("opt/text", b"no program", 0o755);
    assert_eq!(image.obstacle("run"), None);
    assert_eq!(image.obstacle("alone"), Some(Reason::Static));
    for unknown in ["loop", "lost", "text"] {
        assert_eq!(image.obstacle(unknown), Some(Reason::UnknownProgram), "{unknown}");
    }
}

#[test]
fn a_file_that_cannot_be_executed_is_passed_over_in_the_search() {
    let image = Image::new();
    image.add("bin/app", &static_program(62), 0o644);
    image.add("opt/app", &dynamic("/lib/ld-musl-x86_64.so.1"), 0o755);
    assert_eq!(image.obstacle("app"), None);
}

#[test]
fn links_lead_nowhere_else_than_into_the_image() {
    let image = Image::new();
    symlink("/bin/glibc", image.path("opt/absolute")).expect("a link");
    symlink("../../../../../../bin/static", image.path("opt/up")).expect("a link");
    symlink("/proc/self/exe", image.path("opt/host")).expect("a link");
    symlink("circle", image.path("opt/circle")).expect("a link");
    assert_eq!(image.obstacle("/opt/absolute"), None);
    assert_eq!(image.obstacle("/opt/up"), Some(Reason::Static), "the image's /bin, not the machine's");
    assert_eq!(image.obstacle("/opt/host"), Some(Reason::UnknownProgram));
    assert_eq!(image.obstacle("/opt/circle"), Some(Reason::UnknownProgram));
}

#[test]
fn nothing_is_waited_for() {
    let image = Image::new();
    rustix::fs::mknodat(rustix::fs::CWD, image.path("bin/fifo"), FileType::Fifo, 0o777.into(), 0).expect("a FIFO");
    assert_eq!(image.obstacle("/bin/fifo"), Some(Reason::UnknownProgram));
    assert_eq!(image.obstacle("fifo"), Some(Reason::UnknownProgram));
}

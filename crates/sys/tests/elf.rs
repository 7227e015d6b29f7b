//! The library's own look-up finds the same symbols as the dynamic linker.

use core::ffi::{CStr, c_int, c_void};
use object::{Object as _, ObjectSymbol as _};
use sidestep_sys::elf::{Name, Object};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library with every kind of symbol that a look-up must distinguish.
const SOURCE: &str = r#"
int first(void) { return 1; }
int second(void) { return 2; }
int third(void) { return 3; }
__asm__(".symver first, several@OLD\n.symver second, several@@NEW\n.symver third, retired@OLD");
__attribute__((weak)) int weak_one(void) { return 4; }
__attribute__((visibility("protected"))) int protected_one(void) { return 5; }
__attribute__((visibility("hidden"))) int hidden_one(void) { return 6; }
int data_one = 7;
static int chosen(void) { return 8; }
static void *choose(void) { return chosen; }
int indirect(void) __attribute__((ifunc("choose")));
__thread int of_each_thread;
extern int puts(const char *);
int uses(void) { return puts("") + hidden_one() + of_each_thread; }
"#;
const VERSIONS: &str = "OLD { local: choose; }; NEW { } OLD;";

/// The loaded object that contains this address. It is never unloaded.
fn object_with(address: usize) -> Object<'static> {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
        // SAFETY: as given below, and as dl_iterate_phdr(3) says.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<(usize, &'static [libc::Elf64_Phdr])>>()) };
        // SAFETY: as above.
        let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        found.push((info.dlpi_addr as usize, segments));
        0
    }
    let mut found: Vec<(usize, &'static [libc::Elf64_Phdr])> = Vec::new();
    // SAFETY: the list outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    // SAFETY: no test unloads anything.
    let mut objects = found.into_iter().filter_map(|(base, segments)| unsafe { Object::new(base, segments) });
    objects.find(|object| object.contains(address)).expect("an object with this address is loaded")
}

/// Compares, for each name, the object's own look-up with dlsym(3). Returns the number of names.
fn compare(handle: *mut c_void, object: &Object, names: impl IntoIterator<Item = String>) -> usize {
    let mut compared = 0;
    for name in names {
        let text: &'static CStr = Box::leak(CString::new(name).expect("a name").into_boxed_c_str());
        // SAFETY: a handle of dlopen(3) and a name.
        let wanted = unsafe { libc::dlsym(handle, text.as_ptr()) };
        let wanted = (!wanted.is_null()).then_some(wanted);
        // SAFETY: the objects of a running program have been relocated.
        let found = unsafe { object.find(&Name::new(text)) };
        assert_eq!(found, wanted, "{text:?}");
        compared += 1;
    }
    compared
}

fn open(path: &Path) -> *mut c_void {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: a path; its constructors do nothing.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "dlopen {path:?}");
    handle
}

/// Names of the functions and data that the file exports.
fn names(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).expect("the library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let defined = file.dynamic_symbols().filter(|s| !s.is_undefined() && s.kind() != object::SymbolKind::Tls);
    defined.filter_map(|s| Some(s.name().ok()?.to_string())).filter(|n| !n.is_empty()).collect()
}

#[test]
fn all_of_libc() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let path = maps.lines().filter_map(|l| l.split_whitespace().nth(5)).find(|p| p.ends_with("/libc.so.6"));
    let path = PathBuf::from(path.expect("glibc"));
    let (handle, names) = (open(&path), names(&path));
    for name in ["memcpy", "posix_spawn", "read", "environ"] {
        assert!(names.iter().any(|n| n == name), "the names are not read: {name} is missing");
    }
    let compared = compare(handle, &object_with(libc::getpid as *const () as usize), names);
    assert!(compared > 2000, "{compared} names");
}

#[test]
fn every_kind_of_symbol_by_either_hash() {
    for style in ["gnu", "sysv", "both"] {
        let library = built(style);
        let handle = open(&library);
        // SAFETY: the library has this function.
        let inside = unsafe { libc::dlsym(handle, c"uses".as_ptr()) } as usize;
        let object = object_with(inside);
        assert!(compare(handle, &object, names(&library)) >= 7);
        let call = |name| {
            // SAFETY: the library's own function without arguments.
            let found = unsafe { object.find(&Name::new(name)) }.expect("found");
            // SAFETY: as above.
            unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(found)() }
        };
        let values = [c"several", c"weak_one", c"protected_one", c"indirect"].map(call);
        assert_eq!(values, [2, 4, 5, 8], "hash style {style}");
        for absent in [c"retired", c"hidden_one", c"choose", c"puts", c"of_each_thread", c"no_such_name", c""] {
            // SAFETY: as above.
            assert!(unsafe { object.find(&Name::new(absent)) }.is_none(), "{absent:?}, hash style {style}");
        }
    }
}

/// The library above, with this kind of hash table.
fn built(style: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, versions) = (dir.join(format!("{style}.c")), dir.join(format!("{style}.map")));
    let library = dir.join(format!("lib{style}.so"));
    std::fs::write(&source, SOURCE).expect("the source");
    std::fs::write(&versions, VERSIONS).expect("the version script");
    let out = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wl,--no-undefined-version"])
        .args([format!("-Wl,--hash-style={style}"), format!("-Wl,--version-script={}", versions.display())])
        .arg("-o")
        .args([&library, &source])
        .output()
        .expect("cc runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    library
}

//! Starting this program again as a puppet, with chosen descriptors and with or without preload.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::ptr;

use libc::{c_char, posix_spawn_file_actions_t};

use crate::peer::Preload;
use crate::sys::Fd;

pub struct Start<'a> {
    pub preload: Preload,
    /// Pairs (number here, number there). No other close-on-exec descriptor is kept.
    pub keep: &'a [(Fd, Fd)],
    pub args: &'a [String],
}

/// A null-terminated array of C strings, as exec wants it.
pub struct CArray {
    _owned: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CArray {
    pub fn new(strings: impl IntoIterator<Item = OsString>) -> CArray {
        let owned: Vec<CString> =
            strings.into_iter().map(|s| CString::new(s.into_vec()).expect("no NUL inside")).collect();
        let pointers = owned.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
        CArray { _owned: owned, pointers }
    }

    pub fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    pub fn get(&self, i: usize) -> *const c_char {
        self.pointers[i]
    }
}

pub fn program() -> CString {
    let path = std::env::current_exe().expect("the path of this program");
    CString::new(path.into_os_string().into_vec()).expect("no NUL in a path")
}

/// The arguments of a puppet.
pub fn puppet_args(args: &[String]) -> CArray {
    let head = ["posix-cases", "peer"].map(OsString::from);
    CArray::new(head.into_iter().chain(args.iter().map(OsString::from)))
}

/// The environment; stripped, it has neither the library nor its settings.
pub fn environment(preload: Preload) -> CArray {
    let ours = |name: &OsString| name == "LD_PRELOAD" || name.to_string_lossy().starts_with("SIDESTEP");
    let vars = std::env::vars_os().filter(|(name, _)| preload == Preload::Kept || !ours(name));
    CArray::new(vars.map(|(name, value)| {
        let mut line = name;
        line.push("=");
        line.push(value);
        line
    }))
}

/// What posix_spawn does in the child before the new program starts.
pub struct FileActions(pub posix_spawn_file_actions_t);

impl Default for FileActions {
    fn default() -> FileActions {
        FileActions::new()
    }
}

impl FileActions {
    pub fn new() -> FileActions {
        // SAFETY: init makes the zeroed value valid.
        unsafe {
            let mut actions = std::mem::zeroed();
            assert_eq!(libc::posix_spawn_file_actions_init(&mut actions), 0);
            FileActions(actions)
        }
    }

    pub fn dup2(&mut self, from: Fd, to: Fd) {
        // SAFETY: the actions are initialised.
        let ret = unsafe { libc::posix_spawn_file_actions_adddup2(&mut self.0, from, to) };
        assert_eq!(ret, 0, "posix_spawn_file_actions_adddup2");
    }

    pub fn close(&mut self, fd: Fd) {
        // SAFETY: the actions are initialised.
        let ret = unsafe { libc::posix_spawn_file_actions_addclose(&mut self.0, fd) };
        assert_eq!(ret, 0, "posix_spawn_file_actions_addclose");
    }

    pub fn close_from(&mut self, fd: Fd) {
        // SAFETY: the actions are initialised.
        let ret = unsafe { crate::sys::glibc::posix_spawn_file_actions_addclosefrom_np(&mut self.0, fd) };
        assert_eq!(ret, 0, "posix_spawn_file_actions_addclosefrom_np");
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: the actions are initialised and not used after this.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

pub fn puppet(start: &Start) -> i32 {
    let mut actions = FileActions::new();
    for &(from, to) in start.keep {
        actions.dup2(from, to);
    }
    puppet_with(start, &actions, false)
}

/// `by_path` chooses posix_spawnp.
pub fn puppet_with(start: &Start, actions: &FileActions, by_path: bool) -> i32 {
    let (program, args, env) = (program(), puppet_args(start.args), environment(start.preload));
    let spawn = if by_path { libc::posix_spawnp } else { libc::posix_spawn };
    let mut pid = 0;
    // SAFETY: path, arguments, environment and actions live over the call; the arrays end with
    // null, and posix_spawn does not write to them though its type says so.
    let ret = unsafe {
        spawn(&mut pid, program.as_ptr(), &actions.0, ptr::null(), args.as_ptr().cast(), env.as_ptr().cast())
    };
    assert_eq!(ret, 0, "posix_spawn");
    pid
}

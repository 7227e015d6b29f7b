//! This process, its threads, and whether others live.

use crate::{Errno, Result, call};
use core::ffi::CStr;

fn plain(number: libc::c_long) -> usize {
    // SAFETY: these calls take nothing and cannot fail.
    unsafe { call(number, [0; 6]) }.unwrap_or(0)
}

/// getpid(2).
pub fn pid() -> u32 {
    plain(libc::SYS_getpid) as u32
}

/// gettid(2).
pub fn tid() -> u32 {
    plain(libc::SYS_gettid) as u32
}

/// geteuid(2).
pub fn euid() -> u32 {
    plain(libc::SYS_geteuid) as u32
}

/// Whether the program runs with the rights of another user or group than those of the user who started it.
pub fn changes_identity() -> bool {
    plain(libc::SYS_getuid) != plain(libc::SYS_geteuid) || plain(libc::SYS_getgid) != plain(libc::SYS_getegid)
}

/// Whether the thread with this number lives. A zombie, which waits for its parent, does not.
pub fn exists(tid: u32) -> bool {
    // SAFETY: no memory involved. The question is only whether the number is known.
    let answer = unsafe { call(libc::SYS_sched_getscheduler, [tid as usize, 0, 0, 0, 0, 0]) };
    answer != Err(Errno(libc::ESRCH)) && !is_zombie(tid).unwrap_or(false)
}

/// Whether the process with this number lives. Its first thread may have ended before the others.
pub fn process_exists(pid: u32) -> bool {
    exists(pid) || stat(pid).is_some_and(|stat| stat.threads > 1)
}

/// Whether the thread with this number lives and will run on. An exiting thread will not: pthread_join(3) may return while the
/// kernel still knows its number.
pub fn goes_on(tid: u32) -> bool {
    exists(tid) && stat(tid).is_none_or(|stat| stat.flags & PF_EXITING == 0)
}

/// Flag in proc_pid_stat(5).
const PF_EXITING: u32 = 4;

/// None: /proc cannot be read.
fn is_zombie(tid: u32) -> Option<bool> {
    stat(tid).map(|stat| matches!(stat.state, b'Z' | b'X'))
}

/// Fields of proc_pid_stat(5) for a thread.
struct Stat {
    state: u8,
    flags: u32,
    /// Number of threads in its process.
    threads: u32,
}

fn stat(tid: u32) -> Option<Stat> {
    let mut text = [0u8; 512];
    let n = read_file(path_of(tid, b"/stat\0").as_ptr(), &mut text)?;
    // "123 (name) Z ...": the name may be any bytes; the last parenthesis of the line ends it.
    let close = text[..n].iter().rposition(|b| *b == b')')?;
    let mut words = text[close..n].split(|b| *b == b' ').skip(1);
    let state = *words.next()?.first()?;
    let number = |word: &[u8]| core::str::from_utf8(word).ok()?.parse().ok();
    let flags = number(words.nth(5)?)?;
    let threads = number(words.nth(10)?)?;
    Some(Stat { state, flags, threads })
}

/// NUL-terminated: what /proc has of a process or thread. `name`: "/stat\0", say, and no longer.
pub(crate) fn path_of(id: u32, name: &[u8]) -> [u8; 22] {
    let mut path = *b"/proc/4294967295/stat\0";
    let end = write_decimal(&mut path[6..], id) + 6;
    path[end..end + name.len()].copy_from_slice(name);
    path
}

/// Writes the number. Returns the number of digits.
pub(crate) fn write_decimal(to: &mut [u8], mut n: u32) -> usize {
    let digits = n.checked_ilog10().unwrap_or(0) as usize + 1;
    for place in to[..digits].iter_mut().rev() {
        *place = b'0' + (n % 10) as u8;
        n /= 10;
    }
    digits
}

/// To be read. `path`: NUL-terminated.
pub(crate) fn open(path: *const u8) -> Result<i32> {
    let at = libc::AT_FDCWD as usize;
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: a NUL-terminated path.
    unsafe { call(libc::SYS_openat, [at, path as usize, flags, 0, 0, 0]) }.map(|fd| fd as i32)
}

/// The beginning of a small file. `path`: NUL-terminated.
fn read_file(path: *const u8, text: &mut [u8]) -> Option<usize> {
    let fd = open(path).ok()?;
    // SAFETY: a writable buffer with its length.
    let n = unsafe { call(libc::SYS_read, [fd as usize, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]) };
    crate::fd::close(fd);
    n.ok()
}

/// Path of the running program; empty if /proc is not there.
pub fn exe(buf: &mut [u8]) -> &[u8] {
    let n = read_link(c"/proc/self/exe", buf).unwrap_or(0);
    &buf[..n]
}

/// Length of what the symbolic link leads to.
fn read_link(path: &CStr, buf: &mut [u8]) -> Option<usize> {
    let at = libc::AT_FDCWD as usize;
    let args = [at, path.as_ptr() as usize, buf.as_mut_ptr() as usize, buf.len(), 0, 0];
    // SAFETY: a NUL-terminated path and a writable buffer with its length.
    unsafe { call(libc::SYS_readlinkat, args) }.ok()
}

/// Number of the PID namespace of this process. None: /proc cannot be read.
pub fn pid_namespace() -> Option<u64> {
    namespace(c"/proc/thread-self/ns/pid")
}

/// Number of the PID namespace of children that the calling thread makes. None: /proc cannot be read, or no process has been there
/// yet.
pub fn pid_namespace_of_children() -> Option<u64> {
    namespace(c"/proc/thread-self/ns/pid_for_children")
}

fn namespace(path: &CStr) -> Option<u64> {
    let mut text = [0u8; 64];
    let n = read_link(path, &mut text)?;
    // "pid:[4026531836]"
    let number = text[..n].split(|b| matches!(b, b'[' | b']')).nth(1)?;
    core::str::from_utf8(number).ok()?.parse().ok()
}

/// Processors that this process may run on.
pub fn processors() -> u32 {
    let mut set = [0u64; 16];
    // SAFETY: a writable buffer with its length.
    let n = unsafe { call(libc::SYS_sched_getaffinity, [0, 128, set.as_mut_ptr() as usize, 0, 0, 0]) };
    match n {
        Ok(_) => set.iter().map(|w| w.count_ones()).sum(),
        Err(_) => 1,
    }
}

/// sched_yield(2): lets threads that wait for this processor run first.
pub fn step_aside() {
    plain(libc::SYS_sched_yield);
}

/// Threads on this machine that run or want to run, this one included (/proc/loadavg).
pub fn runnable() -> Option<u32> {
    let mut text = [0u8; 64];
    let n = read_file(c"/proc/loadavg".as_ptr().cast(), &mut text)?;
    // "0.20 0.18 0.12 1/80 11206": the number before the slash.
    let mut fields = text[..n].split(|b| *b == b' ');
    let running = fields.nth(3)?.split(|b| *b == b'/').next()?;
    core::str::from_utf8(running).ok()?.parse().ok()
}

/// Signals that a fault of the running instruction raises; they cannot interrupt a wait.
pub fn is_fault(signal: i32) -> bool {
    use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    [SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS].contains(&signal)
}

/// Sets this thread's signal mask; bit n - 1 is signal n. Returns the old one.
pub fn block_signals(mask: u64) -> u64 {
    let mut old = 0u64;
    let args = [libc::SIG_SETMASK as usize, &raw const mask as usize, &raw mut old as usize, 8, 0, 0];
    // SAFETY: two words of the size that the kernel is told.
    let _ = unsafe { call(libc::SYS_rt_sigprocmask, args) };
    old
}

/// Signals that wait to be delivered to this thread.
pub fn pending_signals() -> u64 {
    let mut set = 0u64;
    // SAFETY: one word of the size that the kernel is told.
    let _ = unsafe { call(libc::SYS_rt_sigpending, [&raw mut set as usize, 8, 0, 0, 0, 0]) };
    set
}

/// Whether one of these signals has a handler that does not ask for restarts (SA_RESTART).
pub fn interrupts(signals: u64) -> bool {
    (1..=64).filter(|s| signals >> (s - 1) & 1 != 0).any(|signal| {
        // struct kernel_sigaction: handler, flags, restorer, mask.
        let mut action = [0u64; 4];
        let args = [signal as usize, 0, action.as_mut_ptr() as usize, 8, 0, 0];
        // SAFETY: the kernel writes one kernel_sigaction, 32 bytes.
        let known = unsafe { call(libc::SYS_rt_sigaction, args) }.is_ok();
        known && action[0] > 1 && action[1] & libc::SA_RESTART as u64 == 0
    })
}

/// Ends the process as abort(3) does.
pub fn abort() -> ! {
    loop {
        // SAFETY: no memory involved. Should SIGABRT be caught or blocked, SIGKILL follows.
        let _ = unsafe { call(libc::SYS_kill, [pid() as usize, libc::SIGABRT as usize, 0, 0, 0, 0]) };
        // SAFETY: as above.
        let _ = unsafe { call(libc::SYS_kill, [pid() as usize, libc::SIGKILL as usize, 0, 0, 0, 0]) };
    }
}

/// Our own duplicate of descriptor `number` of another process (pidfd_getfd(2)).
pub fn descriptor_of(pid: u32, number: i32) -> Result<i32> {
    // SAFETY: no memory involved.
    let process = unsafe { call(libc::SYS_pidfd_open, [pid as usize, 0, 0, 0, 0, 0]) }?;
    // SAFETY: no memory involved.
    let descriptor = unsafe { call(libc::SYS_pidfd_getfd, [process, number as usize, 0, 0, 0, 0]) };
    crate::fd::close(process as i32);
    descriptor.map(|fd| fd as i32)
}

/// Size of the kernel's descriptor table of this process (/proc/self/status). None: /proc cannot be read.
pub fn descriptor_table() -> Option<i32> {
    status("FDSize:")
}

/// Number of threads of this process (/proc/self/status). None: /proc cannot be read.
pub fn threads() -> Option<i32> {
    status("Threads:")
}

fn status(field: &str) -> Option<i32> {
    let mut text = [0u8; 2048];
    let n = read_file(c"/proc/self/status".as_ptr().cast(), &mut text)?;
    // The name of the program, in the first line, may be any bytes.
    let end = text[..n].iter().position(|b| *b == b'\n')?;
    let mut lines = core::str::from_utf8(&text[end..n]).ok()?.lines();
    lines.find_map(|line| line.strip_prefix(field))?.trim().parse().ok()
}

/// A random number from the kernel, if it has one now.
pub fn random() -> Result<u64> {
    let mut number = 0u64;
    let args = [&raw mut number as usize, size_of::<u64>(), libc::GRND_NONBLOCK as usize, 0, 0, 0];
    // SAFETY: eight bytes that are ours.
    match unsafe { call(libc::SYS_getrandom, args) }? {
        n if n == size_of::<u64>() => Ok(number),
        _ => Err(Errno(libc::EAGAIN)),
    }
}

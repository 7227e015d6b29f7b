//! Settings from the environment, read once, before the program's main().

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use sidestep_abi::env;
use sidestep_conn::worth::Threshold;

/// How long a waiting thread may spin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spin {
    Auto,
    Off,
    Micros(u32),
}

/// How the library treats io_uring in programs that use it through libc.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum IoUring {
    /// The library looks at submission queue entries before the kernel gets them.
    Follow,
    /// io_uring_setup(2) fails.
    Refuse,
}

pub struct Settings {
    pub on: bool,
    pub spin: Spin,
    pub upgrade_after: Threshold,
    pub ring_size: u32,
    /// Test aid that changes carriers every so many bytes; 0: off.
    pub flip: u64,
    /// Test aid: calls wait until the broker has answered.
    pub pairs_in_sync: bool,
    pub io_uring: IoUring,
    pub log: bool,
    pub report: Text,
    pub broker: Text,
}

/// A NUL-terminated copy of a variable.
pub struct Text {
    bytes: [u8; 1024],
    len: usize,
}

impl Text {
    const EMPTY: Text = Text { bytes: [0; 1024], len: 0 };

    fn new(value: &[u8]) -> Text {
        let mut text = Text::EMPTY;
        text.push(value);
        text
    }

    fn push(&mut self, value: &[u8]) {
        // The last byte stays 0. A value that is too long is cut, so that opening it fails, and overruns nothing.
        let n = value.len().min(self.bytes.len() - 1 - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&value[..n]);
        self.len += n;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub fn c_str(&self) -> Option<&core::ffi::CStr> {
        if self.len == 0 { None } else { core::ffi::CStr::from_bytes_until_nul(&self.bytes).ok() }
    }
}

/// Written by [`load`] only.
struct Once(UnsafeCell<Settings>);

// SAFETY: written before the program has threads, only read from then on.
unsafe impl Sync for Once {}

static SETTINGS: Once = Once(UnsafeCell::new(Settings {
    on: false,
    spin: Spin::Auto,
    upgrade_after: Threshold::Auto,
    ring_size: env::DEFAULT_RING_SIZE,
    flip: 0,
    pairs_in_sync: false,
    io_uring: IoUring::Follow,
    log: false,
    report: Text::EMPTY,
    broker: Text::EMPTY,
}));

/// The settings. Before [`load`] has run, everything is off.
#[inline]
pub fn get() -> &'static Settings {
    // SAFETY: written only by `load`, in the constructor, before the program has threads.
    unsafe { &*SETTINGS.0.get() }
}

static SILENT: AtomicBool = AtomicBool::new(false);

/// Whether the library does anything in this process.
#[inline]
pub fn active() -> bool {
    get().on && !is_silent()
}

/// Whether the library makes no call of its own any more ([`fall_silent`]).
#[inline]
pub fn is_silent() -> bool {
    SILENT.load(Relaxed)
}

/// The library makes no call of its own any more, here and in forked children.
pub fn fall_silent() {
    SILENT.store(true, Relaxed);
}

/// Reads the environment. An invalid value counts as not given: `sidestep run` has checked it with a proper message, and a
/// library must not stop a program. `can_work`: false if the library cannot work in this process for another reason.
///
/// # Safety
/// To be called once, from the constructor; `envp` is the NULL-terminated environment.
pub unsafe fn load(envp: *const *const libc::c_char, can_work: bool) {
    // SAFETY: by contract nobody else looks yet.
    let s = unsafe { &mut *SETTINGS.0.get() };
    s.on = true;
    default_broker(&mut s.broker);
    let mut at = envp;
    // SAFETY: by contract a NULL-terminated array of NUL-terminated strings.
    while let Some(entry) = unsafe { (*at).as_ref() } {
        // SAFETY: as above.
        let entry = unsafe { core::ffi::CStr::from_ptr(entry) }.to_bytes();
        if entry.starts_with(b"SIDESTEP")
            && let Some(eq) = entry.iter().position(|b| *b == b'=')
        {
            apply(s, &entry[..eq], &entry[eq + 1..]);
        }
        // SAFETY: the terminator has not been reached.
        at = unsafe { at.add(1) };
    }
    s.on &= can_work;
}

fn apply(s: &mut Settings, name: &[u8], value: &[u8]) {
    let Ok(name) = core::str::from_utf8(name) else { return };
    match name {
        env::SWITCH => s.on = value != b"off",
        env::BROKER if !value.is_empty() => s.broker = Text::new(value),
        env::REPORT => s.report = Text::new(value),
        env::LOG => s.log = !value.is_empty(),
        env::SPIN => s.spin = spin(value).unwrap_or(s.spin),
        env::UPGRADE_AFTER => s.upgrade_after = threshold(value).unwrap_or(s.upgrade_after),
        env::RING_SIZE => s.ring_size = number(value).map_or(s.ring_size, |n| n as u32),
        env::IO_URING if value == b"refuse" => s.io_uring = IoUring::Refuse,
        env::PAIRING => s.pairs_in_sync = value == b"sync",
        env::FLIP => s.flip = number(value).unwrap_or(0),
        _ => {}
    }
}

fn default_broker(text: &mut Text) {
    let mut digits = [0; 10];
    text.push(env::BROKER_PREFIX.as_bytes());
    text.push(crate::text::decimal(u64::from(sidestep_sys::process::euid()), &mut digits));
}

fn spin(value: &[u8]) -> Option<Spin> {
    match value {
        b"auto" => Some(Spin::Auto),
        b"off" => Some(Spin::Off),
        _ => number(value).map(|n| Spin::Micros(n.min(100_000) as u32)),
    }
}

fn threshold(value: &[u8]) -> Option<Threshold> {
    if value == b"auto" {
        return Some(Threshold::Auto);
    }
    match value.strip_suffix(b"ops") {
        Some(n) => number(n).map(|n| Threshold::Ops(n as u32)),
        None => number(value).map(Threshold::Bytes),
    }
}

fn number(value: &[u8]) -> Option<u64> {
    core::str::from_utf8(value).ok()?.parse().ok()
}

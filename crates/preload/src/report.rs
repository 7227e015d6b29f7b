//! Counters of this process: shown by the broker while it runs, and written as one JSON line when it exits.

use crate::critical::Lock;
use crate::text::Line;
use crate::{arena, fdtable, settings};
use core::sync::atomic::Ordering::*;
use sidestep_abi::Reason;
use sidestep_abi::page::Page;
use sidestep_ring::page;
use sidestep_sys::lock::Taken;
use sidestep_sys::{fd, mem, process};

/// Ours alone until the broker sends a page; then that is mapped here, at the same address.
static PAGE: Page = Page::new();

#[inline]
pub fn page() -> &'static Page {
    &PAGE
}

/// Counts a reason.
pub fn count(reason: Reason) {
    page::count_reason(&PAGE, reason);
}

/// Adds the bytes of a connection that has ended here: kernel rx, kernel tx, ring rx, ring tx.
pub fn add_bytes(bytes: [u64; 4]) {
    page::count_bytes(&PAGE, bytes);
}

/// Maps the broker's page over ours, counters carried over. False: it is not what it should be.
pub fn share(memory: i32) -> bool {
    let len = size_of::<Page>();
    if mem::check_sealed(memory, len).is_err() {
        return false;
    }
    let Ok(mapped) = mem::file(memory, len) else { return false };
    // SAFETY: a fresh mapping of a sealed file of at least that size; all fields are atomics; unmapped below.
    let theirs = unsafe { &*mapped.cast::<Page>() };
    let fits = page::fits(theirs);
    if fits {
        page::carry_over(&PAGE, theirs);
    }
    mem::unmap(mapped, len);
    // SAFETY: PAGE is page-aligned, of that size, and holds only atomics, whose values were just carried over.
    fits && unsafe { mem::file_over((&raw const PAGE).cast_mut().cast(), memory, len) }.is_ok()
}

/// Starts again from zero, on memory of our own: after a fork, in the child.
pub fn forget() {
    // SAFETY: as in `share`.
    let _ = unsafe { mem::anonymous_over((&raw const PAGE).cast_mut().cast(), size_of::<Page>()) };
}

static ONCE: Lock = Lock::new();

/// Before exec(): what has been counted so far, if anything. Counters start again, so that an exec() that fails
/// loses nothing and nothing is told twice.
pub fn write_some() {
    if page::totals(&PAGE).seen != 0 {
        write();
    }
}

/// Writes the line.
pub fn write() {
    if ONCE.lock(crate::thread::tid()) == Taken::Reentered {
        return;
    }
    add_live();
    if let Some(path) = settings::get().report.c_str() {
        let mut line = Line::new();
        compose(&mut line);
        let _ = fd::append(path, line.bytes());
    }
    forget();
    ONCE.unlock();
}

/// Adds connections that are still open.
fn add_live() {
    fdtable::for_each(|number, kind| {
        if let fdtable::Kind::Conn(index) = kind
            && arena::local(index).fd.load(Relaxed) == number as u32
        {
            let c = arena::conn(index);
            add_bytes(c.bytes());
            crate::life::excuse(c);
        }
    });
}

fn compose(line: &mut Line) {
    let mut path = [0; 1024];
    let t = page::totals(&PAGE);
    line.push(b"{\"pid\":").number(u64::from(process::pid()));
    line.push(b",\"exe\":").quoted(process::exe(&mut path));
    let fields: [(&[u8], u64); 7] = [
        (b"seen", t.seen),
        (b"upgraded", t.upgraded),
        (b"returned", t.returned),
        (b"ring_rx", t.ring_rx),
        (b"ring_tx", t.ring_tx),
        (b"kernel_rx", t.kernel_rx),
        (b"kernel_tx", t.kernel_tx),
    ];
    for (name, value) in fields {
        line.push(b",").quoted(name).push(b":").number(value);
    }
    line.push(b",\"reasons\":{");
    let mut comma: &[u8] = b"";
    for reason in Reason::ALL {
        let n = page::count_of(&PAGE, *reason);
        if n > 0 {
            line.push(comma).quoted(reason.name().as_bytes()).push(b":").number(n);
            comma = b",";
        }
    }
    line.push(b"}}\n");
}

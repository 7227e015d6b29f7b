//! The report of this process: its counters as one JSON line, written at exit.

use crate::critical::Lock;
use crate::excuse::excuse;
use crate::record::flag;
use crate::text::Line;
use crate::{arena, counters, fdtable, settings};
use core::sync::atomic::Ordering::*;
use sidestep_abi::Reason;
use sidestep_ring::page;
use sidestep_sys::lock::Taken;
use sidestep_sys::{fd, process};

static ONCE: Lock = Lock::new();

/// Before exec(): writes the counts so far, if there are any, and counts from zero. So an exec() that fails neither loses
/// nor repeats a count.
pub fn write_some() {
    if page::totals(counters::page()).seen != 0 {
        write();
    }
}

/// Writes the report.
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
    counters::reset_in_child();
    ONCE.unlock();
}

/// Adds the bytes of connections that are still open.
fn add_live() {
    fdtable::for_each(|number, kind| {
        if let fdtable::Kind::Conn(index) = kind
            && arena::local(index).fd.load(Relaxed) == number as u32
        {
            let c = arena::conn(index);
            counters::add_bytes(c.bytes(), c.has(flag::STACK));
            excuse(c);
        }
    });
}

fn compose(line: &mut Line) {
    let mut path = [0; 1024];
    let t = page::totals(counters::page());
    line.push(b"{\"pid\":").number(u64::from(process::pid()));
    line.push(b",\"exe\":").quoted(process::exe(&mut path));
    let [stack_rx, stack_tx] = counters::by_stack();
    let fields: [(&[u8], u64); 9] = [
        (b"seen", t.seen),
        (b"upgraded", t.upgraded),
        (b"returned", t.returned),
        (b"ring_rx", t.ring_rx),
        (b"ring_tx", t.ring_tx),
        (b"kernel_rx", t.kernel_rx),
        (b"kernel_tx", t.kernel_tx),
        (b"stack_rx", stack_rx),
        (b"stack_tx", stack_tx),
    ];
    for (name, value) in fields {
        line.push(b",").quoted(name).push(b":").number(value);
    }
    line.push(b",\"reasons\":{");
    let mut comma: &[u8] = b"";
    for reason in Reason::ALL {
        let n = page::count_of(counters::page(), *reason);
        if n > 0 {
            line.push(comma).quoted(reason.name().as_bytes()).push(b":").number(n);
            comma = b",";
        }
    }
    line.push(b"}}\n");
}

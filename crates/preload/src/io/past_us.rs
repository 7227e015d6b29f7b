//! Bytes that a call of the kernel has moved without passing through our receive or send.

use crate::errno;
use crate::record::Conn;
use core::sync::atomic::Ordering::Relaxed;
use libc::ssize_t;

/// A call has taken so many bytes from the kernel without passing through our receive.
pub fn received(c: &Conn, n: ssize_t) {
    if n > 0 {
        errno::keep(|| match c.is_attached() {
            false => drop(c.early_rx.fetch_add(n as u64, Relaxed)),
            true => drop(c.with_rx(|rx| rx.took_kernel(n as usize))),
        });
    }
}

/// A call has given so many bytes to the kernel without passing through our send.
pub fn sent(c: &Conn, n: ssize_t) {
    if n > 0 {
        errno::keep(|| match c.is_attached() {
            false => drop(c.early_tx.fetch_add(n as u64, Relaxed)),
            true => drop(c.with_tx(|end| end.tx.put_kernel(n as usize))),
        });
    }
}

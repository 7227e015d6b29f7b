//! Bytes that the kernel has moved in a call that does not use our receive or send.

use crate::errno;
use crate::record::Conn;
use core::sync::atomic::Ordering::Relaxed;
use libc::ssize_t;

/// A call has received `n` bytes from the kernel past our receive.
pub fn received(c: &Conn, n: ssize_t) {
    if n > 0 {
        errno::keep(|| match c.is_attached() {
            false => drop(c.early_rx.fetch_add(n as u64, Relaxed)),
            true => drop(c.with_rx(|rx| rx.took_kernel(n as usize))),
        });
    }
}

/// A call has sent `n` bytes to the kernel past our send.
pub fn sent(c: &Conn, n: ssize_t) {
    if n > 0 {
        errno::keep(|| match c.is_attached() {
            false => drop(c.early_tx.fetch_add(n as u64, Relaxed)),
            true => drop(c.with_tx(|end| end.tx.put_kernel(n as usize))),
        });
    }
}

//! Sends unread bytes in place of a writer that sleeps or computes and answers no doorbell. We are about to give the socket to
//! a program that reads from the kernel alone. So we send the unread bytes to ourselves through the writer's socket, if the
//! kernel gives it to us (pidfd_getfd(2)).

use crate::link;
use crate::record::Conn;
use core::sync::atomic::Ordering::Relaxed;
use sidestep_conn::Rx;
use sidestep_ring::side;
use sidestep_sys::{fd as fdsys, process, tcp};

/// Sends as much as possible. Only for a ring that we have left.
#[cold]
pub fn send_for_writer(c: &Conn, rx: &mut Rx, fd: i32) {
    let half = c.rx_half();
    if half.claim_sending() {
        if let Ok((from, at, len)) = rx.unsent(half)
            && len > 0
            && let Some(socket) = writers_socket(c, fd)
        {
            let sent = send(c, socket, at, len);
            half.set_sent_to(from.wrapping_add(sent as u64));
            fdsys::close(socket);
        }
        half.has_sent();
    }
}

fn send(c: &Conn, socket: i32, at: u64, len: usize) -> usize {
    let data = c.rx_data();
    let mut sent = 0;
    while sent < len {
        let (from, run) = data.run(at.wrapping_add(sent as u64));
        if fdsys::poll_now(socket, 0) & libc::POLLERR != 0 {
            break; // the writer's program must get that error, which a send would consume
        }
        let part = super::iov::one(from.cast_const().cast(), run.min(len - sent));
        // SAFETY: `run` bytes of the ring.
        let Ok(n) = (unsafe { tcp::send(socket, &part) }) else { break };
        sent += n;
    }
    sent
}

/// Our own descriptor of the connection's other end. None: the process or the descriptor of the writer is another one by now,
/// or we lack the permission.
fn writers_socket(c: &Conn, fd: i32) -> Option<i32> {
    let pid = link::get(c.link.load(Relaxed)).peer_pid();
    let number = side::number(&c.words().side[1 - c.my_side()]);
    let socket = process::descriptor_of(pid, number as i32).ok()?;
    if tcp::are_two_ends(fd, socket) {
        return Some(socket);
    }
    fdsys::close(socket);
    None
}

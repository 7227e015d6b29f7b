//! A packet(7) socket, which sends and receives whole frames.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

const ALL: u16 = (libc::ETH_P_ALL as u16).to_be();

/// Frames of one device.
pub struct PacketSocket(OwnedFd);

fn check(outcome: isize) -> usize {
    usize::try_from(outcome).unwrap_or_else(|_| panic!("packet socket: {}", io::Error::last_os_error()))
}

impl PacketSocket {
    /// At the device of this index in the thread's network namespace.
    pub fn new(device: u32) -> PacketSocket {
        // SAFETY: no memory is involved.
        let made = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, ALL.into()) };
        check(made as isize);
        // SAFETY: a new descriptor.
        let socket = PacketSocket(unsafe { OwnedFd::from_raw_fd(made) });
        // SAFETY: zeroes are an address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ALL;
        address.sll_ifindex = device as i32;
        let size = size_of_val(&address) as u32;
        // SAFETY: the address has this size and lives during the call.
        check(unsafe { libc::bind(made, std::ptr::from_ref(&address).cast(), size) } as isize);
        socket.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1);
        socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20);
        socket
    }

    fn set(&self, level: i32, name: i32, value: i32) {
        let size = size_of_val(&value) as u32;
        // SAFETY: the value has this size and lives during the call.
        let done =
            unsafe { libc::setsockopt(self.0.as_raw_fd(), level, name, std::ptr::from_ref(&value).cast(), size) };
        check(done as isize);
    }

    /// Only frames with this EtherType are received from now on.
    pub fn only(self, ethertype: u16) -> PacketSocket {
        // ldh [12]; jeq ethertype, 1, 0; ret 0; ret all
        let code = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let mut filter =
            [code(0x28, 0, 0, 12), code(0x15, 1, 0, ethertype.into()), code(6, 0, 0, 0), code(6, 0, 0, u32::MAX)];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        let (name, size) = (libc::SO_ATTACH_FILTER, size_of_val(&program) as u32);
        let value = std::ptr::from_ref(&program).cast();
        // SAFETY: the program and its filter have their sizes and live during the call.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, name, value, size) } as isize);
        while self.receive(Duration::ZERO).is_some() {}
        self
    }

    /// Sends one frame. A full queue is waited for.
    pub fn send(&self, frame: &[u8]) {
        assert!(self.try_send(frame), "packet socket: {}", io::Error::last_os_error());
    }

    /// Likewise; false: the device is down.
    pub fn try_send(&self, frame: &[u8]) -> bool {
        // SAFETY: the frame has this length and lives during the call.
        unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) == frame.len() as isize }
    }

    /// The next frame that the device has received, with its VLAN tag; None: none came in time.
    pub fn receive(&self, patience: Duration) -> Option<Vec<u8>> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap();
            let ready = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)).unwrap();
            if ready == 0 {
                return None;
            }
            if let Some(frame) = self.next() {
                return Some(frame);
            }
        }
    }

    /// None: a frame that the device has sent.
    fn next(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0u8; 1 << 16];
        let mut control = [0u64; 16];
        // SAFETY: zeroes are an address, and a message header.
        let (mut from, mut header): (libc::sockaddr_ll, libc::msghdr) = unsafe { std::mem::zeroed() };
        let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        header.msg_name = std::ptr::from_mut(&mut from).cast();
        header.msg_namelen = size_of_val(&from) as u32;
        (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
        (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
        // SAFETY: everything that the header refers to has the size that it says, and lives during the call.
        let length = unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut header, libc::MSG_DONTWAIT) };
        if length < 0 || from.sll_pkttype == libc::PACKET_OUTGOING {
            return None;
        }
        frame.truncate(length as usize);
        // SAFETY: the kernel has filled the header.
        let first = unsafe { libc::CMSG_FIRSTHDR(&header) };
        if !first.is_null() {
            // SAFETY: the only control message that was asked for is of this type.
            let data: libc::tpacket_auxdata =
                unsafe { libc::CMSG_DATA(first).cast::<libc::tpacket_auxdata>().read_unaligned() };
            if data.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                let tag = [data.tp_vlan_tpid.to_be_bytes(), data.tp_vlan_tci.to_be_bytes()].concat();
                frame.splice(12..12, tag);
            }
        }
        Some(frame)
    }
}

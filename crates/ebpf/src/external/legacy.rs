//! Chains of iptables-legacy, which nftables does not know.

use std::ffi::c_int;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

// linux/netfilter_ipv4/ip_tables.h; those of IPv6 have the same numbers and layouts.
const GET_INFO: c_int = 64;
const GET_ENTRIES: c_int = 65;
/// `struct ipt_getinfo`: a name, 12 numbers, then the number and the size of the entries.
const INFO_SIZE: usize = 84;
const SIZE_AT: usize = 80;
/// `struct ipt_get_entries`: a name and the size of the entries; these begin at a multiple of 8.
const NAME_SIZE: usize = 32;
const ENTRIES_AT: usize = 40;
/// Rules that grow meanwhile are read again.
const TRIES: usize = 5;
/// More than that is not read: kube-proxy writes about 100 bytes for a rule, and some rules for an endpoint.
const MOST_BYTES: usize = 256 << 20;

const FAMILIES: [(&str, &str, c_int); 2] = [
    ("/proc/thread-self/net/ip_tables_names", "0.0.0.0:0", libc::SOL_IP),
    ("/proc/thread-self/net/ip6_tables_names", "[::]:0", libc::SOL_IPV6),
];

/// Whether one of the tables, of either family, has this chain, in the calling thread's network namespace.
pub(super) fn has_chain(chain: &str) -> io::Result<bool> {
    // The name of a chain follows the revision of its entry's target, which is 0, and ends with a 0.
    let wanted = [&[0], chain.as_bytes(), &[0]].concat();
    for (names, any, level) in FAMILIES {
        // To ask for a table creates it: only those that exist are asked for. Without the module there is no file.
        let names = std::fs::read_to_string(names).unwrap_or_default();
        for table in names.lines() {
            let entries = entries(&UdpSocket::bind(any)?, level, table)?;
            if entries.windows(wanted.len()).any(|found| found == wanted) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn entries(socket: &UdpSocket, level: c_int, table: &str) -> io::Result<Vec<u8>> {
    for _ in 0..TRIES {
        let mut info = vec![0; INFO_SIZE];
        name(&mut info, table)?;
        get(socket, level, GET_INFO, &mut info)?;
        let size = info[SIZE_AT..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        if size as usize > MOST_BYTES {
            return Err(io::Error::other(format!("the table {table} of iptables has {size} bytes")));
        }
        let mut found = vec![0; ENTRIES_AT + size as usize];
        name(&mut found, table)?;
        found[NAME_SIZE..NAME_SIZE + 4].copy_from_slice(&size.to_ne_bytes());
        match get(socket, level, GET_ENTRIES, &mut found) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            done => return done.map(|()| found.split_off(ENTRIES_AT)),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

fn name(request: &mut [u8], table: &str) -> io::Result<()> {
    // The last byte stays 0.
    let place = request.get_mut(..table.len()).filter(|_| table.len() < NAME_SIZE);
    place.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(table.as_bytes());
    Ok(())
}

fn get(socket: &UdpSocket, level: c_int, option: c_int, value: &mut [u8]) -> io::Result<()> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which `value` has.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &mut length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

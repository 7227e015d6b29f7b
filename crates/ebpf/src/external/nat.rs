//! Makes the kernel track and translate packets. Its hooks for that exist only while a table of nftables asks for them. The table
//! here has no rule that does anything: entries of conntrack, which the program at the devices makes, say what is translated.

use crate::error::{Doing, Result};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use std::io;

const TABLE: &str = "sidestep";

// linux/netfilter.h, linux/netfilter/nf_tables.h
const INET: u8 = 1;
const NFTABLES: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = NFTABLES << 8;
const GET_TABLE: u16 = NFTABLES << 8 | 1;
const DELETE_TABLE: u16 = NFTABLES << 8 | 2;
const NEW_CHAIN: u16 = NFTABLES << 8 | 3;
const GET_CHAIN: u16 = NFTABLES << 8 | 4;
const TABLE_NAME: u16 = 1;
const CHAIN_NAME: u16 = 3;
const NEW_RULE: u16 = NFTABLES << 8 | 6;
const PREROUTING: u32 = 0;
const POSTROUTING: u32 = 4;
const DESTINATION_NAT: i32 = -100;
const SOURCE_NAT: i32 = 100;

// linux/netlink.h
const HEADER: usize = 16;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const DONE: u16 = 3;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;

/// Creates the table, or replaces it in one step.
pub(super) fn install() -> Result<()> {
    let table = text(1, TABLE);
    let batch = [
        message(BATCH_BEGIN, 0, &[]),
        message(NEW_TABLE, CREATE, &table),
        message(DELETE_TABLE, 0, &table),
        message(NEW_TABLE, CREATE, &table),
        message(NEW_CHAIN, CREATE, &chain("prerouting", PREROUTING, DESTINATION_NAT)),
        message(NEW_CHAIN, CREATE, &chain("postrouting", POSTROUTING, SOURCE_NAT)),
        message(NEW_RULE, CREATE | APPEND | ACK, &rule("prerouting")),
        message(BATCH_END, 0, &[]),
    ];
    ask(&batch.concat()).doing("make the kernel translate packets (nftables, table inet sidestep)")
}

/// Whether the table exists.
pub(super) fn is_installed() -> Result<bool> {
    match ask(&message(GET_TABLE, 0, &text(1, TABLE))) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).doing("ask nftables for the table inet sidestep"),
    }
}

/// A table that does not exist is no error.
pub(super) fn remove() -> Result<()> {
    let batch = [message(BATCH_BEGIN, 0, &[]), message(DELETE_TABLE, ACK, &text(1, TABLE)), message(BATCH_END, 0, &[])];
    match ask(&batch.concat()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.doing("remove the table inet sidestep of nftables"),
    }
}

/// The names of all tables.
pub(super) fn tables() -> io::Result<Vec<String>> {
    list(GET_TABLE, TABLE_NAME)
}

/// The names of all chains, iptables' included where it uses nftables.
pub(super) fn chains() -> io::Result<Vec<String>> {
    list(GET_CHAIN, CHAIN_NAME)
}

/// A chain whose hook translates.
fn chain(name: &str, hook: u32, priority: i32) -> Vec<u8> {
    let hook = [number(1, hook), number(2, priority as u32)].concat();
    [text(1, TABLE), text(3, name), nested(4, &hook), text(7, "nat")].concat()
}

/// `ct state`, without a comparison: it makes the kernel track connections, and lets every packet pass.
fn rule(chain: &str) -> Vec<u8> {
    const REGISTER: u32 = 8;
    const STATE: u32 = 0;
    let state = [number(1, REGISTER), number(2, STATE)].concat();
    let expression = [text(1, "ct"), nested(2, &state)].concat();
    [text(1, TABLE), text(2, chain), nested(4, &nested(1, &expression))].concat()
}

fn message(kind: u16, flags: u16, attributes: &[u8]) -> Vec<u8> {
    let is_frame = kind == BATCH_BEGIN || kind == BATCH_END;
    let (family, resource) = if is_frame { (0, NFTABLES) } else { (INET, 0) };
    let length = (HEADER + 4 + attributes.len()) as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | REQUEST).to_ne_bytes());
    bytes.extend([0; 8]); // sequence number, sender
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(attributes);
    bytes
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, value)
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

/// The kernel's first answer: an object, or an error, whose number is 0 in an acknowledgement.
fn ask(request: &[u8]) -> io::Result<()> {
    let (answer, _) = send(request)?.recv_from_full()?;
    match messages(&answer).next() {
        Some((ERROR, body)) => acknowledged(body),
        Some(_) => Ok(()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The value of this attribute in all objects of a kind, of all families.
fn list(kind: u16, attribute: u16) -> io::Result<Vec<String>> {
    let mut request = message(kind, DUMP, &[]);
    request[HEADER] = 0;
    let socket = send(&request)?;
    let mut names = Vec::new();
    loop {
        let (answer, _) = socket.recv_from_full()?;
        for (kind, body) in messages(&answer) {
            match kind {
                DONE => return Ok(names),
                ERROR => return acknowledged(body).map(|()| names),
                _ => names.extend(text_in(body.get(4..).unwrap_or_default(), attribute)),
            }
        }
    }
}

fn send(request: &[u8]) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(request, 0)?;
    Ok(socket)
}

fn acknowledged(body: &[u8]) -> io::Result<()> {
    match body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Kind and body of each message.
fn messages(datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*rest.get(4..)?.first_chunk()?);
        let body = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// The text of an attribute, without the 0 at its end.
fn text_in(attributes: &[u8], wanted: u16) -> Option<String> {
    let mut rest = attributes;
    loop {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(4..length)?;
        if kind == wanted {
            return Some(String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned());
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

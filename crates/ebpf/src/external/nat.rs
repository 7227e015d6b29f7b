//! Makes the kernel track, translate and refuse packets. Its hooks for that exist only while a table of nftables asks for them.
//! Entries of conntrack, which the program at the devices makes, say what is translated; its mark says what is refused.

use crate::error::{Doing, Result};
use crate::layout::REFUSED_MARK;
use sidestep_netlink::netfilter::{ask, attribute, batch, list, message, nested, number, text};
use std::io;

const TABLE: &str = "sidestep";

// linux/netfilter.h, linux/netfilter/nf_tables.h
const INET: u8 = 1;
const NFTABLES: u16 = 10;
const NEW_TABLE: u16 = NFTABLES << 8;
const GET_TABLE: u16 = NFTABLES << 8 | 1;
const DELETE_TABLE: u16 = NFTABLES << 8 | 2;
const NEW_CHAIN: u16 = NFTABLES << 8 | 3;
const GET_CHAIN: u16 = NFTABLES << 8 | 4;
const NEW_RULE: u16 = NFTABLES << 8 | 6;
const TABLE_NAME: u16 = 1;
const CHAIN_NAME: u16 = 3;
const PREROUTING: u32 = 0;
const FORWARD: u32 = 2;
const POSTROUTING: u32 = 4;
/// After fragments are put together, and before connection tracking.
const RAW: i32 = -300;
const FILTER: i32 = 0;
const DESTINATION_NAT: i32 = -100;
const SOURCE_NAT: i32 = 100;
const REGISTER: u32 = 8;

// linux/netlink.h
const ACK: u16 = 4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// Creates the table, or replaces it in one step.
pub(super) fn install() -> Result<()> {
    let table = text(1, TABLE);
    let new = |kind, flags, attributes: &[u8]| message(kind, CREATE | flags, INET, attributes);
    let messages = [
        new(NEW_TABLE, 0, &table),
        message(DELETE_TABLE, 0, INET, &table),
        new(NEW_TABLE, 0, &table),
        new(NEW_CHAIN, 0, &chain("refuse", "filter", PREROUTING, RAW)),
        new(NEW_CHAIN, 0, &chain("prerouting", "nat", PREROUTING, DESTINATION_NAT)),
        new(NEW_CHAIN, 0, &chain("postrouting", "nat", POSTROUTING, SOURCE_NAT)),
        new(NEW_CHAIN, 0, &chain("forward", "filter", FORWARD, FILTER)),
        new(NEW_RULE, APPEND, &rule("forward", &[connection_state(), is(INVALID), drop_packet()])),
        new(NEW_RULE, APPEND, &rule("refuse", &[mark(), is(REFUSED_MARK), port_unreachable()])),
        new(NEW_RULE, APPEND | ACK, &rule("prerouting", &[connection_state()])),
    ];
    ask(&batch(NFTABLES, &messages)).doing("make the kernel translate packets (nftables, table inet sidestep)")
}

/// Whether the table exists.
pub(super) fn is_installed() -> Result<bool> {
    match ask(&message(GET_TABLE, 0, INET, &text(1, TABLE))) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).doing("ask nftables for the table inet sidestep"),
    }
}

/// A table that does not exist is no error.
pub(super) fn remove() -> Result<()> {
    match ask(&batch(NFTABLES, &[message(DELETE_TABLE, ACK, INET, &text(1, TABLE))])) {
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

/// A chain at a hook.
fn chain(name: &str, kind: &str, hook: u32, priority: i32) -> Vec<u8> {
    let hook = [number(1, hook), number(2, priority as u32)].concat();
    [text(1, TABLE), text(3, name), nested(4, &hook), text(7, kind)].concat()
}

fn rule(chain: &str, expressions: &[Vec<u8>]) -> Vec<u8> {
    let expressions: Vec<u8> = expressions.iter().flat_map(|one| nested(1, one)).collect();
    [text(1, TABLE), text(2, chain), nested(4, &expressions)].concat()
}

fn expression(name: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    [text(1, name), nested(2, &attributes.concat())].concat()
}

/// `ct state`, without a comparison: it makes the kernel track connections, and lets every packet pass.
fn connection_state() -> Vec<u8> {
    const STATE: u32 = 0;
    expression("ct", &[number(1, REGISTER), number(2, STATE)])
}

/// The state of packets that conntrack does not take for part of a connection: those are not translated either. A client that
/// gets one from the backend's own address would reset its connection.
const INVALID: u32 = 1;

/// `drop`
fn drop_packet() -> Vec<u8> {
    const VERDICT: u32 = 0;
    const DROP: u32 = 0;
    let verdict = nested(2, &number(1, DROP));
    expression("immediate", &[number(1, VERDICT), nested(2, &verdict)])
}

/// `meta mark`
fn mark() -> Vec<u8> {
    const MARK: u32 = 3;
    expression("meta", &[number(1, REGISTER), number(2, MARK)])
}

/// Ends the rule if the register has another value.
fn is(value: u32) -> Vec<u8> {
    const EQUAL: u32 = 0;
    // Registers hold numbers in the machine's own order.
    let value = attribute(1, &value.to_ne_bytes());
    expression("cmp", &[number(1, REGISTER), number(2, EQUAL), nested(3, &value)])
}

/// `reject with icmpx port-unreachable`, of either family. The packet is dropped, also if the kernel's limits allow no answer.
fn port_unreachable() -> Vec<u8> {
    const ICMPX: u32 = 2;
    const PORT: u8 = 1;
    expression("reject", &[number(1, ICMPX), attribute(2, &[PORT])])
}

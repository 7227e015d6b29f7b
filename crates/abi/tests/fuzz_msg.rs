//! The fuzz target `msg`, briefly and always alike.
#![cfg(not(loom))]

#[path = "../../../fuzz/bodies/msg.rs"]
mod msg;
#[path = "../../../fuzz/bodies/repeat.rs"]
mod repeat;

use sidestep_abi::msg::LEN;

#[test]
fn any_bytes() {
    repeat::repeat(200_000, 2 * LEN, msg::run);
}

#[test]
fn any_kind_and_reason() {
    for code in 0..=u16::MAX {
        let mut record = [0; LEN];
        record[0..2].copy_from_slice(&code.to_le_bytes());
        record[16..18].copy_from_slice(&code.to_le_bytes());
        msg::run(&record);
    }
}

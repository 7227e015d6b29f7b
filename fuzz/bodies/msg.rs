//! Any bytes as a control message.

use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, LEN, Msg};

pub fn run(data: &[u8]) {
    let Some(msg) = Msg::from_bytes(data) else {
        assert_ne!(data.len(), LEN, "every record of the right length is read");
        return;
    };
    assert_eq!(msg.to_bytes(), data, "nothing is lost");
    let kind = msg.kind();
    assert_eq!(kind, Kind::from_code(msg.kind));
    assert!(kind.is_none_or(|k| k as u32 == msg.kind), "a kind is its number");
    let reason = Reason::from_code(msg.arg as u8);
    assert!(reason.is_none_or(|r| r as u8 == msg.arg as u8 && !r.name().is_empty()));
}

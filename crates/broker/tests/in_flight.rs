//! The kernel limits how many descriptors of one user are in flight, and takes no more of a broker that has neither CAP_SYS_RESOURCE nor
//! CAP_SYS_ADMIN, whoever has sent the others. Needs root.

use crate::common::{FakeMember, connect, receive};
use crate::process::Daemon;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType};
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::wire::{self, Incoming};
use std::io::IoSlice;
use std::mem::MaybeUninit;

/// The broker's limit of open files, which is its limit of descriptors in flight, too.
const FILES: u64 = 256;
/// The kernel takes at most this many descriptors with one record (SCM_MAX_FD).
const MOST: usize = 253;

/// More descriptors of this user in flight than [`FILES`], until this is dropped.
struct Flood(Vec<(OwnedFd, OwnedFd)>);

impl Flood {
    fn new() -> Flood {
        let null = std::fs::File::open("/dev/null").expect("open");
        let pairs = (0..2).map(|_| {
            let kind = SocketType::SEQPACKET;
            let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair");
            let all = [null.as_fd(); MOST];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&all)));
            let sent = rustix::net::sendmsg(&pair.0, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL);
            sent.expect("in flight");
            pair
        });
        Flood(pairs.collect())
    }
}

#[test]
fn who_has_many_descriptors_in_flight_cuts_nobody_off() {
    let broker = Daemon::limited_by(&["setpriv", "--bounding-set=-sys_resource,-sys_admin"], &[], Some(FILES));
    let flood = Flood::new();
    assert!(flood.0.len() * MOST > FILES as usize);
    let member = connect(&broker.address);
    wire::send(member.as_fd(), &Msg { arg: 4096, ..Msg::new(Kind::Hello) }, None).expect("hello");
    // An answer without a descriptor, to what was sent later.
    let other = connect(&broker.address);
    wire::send(other.as_fd(), &Msg::new(Kind::Stay), None).expect("stay");
    assert_eq!(receive(&other).expect("an answer").0.kind(), Some(Kind::Done));
    assert!(matches!(wire::receive(member.as_fd()), Incoming::Empty), "its page cannot be sent, and it is not cut off");
    drop(flood);
    let (welcome, page) = receive(&member).expect("it is not cut off");
    assert_eq!((welcome.kind(), page.is_some()), (Some(Kind::Welcome), true));
}

/// The chart's way: CAP_SYS_ADMIN is lowered, and used where the kernel refuses.
#[test]
fn a_broker_that_may_exceed_limits_is_not_concerned() {
    let in_a_container = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let without = [&in_a_container[..], &["setpriv", "--bounding-set=-sys_resource"]].concat();
    let broker = Daemon::limited_by(&without, &["--host-cgroups"], Some(FILES));
    let _flood = Flood::new();
    let _member = FakeMember::join(&broker.address, 4096);
}

//! The status, however much there is to say.

use crate::common::driven::{Driven, connection};
use crate::common::{TestBroker, tcp_pair, wait_for};
use rustix::fd::AsFd;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::status::Status;
use sidestep_broker::wire::{self, Incoming};

const MORE: usize = Status::MOST + 5;

#[test]
fn a_long_status_lists_some_and_counts_all() {
    sidestep_broker::server::raise_fd_limit();
    let broker = TestBroker::start();
    let members: Vec<_> = (0..MORE).map(|_| broker.join()).collect();
    let streams: Vec<_> = (0..MORE).map(|_| tcp_pair("127.0.0.1")).collect();
    streams.iter().zip(0..).for_each(|((client, _), number)| members[0].offer(number, client));
    members[0].expect_silence();
    let status = broker.status();
    assert_eq!((status.processes.len(), status.counted().processes), (Status::MOST, MORE as u64));
    assert_eq!((status.waiting.len(), status.waiting_offers), (Status::MOST, MORE as u64));

    streams.iter().zip(0..).for_each(|((_, server), number)| members[1].offer(number, server));
    let status = wait_for("all are connected", || {
        Some(broker.status()).filter(|status| status.counted().connections == MORE as u64)
    });
    assert_eq!(status.connections.len(), Status::MOST);
    assert_eq!(status.counted().links, status.links.len() as u64);
    let memory = status.links.iter().map(|link| link.memory_bytes).sum::<u64>();
    assert_eq!(status.counted().link_memory_bytes, memory);
    let by = status.counted().directions;
    assert_eq!(by.kernel + by.ring + by.stack, 2 * MORE as u64);
}

/// Each answer is a file in the broker's memory until the operator reads it.
#[test]
fn questions_that_come_together_have_one_answer() {
    const ASKED: usize = 10;
    let mut driven = Driven::new();
    let (ours, operator) = connection();
    let read = ours.try_clone().expect("a copy");
    driven.broker.operator_connected(ours);
    driven.broker.settle();
    let send = |msg| wire::send(operator.as_fd(), &msg, None).expect("send");
    (0..ASKED).for_each(|_| send(Msg::new(Kind::Status)));
    wait_for("the receiver reads them", || (rustix::io::ioctl_fionread(&read) == Ok(0)).then_some(()));
    // The answer to this has no file. The broker reads it last.
    send(Msg::new(Kind::Attach));
    let mut answers = 0;
    while driven.record(&operator).fd.is_some() {
        answers += 1;
    }
    while let Incoming::Record(record) = wire::receive(operator.as_fd()) {
        answers += usize::from(record.fd.is_some());
    }
    // The receiver may have passed the last one on a moment later.
    assert!((1..=3).contains(&answers), "{answers} answers to {ASKED} questions");
}

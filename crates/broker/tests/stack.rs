//! The stack: a member that has joined by the operator's socket, and is shown offers without another end on this host.

use crate::common::users::{CAROL, as_user};
use crate::common::{FakeMember, TestBroker, tcp_pair, wait_for};
use rustix::net::sockopt;
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::domain::Key;
use sidestep_testkit::Namespace;
use std::net::{TcpListener, TcpStream};

fn stack(broker: &TestBroker) -> FakeMember {
    FakeMember::join_by(broker.operator().into_socket(), 1 << 20)
}

/// A namespace, and both ends of a connection there whose addresses are no loopback addresses.
fn far_pair() -> (Namespace, TcpStream, TcpStream) {
    let (namespace, mut pairs) = far_pairs(1);
    let (near, far) = pairs.remove(0);
    (namespace, near, far)
}

/// So many such connections.
fn far_pairs(count: usize) -> (Namespace, Vec<(TcpStream, TcpStream)>) {
    let namespace = Namespace::fresh();
    namespace.ip("addr add 192.0.2.1/32 dev lo");
    let pairs = namespace.run(|| {
        let listener = TcpListener::bind("192.0.2.1:0").expect("bind");
        let pair = |_| {
            let near = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
            (near, listener.accept().expect("accept").0)
        };
        (0..count).map(pair).collect()
    });
    (namespace, pairs)
}

fn question(stack: &FakeMember, of: &TcpStream) -> u64 {
    let (msg, socket) = stack.expect(Kind::Foreign);
    let cookie = |socket: &dyn std::os::fd::AsFd| sockopt::socket_cookie(socket.as_fd()).expect("cookie");
    assert_eq!(cookie(&socket.expect("the socket is attached")), cookie(of));
    msg.arg
}

fn answer(stack: &FakeMember, number: u64, declined: Option<Reason>) {
    let arg2 = declined.map_or(0, |reason| reason as u64);
    stack.send(Msg { arg: number, arg2, ..Msg::new(Kind::Carry) }, None);
}

#[test]
fn who_joins_by_the_members_socket_is_no_stack() {
    let broker = TestBroker::start();
    let (_namespace, near, _far) = far_pair();
    let (pretender, honest) = (broker.join(), broker.join());
    honest.offer(1, &near);
    honest.expect_silence();
    pretender.expect_silence();
    answer(&pretender, 0, None);
    pretender.expect_hangup();
    honest.expect_silence();
}

#[test]
fn the_stack_and_the_program_get_a_slot() {
    let broker = TestBroker::start();
    let (_namespace, near, _far) = far_pair();
    let (stack, program) = (stack(&broker), broker.join());
    program.offer(7, &near);
    let number = question(&stack, &near);
    answer(&stack, number, None);
    let (seen_by_stack, seen_by_program) = (stack.expect(Kind::Link).0, program.expect(Kind::Link).0);
    assert_eq!((seen_by_stack.place, seen_by_program.place), (0, 1), "only the program's peer is the stack");
    assert_eq!(seen_by_program.arg, 1 << 20, "the stack's rings hold the kernel's window");
    assert_eq!(stack.expect_slot(number).slot, program.expect_slot(7).slot);
    answer(&stack, number, None);
    stack.expect_refused(number, Reason::Short);
}

/// The stack maps the rings of all programs, and uses memory for what they do not read.
#[test]
fn no_program_makes_the_stacks_rings_larger() {
    let broker = TestBroker::start();
    let (_namespace, near, _far) = far_pair();
    let (stack, program) = (stack(&broker), FakeMember::join(&broker.address, 16 << 20));
    program.offer(1, &near);
    answer(&stack, question(&stack, &near), None);
    assert_eq!([&stack, &program].map(|member| member.expect(Kind::Link).0.arg), [1 << 20; 2]);
}

#[test]
fn an_offer_that_waits_is_made_again_when_a_stack_joins() {
    let broker = TestBroker::start();
    let (_namespace, near, _far) = far_pair();
    let program = broker.join();
    program.offer(3, &near);
    program.expect_silence();
    let stack = stack(&broker);
    assert_eq!(program.expect(Kind::Again).0.offer, 3);
    program.offer(3, &near);
    answer(&stack, question(&stack, &near), None);
    program.expect(Kind::Link);
    program.expect_slot(3);
}

#[test]
fn an_offer_that_the_stack_declines_waits_for_an_end_on_this_host() {
    let broker = TestBroker::start();
    let (_namespace, near, far) = far_pair();
    let (stack, program) = (stack(&broker), broker.join());
    program.offer(1, &near);
    answer(&stack, question(&stack, &near), Some(Reason::KernelOnly));
    stack.expect_silence();
    let waiting = broker.status().waiting;
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].declined.as_deref(), Some("kernel-only"));
    assert_eq!(waiting[0].local, near.local_addr().expect("address").to_string());
    program.offer(2, &far);
    let first = program.expect(Kind::Link).0;
    assert_eq!(first.place, 0);
}

#[test]
fn connections_of_the_loopback_are_not_shown() {
    let broker = TestBroker::start();
    let (near, _far) = tcp_pair("127.0.0.1");
    let (stack, program) = (stack(&broker), broker.join());
    program.offer(1, &near);
    program.expect_silence();
    stack.expect_silence();
}

#[test]
fn an_offer_that_is_gone_by_the_time_of_the_answer_is_refused() {
    let broker = TestBroker::start();
    let (_namespace, near, _far) = far_pair();
    let (stack, program) = (stack(&broker), broker.join());
    program.offer(1, &near);
    let number = question(&stack, &near);
    program.send(Msg { offer: 1, ..Msg::new(Kind::Withdraw) }, None);
    program.expect_silence();
    answer(&stack, number, None);
    stack.expect_refused(number, Reason::Short);
}

/// Most questions that one domain leaves open: two thirds of all.
const MOST: usize = 2731;

#[test]
fn a_domain_whose_questions_stay_open_leaves_some_to_others() {
    let broker = TestBroker::start();
    let (_namespace, mut pairs) = far_pairs(MOST + 50);
    let (others, _) = pairs.pop().expect("a pair");
    let stack = stack(&broker);
    let asked = || Key::of(&stack.expect(Kind::Foreign).0);
    let (greedy, again) = (broker.join(), broker.join());
    for (number, (near, _)) in (0..).zip(&pairs) {
        let member = if number % 2 == 0 { &greedy } else { &again };
        member.offer(number, near);
    }
    greedy.expect_silence();
    again.expect_silence();
    let domain = asked();
    assert_ne!(domain, Key::default(), "the stack hears which domain");
    (2..MOST).for_each(|_| assert_eq!(asked(), domain));
    drop((greedy, again));
    for _ in 0..5 {
        leaves_and_joins(&broker, &pairs[..50]);
    }
    let other = as_user(CAROL, || broker.join());
    as_user(CAROL, || other.offer(1, &others));
    let more = std::iter::repeat_with(asked).take_while(|one| *one == domain).count();
    assert!(more <= 1, "{more} more questions of one domain");
}

/// A domain whose members have all left has one member for a moment, which offers these sockets.
fn leaves_and_joins(broker: &TestBroker, pairs: &[(TcpStream, TcpStream)]) {
    wait_for("the domain has left, and the stack stays", || (broker.status().processes.len() == 1).then_some(()));
    let member = broker.join();
    (0..).zip(pairs).for_each(|(number, (near, _))| member.offer(number, near));
    member.expect_silence();
}

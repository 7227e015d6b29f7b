//! The model of the kernel's TCP beside the kernel: the same calls on two real sockets have the same results.
#![cfg(not(loom))]

#[path = "../../../fuzz/bodies/pair_kernel.rs"]
mod pair_kernel;

use pair_kernel::{Error, Events, Kernel, Received, Sent};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
enum Call {
    Send(usize),
    Receive(usize),
    Peek,
    Shut,
    ShutRead,
    ShutBoth,
    Linger,
    Close,
}

/// Which side calls what.
fn call() -> impl Strategy<Value = (usize, Call)> {
    use Call::*;
    let rare = prop::sample::select(vec![Peek, Shut, ShutRead, ShutBoth, Linger, Close]);
    (0..2usize, prop_oneof![(1..20usize).prop_map(Send), (1..20usize).prop_map(Receive), rare])
}

struct Sockets([Option<OwnedFd>; 2]);

impl Sockets {
    fn new() -> Sockets {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connect");
        client.set_nodelay(true).expect("TCP_NODELAY");
        let (server, _) = listener.accept().expect("accept");
        server.set_nodelay(true).expect("TCP_NODELAY");
        Sockets([Some(client.into()), Some(server.into())])
    }

    fn send(&self, side: usize, n: usize) -> Sent {
        match send(self.get(side), &vec![0; n], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(n) => Sent::Some(n),
            Err(Errno::AGAIN) => Sent::Full,
            Err(e) => Sent::Fails(error(e)),
        }
    }

    fn receive(&self, side: usize, max: usize, flags: RecvFlags) -> Received {
        let mut bytes = vec![0; max];
        match recv(self.get(side), &mut bytes[..], flags | RecvFlags::DONTWAIT) {
            Ok((0, _)) => Received::End,
            Ok((n, _)) => Received::Bytes(vec![0; n]),
            Err(Errno::AGAIN) => Received::Nothing,
            Err(e) => Received::Fails(error(e)),
        }
    }

    fn get(&self, side: usize) -> &OwnedFd {
        self.0[side].as_ref().expect("an open socket")
    }

    /// Number of bytes to read, and events.
    fn state(&self, side: usize) -> (usize, Events) {
        let mut list = [PollFd::from_borrowed_fd(self.get(side).as_fd(), PollFlags::RDHUP)];
        poll(&mut list, Some(&Timespec::default())).expect("poll");
        let says = |flag| list[0].revents().contains(flag);
        let events = Events { error: says(PollFlags::ERR), hang_up: says(PollFlags::HUP), end: says(PollFlags::RDHUP) };
        (ioctl_fionread(self.get(side)).expect("FIONREAD") as usize, events)
    }
}

fn error(e: Errno) -> Error {
    match e {
        Errno::CONNRESET => Error::Reset,
        Errno::PIPE => Error::Pipe,
        other => panic!("{other}"),
    }
}

/// One call on both. Calls that no program of the model makes are left out: those on a closed socket, and writes after the end.
fn make(side: usize, call: Call, model: &mut Kernel, sockets: &mut Sockets) {
    let Some(socket) = &sockets.0[side] else { return };
    match call {
        Call::Send(n) if model.may_send(side) => assert_eq!(sockets.send(side, n), model.send(side, &vec![0; n])),
        Call::Send(_) => {}
        Call::Receive(n) => assert_eq!(sockets.receive(side, n, RecvFlags::empty()), model.receive(side, n)),
        Call::Peek => assert_eq!(sockets.receive(side, 1, RecvFlags::PEEK), model.peek(side, 1)),
        Call::Shut => {
            let _ = shutdown(socket, Shutdown::Write); // an error says that the connection is over
            model.shut(side, false);
        }
        Call::ShutRead => {
            let _ = shutdown(socket, Shutdown::Read);
            model.shut_read(side);
        }
        Call::ShutBoth => {
            let _ = shutdown(socket, Shutdown::Both);
            model.shut(side, true);
        }
        Call::Linger => {
            sockopt::set_socket_linger(socket, Some(Duration::ZERO)).expect("SO_LINGER");
            model.set_lingers(side);
        }
        Call::Close => {
            sockets.0[side] = None;
            model.close(side);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_model_is_the_kernel(calls in prop::collection::vec(call(), 1..30)) {
        let (mut model, mut sockets) = (Kernel::new(1 << 14, 1 << 14), Sockets::new());
        for (i, (side, call)) in calls.iter().enumerate() {
            make(*side, *call, &mut model, &mut sockets);
            for side in 0..2 {
                let deadline = Instant::now() + Duration::from_secs(5);
                let told = (model.queued(side), model.poll(side));
                while sockets.0[side].is_some() && sockets.state(side) != told {
                    let real = sockets.state(side);
                    assert!(Instant::now() < deadline, "side {side} after {:?}: {real:?}, {told:?}", &calls[..=i]);
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        }
    }
}

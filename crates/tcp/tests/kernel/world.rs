//! A connection between a program of the kernel's TCP and the fast path.

use crate::handshake::{self, Offer};
use crate::tap::Tap;
use crate::tcp_end::{Did, End, Wire, link};
use sidestep_tcp::{Back, Fields, Flags, Headers, Seq, Tuple};
use sidestep_testkit::Namespace;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Instant;

pub const V4: [&str; 2] = ["192.0.2.1:7000", "192.0.2.2:40000"];
pub const V6: [&str; 2] = ["[2001:db8::1]:7000", "[2001:db8::2]:40000"];

/// The fast path's side.
pub struct World {
    pub end: End,
    tap: Tap,
    tuple: Tuple,
    start: Instant,
    /// Frames that have left.
    pub sent: u64,
    /// Frames that have arrived.
    pub received: u64,
    /// The frame of these that is lost.
    pub lost_to_kernel: Option<u64>,
    pub lost_from_kernel: Option<u64>,
}

const SET_UP: &[&str] = &[
    "link set tap0 address 02:00:00:00:00:01 up",
    "address add 192.0.2.1/24 dev tap0",
    "address add 2001:db8::1/64 dev tap0 nodad",
    "neighbour add 192.0.2.2 lladdr 02:00:00:00:00:00 dev tap0 nud permanent",
    "neighbour add 2001:db8::2 lladdr 02:00:00:00:00:00 dev tap0 nud permanent",
];

/// Runs `program` with the kernel's socket, and the numbers of the first bytes that it writes and reads. Runs `work` with the
/// other end.
pub fn connect(
    addresses: [&str; 2],
    offer: Offer,
    program: impl FnOnce(TcpStream, Seq, Seq) + Send + 'static,
    work: impl FnOnce(&mut World) + Send,
) {
    let namespace = Namespace::fresh();
    namespace.run(|| {
        let mut tap = Tap::new("tap0");
        SET_UP.iter().for_each(|words| namespace.ip(words));
        let [theirs, ours]: [SocketAddr; 2] = addresses.map(|address| address.parse().expect("an address"));
        let listener = TcpListener::bind(theirs).expect("a listener");
        let (numbers, receiver) = channel();
        let kernel = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            let (writes, reads) = receiver.recv().expect("the numbers of the first bytes");
            program(stream, writes, reads);
        });
        let tuple = Tuple::new(ours, theirs);
        let saved = handshake::open(&mut tap, tuple, offer);
        numbers.send((saved.progress.rcv_nxt, saved.progress.snd_nxt)).expect("the kernel's program");
        let end = End::new(0, saved, tuple, 0);
        let start = Instant::now();
        let (lost_to_kernel, lost_from_kernel) = (None, None);
        let mut world = World { end, tap, tuple, start, sent: 0, received: 0, lost_to_kernel, lost_from_kernel };
        work(&mut world);
        kernel.join().expect("the kernel's program");
    });
}

impl World {
    fn now(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Reads what has come, sends what is due, and waits for what comes at most until the next deadline.
    pub fn turn(&mut self, is_busy: bool) -> Option<Back> {
        // What has arrived counts before the time that has passed: this thread may have slept for long.
        if let Some(back) = self.receive() {
            return Some(back);
        }
        let mut wire = Wire::new();
        let did = self.end.send(self.now(), &mut wire);
        for frame in wire {
            self.sent += 1;
            if Some(self.sent) != self.lost_to_kernel {
                self.tap.send(&frame);
            }
        }
        if let Did::Returned(back) = did {
            return Some(back);
        }
        let rest = self.end.connection.deadline().map_or(1_000_000, |due| due.saturating_sub(self.now()));
        self.tap.wait(if is_busy { 0 } else { rest });
        None
    }

    fn receive(&mut self) -> Option<Back> {
        while let Some(frame) = self.tap.receive() {
            self.received += 1;
            let is_lost = Some(self.received) == self.lost_from_kernel;
            if let Did::Returned(back) = if is_lost { Did::Well } else { self.end.receive(&frame, self.now()) } {
                return Some(back);
            }
        }
        self.end.read(u32::MAX);
        None
    }

    /// Resets the connection, so that the kernel's program ends.
    pub fn reset(&mut self) {
        let progress = self.end.store.progress();
        let flags = Flags::RST.with(Flags::ACK);
        // The kernel may have received less than was sent, and takes a reset with exactly its number only.
        for lost in [progress.snd_nxt, progress.snd_una] {
            let fields = Fields { seq: lost, ack: progress.rcv_nxt, flags, window: 0, timestamps: None };
            let mut frame = [0; 100];
            let headers = Headers::new(self.tuple, &link(0)).expect("one family");
            let len = headers.write(&mut frame, &fields, [&[], &[]]).expect("room");
            self.tap.send(&frame[..len]);
        }
    }
}

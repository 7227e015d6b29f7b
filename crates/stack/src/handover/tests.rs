//! A ring between two ends, and a socket between two network namespaces: what the worker hands over, and what a keeper and a standby
//! hand over if they are killed one after the other before any of their calls.

#[path = "../../../repair/tests/common/mod.rs"]
pub(crate) mod common;

use super::*;
use crate::cause::Cause;
use crate::ledger::Ledger;
use crate::mapping::Mapping;
use crate::memory;
use crate::record::{Ends, Origin};
use common::failing::{die_before, run};
use common::{Expected, USUAL, Wire, finish, no_error, raw};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use sidestep_abi::link::{Header, link_size};
use sidestep_abi::msg::{Kind, Msg};
use sidestep_conn::{Read, Rx, Tx, Write};
use sidestep_ring::{header, slot};
use sidestep_tcp::Seq;
use std::net::TcpStream;

pub(crate) const RING: usize = 1 << 16;
/// Of the link.
pub(crate) const SLOT: usize = 0;
pub(crate) const PROGRAM: u32 = 0;
pub(crate) const STACK: u32 = 1;
/// Bytes that each end has sent by kernel before the connection was taken.
pub(crate) const BEFORE: usize = 700;
/// Bytes that the stack has received, no more than a kernel sends at once, and of these, what the program has read.
const RECEIVED: usize = 12_000;
const READ: usize = 6001;
/// Bytes of the program that the stack has not sent: more than the socket's send buffer takes.
const WRITTEN: usize = 40_000;
const SEND_BUFFER: i32 = 5000;

/// Whether the program has left the ring that it reads. The kernel gets what it has not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    Kernel,
    Ring,
}

/// A connection that a worker has carried.
struct Scene {
    reads: Reads,
    wire: Wire,
    near: TcpStream,
    far: TcpStream,
    to_near: Expected,
    to_far: Expected,
    memory: OwnedFd,
    ledger: OwnedFd,
    end: ProgramsEnd,
    buffers: Buffers,
}

/// The program's end of the ring.
pub(crate) struct ProgramsEnd {
    pub(crate) link: Link,
    rx: Rx,
    pub(crate) tx: Tx,
}

pub(crate) fn memory_of_a_link() -> OwnedFd {
    let file = memfd_create("link", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memfd");
    ftruncate(&file, link_size(RING) as u64).expect("its size");
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL).expect("seals");
    let mapping = Mapping::new(&file, link_size(RING)).expect("a mapping");
    // SAFETY: a header consists of atomics and padding.
    header::init(unsafe { mapping.at::<Header>(0) }, sidestep_abi::VERSION, RING as u32);
    slot::reset(link(&file, STACK).slot(SLOT));
    file
}

pub(crate) fn link(memory: &OwnedFd, side: u32) -> Link {
    try_link(memory, side).expect("a link")
}

fn try_link(memory: &OwnedFd, side: u32) -> rustix::io::Result<Link> {
    Link::new(memory, &Msg { side, arg: RING as u64, ..Msg::new(Kind::Link) })
}

pub(crate) fn copy(descriptor: impl AsFd) -> OwnedFd {
    rustix::io::dup(descriptor).expect("dup")
}

impl ProgramsEnd {
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let half = self.link.outgoing(SLOT);
        assert_eq!(self.tx.next(half, bytes.len()), Ok(Write::Ring(RING)));
        memory::put(self.link.outgoing_data(SLOT), self.tx.at(), bytes);
        self.tx.put_ring(half, bytes.len()).expect("they are published");
    }

    fn read(&mut self, len: usize) -> Vec<u8> {
        let (half, mut bytes) = (self.link.incoming(SLOT), Vec::new());
        assert!(matches!(self.rx.next(half), Ok(Read::Ring(there)) if there >= len));
        memory::get(self.link.incoming_data(SLOT), self.rx.at(half), len, &mut bytes);
        self.rx.took_ring(half, len).expect("they are read");
        bytes
    }

    /// The program sends what the kernel had no room for.
    pub(crate) fn send_rest(&mut self, mut socket: &TcpStream) {
        let half = self.link.outgoing(SLOT);
        loop {
            self.tx.heed_deputy(half).expect("no violation");
            self.tx.poll(half).expect("no violation");
            let Write::Unread { at, len } = self.tx.next(half, 1).expect("no violation") else { return };
            let mut bytes = Vec::new();
            memory::get(self.link.outgoing_data(SLOT), at, len, &mut bytes);
            let sent = std::io::Write::write(&mut socket, &bytes).expect("the peer reads");
            self.tx.sent_unread(half, sent);
        }
    }

    /// Both directions are the kernel's, and the ring has no byte left for it.
    fn must_be_on_the_kernel(&mut self) {
        let (incoming, outgoing) = (self.link.incoming(SLOT), self.link.outgoing(SLOT));
        let read = self.rx.next(incoming);
        assert!(matches!(read, Ok(Read::Kernel(_))), "{read:?}");
        self.tx.poll(outgoing).expect("no violation");
        assert_eq!(self.tx.next(outgoing, 1), Ok(Write::Kernel));
    }
}

impl Scene {
    /// Returns the worker's end, too, with what it gives to the kernel.
    fn new(reads: Reads) -> (Scene, Program, Record, Kept, Progress) {
        let wire = Wire::shaped(&USUAL);
        let (near, far) = wire.connect(&USUAL);
        raw::set_int(&near, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER);
        let (mut to_near, mut to_far) = (Expected::new(1), Expected::new(2));
        assert_eq!((to_near.write(&far, BEFORE), to_far.write(&near, BEFORE)), (BEFORE, BEFORE));
        common::until("the bytes arrive", || raw::unread(&near) == BEFORE as u64 && raw::unacknowledged(&near) == 0);
        assert_eq!(to_near.read(&near, &mut [0; BEFORE]), Some(BEFORE));

        let memory = memory_of_a_link();
        let (mut program, end) = in_rings(&memory, &near);
        let ledger = Arc::new(Ledger::create(1).expect("a ledger"));
        let buffers = Buffers::read(&near).expect("sizes");
        wire.close();
        let (record, kept, progress) = carried(&mut program, &ledger, &near);
        let ledger = copy(ledger.file());
        let mut scene = Scene { reads, wire, near, far, to_near, to_far, memory, ledger, end, buffers };
        let progress = scene.use_rings(&mut program, &record, progress);
        (scene, program, record, kept, progress)
    }

    /// The stack receives what no kernel has seen; the program reads a part, and writes.
    fn use_rings(&mut self, program: &mut Program, record: &Record, progress: Progress) -> Progress {
        let bytes = self.to_near.bytes(self.to_near.written, RECEIVED);
        assert_eq!(self.to_near.write(&self.far, RECEIVED), RECEIVED);
        program.put(0, &bytes);
        let progress = Progress { rcv_nxt: progress.rcv_nxt.plus(RECEIVED as u32), ..progress };
        record.publish(&progress);
        record.set_published(program.publish(RECEIVED).expect("there is room"));
        let read = self.end.read(READ);
        assert!(read == bytes[..READ]);
        self.to_near.read += READ as u64;
        if self.reads == Reads::Kernel {
            self.end.rx.freeze(self.end.link.incoming(SLOT)).expect("it leaves");
        }
        self.end.write(&self.to_far.bytes(self.to_far.written, WRITTEN));
        self.to_far.written += WRITTEN as u64;
        progress
    }

    /// Kernel and program go on where the stack has ended, with every byte.
    fn check(mut self, unread: Unread) {
        let rest = RECEIVED - READ;
        match (self.reads, unread) {
            (Reads::Ring, Unread::InRing) => {
                // As for a program that takes over. The kernel has none of these bytes.
                self.end.rx.freeze(self.end.link.incoming(SLOT)).expect("no violation");
                assert!(self.end.read(rest) == self.to_near.bytes(self.to_near.read, rest));
                self.to_near.read += rest as u64;
                assert_eq!(raw::unread(&self.near), 0);
            }
            _ => assert_eq!(raw::unread(&self.near), rest as u64),
        }
        self.end.must_be_on_the_kernel();
        assert_eq!(slot::parked(self.end.link.slot(SLOT)) % 2, 0, "the program may use its socket");
        assert_eq!(raw::unacknowledged(&self.near), WRITTEN as u64);
        assert_eq!(Buffers::read(&self.near), Ok(self.buffers));
        no_error(&self.near);
        self.wire.open();
        finish(self.near, self.far, &mut self.to_far, &mut self.to_near, 1000);
    }
}

/// Both ends have begun a stretch of ring.
pub(crate) fn in_rings(memory: &OwnedFd, near: &TcpStream) -> (Program, ProgramsEnd) {
    let mut program = Program::new(Arc::new(link(memory, STACK)), SLOT);
    let link = link(memory, PROGRAM);
    let (mut rx, mut tx) = (Rx::native(BEFORE as u64), Tx::native(BEFORE as u64));
    let (incoming, outgoing) = (link.incoming(SLOT), link.outgoing(SLOT));
    incoming.set_ready();
    assert!(matches!(program.begin(near.as_fd()), Ok(true)));
    assert_eq!(rx.next(incoming), Ok(Read::Ring(0)));
    assert!(tx.may_begin(outgoing) && tx.begin(outgoing) == Ok(true));
    assert!(matches!(program.has_entered(near.as_fd()), Ok(true)));
    (program, ProgramsEnd { link, rx, tx })
}

/// The connection leaves the kernel, as [`crate::carried`] takes it.
fn carried(program: &mut Program, ledger: &Arc<Ledger>, near: &TcpStream) -> (Record, Kept, Progress) {
    let record = Record::new(ledger.clone(), 0);
    let saved = sidestep_repair::prepare(near).expect("it can be taken");
    record.assign(&Ends { local: near.local_addr().expect("local"), remote: near.peer_addr().expect("remote") });
    record.begin_taking(&saved);
    program.set_parked(true);
    let state = sidestep_repair::take_prepared(near, saved).expect("take").state;
    let (from_program, to_program) = program.positions();
    let kept = Kept {
        state,
        from_program: Origin { position: from_program, seq: state.snd_una },
        to_program: Origin { position: to_program, seq: state.rcv_nxt },
        queued: 0,
    };
    let progress = Progress {
        snd_una: Seq(state.snd_una),
        snd_nxt: Seq(state.snd_nxt),
        snd_edge: Seq(state.snd_una).plus(state.window.snd_wnd),
        snd_wl1: Seq(state.window.snd_wl1),
        max_window: state.window.max_window,
        rcv_nxt: Seq(state.rcv_nxt),
        rcv_edge: Seq(state.window.rcv_wup).plus(state.window.rcv_wnd),
        rcv_acked: Seq(state.window.rcv_wup),
        ..Progress::default()
    };
    record.carry(&kept, &progress, &[]);
    (record, kept, progress)
}

#[test]
fn the_worker_hands_over_both_queues() {
    for reads in [Reads::Kernel, Reads::Ring] {
        for unread in [Unread::ToKernel, Unread::InRing] {
            let (scene, mut program, record, kept, progress) = Scene::new(reads);
            let (program, record, queued) = (&mut program, &record, Vec::new());
            let mut handover = Handover { program, record, kept, progress, queued, unread, found: None };
            handover.run(scene.near.as_fd()).expect("hand over");
            scene.check(unread);
        }
    }
}

/// The program's shutdown(2) has waited in vain for its socket: a device was down.
#[test]
fn an_end_that_is_left_to_the_stack_comes_after_all_bytes() {
    for is_killed in [false, true] {
        let (mut scene, mut program, record, kept, progress) = Scene::new(Reads::Ring);
        let half = scene.end.link.outgoing(SLOT);
        scene.end.tx.end(half).expect("no violation");
        scene.end.tx.leave_in_ring(half).expect("no violation");
        half.set_fin();
        if is_killed {
            restored(copy(&scene.ledger), &scene.memory, &scene.near);
        } else {
            let (program, record, queued, unread) = (&mut program, &record, Vec::new(), Unread::InRing);
            let mut handover = Handover { program, record, kept, progress, queued, unread, found: None };
            handover.run(scene.near.as_fd()).expect("hand over");
        }
        scene.wire.open();
        let written = scene.to_far.written;
        scene.to_far.read_to_end(&scene.far, written);
        no_error(&scene.near);
    }
}

#[test]
fn whoever_is_killed_before_any_call_the_next_one_hands_over() {
    for reads in [Reads::Kernel, Reads::Ring] {
        let deaths = deaths_until_it_is_done(reads);
        assert!(deaths > 25, "only {deaths} calls");
    }
}

/// Returns the number of calls.
fn deaths_until_it_is_done(reads: Reads) -> usize {
    for deaths in 0.. {
        let (scene, ..) = Scene::new(reads);
        let (ledger, memory, socket) = (copy(&scene.ledger), copy(&scene.memory), copy(&scene.near));
        let has_died = die_before(deaths, move || restored(ledger, &memory, &socket));
        if has_died {
            restored(copy(&scene.ledger), &scene.memory, &scene.near);
        }
        scene.check(Unread::ToKernel);
        if !has_died {
            return deaths;
        }
    }
    unreachable!("finitely many calls")
}

/// The stack has carried more bytes than sequence numbers can tell apart. The peer has long had those of the kernel's queue.
#[test]
fn nothing_of_the_kernels_queue_is_sent_again_after_2_gib() {
    let (scene, _, record, kept, progress) = Scene::new(Reads::Ring);
    let (released, published) = (record.released(), record.published());
    let (carried, Origin { position, seq }) = ((1 << 31) + 5, kept.from_program);
    let (position, seq) = (position.wrapping_sub(carried), seq.wrapping_sub(carried as u32));
    let kept = Kept { from_program: Origin { position, seq }, queued: 3, ..kept };
    record.carry(&kept, &progress, b"old");
    record.set_released(released);
    record.set_published(published);
    restored(copy(&scene.ledger), &scene.memory, &scene.near);
    scene.check(Unread::ToKernel);
}

#[test]
fn what_the_kernel_has_no_room_for_is_the_programs_to_send() {
    let mut short = 0;
    for n in 0.. {
        let (mut scene, ..) = Scene::new(Reads::Ring);
        let (ledger, memory, socket) = (copy(&scene.ledger), copy(&scene.memory), copy(&scene.near));
        let (restored, calls) = run(
            |call| call >= n,
            move || {
                // These may be what fails.
                let (Ok(ledger), Ok(link)) = (Ledger::open(ledger), try_link(&memory, STACK)) else { return false };
                restore(&Record::new(Arc::new(ledger), 0), Arc::new(link), SLOT, socket.as_fd(), true).is_ok()
            },
        );
        if n >= calls {
            break;
        }
        if !restored || raw::unacknowledged(&scene.near) == WRITTEN as u64 {
            continue;
        }
        short += 1;
        scene.wire.open();
        std::thread::scope(|scope| {
            let (far, to_far) = (&scene.far, &mut scene.to_far);
            scope.spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while to_far.read < to_far.written {
                    to_far.read(far, &mut bytes).expect("more bytes");
                }
            });
            scene.end.send_rest(&scene.near);
        });
        scene.end.must_be_on_the_kernel();
        finish(scene.near, scene.far, &mut scene.to_far, &mut scene.to_near, 1000);
    }
    assert!(short > 0, "the kernel had room each time");
}

/// What a keeper, or a standby, does for the connection.
fn restored(ledger: OwnedFd, memory: &OwnedFd, socket: impl AsFd) {
    let record = Record::new(Arc::new(Ledger::open(ledger).expect("the ledger")), 0);
    restore(&record, Arc::new(link(memory, STACK)), SLOT, socket.as_fd(), true).expect("restore");
    assert_eq!(record.stage(), Stage::Free);
}

#[test]
fn a_program_that_is_killed_has_left_whoever_carries_its_connection() {
    let memory = memory_of_a_link();
    let program = Program::new(Arc::new(link(&memory, STACK)), SLOT);
    assert!(program.check_wish().is_ok());
    slot::set_released(link(&memory, STACK).slot(SLOT), PROGRAM as usize);
    assert!(matches!(program.check_wish(), Err(Cause::Left)));
}

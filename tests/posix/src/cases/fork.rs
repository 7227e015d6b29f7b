//! fork: one connection with two holders.

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link::{self, Listener};
use crate::peer::{Peer, Preload};
use crate::sys::cpu::sleep_ms;
use crate::sys::net::Family::V4;
use crate::sys::process::{Ended, exit_now, in_child};
use crate::sys::{fds, io, net};

pub const CASES: &[Case] = &[
    case("fork.child_exit_is_not_the_end", || child_leaves(|_| ())),
    case("fork.child_close_is_not_the_end", || child_leaves(|end| end.close())),
    case("fork.child_closes_by_closefrom", || child_leaves(|_| fds::closefrom(3))),
    case("fork.child_full_exit_is_not_the_end", child_full_exit),
    case("fork.killed_child_is_not_the_end", killed_child),
    case("fork.child_reads_then_parent", child_reads).reason("shared"),
    case("fork.child_writes_then_parent", child_writes),
    case("fork.unread_data_is_shared", unread_shared),
    case("fork.parent_closes_child_serves", child_serves),
    case("fork.parent_closes_while_the_peer_is_stopped", while_stopped),
    case("fork.server_forks_for_each_connection", fork_per_connection).may("the children hold the clients too"),
    case("fork.children_accept_from_one_listener", prefork),
    case("fork.child_shutdown_ends_it_for_all", child_shutdown),
    case("fork.child_of_a_child", grandchild),
    case("fork.parent_and_child_are_the_two_ends", talk_to_child).bulk(),
    case("fork.pair_is_inherited_whole", inherited_pair).bulk(),
    case("fork.more_children_than_places", more_than_places).reason("shared"),
    case("fork.more_programs_than_places", more_programs),
    case("fork.while_the_upgrade_is_under_way", during_upgrade)
        .may("two processes hold the socket while it is offered"),
    case("fork.before_the_first_byte", before_first_byte)
        .may("two processes hold the socket from before its first byte on"),
];

fn rounds(end: &mut End, peer: &mut Peer, n: u64) {
    peer.start("echo", &[n, 200]);
    for _ in 0..n {
        end.send(200);
        end.recv(200);
    }
    peer.finish();
}

fn child_leaves(how: fn(&End)) {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..3 {
        in_child(|| how(&end)).succeed();
        rounds(&mut end, &mut peer, 20);
    }
    end.close();
    assert_eq!(peer.call("ending", &[]), 0, "the last close is the end");
}

/// The child is forked after the first byte, perhaps before the parent knows its slot. It uses the connection after the parent
/// and its peer have exchanged more bytes.
fn during_upgrade() {
    const EXCHANGED: usize = 20 * 200;
    for _ in 0..8 {
        let (mut end, mut peer) = link::cold_client(V4, Preload::Kept);
        let (go, ready) = fds::pipe(0);
        peer.start("recv", &[1]);
        end.send(1);
        let child = in_child(|| {
            assert_eq!(io::read(go, &mut [0]), Ok(1));
            end.rx.skipped(EXCHANGED);
            end.tx.sent(EXCHANGED);
            end.recv(10);
            end.send(10);
        });
        peer.finish();
        rounds(&mut end, &mut peer, 20);
        peer.send(10);
        assert_eq!(io::write(ready, &[1]), Ok(1));
        peer.recv(10);
        end.rx.skipped(10);
        end.tx.sent(10);
        child.succeed();
        rounds(&mut end, &mut peer, 20);
        for fd in [go, ready] {
            fds::close(fd).expect("close the pipe");
        }
        end.close();
    }
}

/// The child runs exit handlers and destructors, including those of a preloaded library.
fn child_full_exit() {
    let (mut end, mut peer) = link::client(V4);
    for code in [0, 3] {
        let pid = in_child(|| std::process::exit(code));
        assert_eq!(pid.wait(), Ended::Exit(code));
        rounds(&mut end, &mut peer, 20);
    }
}

fn killed_child() {
    let (mut end, mut peer) = link::client(V4);
    let child = in_child(|| {
        loop {
            crate::sys::cpu::sleep_ms(1000);
        }
    });
    rounds(&mut end, &mut peer, 5);
    crate::sys::signal::send_to(child.pid, libc::SIGKILL);
    assert_eq!(child.wait(), Ended::Signal(libc::SIGKILL));
    rounds(&mut end, &mut peer, 20);
}

/// Parent and child read one stream in turns.
fn child_reads() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..5 {
        peer.send(3000);
        in_child(|| end.recv(1100)).succeed();
        end.rx.skipped(1100);
        end.recv(1900);
    }
    rounds(&mut end, &mut peer, 20);
}

fn child_writes() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..5 {
        peer.start("recv", &[3000]);
        in_child(|| end.send(1100)).succeed();
        end.tx.sent(1100);
        end.send(1900);
        peer.finish();
    }
    rounds(&mut end, &mut peer, 20);
}

/// Bytes were unread at the time of the fork; each of them goes to one of the two.
fn unread_shared() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(50_000);
    end.rx.await_bytes(50_000);
    in_child(|| {
        assert_eq!(fds::unread(end.fd()), 50_000);
        end.recv(20_000);
    })
    .succeed();
    end.rx.skipped(20_000);
    assert_eq!(fds::unread(end.fd()), 30_000);
    end.recv(30_000);
}

/// As in PostgreSQL: fork after accept, the parent closes, the child does all the work.
fn child_serves() {
    let (mut end, mut peer) = link::server(V4);
    let child = in_child(|| {
        for _ in 0..100 {
            end.recv(200);
            end.send(200);
        }
        end.rx.expect_eof();
    });
    end.close();
    peer.send(200);
    for _ in 0..99 {
        peer.recv(200);
        peer.send(200);
    }
    peer.recv(200);
    peer.close();
    child.succeed();
}

/// The parent leaves the connection to its child, with unread bytes, while the peer is stopped. When the peer continues, the
/// child gets them all.
fn while_stopped() {
    let (mut end, mut peer) = link::server(V4);
    peer.send(3000);
    peer.signal(libc::SIGSTOP);
    let child = in_child(|| {
        end.recv(3000);
        end.send(10);
    });
    end.close();
    // Longer than any wait for the peer.
    sleep_ms(2500);
    peer.signal(libc::SIGCONT);
    peer.recv(10);
    child.succeed();
}

/// The fork comes before the first byte, so the child's connection is upgraded in the child.
fn fork_per_connection() {
    let listener = Listener::new(V4);
    for _ in 0..5 {
        let client = link::connect(&listener.addr(), V4);
        let server = listener.accept();
        let child = in_child(|| {
            fds::close(client).expect("close");
            echo(&mut End::new(server, Side::Server));
        });
        fds::close(server).expect("close");
        talk(&mut End::new(client, Side::Client));
        child.succeed();
    }
}

fn echo(end: &mut End) {
    link::warm_answering(end);
    end.rx.expect_eof();
    end.close();
}

fn talk(end: &mut End) {
    link::warm_asking(end);
    end.close();
}

/// As nginx's workers do.
fn prefork() {
    let listener = Listener::new(V4);
    let workers: Vec<_> = (0..2)
        .map(|_| in_child(|| (0..3).for_each(|_| echo(&mut End::new(listener.accept(), Side::Server)))))
        .collect();
    for _ in 0..6 {
        talk(&mut End::new(link::connect(&listener.addr(), V4), Side::Client));
    }
    workers.into_iter().for_each(|w| w.succeed());
}

fn child_shutdown() {
    let (mut end, mut peer) = link::client(V4);
    in_child(|| assert_eq!(net::shutdown(end.fd(), libc::SHUT_WR), Ok(0))).succeed();
    assert_eq!(peer.call("ending", &[]), 0);
    assert_eq!(io::send(end.fd(), b"x", libc::MSG_NOSIGNAL), Err(crate::sys::errno::EPIPE));
    peer.send(1000);
    end.recv(1000);
}

fn grandchild() {
    let (mut end, mut peer) = link::client(V4);
    peer.start("recv", &[600]);
    in_child(|| {
        end.send(100);
        in_child(|| {
            end.send(200);
            in_child(|| {
                end.send(300);
                exit_now(0)
            })
            .succeed();
        })
        .succeed();
    })
    .succeed();
    end.tx.sent(600);
    peer.finish();
    rounds(&mut end, &mut peer, 20);
}

/// No exec between the two ends: the child has a copy of the library's state.
fn talk_to_child() {
    let listener = Listener::new(V4);
    let child = in_child(|| {
        let mut end = End::new(link::connect(&listener.addr(), V4), Side::Client);
        link::warm_asking(&mut end);
        crate::traffic::both_ways(&mut end, 2 << 20, 2 << 20, 20_000, 1);
    });
    let mut end = End::new(listener.accept(), Side::Server);
    link::warm_answering(&mut end);
    crate::traffic::both_ways(&mut end, 2 << 20, 2 << 20, 20_000, 2);
    child.succeed();
}

/// Upgraded while both ends were in one process, then each process keeps one of them.
fn inherited_pair() {
    let (mut a, mut b) = link::own_pair(V4);
    let child = in_child(|| {
        a.close();
        crate::traffic::both_ways(&mut b, 2 << 20, 2 << 20, 20_000, 1);
        b.rx.expect_eof();
    });
    b.close();
    crate::traffic::both_ways(&mut a, 2 << 20, 2 << 20, 20_000, 2);
    a.close();
    child.succeed();
}

/// Two holders from the start; the connection is warmed up while both live.
fn before_first_byte() {
    let (mut end, mut peer) = link::cold_client(V4, crate::peer::Preload::Kept);
    let (hold, held) = fds::pipe(libc::O_CLOEXEC);
    let child = in_child(|| {
        fds::close(held).expect("close");
        assert_eq!(io::read(hold, &mut [0]), Ok(0), "until the parent is done");
    });
    link::warm_up(&mut end, &mut peer);
    fds::close(held).expect("close");
    child.succeed();
    link::warm_up(&mut end, &mut peer);
}

/// More processes than a family has places.
const MANY: usize = 70;

/// The last children find no place. The connection serves them all the same, and later ones of the parent go by ring.
fn more_than_places() {
    let (mut end, mut peer) = link::client(V4);
    let (hold, held) = fds::pipe(libc::O_CLOEXEC);
    let sleeping = || {
        in_child(|| {
            fds::close(held).expect("close");
            assert_eq!(io::read(hold, &mut [0]), Ok(0), "until the parent is done");
        })
    };
    let children: Vec<_> = (0..MANY).map(|_| sleeping()).collect();
    peer.start("echo", &[1, 100]);
    in_child(|| {
        end.send(100);
        end.recv(100);
        let (mut a, mut b) = link::cold_pair_ends(V4, 1);
        a.send(100);
        b.recv(100);
    })
    .succeed();
    end.tx.sent(100);
    end.rx.skipped(100);
    peer.finish();
    rounds(&mut end, &mut peer, 20);
    fds::close(held).expect("close");
    children.into_iter().for_each(|child| child.succeed());
    end.close();
    assert_eq!(peer.call("ending", &[]), 0, "the last close is the end");
    let (mut a, mut b) = link::own_pair(V4);
    in_child(|| a.send(100)).succeed();
    b.recv(100);
}

/// Children that become other programs, and live on as those, hold nothing: the connection stays in its rings.
fn more_programs() {
    let (mut end, mut peer) = link::client(V4);
    let (hold, held) = fds::pipe(libc::O_CLOEXEC);
    let becoming = || {
        let (gone, there) = fds::pipe(libc::O_CLOEXEC);
        let child = in_child(|| {
            fds::dup2(hold, 0).expect("dup2");
            let (argv, envp) = ([c"cat".as_ptr(), std::ptr::null()], [std::ptr::null()]);
            // SAFETY: NUL-terminated strings in lists that end with null.
            unsafe { libc::execve(c"/bin/cat".as_ptr(), argv.as_ptr(), envp.as_ptr()) };
            exit_now(7)
        });
        fds::close(there).expect("close");
        assert_eq!(io::read(gone, &mut [0]), Ok(0), "exec closes the other end");
        fds::close(gone).expect("close");
        child
    };
    let children: Vec<_> = (0..MANY).map(|_| becoming()).collect();
    peer.start("echo", &[100, 1000]);
    for _ in 0..100 {
        end.send(1000);
        end.recv(1000);
    }
    peer.finish();
    fds::close(held).expect("close");
    children.into_iter().for_each(|child| child.succeed());
}

//! Every call that moves bytes, one case each: with all sizes, and alternating with plain calls, so that the order between
//! different calls is checked.

use crate::case::{Case, case};
use crate::link;
use crate::sys::io;
use crate::sys::net::Family::{V4, V6};
use crate::ways::{recv_way, send_way};

const SIZES: [usize; 7] = [1, 7, 64, 1000, 4096, 50_000, 200_000];
/// For calls that move one byte each.
const SMALL: [usize; 3] = [1, 7, 100];

macro_rules! send_cases {
    ($($sizes:ident: $($name:ident)*;)*) => { &[$($(
        case(concat!("calls.send_by_", stringify!($name)), || sends(stringify!($name), &$sizes)),
    )*)*] };
}

macro_rules! recv_cases {
    ($($sizes:ident: $($name:ident)*;)*) => { &[$($(
        case(concat!("calls.recv_by_", stringify!($name)), || receives(stringify!($name), &$sizes)),
    )*)*] };
}

pub const SENDS: &[Case] = send_cases! {
    SIZES: write writev send sendto sendmsg sendmmsg pwritev2 pwritev64v2 under_write under_send
        send_more send_dontwait syscall_write syscall_sendto sendfile sendfile64 splice tee vmsplice
        fwrite aio_write;
    SMALL: dprintf;
};

pub const RECEIVES: &[Case] = recv_cases! {
    SIZES: read readv recv recvfrom recvmsg recvmmsg preadv2 preadv64v2 under_read read_chk recv_chk
        recvfrom_chk recv_dontwait recvmsg_dontwait recvmmsg_dontwait peek_then_read syscall_read
        syscall_recvfrom splice tee aio_read;
    SMALL: fread;
};

fn sends(name: &str, sizes: &[usize]) {
    let (mut end, mut peer) = link::client(V4);
    for &size in sizes {
        peer.start("recv", &[2 * size as u64]);
        end.tx.send_by(size, send_way(name));
        end.tx.send_by(size, io::write);
        peer.finish();
    }
    answers(end, peer);
}

fn receives(name: &str, sizes: &[usize]) {
    let (mut end, mut peer) = link::server(V6);
    for &size in sizes {
        peer.start("send", &[2 * size as u64]);
        end.rx.recv_by(size, recv_way(name));
        end.rx.recv_by(size, io::read);
        peer.finish();
    }
    answers(end, peer);
}

/// Checks that the connection works in both directions, and ends regularly.
fn answers(mut end: crate::end::End, mut peer: crate::peer::Peer) {
    link::warm_up(&mut end, &mut peer);
    end.close();
    assert_eq!(peer.call("ending", &[]), 0);
}

//! TCP Fast Open: the first bytes travel with the SYN, and the connection is made by a call that sends.

use crate::node::Node;
use crate::sockets::{PATIENCE, at, fresh};
use rustix::net::{SocketType, connect};
use sidestep_mesh::address::Protocol::Tcp;
use sidestep_testkit::Pod;
use std::io::{self, Read, Write};
use std::mem::{size_of, size_of_val};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;

const VIP: &str = "10.96.0.1";
/// Flag in tcpi_options: data in the SYN was acknowledged.
const SYN_DATA: u8 = 32;
/// Offset of tcpi_options.
const OPTIONS: usize = 5;

fn set(socket: &impl AsRawFd, option: libc::c_int, value: libc::c_int) {
    let (length, place) = (size_of_val(&value) as libc::socklen_t, std::ptr::from_ref(&value).cast());
    // SAFETY: `value` is as long as said, and lives until the call returns.
    let outcome = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, option, place, length) };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}

/// Whether the peer took data from the SYN.
fn opened_fast(stream: &TcpStream) -> bool {
    let mut info = [0u8; 104];
    let mut length = info.len() as libc::socklen_t;
    let place = info.as_mut_ptr().cast();
    // SAFETY: `info` has room for `length` bytes.
    let outcome =
        unsafe { libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place, &mut length) };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
    info[OPTIONS] & SYN_DATA != 0
}

/// Serves so many connections; each gets back what it has sent.
fn server(pod: &Pod, connections: usize) -> JoinHandle<()> {
    let listener = pod.namespace.run(|| {
        std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3").unwrap();
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, 8080)).unwrap()
    });
    set(&listener, libc::TCP_FASTOPEN, 16);
    std::thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            let mut said = [0; 5];
            stream.read_exact(&mut said).unwrap();
            stream.write_all(&said).unwrap();
        }
    })
}

fn hears_itself(mut stream: TcpStream, to: SocketAddr) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), to);
    let mut said = [0; 5];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"hello");
    opened_fast(&stream)
}

/// connect() and the first send in one call.
fn by_sendto(to: SocketAddr) -> io::Result<bool> {
    let socket = fresh(SocketType::STREAM, false);
    let SocketAddr::V4(v4) = to else { panic!("{to}") };
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: v4.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
        sin_zero: [0; 8],
    };
    let (place, length) = (std::ptr::from_ref(&address).cast(), size_of::<libc::sockaddr_in>() as libc::socklen_t);
    let text = b"hello";
    // SAFETY: text and address are as long as said, and live until the call returns.
    let sent = unsafe {
        libc::sendto(socket.as_raw_fd(), text.as_ptr().cast(), text.len(), libc::MSG_FASTOPEN, place, length)
    };
    match sent {
        5 => Ok(hears_itself(socket.into(), to)),
        sent => Err(if sent < 0 { io::Error::last_os_error() } else { io::ErrorKind::WriteZero.into() }),
    }
}

/// connect() only stores the address; the first write does everything.
fn by_option(to: SocketAddr) -> io::Result<bool> {
    let socket = fresh(SocketType::STREAM, to.is_ipv6());
    set(&socket, libc::TCP_FASTOPEN_CONNECT, 1);
    connect(&socket, &to)?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(b"hello")?;
    Ok(hears_itself(stream, to))
}

#[test]
fn data_in_the_syn_goes_to_a_backend() {
    let mut node = Node::new();
    let (client, pod) = (node.testbed.pod(), node.testbed.pod());
    node.service("web", Tcp, VIP, 80, [(pod.v4, 8080)]);
    node.service("none", Tcp, "10.96.0.2", 80, []);
    let server = server(&pod, 5);
    let fast = client.namespace.run(|| {
        // The first connection requests the cookie that the others use.
        let fast = [by_sendto(at(VIP, 80)), by_sendto(at(VIP, 80)), by_option(at(VIP, 80)), by_option(at(VIP, 80))];
        for refused in [by_sendto(at("10.96.0.2", 80)), by_option(at("10.96.0.2", 80))] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        }
        fast.map(Result::unwrap)
    });
    assert_eq!(fast, [false, true, true, true]);
    let mapped = client.namespace.run(|| by_option(at(&format!("::ffff:{VIP}"), 80)).unwrap());
    assert!(mapped);
    server.join().unwrap();
    assert_eq!((node.counters("web").picks, node.open(pod.v4, 8080)), (5, 0));
}

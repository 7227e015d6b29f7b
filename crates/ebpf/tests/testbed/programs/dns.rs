//! A name server with a few names. For all other names it answers with its own address, so that clients learn which server
//! answered.

use rustix::net::{Shutdown, shutdown};
use sidestep_testkit::Pod;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;

const HEADER: usize = 12;
/// Types of records.
const A: u16 = 1;
const AAAA: u16 = 28;

#[derive(Clone)]
struct Zone {
    own: [IpAddr; 2],
    hosts: Vec<(String, IpAddr)>,
}

pub struct Server {
    datagrams: Arc<UdpSocket>,
    streams: Arc<TcpListener>,
    threads: Vec<JoinHandle<()>>,
}

/// Serves UDP and TCP in both families.
pub fn server(pod: &Pod, port: u16, hosts: &[(&str, &str)]) -> Server {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    let sockets = pod.namespace.run(|| (UdpSocket::bind(any).unwrap(), TcpListener::bind(any).unwrap()));
    let (datagrams, streams) = (Arc::new(sockets.0), Arc::new(sockets.1));
    let hosts = hosts.iter().map(|(name, ip)| (name.to_string(), ip.parse().unwrap())).collect();
    let zone = Zone { own: [pod.v4, pod.v6], hosts };
    let (one, other) = ((datagrams.clone(), zone.clone()), (streams.clone(), zone));
    let threads = vec![
        std::thread::spawn(move || serve_datagrams(&one.0, &one.1)),
        std::thread::spawn(move || serve_streams(&other.0, &other.1)),
    ];
    Server { datagrams, streams, threads }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = shutdown(&self.datagrams, Shutdown::Both);
        let _ = shutdown(&self.streams, Shutdown::Both);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn serve_datagrams(socket: &UdpSocket, zone: &Zone) {
    let mut query = [0; 1500];
    while let Ok((length @ 1.., from)) = socket.recv_from(&mut query) {
        let _ = socket.send_to(&zone.reply(&query[..length]), from);
    }
}

fn serve_streams(listener: &TcpListener, zone: &Zone) {
    while let Ok((stream, _)) = listener.accept() {
        // The client may have gone.
        let _ = serve_stream(stream, zone);
    }
}

/// Over TCP each message has its length in front.
fn serve_stream(mut stream: TcpStream, zone: &Zone) -> std::io::Result<()> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut query = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut query)?;
    let reply = zone.reply(&query);
    stream.write_all(&[&(reply.len() as u16).to_be_bytes(), &reply[..]].concat())
}

impl Zone {
    /// The question, and one record if there is one of that type.
    fn reply(&self, query: &[u8]) -> Vec<u8> {
        let (name, end) = name(query);
        let kind = u16::from_be_bytes([query[end], query[end + 1]]);
        let known: Vec<IpAddr> = self.hosts.iter().filter(|(host, _)| *host == name).map(|(_, ip)| *ip).collect();
        let addresses = if known.is_empty() { self.own.to_vec() } else { known };
        let record = addresses.iter().find_map(|ip| match (ip, kind) {
            (IpAddr::V4(v4), A) => Some(v4.octets().to_vec()),
            (IpAddr::V6(v6), AAAA) => Some(v6.octets().to_vec()),
            _ => None,
        });
        let mut reply = query[..2].to_vec();
        reply.extend([0x85, 0x80, 0, 1, 0, u8::from(record.is_some()), 0, 0, 0, 0]); // an answer with authority
        reply.extend(&query[HEADER..end + 4]);
        if let Some(data) = record {
            reply.extend([0xc0, HEADER as u8]); // the question's name
            reply.extend(kind.to_be_bytes());
            reply.extend([0, 1, 0, 0, 0, 0, 0, data.len() as u8]); // IN, not to be kept
            reply.extend(data);
        }
        reply
    }
}

/// The name in the question, and where it ends.
fn name(query: &[u8]) -> (String, usize) {
    let (mut labels, mut at) = (Vec::new(), HEADER);
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).to_lowercase());
        at = end;
    }
    (labels.join("."), at + 1)
}

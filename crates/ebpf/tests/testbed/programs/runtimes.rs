//! Language runtimes. Some use IPv6 sockets with mapped addresses for everything, and compare the source of an answer with the
//! destination of the question.

use crate::node::{Backend, Node, backend};
use crate::scratch::Scratch;
use crate::sockets::{Echo, echo};
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_testkit::Pod;
use sidestep_testkit::program::command;
use std::process::Command;

/// The address of both Services. Over TCP the server sends its address; over UDP it answers with it.
const VIP: &str = "10.96.0.1";

struct Place {
    node: Node,
    client: Pod,
    server: Pod,
    _servers: (Backend, Echo),
}

impl Place {
    fn new() -> Place {
        let mut node = Node::new();
        let (client, server) = (node.testbed.pod(), node.testbed.pod());
        let servers = (backend(&server, 8080), echo(&server, 8080));
        node.service("tcp", Tcp, VIP, 80, [(server.v4, 8080)]);
        node.service("udp", Udp, VIP, 80, [(server.v4, 8080)]);
        Place { node, client, server, _servers: servers }
    }

    /// Checks what the program prints; `WHO` stands for the server's address.
    fn says(&self, program: &mut Command, wanted: &[&str]) {
        let said = self.client.namespace.finish(program);
        let who = self.server.v4.to_string();
        let wanted: Vec<String> = wanted.iter().map(|line| line.replace("WHO", &who).replace("VIP", VIP)).collect();
        assert_eq!(said.lines().collect::<Vec<_>>(), wanted);
        assert_eq!((self.node.open(self.server.v4, 8080), self.node.reason("flow-not-kept")), (0, 0));
    }
}

#[test]
fn java_hears_the_service() {
    let place = Place::new();
    let scratch = Scratch::new();
    let source = scratch.file("Client.java", JAVA);
    // These options make the JVM start faster.
    let options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];
    place.says(
        command("java").args(options).arg(source),
        &[
            "Socket /VIP:80 WHO",
            "SocketChannel /VIP:80 WHO",
            "DatagramSocket connected /VIP:80 from /VIP:80 WHO",
            "DatagramSocket from /VIP:80 WHO",
            "DatagramChannel connected /VIP:80 from /VIP:80 WHO",
            "DatagramChannel from /VIP:80 WHO",
        ],
    );
}

const JAVA: &str = r#"
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;

public class Client {
    static final InetSocketAddress VIP = new InetSocketAddress("10.96.0.1", 80);

    static String text(ByteBuffer b) { b.flip(); return new String(b.array(), 0, b.limit()); }

    static DatagramSocket datagrams() throws Exception {
        DatagramSocket socket = new DatagramSocket();
        socket.setSoTimeout(30000);
        return socket;
    }

    static String ask(DatagramSocket socket, DatagramPacket question) throws Exception {
        socket.send(question);
        DatagramPacket answer = new DatagramPacket(new byte[64], 64);
        socket.receive(answer);
        return "from " + answer.getSocketAddress() + " " + new String(answer.getData(), 0, answer.getLength());
    }

    public static void main(String[] arguments) throws Exception {
        byte[] question = {'?'};
        try (Socket socket = new Socket(VIP.getAddress(), VIP.getPort())) {
            String said = new String(socket.getInputStream().readAllBytes());
            System.out.println("Socket " + socket.getRemoteSocketAddress() + " " + said);
        }
        try (SocketChannel channel = SocketChannel.open(VIP)) {
            ByteBuffer buffer = ByteBuffer.allocate(64);
            while (channel.read(buffer) >= 0) { }
            System.out.println("SocketChannel " + channel.getRemoteAddress() + " " + text(buffer));
        }
        try (DatagramSocket socket = datagrams()) {
            socket.connect(VIP);
            String answer = ask(socket, new DatagramPacket(question, 1));
            System.out.println("DatagramSocket connected " + socket.getRemoteSocketAddress() + " " + answer);
        }
        try (DatagramSocket socket = datagrams()) {
            System.out.println("DatagramSocket " + ask(socket, new DatagramPacket(question, 1, VIP)));
        }
        try (DatagramChannel channel = DatagramChannel.open()) {
            channel.connect(VIP);
            channel.write(ByteBuffer.wrap(question));
            ByteBuffer buffer = ByteBuffer.allocate(64);
            SocketAddress from = channel.receive(buffer);
            String answer = "from " + from + " " + text(buffer);
            System.out.println("DatagramChannel connected " + channel.getRemoteAddress() + " " + answer);
        }
        try (DatagramChannel channel = DatagramChannel.open()) {
            channel.send(ByteBuffer.wrap(question), VIP);
            ByteBuffer buffer = ByteBuffer.allocate(64);
            SocketAddress from = channel.receive(buffer);
            System.out.println("DatagramChannel from " + from + " " + text(buffer));
        }
    }
}
"#;

#[test]
fn node_hears_the_service() {
    let place = Place::new();
    place.says(
        command("node").args(["-e", NODE]),
        &[
            "tcp VIP 80 WHO",
            "tcp ::ffff:VIP 80 WHO",
            "udp4 from VIP 80 WHO",
            "udp6 from ::ffff:VIP 80 WHO",
            "udp4 connected VIP 80 from VIP 80 WHO",
            "udp6 connected ::ffff:VIP 80 from ::ffff:VIP 80 WHO",
        ],
    );
}

const NODE: &str = r#"
const net = require('net'), dgram = require('dgram');
const vip = '10.96.0.1', mapped = '::ffff:' + vip;

const tcp = (host) => new Promise((done, failed) => {
  const socket = net.connect(80, host);
  let said = '';
  socket.on('error', failed).on('data', (data) => { said += data; });
  socket.on('connect', () => { socket.peer = socket.remoteAddress + ' ' + socket.remotePort; });
  socket.on('end', () => { socket.end(); done('tcp ' + socket.peer + ' ' + said); });
});

const udp = (kind, host, connected) => new Promise((done, failed) => {
  const socket = dgram.createSocket(kind).on('error', failed);
  socket.on('message', (said, from) => {
    const peer = connected ? 'connected ' + socket.remoteAddress().address + ' ' + socket.remoteAddress().port + ' ' : '';
    socket.close();
    done(kind + ' ' + peer + 'from ' + from.address + ' ' + from.port + ' ' + said);
  });
  if (connected) socket.connect(80, host, (error) => error ? failed(error) : socket.send('?'));
  else socket.send('?', 80, host);
});

(async () => {
  for (const host of [vip, mapped]) console.log(await tcp(host));
  for (const connected of [false, true])
    for (const [kind, host] of [['udp4', vip], ['udp6', mapped]]) console.log(await udp(kind, host, connected));
})();
"#;

/// A static program, into which no library can be preloaded.
#[test]
fn go_hears_the_service() {
    let place = Place::new();
    let scratch = Scratch::new();
    let (source, program) = (scratch.file("client.go", GO), scratch.path().join("client"));
    // The build cache is kept for the next run, and for tests/apps.
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/../go-cache");
    let mut build = command("go");
    build.env("GOCACHE", cache).env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local").env("GOFLAGS", "");
    build.arg("build").arg("-o").arg(&program).arg(source);
    let built = build.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    place.says(
        &mut Command::new(program),
        &[
            "tcp VIP:80 WHO",
            "tcp VIP:80 WHO",
            "udp VIP:80 from VIP:80 WHO",
            "udp from [::ffff:VIP]:80 WHO",
            "udp4 from VIP:80 WHO",
        ],
    );
}

const GO: &str = r#"
package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

const vip = "10.96.0.1:80"

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func stream(to string) {
	connection := must(net.Dial("tcp", to))
	fmt.Println("tcp", connection.RemoteAddr(), string(must(io.ReadAll(connection))))
	connection.Close()
}

func hear(network string, socket *net.UDPConn) {
	socket.SetReadDeadline(time.Now().Add(30 * time.Second))
	text := make([]byte, 64)
	length, from, err := socket.ReadFromUDPAddrPort(text)
	if err != nil {
		panic(err)
	}
	fmt.Println(network, "from", from, string(text[:length]))
	socket.Close()
}

func main() {
	stream(vip)
	stream("[::ffff:10.96.0.1]:80")
	connected := must(net.Dial("udp", vip)).(*net.UDPConn)
	must(connected.Write([]byte("?")))
	hear(fmt.Sprint("udp ", connected.RemoteAddr()), connected)
	for _, network := range []string{"udp", "udp4"} {
		socket := must(net.ListenUDP(network, nil))
		must(socket.WriteToUDPAddrPort([]byte("?"), netip.MustParseAddrPort(vip)))
		hear(network, socket)
	}
}
"#;

#[test]
fn asyncio_hears_the_service() {
    let place = Place::new();
    place.says(
        command("python3").args(["-c", PYTHON]),
        &[
            "stream ('VIP', 80) WHO",
            "stream ('::ffff:VIP', 80, 0, 0) WHO",
            "datagram None from ('VIP', 80) WHO",
            "datagram ('VIP', 80) from ('VIP', 80) WHO",
            "datagram ('::ffff:VIP', 80, 0, 0) from ('::ffff:VIP', 80, 0, 0) WHO",
        ],
    );
}

const PYTHON: &str = r#"
import asyncio

VIP = '10.96.0.1'

async def stream(host):
    reader, writer = await asyncio.open_connection(host, 80)
    said = (await reader.read()).decode()
    print('stream', writer.get_extra_info('peername'), said)
    writer.close()

class Question(asyncio.DatagramProtocol):
    def __init__(self, answer):
        self.answer = answer

    def datagram_received(self, data, address):
        self.answer.set_result((data.decode(), address))

    def error_received(self, error):
        self.answer.set_exception(error)

async def datagram(to, **where):
    loop = asyncio.get_running_loop()
    answer = loop.create_future()
    transport, _ = await loop.create_datagram_endpoint(lambda: Question(answer), **where)
    transport.sendto(b'?', to)
    said, address = await asyncio.wait_for(answer, 30)
    print('datagram', transport.get_extra_info('peername'), 'from', address, said)
    transport.close()

async def main():
    await stream(VIP)
    await stream('::ffff:' + VIP)
    await datagram((VIP, 80), local_addr=('0.0.0.0', 0))
    await datagram(None, remote_addr=(VIP, 80))
    await datagram(None, remote_addr=('::ffff:' + VIP, 80))

asyncio.run(main())
"#;

// HTTP pipelining into back-pressure: a client asks and asks without reading a byte, until the server is stuck; then it
// reads, slowly at first, and every answer must be there, in order.
'use strict';
const http = require('node:http');
const { Reader, announce, check, connect, content, each, pause, request, run, sum, until } = require('./common');

const CONNECTIONS = 4;
const REQUESTS = 3000;
const PIECE = 10_007;
const SLOW_READS = 40;

const sizeOf = (number) => (number * 113) % PIECE;

function server() {
  const stuck = new Map();  // the sockets that may be
  announce(http.createServer((asked, answer) => {
    const [, seed, number] = asked.url.split('/');
    if (seed === 'stuck') {
      answer.end(JSON.stringify([...stuck.values()].filter((socket) => socket.writableLength > 0).length));
      return;
    }
    stuck.set(seed, asked.socket);
    const body = content(Number(seed) * REQUESTS + Number(number), sizeOf(Number(number)));
    answer.sendDate = false;
    answer.writeHead(200, { 'content-length': body.length, 'x-number': number });
    answer.end(body);
  }));
}

async function ask(socket, seed) {
  const filler = 'x'.repeat(500);
  for (let number = 0; number < REQUESTS; number++) {
    const text = `GET /${seed}/${number} HTTP/1.1\r\nHost: ${filler}\r\n\r\n`;
    if (!socket.write(text)) await new Promise((resolve) => { socket.once('drain', resolve); });
  }
}

async function readAnswers(reader, socket, seed) {
  let bytes = 0;
  for (let number = 0; number < REQUESTS; number++) {
    check(await reader.line() === 'HTTP/1.1 200 OK\r', `${seed}: no answer ${number}`);
    const headers = {};
    for (let line; (line = await reader.line()) !== '\r';) {
      const [name, value] = line.trim().split(': ');
      headers[name] = value;
    }
    const body = await reader.exactly(Number(headers['content-length']));
    check(Number(headers['x-number']) === number, `${seed}: answer ${headers['x-number']} instead of ${number}`);
    check(body.equals(content(seed * REQUESTS + number, sizeOf(number))), `${seed}: answer ${number} is wrong`);
    bytes += body.length;
    if (number < SLOW_READS) {
      socket.pause();
      await pause(2);
      socket.resume();
    }
  }
  return bytes;
}

async function client(port) {
  const sockets = await each(CONNECTIONS, CONNECTIONS, () => connect(port));
  const asking = sockets.map((socket, seed) => ask(socket, seed));
  const stuck = async () => JSON.parse((await request(port, { path: '/stuck' })).body) === CONNECTIONS;
  await until(stuck, 'the server to be stuck on all connections');
  const bytes = await Promise.all(sockets.map((socket, seed) => readAnswers(new Reader(socket), socket, seed)));
  await Promise.all(asking);
  for (const socket of sockets) socket.end();
  return { connections: CONNECTIONS, bytes: sum(bytes) };
}

run(server, client);

// Thousands of short connections, most of which are over before an upgrade would be worth it; both sides close first.
'use strict';
const net = require('node:net');
const { Reader, announce, check, connect, content, each, fail, run, sum, until } = require('./common');

const CONNECTIONS = 4000;
const WIDTH = 32;

// Answers "number size\n" with that content, and ends at once if the number is even.
async function serve(socket) {
  const reader = new Reader(socket);
  const [number, size] = (await reader.line()).split(' ').map(Number);
  const data = content(number, size);
  if (number % 2) {
    socket.write(data);
    await reader.rest();
    socket.end();
  } else {
    socket.end(data);
  }
}

function server() {
  announce(net.createServer({ allowHalfOpen: true }, (socket) => { serve(socket).catch(fail); }));
}

async function talk(port, number) {
  const socket = await connect(port);
  const reader = new Reader(socket);
  const size = number % 100 ? (number * 31) % 2000 : 200_000;
  socket.write(`${number} ${size}\n`);
  const data = content(number, size);
  if (number % 2) {
    check((await reader.exactly(size)).equals(data), `connection ${number}: wrong bytes`);
    socket.end();
    check((await reader.rest()).length === 0, `connection ${number}: too many bytes`);
  } else {
    check((await reader.rest()).equals(data), `connection ${number}: wrong bytes before the end`);
    socket.end();
  }
  await reader.until(() => socket.closed);
  return size;
}

async function client(port) {
  const bytes = await each(CONNECTIONS, WIDTH, (number) => talk(port, number));
  return { connections: CONNECTIONS, bytes: sum(bytes) };
}

run(server, client);

// Ends of one direction only: the other one goes on for as long as its own side wants.
'use strict';
const net = require('node:net');
const { Reader, announce, check, connect, content, each, fail, run, sum, writeAll } = require('./common');

const CONNECTIONS = 24;
const BYTES = 200_000;

// After the echoes, one word says who ends first. `c`: the client, and all data follows its end. `s`: the server, and
// the client's data follows that end. `b`: both at once, when each has sent its data. `a`: the server, and the client's
// own end follows without data.
async function serve(socket, number) {
  const reader = new Reader(socket);
  for (let trip = 0; trip < 30; trip++) {
    const size = Number(await reader.line());
    socket.write(await reader.exactly(size));
  }
  const how = await reader.line();
  const seed = Number(await reader.line());
  const outgoing = content(seed, BYTES);
  const incoming = content(-seed, BYTES);
  if (how === 'c') {
    check((await reader.rest()).length === 0, 'bytes before the end of the client');
    await writeAll(socket, outgoing);
  } else if (how === 'a') {
    socket.end();
    check((await reader.rest()).length === 0, 'bytes after the end of the server');
  } else if (how === 's') {
    socket.end();
    check((await reader.rest()).equals(incoming), `what the client sent after the end (${number}) is wrong`);
  } else {
    const received = reader.rest();
    await writeAll(socket, outgoing);
    socket.end();
    check((await received).equals(incoming), `what the client sent meanwhile (${number}) is wrong`);
  }
  socket.end();
}

function server() {
  let number = 0;
  const service = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    serve(socket, number++).catch(fail);
  });
  announce(service);
}

async function announcedTrips(socket, reader, seed) {
  for (let trip = 0; trip < 30; trip++) {
    const message = content(seed * 100 + trip, 1 + (seed * 41 + trip * 97) % 2500);
    socket.write(`${message.length}\n`);
    socket.write(message);
    check((await reader.exactly(message.length)).equals(message), `echo ${trip} of ${seed} is wrong`);
  }
}

async function talk(port, seed) {
  const how = 'csb'[seed % 3];
  const socket = await connect(port);
  const reader = new Reader(socket);
  await announcedTrips(socket, reader, seed);
  socket.write(`${how}\n${seed}\n`);
  const outgoing = content(-seed, BYTES);
  const incoming = content(seed, BYTES);
  if (how === 'c') {
    socket.end();
    check(socket.writableEnded && !socket.destroyed, 'end() ended more than one direction');
    check((await reader.rest()).equals(incoming), `what came after the own end (${seed}) is wrong`);
  } else if (how === 's') {
    check((await reader.rest()).length === 0, 'bytes before the end of the server');
    await writeAll(socket, outgoing);
  } else {
    const received = reader.rest();
    await writeAll(socket, outgoing);
    socket.end();
    check((await received).equals(incoming), `what the server sent meanwhile (${seed}) is wrong`);
  }
  socket.end();
  await reader.until(() => socket.closed);
  return how === 'b' ? 2 * BYTES : BYTES;
}

// Without allowHalfOpen the client's own end follows the server's by itself.
async function automaticEnd(port) {
  const socket = await connect(port, { allowHalfOpen: false });
  const reader = new Reader(socket);
  await announcedTrips(socket, reader, 999);
  socket.write('a\n0\n');
  await reader.until(() => socket.closed);
  check(reader.ended && !reader.error, `no automatic end: ${reader.error}`);
}

async function client(port) {
  const bytes = await each(CONNECTIONS, CONNECTIONS, (seed) => talk(port, seed));
  await automaticEnd(port);
  return { connections: CONNECTIONS + 1, bytes: sum(bytes) };
}

run(server, client);

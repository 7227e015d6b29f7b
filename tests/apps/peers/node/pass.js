// A connection that is in use is passed to a child process, with bytes that nobody has read yet.
'use strict';
const childProcess = require('node:child_process');
const net = require('node:net');
const { Reader, announce, check, connect, content, each, fail, pause, run, stream, sum } = require('./common');

const CONNECTIONS = 16;
const BYTES = 200_000;

// Echoes, until it is told to pass the connection on. What arrives from then on stays in the socket, unread.
async function handOver(socket, child) {
  const reader = new Reader(socket);
  for (let word; (word = await reader.line()) !== 'pass';) socket.write(await reader.exactly(Number(word)));
  socket._handle.reading = false;  // pause() would go on to read until a buffer is full, and lose that
  socket._handle.readStop();
  await new Promise((resolve) => { socket.write(',', resolve); });
  await pause(50);  // for something to arrive; with nothing it must work, too
  child.send('socket', socket);
}

function server() {
  const child = childProcess.fork(__filename, ['child']);
  child.on('exit', (code) => check(false, `the child ended by itself (${code})`));
  announce(net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    handOver(socket, child).catch(fail);
  }));
}

function child() {
  process.on('message', (message, socket) => {
    socket.on('error', fail);
    socket.pipe(socket);
  });
  process.on('SIGTERM', () => {});  // ends with its parent
  process.on('disconnect', () => process.exit());
}

async function talk(port, seed) {
  const socket = await connect(port);
  const reader = new Reader(socket);
  let bytes = 0;
  for (let trip = 0; trip < 60; trip++) {
    const message = content(1000 * seed + trip, 1 + (seed * 41 + trip * 97) % 2500);
    socket.write(`${message.length}\n`);
    socket.write(message);
    check((await reader.exactly(message.length)).equals(message), `echo ${trip} of ${seed} is wrong`);
    bytes += message.length;
  }
  socket.write('pass\n');
  check((await reader.exactly(1)).toString() === ',', 'the server does not pass the connection on');
  return bytes + await stream(socket, reader, seed, BYTES);
}

async function client(port) {
  const bytes = await each(CONNECTIONS, CONNECTIONS, (seed) => talk(port, seed));
  return { connections: CONNECTIONS, bytes: sum(bytes) };
}

if (process.argv[2] === 'child') {
  child();
} else {
  run(server, client);
}

// Echo client on Node's net module: many connections at once; on each some round trips, then a stream that is sent
// and received at the same time, half-close, end. Every byte is compared.
// Usage: echo_client.js PORT CONNECTIONS [ADDRESS [ROUND_TRIPS]]
'use strict';
const net = require('node:net');

const ADDRESS = process.argv[4] ?? '127.0.0.1';
const ROUND_TRIPS = Number(process.argv[5] ?? 50);
const STREAM_BYTES = 400_000;

// The same bytes for the same number: a linear congruential generator is enough to see any mix-up.
function content(number, size) {
  const bytes = Buffer.alloc(size);
  let state = (number * 2654435761 + 12345) >>> 0;
  for (let at = 0; at < size; at++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[at] = state >>> 24;
  }
  return bytes;
}

function fail(what) {
  console.error(`client: ${what}`);
  process.exit(1);
}

function connect(port) {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ port, host: ADDRESS, allowHalfOpen: true, noDelay: true }, () => resolve(socket));
    socket.on('error', reject);
  });
}

// Collects what arrives and wakes whoever waits for a length, or for the end.
class Received {
  constructor(socket) {
    this.chunks = [];
    this.length = 0;
    this.ended = false;
    this.wake = () => {};
    socket.on('data', (chunk) => { this.chunks.push(chunk); this.length += chunk.length; this.wake(); });
    socket.on('end', () => { this.ended = true; this.wake(); });
  }

  async until(condition) {
    while (!condition()) await new Promise((resolve) => { this.wake = resolve; });
  }

  take() {
    const all = Buffer.concat(this.chunks);
    this.chunks = [];
    this.length = 0;
    return all;
  }
}

async function roundTrips(number, socket, received) {
  let bytes = 0;
  for (let trip = 0; trip < ROUND_TRIPS; trip++) {
    const message = content(number * 1000 + trip, 1 + ((number * 37 + trip * 101) % 3000));
    socket.write(message);
    await received.until(() => received.length >= message.length || received.ended);
    if (!received.take().equals(message)) fail(`connection ${number}: round trip ${trip} came back changed`);
    bytes += message.length;
  }
  return bytes;
}

async function stream(number, socket, received) {
  const data = content(number, STREAM_BYTES);
  for (let at = 0, size = 1; at < data.length; at += size, size = (size * 7) % 50_021) {
    if (!socket.write(data.subarray(at, at + size))) await new Promise((resolve) => socket.once('drain', resolve));
  }
  socket.end(); // half-close: the answer is still on its way
  await received.until(() => received.ended);
  if (!received.take().equals(data)) fail(`connection ${number}: the stream came back changed`);
  return data.length;
}

async function talk(number, port) {
  const socket = await connect(port);
  const received = new Received(socket);
  return await roundTrips(number, socket, received) + await stream(number, socket, received);
}

async function main() {
  const [port, connections] = process.argv.slice(2, 4).map(Number);
  const done = await Promise.all(Array.from({ length: connections }, (_, number) => talk(number, port)));
  console.log(JSON.stringify({ connections, bytes: done.reduce((a, b) => a + b, 0) }));
}

main().catch((error) => fail(error.stack));

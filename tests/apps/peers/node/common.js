// What the peers share: known contents, reading with back-pressure, and the start and end of both sides.
'use strict';
const crypto = require('node:crypto');
const http = require('node:http');
const net = require('node:net');

const HOST = '127.0.0.1';

// Pseudo-random bytes, the same for the same number.
function content(number, size) {
  const key = Buffer.alloc(16);
  key.writeDoubleLE(number);
  return crypto.createCipheriv('aes-128-ctr', key, Buffer.alloc(16)).update(Buffer.alloc(size));
}

function fail(what) {
  console.error(what instanceof Error ? what.stack : what);
  process.exit(1);
}

function check(condition, what) {
  if (!condition) fail(new Error(what));
}

// Resolves with the value of the next `name` event, and rejects on `error` unless that is awaited.
function once(emitter, name) {
  return new Promise((resolve, reject) => {
    const onError = (error) => { emitter.off(name, onEvent); reject(error); };
    const onEvent = (value) => { emitter.off('error', onError); resolve(value); };
    emitter.once(name, onEvent);
    if (name !== 'error') emitter.once('error', onError);
  });
}

function pause(milliseconds) {
  return new Promise((resolve) => { setTimeout(resolve, milliseconds); });
}

// Polls until `condition` (which may be async) holds; the deadline is far away.
async function until(condition, what) {
  for (const end = Date.now() + 20_000; !await condition();) {
    check(Date.now() < end, `waited in vain for: ${what}`);
    await pause(10);
  }
}

async function connect(port, options = {}) {
  const socket = net.connect({ port, host: HOST, allowHalfOpen: true, noDelay: true, ...options });
  await once(socket, 'connect');
  return socket;
}

// What has arrived on a socket, taken piece by piece in the order of the stream.
class Reader {
  constructor(socket) {
    this.socket = socket;
    this.chunks = [];
    this.length = 0;
    this.total = 0;
    this.ended = false;
    this.error = null;
    this.wake = () => {};
    socket.on('data', (chunk) => this.note(() => {
      this.chunks.push(chunk);
      this.length += chunk.length;
      this.total += chunk.length;
    }));
    socket.on('end', () => this.note(() => { this.ended = true; }));
    socket.on('error', (error) => this.note(() => { this.error = error; }));
    socket.on('close', () => this.note(() => {}));
  }

  note(change) {
    change();
    this.wake();
  }

  async until(condition) {
    while (!condition()) await new Promise((resolve) => { this.wake = resolve; });
  }

  async exactly(size) {
    await this.until(() => this.length >= size || this.ended || this.error);
    check(this.length >= size, `${this.length} of ${size} bytes before the end (${this.error})`);
    return this.take(size);
  }

  async line() {
    let text = '';
    for (let byte; (byte = (await this.exactly(1)).toString('latin1')) !== '\n';) text += byte;
    return text;
  }

  async rest() {
    await this.until(() => this.ended || this.error);
    check(!this.error, `the stream ended with ${this.error}`);
    return this.take(this.length);
  }

  take(size) {
    const all = this.chunks.length === 1 ? this.chunks[0] : Buffer.concat(this.chunks);
    this.chunks = size < all.length ? [all.subarray(size)] : [];
    this.length = all.length - size;
    return all.subarray(0, size);
  }
}

// Writes in pieces of all sizes and waits whenever the stream asks for it; returns how often that was.
async function writeAll(socket, data) {
  let waits = 0;
  for (let at = 0, size = 1; at < data.length; at += size, size = 1 + (size * 7) % 50_021) {
    if (!socket.write(data.subarray(at, at + size))) {
      waits += 1;
      await once(socket, 'drain');
    }
  }
  return waits;
}

// Messages that each wait for their echo: enough of them for an upgrade. Returns the number of bytes.
async function roundTrips(socket, reader, seed, count = 30) {
  let bytes = 0;
  for (let trip = 0; trip < count; trip++) {
    const message = content(seed * 1000 + trip, 1 + (seed * 37 + trip * 101) % 3000);
    socket.write(message);
    check((await reader.exactly(message.length)).equals(message), `round trip ${trip} of ${seed} came back changed`);
    bytes += message.length;
  }
  return bytes;
}

// A stream in one direction while its echo comes back in the other, then the ends of both.
async function stream(socket, reader, seed, size) {
  const data = content(seed + 0.5, size);
  await writeAll(socket, data);
  socket.end();
  check((await reader.rest()).equals(data), `stream ${seed} came back changed`);
  return data.length;
}

// The whole talk with an echo server. Returns the number of bytes.
async function talk(socket, seed, size) {
  const reader = new Reader(socket);
  return await roundTrips(socket, reader, seed) + await stream(socket, reader, seed, size);
}

// Runs `work(number)` for all numbers below `count`, so many at a time, and returns the results.
async function each(count, width, work) {
  const results = [];
  let next = 0;
  const lane = async () => {
    while (next < count) {
      const number = next++;
      results[number] = await work(number);
    }
  };
  await Promise.all(Array.from({ length: width }, lane));
  return results;
}

function sum(numbers) {
  return numbers.reduce((a, b) => a + b, 0);
}

// One HTTP request with its whole answer.
function request(port, options, body) {
  return new Promise((resolve, reject) => {
    const sent = http.request({ host: HOST, port, ...options }, (answer) => {
      const chunks = [];
      answer.on('data', (chunk) => chunks.push(chunk));
      answer.on('error', reject);
      answer.on('end', () => resolve({ status: answer.statusCode, headers: answer.headers,
                                       body: Buffer.concat(chunks), reused: sent.reusedSocket }));
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

function announce(server) {
  server.listen(0, HOST, () => console.log(`listening on ${server.address().port}`));
}

// The process is one side of the test: `server`, or `client PORT` which returns what the last line shall say.
function run(server, client) {
  const [side, argument] = process.argv.slice(2);
  if (side === 'server') {
    process.on('SIGTERM', () => process.exit());  // an ordinary end, so that what runs at exit does run
    server(argument);
  } else {
    client(Number(argument)).then((result) => { console.log(JSON.stringify(result)); process.exit(); }, fail);
  }
}

module.exports = { HOST, Reader, announce, check, connect, content, each, fail, once, pause, request, roundTrips, run,
                   stream, sum, talk, until, writeAll };

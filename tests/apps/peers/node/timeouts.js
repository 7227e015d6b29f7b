// socket.setTimeout() on both sides, the HTTP server's timeouts for slow requests, and timeouts of HTTP clients.
'use strict';
const http = require('node:http');
const net = require('node:net');
const { HOST, Reader, announce, check, connect, content, each, fail, once, pause, request, roundTrips, run, stream,
        sum, until } = require('./common');

const SHORT_MS = 250;
const LONG_MS = 5000;
const EARLY_MS = 20;  // timers count whole milliseconds from when their loop last looked at the clock
const CONNECTIONS = 8;
const BYTES = 150_000;

// An echo server that ends a connection over which nothing has come for a while.
function echoServer() {
  return net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    socket.on('error', fail);
    socket.setTimeout(3 * SHORT_MS, () => socket.end('idle'));
    socket.pipe(socket, { end: false });
    socket.on('end', () => socket.end());
  });
}

function httpServer(port) {
  let aborted = 0;
  const service = http.createServer({ connectionsCheckingInterval: 50 }, (asked, answer) => {
    if (asked.url === '/silent') {
      answer.on('close', () => { aborted += 1; });
    } else if (asked.url === '/state') {
      answer.end(JSON.stringify({ aborted, port }));
    } else {
      asked.pipe(answer);
    }
  });
  service.headersTimeout = 2 * SHORT_MS;
  service.requestTimeout = 3 * SHORT_MS;
  service.keepAliveTimeout = LONG_MS;
  return service;
}

function server() {
  const echo = echoServer();
  echo.listen(0, HOST, () => announce(httpServer(echo.address().port)));
}

function timeoutOf(socket, milliseconds) {
  const started = Date.now();
  socket.setTimeout(milliseconds);
  return once(socket, 'timeout').then(() => Date.now() - started);
}

// The timeout of an idle connection comes, comes not too early, and leaves the connection as it was.
async function idleClient(port, seed) {
  const socket = await connect(port);
  const reader = new Reader(socket);
  let bytes = await roundTrips(socket, reader, seed);
  const waited = await timeoutOf(socket, SHORT_MS);
  check(waited >= SHORT_MS - EARLY_MS, `timeout after ${waited} of ${SHORT_MS} ms`);
  socket.setTimeout(0);
  bytes += await roundTrips(socket, reader, seed + 100);
  return bytes + await stream(socket, reader, seed, BYTES);
}

// No timeout while bytes come and go: the talk takes longer than the server's timeout, no pause in it does.
async function busyClient(port, seed) {
  const socket = await connect(port);
  const reader = new Reader(socket);
  socket.setTimeout(LONG_MS, () => fail(new Error('a timeout on a busy connection')));
  let bytes = 0;
  for (const end = Date.now() + 5 * SHORT_MS; Date.now() < end;) {
    bytes += await roundTrips(socket, reader, seed, 3);
    await pause(SHORT_MS / 10);
  }
  return bytes + await stream(socket, reader, seed, BYTES);
}

// The server ends a connection that is idle.
async function idleServer(port, seed) {
  const socket = await connect(port);
  const reader = new Reader(socket);
  const bytes = await roundTrips(socket, reader, seed);
  check((await reader.rest()).toString() === 'idle', 'the server did not end the idle connection');
  socket.end();
  return bytes;
}

// Good requests, then one whose header does not end: the server says 408 and closes.
async function slowHeader(port) {
  const socket = await connect(port);
  const reader = new Reader(socket);
  for (let number = 0; number < 20; number++) {
    const body = content(number, 3000);
    socket.write(`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`);
    socket.write(body);
    while (await reader.line() !== '\r');
    check((await answerInChunks(reader)).equals(body), `answer ${number} before the slow request is wrong`);
  }
  socket.write('POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ');
  check((await reader.rest()).toString().startsWith('HTTP/1.1 408 '), 'no 408 for a slow request');
  socket.end();
  return 20 * 3000;
}

async function answerInChunks(reader) {
  const pieces = [];
  for (let size; (size = parseInt(await reader.line(), 16)) > 0; await reader.line()) {
    pieces.push(Buffer.from(await reader.exactly(size)));
  }
  await reader.line();
  return Buffer.concat(pieces);
}

// An answer that does not come: the client gives up, the server learns of it, and other requests go on.
async function silentAnswers(port) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  for (let number = 0; number < 20; number++) {
    const body = content(number, 4000);
    const answer = await request(port, { method: 'POST', agent }, body);
    check(answer.body.equals(body), `answer ${number} before the silent one is wrong`);
  }
  const asked = http.get({ host: HOST, port, path: '/silent', agent, timeout: SHORT_MS });
  await once(asked, 'timeout');
  asked.destroy();
  await once(asked, 'error').catch(() => {});
  const error = await fetch(`http://${HOST}:${port}/silent`, { signal: AbortSignal.timeout(SHORT_MS) }).catch((e) => e);
  check(error.name === 'TimeoutError', `fetch ended with ${error}`);
  await until(async () => JSON.parse((await request(port, { path: '/state', agent })).body).aborted === 2,
              'the server to see that both clients gave up');
  return 20 * 4000;
}

async function client(port) {
  const echo = JSON.parse((await request(port, { path: '/state' })).body).port;
  const bytes = await Promise.all([
    ...[idleClient, busyClient, idleServer].map((work) => each(CONNECTIONS, CONNECTIONS, (seed) => work(echo, seed))),
    slowHeader(port), silentAnswers(port)]);
  return { connections: 3 * CONNECTIONS + 4, bytes: sum(bytes.flat()) };
}

run(server, client);

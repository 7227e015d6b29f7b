// Connections that are reset: on purpose by either side, by closing with bytes unread, and in the middle of a request.
'use strict';
const http = require('node:http');
const net = require('node:net');
const { HOST, Reader, announce, check, connect, content, each, request, roundTrips, run, sum,
        until } = require('./common');

const CONNECTIONS = 8;
const LARGE = 3_000_000;

// Echoes, but for the word that it ends with; how each connection ended is told on the HTTP port.
function echoServer(ends) {
  return net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    let error = null;
    socket.on('error', (met) => { error = met.code; });
    socket.on('close', () => { ends[error] = (ends[error] || 0) + 1; });
    socket.on('end', () => socket.end());
    socket.on('data', (chunk) => {
      if (chunk.toString('latin1') === 'RESET') socket.resetAndDestroy();
      else if (chunk.toString('latin1') === 'LARGE') socket.write(content(0, LARGE));
      else socket.write(chunk);
    });
  });
}

function server() {
  const ends = { aborted: 0 };
  const echo = echoServer(ends);
  echo.listen(0, HOST, () => announce(http.createServer((asked, answer) => {
    if (asked.url === '/ends') {
      answer.end(JSON.stringify({ ...ends, port: echo.address().port }));
      return;
    }
    asked.on('error', () => { ends.aborted += 1; });
    asked.resume();
  })));
}

const ends = async (port) => JSON.parse((await request(port, { path: '/ends' })).body);

async function started(port, seed) {
  const socket = await connect(port);
  const reader = new Reader(socket);
  return { socket, reader, bytes: await roundTrips(socket, reader, seed) };
}

async function resetByClient(port, seed) {
  const { socket, bytes } = await started(port, seed);
  socket.resetAndDestroy();
  return bytes;
}

async function resetByServer(port, seed) {
  const { socket, reader, bytes } = await started(port, seed);
  socket.write('RESET');
  await reader.until(() => reader.error || reader.ended);
  check(reader.error && reader.error.code === 'ECONNRESET', `${reader.error} instead of a reset by the server`);
  check(reader.length === 0, 'bytes came with the reset');
  return bytes;
}

// The client takes some of what the server sends, and goes away with the rest unread.
async function closeUnread(port, seed) {
  const { socket, reader, bytes } = await started(port, seed);
  const before = reader.total;
  socket.write('LARGE');
  await reader.until(() => reader.total > before);
  const start = reader.take(reader.length);
  check(start.equals(content(0, LARGE).subarray(0, start.length)), 'the start of the large answer is wrong');
  socket.pause();
  socket.destroy();
  return bytes + start.length;
}

// A request whose body never ends, on a connection that good requests have used before.
async function resetInRequest(port) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  for (let number = 0; number < 20; number++) await request(port, { path: '/ends', agent });
  const asked = http.request({ host: HOST, port, method: 'POST', agent });
  const ended = new Promise((resolve) => { asked.on('error', resolve); });
  asked.write(content(1, 100_000));
  await until(() => asked.socket && asked.socket.bytesWritten > 100_000, 'the start of the body to be sent');
  asked.socket.resetAndDestroy();
  check((await ended).code === 'ECONNRESET', 'the request did not end with an error');
}

// So many connections of the server have ended in this way.
const endedBy = (port, code, count) => until(async () => (await ends(port))[code] === count,
                                             `${count} connections of the server to end with ${code}`);

async function client(port) {
  const echo = (await ends(port)).port;
  const all = (work) => each(CONNECTIONS, CONNECTIONS, (seed) => work(echo, seed));
  const first = await all(resetByClient);
  await endedBy(port, 'ECONNRESET', CONNECTIONS);
  const second = await all(resetByServer);
  await endedBy(port, 'null', CONNECTIONS);
  const third = await all(closeUnread);
  await until(async () => {
    const { ECONNRESET = 0, EPIPE = 0 } = await ends(port);
    return ECONNRESET + EPIPE === 2 * CONNECTIONS;
  }, 'the server to see that its large answers are not read');
  await resetInRequest(port);
  await endedBy(port, 'aborted', 1);
  return { connections: 3 * CONNECTIONS + 1, bytes: sum([...first, ...second, ...third]) };
}

run(server, client);

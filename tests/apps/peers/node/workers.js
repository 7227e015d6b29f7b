// worker_threads: servers and clients in several threads, each with an event loop of its own. A thread that is ended
// in mid-stream takes its own connections along, and no other.
'use strict';
const http = require('node:http');
const net = require('node:net');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const { HOST, Reader, announce, check, connect, content, each, fail, once, request, roundTrips, run, sum,
        talk } = require('./common');

const THREADS = 3;
const CONNECTIONS = 4;  // of each client thread to each server thread
const BYTES = 200_000;

function echoThread() {
  const service = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    socket.on('error', fail);
    socket.pipe(socket);
  });
  service.listen(0, HOST, () => parentPort.postMessage(service.address().port));
}

async function startThread() {
  const thread = new Worker(__filename, { workerData: { side: 'server' } });
  return { thread, port: await once(thread, 'message') };
}

// The main thread tells the ports of its threads, and ends one of them when asked to.
async function server() {
  const threads = await Promise.all(Array.from({ length: THREADS }, startThread));
  announce(http.createServer(async (asked, answer) => {
    if (asked.url === '/replace') {
      await threads[0].thread.terminate();
      threads[0] = await startThread();
    }
    answer.end(JSON.stringify(threads.map((one) => one.port)));
  }));
}

async function talkToAll(ports, thread) {
  const bytes = await Promise.all(ports.map((port, index) => each(CONNECTIONS, CONNECTIONS, async (number) =>
    talk(await connect(port), 100 * thread + 10 * index + number, BYTES))));
  return sum(bytes.flat());
}

async function clientThread() {
  parentPort.postMessage(await talkToAll(workerData.ports, workerData.thread));
}

async function talkFromThreads(ports) {
  const bytes = await Promise.all(Array.from({ length: THREADS }, (_, thread) => {
    const worker = new Worker(__filename, { workerData: { side: 'client', ports, thread } });
    return once(worker, 'message');
  }));
  return sum(bytes);
}

const ask = async (port, path) => JSON.parse((await request(port, { path })).body);

// While streams run to all threads, the first thread ends.
async function endOne(port, ports) {
  const socket = await connect(ports[0]);
  const reader = new Reader(socket);
  await roundTrips(socket, reader, 77);
  const data = content(77, BYTES);
  socket.write(data);
  await reader.until(() => reader.length > 0);
  const others = talkToAll(ports.slice(1), 7);
  const replaced = await ask(port, '/replace');
  await reader.until(() => socket.closed || reader.ended);
  const arrived = reader.take(reader.length);
  check(arrived.equals(data.subarray(0, arrived.length)), 'what the ended thread has sent is wrong');
  socket.destroy();
  return await others + await talkToAll(replaced, 8);
}

async function client(port) {
  const ports = await ask(port, '/ports');
  const bytes = await talkFromThreads(ports) + await endOne(port, ports);
  return { connections: CONNECTIONS * (THREADS * THREADS + 2 * THREADS - 1) + 1, bytes };
}

if (isMainThread) {
  run(server, client);
} else if (workerData.side === 'server') {
  echoThread();
} else {
  clientThread().catch(fail);
}

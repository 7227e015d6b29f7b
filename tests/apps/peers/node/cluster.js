// cluster: with HOW=shared the workers accept on one listening socket, with HOW=passed the primary accepts and passes
// each connection to a worker in turn.
'use strict';
const cluster = require('node:cluster');
const net = require('node:net');
const { HOST, Reader, check, connect, each, fail, once, roundTrips, run, stream, sum } = require('./common');

const WORKERS = 2;
const CONNECTIONS = 24;
const BYTES = 200_000;
const NAME_BYTES = 10;

// Tells first which process this is.
function worker() {
  const service = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    socket.on('error', fail);
    socket.write(String(process.pid).padStart(NAME_BYTES));
    socket.pipe(socket);
  });
  service.listen(0, HOST);
}

async function primary() {
  cluster.schedulingPolicy = process.env.HOW === 'shared' ? cluster.SCHED_NONE : cluster.SCHED_RR;
  const places = await Promise.all(Array.from({ length: WORKERS }, () => once(cluster.fork(), 'listening')));
  check(places.every((place) => place.port === places[0].port), 'the workers listen on different ports');
  cluster.on('exit', (ended, code) => check(false, `worker ${ended.id} ended by itself (${code})`));
  console.log(`listening on ${places[0].port}`);
}

async function talk(port, seen, seed) {
  const socket = await connect(port);
  const reader = new Reader(socket);
  seen.add((await reader.exactly(NAME_BYTES)).toString());
  return await roundTrips(socket, reader, seed) + await stream(socket, reader, seed, BYTES);
}

async function client(port) {
  const seen = new Set();
  const bytes = await each(CONNECTIONS, CONNECTIONS, (seed) => talk(port, seen, seed));
  return { connections: CONNECTIONS, bytes: sum(bytes), workers: seen.size };
}

if (cluster.isWorker) {
  worker();
} else {
  run(() => { primary().catch(fail); }, client);
}

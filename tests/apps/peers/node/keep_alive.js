// HTTP/1.1 on connections that are kept: http.Agent and fetch(), bodies both ways, with lengths and in chunks.
'use strict';
const http = require('node:http');
const { HOST, announce, check, content, each, request, run, sum, until } = require('./common');

const REQUESTS = 1500;
const FETCHES = 300;
const SOCKETS = 8;
const IDLE_MS = 3000;  // fetch takes a second off what the server tells

function server() {
  let sockets = 0;
  const numbers = new WeakMap();
  const service = http.createServer((asked, answer) => {
    const chunks = [];
    asked.on('data', (chunk) => chunks.push(chunk));
    asked.on('end', () => {
      const body = Buffer.concat(chunks);
      const headers = { 'x-socket': numbers.get(asked.socket) };
      if (asked.headers['x-plain']) headers['content-length'] = body.length;
      answer.writeHead(200, headers);
      for (let at = 0; at < body.length; at += 7001) answer.write(body.subarray(at, at + 7001));
      answer.end();
    });
  });
  service.on('connection', (socket) => numbers.set(socket, ++sockets));
  service.keepAliveTimeout = IDLE_MS;
  announce(service);
}

async function agentRequests(port, agent) {
  const used = new Set();
  const bytes = await each(REQUESTS, 2 * SOCKETS, async (number) => {
    const body = content(number, (number * 97) % 30_011);
    const headers = number % 2 ? { 'x-plain': '1' } : {};
    if (number % 3) headers['content-length'] = body.length;
    if (number % 50 === 7) headers.expect = '100-continue';
    const answer = await request(port, { method: 'POST', path: `/${number}`, agent, headers }, body);
    check(answer.status === 200 && answer.body.equals(body), `answer ${number} is wrong`);
    used.add(answer.headers['x-socket']);
    return 2 * body.length;
  });
  check(used.size >= 2 && used.size <= SOCKETS, `${used.size} connections for ${REQUESTS} requests`);
  return { connections: used.size, bytes: sum(bytes) };
}

// Kept connections that nobody uses are closed by either side; the next request needs a new one.
async function afterIdleness(port, agent) {
  await until(() => Object.keys(agent.freeSockets).length === 0, 'the idle connections to be closed');
  const body = content(1, 5000);
  const answer = await request(port, { method: 'POST', agent }, body);
  check(answer.body.equals(body) && !answer.reused, 'the request after the idleness is wrong');
}

async function fetches(port) {
  const used = new Set();
  const bytes = await each(FETCHES, SOCKETS, async (number) => {
    const body = content(number, 1 + (number * 997) % 100_003);
    const answer = await fetch(`http://${HOST}:${port}/`, { method: 'POST', body });
    check(Buffer.from(await answer.arrayBuffer()).equals(body), `fetch ${number} is wrong`);
    used.add(answer.headers.get('x-socket'));
    return 2 * body.length;
  });
  check(used.size < FETCHES / 4, `${used.size} connections for ${FETCHES} fetches`);
  return { connections: used.size, bytes: sum(bytes) };
}

async function client(port) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: SOCKETS });
  const first = await agentRequests(port, agent);
  await afterIdleness(port, agent);
  const second = await fetches(port);
  agent.destroy();
  return { connections: first.connections + second.connections + 1, bytes: first.bytes + second.bytes };
}

run(server, client);

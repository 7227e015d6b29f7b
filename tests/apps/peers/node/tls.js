// TLS 1.2 and 1.3 with sessions that are resumed, and HTTPS on kept connections; certificates are checked.
'use strict';
const fs = require('node:fs');
const https = require('node:https');
const path = require('node:path');
const tls = require('node:tls');
const { HOST, announce, check, content, each, fail, once, run, sum, talk } = require('./common');

const CONNECTIONS = 6;
const BYTES = 1_000_000;
const REQUESTS = 200;
const SOCKETS = 4;

// The certificate and its key lie in the directory that the test names.
const file = (name) => fs.readFileSync(path.join(process.env.CERTIFICATES, name));

// One port for both: an HTTPS server takes TLS connections; ALPN says which of them are for the echo.
function server() {
  const options = { key: file('key.pem'), cert: file('cert.pem'), ALPNProtocols: ['echo', 'http/1.1'],
                    allowHalfOpen: true };
  const service = https.createServer(options, (asked, answer) => { asked.pipe(answer); });
  const web = service.listeners('secureConnection');
  service.removeAllListeners('secureConnection');
  service.on('secureConnection', (socket) => {
    if (socket.alpnProtocol !== 'echo') {
      for (const listener of web) listener.call(service, socket);
      return;
    }
    socket.on('error', fail);
    socket.pipe(socket);
  });
  service.on('tlsClientError', fail);
  announce(service);
}

async function secure(port, options) {
  const socket = tls.connect({ port, host: HOST, ca: file('cert.pem'), servername: 'localhost', allowHalfOpen: true,
                               ALPNProtocols: ['echo'], ...options });
  await once(socket, 'secureConnect');
  check(socket.authorized, `not authorized: ${socket.authorizationError}`);
  return socket;
}

async function echoes(port, version, seed) {
  const options = { minVersion: version, maxVersion: version };
  const socket = await secure(port, options);
  check(socket.getProtocol() === version, `${socket.getProtocol()} instead of ${version}`);
  let session = socket.getSession();
  socket.on('session', (given) => { session = given; });
  const first = await talk(socket, seed, BYTES);
  const again = await secure(port, { ...options, session });
  check(again.isSessionReused(), `${version}: the session was not resumed`);
  return first + await talk(again, seed + 50, BYTES);
}

async function post(port, agent, number) {
  const body = content(number, (number * 1009) % 60_013);
  const asked = https.request({ host: HOST, port, method: 'POST', agent, ca: file('cert.pem'),
                                servername: 'localhost' });
  asked.end(body);
  const answer = await once(asked, 'response');
  const chunks = await answer.toArray();
  check(Buffer.concat(chunks).equals(body), `answer ${number} is wrong`);
  return { bytes: body.length, socket: asked.socket };
}

async function client(port) {
  const streams = await Promise.all(['TLSv1.2', 'TLSv1.3'].map((version, index) =>
    each(CONNECTIONS, CONNECTIONS, (number) => echoes(port, version, 10 * index + number))));
  const agent = new https.Agent({ keepAlive: true, maxSockets: SOCKETS });
  const posts = await each(REQUESTS, 2 * SOCKETS, (number) => post(port, agent, number));
  const fresh = new Set(posts.map((one) => one.socket)).size;
  check(fresh <= SOCKETS, `${fresh} connections for ${REQUESTS} requests`);
  agent.destroy();
  return { connections: 4 * CONNECTIONS + fresh, bytes: sum(streams.flat()) + sum(posts.map((one) => one.bytes)) };
}

run(server, client);

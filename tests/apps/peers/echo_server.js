// Echo server on Node's net module. pipe() brings back-pressure; a half-close is answered when all is echoed.
// Usage: echo_server.js [ADDRESS]
'use strict';
const net = require('node:net');

const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
  socket.on('error', (error) => { console.error(`server: ${error}`); process.exitCode = 1; });
  socket.pipe(socket);
});
server.listen(0, process.argv[2] ?? '127.0.0.1', () => console.log(`listening on ${server.address().port}`));
// An ordinary end, so that what runs at exit does run.
process.on('SIGTERM', () => process.exit());

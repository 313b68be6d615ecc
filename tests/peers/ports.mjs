// A TCP port of 127.0.0.1 that was free a moment ago, and that the kernel hands to no outgoing connection,
// which could take it between its choice and its use.

import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

const FIRST = 10240;
const AFTER_LAST = 32768;
const DRAWS = 100;

const tryPort = (port) =>
  new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });

export async function freePort() {
  for (let draw = 0; draw < DRAWS; draw += 1) {
    const port = randomInt(FIRST, AFTER_LAST);
    if (await tryPort(port)) {
      return port;
    }
  }
  throw new Error(`none of ${DRAWS} ports was free`);
}

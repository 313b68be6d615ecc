// What only the relay can show, between the two peers: its registration, its own refusals, the very bytes it carries,
// and what it does when Cloudly asks for a retry or its connection is lost. Each is `[name, run]`; `run` gets
// `{cloudly, relay, connect, url, authority, port}`. The requirement ids stand at the scenarios.

import assert from 'node:assert/strict';
import WebSocket from 'ws';
import { until, within } from './bounds.mjs';
import { pushes } from './exchanges.mjs';
import { refusalOf, UNKNOWN_METHOD } from './typedrequest.mjs';

const unknown = { text: UNKNOWN_METHOD, data: {} };

/** START-05, SES-04, PROT-04, REG-01, REG-03, REG-15, REG-16, REG-23 */
async function registersItself({ cloudly, port }) {
  await until(15_000, 'registerClusterRelay to be accepted', () => cloudly.registrations.length > 0);
  const [{ protocol, registrationSequence, relay }] = cloudly.registrations;
  assert.deepEqual(protocol, { release: '33.1.0', oldestAcceptedPeerRelease: '32.0.0' });
  assert.equal(registrationSequence, 0);
  assert.equal(typeof relay.version, 'string');
  assert.deepEqual({ ...relay, version: '' }, { version: '', nodeId: 'node-relay', listenAddress: '127.0.0.1', listenPort: port });
  const overSocket = cloudly.router.received.filter((m) => m.method !== 'getIdentityByToken' && m.correlation.phase === 'request');
  assert.equal(overSocket[0].method, 'registerCloudlyClientSession', 'the first request of the connection');
  await until(10_000, 'the read after the acceptance', () => cloudly.router.requests('getClusterConfig').length > 1);
}

/** LIS-02 */
async function unknownMethodsOfTheRelay({ cloudly, connect }) {
  const node = await connect('node-a');
  await node.register();
  for (const method of ['noSuchMethod', 'pushClusterConfig', 'applyRuntimeAssignment']) {
    assert.deepEqual(await refusalOf(node.sessionRequest(method)), unknown, `${method} on the listener`);
  }
  for (const method of ['noSuchMethod', 'registerPalletRuntimeSession', 'getRuntimeRegistryCredential']) {
    assert.deepEqual(await refusalOf(cloudly.pushToRelay(method, {})), unknown, `${method} pushed by Cloudly`);
  }
}

/** FWD-24, FWD-25 */
async function aNodeThatIsGone({ cloudly, connect }) {
  const node = await connect('node-b');
  await node.register();
  const push = () => cloudly.pushToNode('node-b', 'applyRuntimeAssignment', pushes(cloudly, 'node-b').applyRuntimeAssignment);
  await push();
  await node.close();
  const expected = 'relay-node-not-connected: node node-b is not connected to this relay';
  // The relay hears of the close when its own read does; a push that overtakes it may first run out its 8 s.
  const refused = await until(20_000, 'the refusal for a closed node', async () => {
    const refusal = await refusalOf(push());
    return refusal.text === expected && refusal;
  });
  assert.deepEqual(refused, { text: expected, data: {} });
}

/** FWD-12, FWD-13, FWD-14 */
async function foreignSessions({ cloudly, connect }) {
  const [a, b] = [await connect('node-a'), await connect('node-b')];
  await a.register();
  await b.register();
  const arrived = () => cloudly.router.requests('getRuntimeSecretMaterial').length;
  const before = arrived();
  const foreign = await refusalOf(b.request('getRuntimeSecretMaterial', { session: a.session }));
  assert.match(foreign.text, /^runtime-session-foreign: (socket|session)$/);
  const superseded = a.session;
  await a.register();
  const stale = await refusalOf(a.request('getRuntimeSecretMaterial', { session: superseded }));
  assert.match(stale.text, /^runtime-session-foreign: (session|registration)$/);
  assert.equal(arrived(), before, 'neither was forwarded');
  assert.ok(await a.sessionRequest('getRuntimeSecretMaterial'));
}

/** PROT-12, PROT-14, PROT-15 */
async function aRefusedOffer({ cloudly, connect }) {
  const node = await connect('node-a');
  const before = cloudly.router.requests('registerPalletRuntimeSession').length;
  const received = { release: '31.9.9', oldestAcceptedPeerRelease: '31.0.0' };
  const { text, data } = await refusalOf(node.register({ protocol: received, nodeId: 7 }));
  assert.equal(
    text,
    'protocol-refused: palletRuntime peer speaks 31.9.9 and accepts from 31.0.0; this relay speaks 33.1.0 and accepts from 32.10.1',
  );
  const offer = { release: '33.1.0', oldestAcceptedPeerRelease: '32.10.1' };
  assert.deepEqual(data, { kind: 'palletRuntime', offer, received });
  assert.equal(cloudly.router.requests('registerPalletRuntimeSession').length, before, 'nothing reached Cloudly');
  await node.register();
}

/** FWD-02, FWD-03, FWD-39: seen at the node, where the text of a frame can be seen. */
async function carriedBytes({ cloudly, connect }) {
  const node = await connect('node-a');
  await node.register();
  const awkward = '{ "z":1.50 ,\t"a":1E3,"m":"\\u00e9\\/é", "n":12345678901234567890 }';
  cloudly.rewrite = (text) => text.replaceAll('"AWKWARD"', awkward);
  try {
    await cloudly.pushToNode('node-a', 'applyRuntimeAssignment', { assignment: { id: 'bytes', body: 'AWKWARD' } });
    await node.sessionRequest('reportRuntimeNetworkProtection', { report: 'AWKWARD' });
  } finally {
    cloudly.rewrite = null;
  }
  const [push, answer] = node.frames.slice(-2).map(({ text }) => text);
  assert.ok(push.includes(`{"id":"bytes","body":${awkward}}`), push);
  assert.ok(answer.includes(`{"accepted":true,"report":${awkward}}`), answer);
}

/** contract.md section 1, `retry` */
async function aRetry({ cloudly, connect }) {
  const node = await connect('node-a');
  await node.register();
  const method = 'getRuntimeSecretRecipientState';
  const before = cloudly.router.requests(method).length;
  let refusals = 2;
  cloudly.rewrite = (text) => {
    const message = JSON.parse(text);
    if (message.method !== method || refusals === 0) return text;
    refusals -= 1;
    return JSON.stringify({ ...message, response: null, retry: { waitForMs: 50, reason: 'busy' } });
  };
  try {
    assert.deepEqual(await node.sessionRequest(method), { recipient: null });
  } finally {
    cloudly.rewrite = null;
  }
  const attempts = cloudly.router.requests(method).slice(before);
  assert.equal(attempts.length, 3);
  assert.equal(new Set(attempts.map((m) => m.correlation.id)).size, 1, 'one correlation id');
  assert.equal(new Set(attempts.map((m) => m.requestInstanceId)).size, 3, 'a request instance id for each attempt');
}

/** A stream frame of this library generation carries no correlation, so it gets no answer. */
async function streamFrames({ connect }) {
  const node = await connect('node-a');
  const before = node.frames.length;
  const request = { streamId: 'S', cycleId: 'C', cycle: 'request', mainPurpose: 'keepAlive', keepAlive: true, next: false };
  node.send(JSON.stringify({ method: '##VirtualStream##', request, response: null }));
  await node.register();
  assert.equal(node.frames.length, before + 1, 'the only answer is that of the registration');
}

/** LIS-03 */
async function anotherPath({ url, authority }) {
  const lookup = (_, { all }, done) => (all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4));
  const socket = new WebSocket(new URL('/other', url), { ca: authority, lookup, handshakeTimeout: 5_000 });
  const outcome = new Promise((resolve) => {
    socket.once('open', () => resolve('open'));
    socket.once('error', (failure) => resolve(failure.message));
  });
  const how = await within(6_000, 'the upgrade at /other', outcome);
  socket.terminate();
  assert.match(how, /^Unexpected server response: 4\d\d$/);
}

/** SES-09, REG-02, REG-13: the same process goes on counting. */
async function aLostConnection({ cloudly, connect }) {
  const { length } = cloudly.registrations;
  const sessions = () => cloudly.router.requests('registerCloudlyClientSession').length;
  const before = sessions();
  for (const peer of cloudly.peers) peer.terminate();
  await until(20_000, 'the relay to register again', () => cloudly.registrations.length > length);
  assert.ok(sessions() > before, 'the new connection was registered first');
  const [last, next] = cloudly.registrations.slice(length - 1);
  assert.ok(next.registrationSequence > last.registrationSequence, 'the sequence advances');
  const node = await connect('node-a');
  await node.register();
  assert.ok(await node.sessionRequest('getRuntimeRegistryCredential'));
  assert.ok(await cloudly.pushToNode('node-a', 'applyRuntimeAssignment', { assignment: { id: 'after' } }));
}

export const relayScenarios = [
  ['the relay registers itself and reads what follows an acceptance', registersItself],
  ['a method the relay does not have is answered with the exact text on both hops', unknownMethodsOfTheRelay],
  ['a push for a node that is gone is refused by name', aNodeThatIsGone],
  ['a binding of another socket or of a superseded session is refused unforwarded', foreignSessions],
  ['an offer of another major is refused with both offers and reaches nobody', aRefusedOffer],
  ['carried bodies keep their very bytes', carriedBytes],
  ['an answer that asks for a retry is tried again with the same correlation id', aRetry],
  ['a stream frame gets no answer', streamFrames],
  ['an upgrade at another path is refused', anotherPath],
  ['a lost Cloudly connection is dialled, registered and used again', aLostConnection],
];

// A relay of the same published packages, as short as one can be: what `cargo relay-bench` measures Coreflow beside.
//
// Nodes dial a SmartServe with TLS and a TypedRouter; one WebSocket stands to Cloudly; the ten node methods are fired
// up and the four pushes fired down by the library's TypedRequest, bodies and refusals as they are. A session that was
// lost is dialled again after half a second, and the nodes of the older one are closed to register anew.
//
// It does less than Coreflow: no process apart from another and no confinement, the bearer beside the parser; no check
// that a request comes from its own socket, session and registration; no offer judged; no budget, no deadline, no
// retry; no bound on what waits, no limit on a message but the library's, no ping; no pacing of the closes (OUT-06); no
// waiting of registrations for a session (FWD-07); no identity renewed; the certificate comes from a file and the
// cluster's document is not read. Nothing in it is there to slow it down.
//
// It is started with what it needs in BENCH_RELAY, a JSON object: cloudlyUrl, ca, cert and key (PEM), host, port. It
// ends with its standard input, prints `open` once it serves, and after a SIGUSR2 `collected` once the garbage is (with `node --expose-gc`), so that
// its memory is not counted with what it has only not yet given back.

import { request as httpsRequest } from 'node:https';
import { SmartServe } from '@push.rocks/smartserve';
import { TypedHandler, TypedRequest, TypedResponseError, TypedRouter, TypedTarget } from '@api.global/typedrequest';
import WebSocket from 'ws';

const REGISTER = 'registerPalletRuntimeSession';
const UP = [
  'getRuntimeManagedVpnCredential',
  'getRuntimeRegistryCredential',
  'reportRuntimeNetworkProtection',
  'reportRuntimeAssignmentObservation',
  'reportRuntimeAssignmentTerminalReceipt',
  'getRuntimeSecretRecipientState',
  'beginRuntimeSecretRecipientEnrollment',
  'completeRuntimeSecretRecipientEnrollment',
  'getRuntimeSecretMaterial',
];
const DOWN = [
  'applyRuntimeAssignment',
  'applyRuntimeNetworkSigningAuthority',
  'applyRuntimeNetworkProjection',
  'applyRuntimeNetworkDnsLeaseRenewal',
];
const OFFER = { release: '33.1.0', oldestAcceptedPeerRelease: '32.0.0' };
const REDIAL_MS = 500;

const { cloudlyUrl, ca, cert, key, host, port } = JSON.parse(process.env.BENCH_RELAY);

/** The connections of nodes by their id, and the connection and the session it registered under by node id. */
const peers = new Map();
const carried = new Map();
let session = null;

const fire = (router, send, method, body) => {
  const postMethod = async (payload) => send(JSON.stringify(payload));
  return new TypedRequest(new TypedTarget({ postMethod, typedRouterRef: router }), method).fire(body);
};

function up(method, body) {
  if (!session) throw new TypedResponseError('relay-session-unavailable', {});
  return fire(fromCloudly, (text) => session.send(text), method, body);
}

const fromNodes = new TypedRouter();
for (const method of UP) fromNodes.addTypedHandler(new TypedHandler(method, async (body) => up(method, body)));
fromNodes.addTypedHandler(
  new TypedHandler(REGISTER, async (body, { localData }) => {
    const under = session;
    const answer = await up(REGISTER, body);
    // The router hands its handlers a copy of the connection, so the connection itself is looked up by its id.
    const peer = peers.get(localData.peer.id);
    peer?.data.set('node', answer.session.nodeId);
    carried.set(answer.session.nodeId, { peer, under });
    return answer;
  }),
);

const fromCloudly = new TypedRouter();
for (const method of DOWN) {
  const handler = async (body) => {
    const peer = carried.get(body.session.nodeId)?.peer;
    if (!peer) throw new TypedResponseError('relay-node-not-connected', {});
    return fire(fromNodes, (text) => peer.send(text), method, body);
  };
  fromCloudly.addTypedHandler(new TypedHandler(method, handler));
}

/** The identity, over HTTP. */
function exchange() {
  const body = { method: 'getIdentityByToken', request: { token: 'bench' }, response: null, correlation: { id: 'uni_bench', phase: 'request' } };
  return new Promise((resolve, reject) => {
    const options = { method: 'POST', ca, family: 4, headers: { 'content-type': 'application/json' } };
    const posting = httpsRequest(`${cloudlyUrl}/typedrequest`, options, async (response) => {
      let text = '';
      for await (const chunk of response.setEncoding('utf8')) text += chunk;
      resolve(JSON.parse(text).response.identity);
    });
    posting.on('error', reject);
    posting.end(JSON.stringify(body));
  });
}

/** One session: it registers, and asks the nodes of an older one to come again. */
async function connect() {
  const identity = await exchange();
  const socket = new WebSocket(cloudlyUrl.replace('https:', 'wss:'), { ca, family: 4, perMessageDeflate: false });
  socket.on('error', () => {});
  socket.on('close', () => {
    if (session === socket) session = null;
    setTimeout(() => connect().catch(() => process.exit(1)), REDIAL_MS);
  });
  socket.on('message', async (data) => {
    const answer = await fromCloudly.routeAndAddResponse(JSON.parse(data.toString('utf8')));
    if (answer) socket.send(JSON.stringify(answer));
  });
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
  const send = (text) => socket.send(text);
  await fire(fromCloudly, send, 'registerCloudlyClientSession', { identity, clientType: 'coreflow', protocol: OFFER });
  const relay = { version: OFFER.release, nodeId: 'relay-node', listenAddress: '127.0.0.1', listenPort: port };
  await fire(fromCloudly, send, 'registerClusterRelay', { protocol: OFFER, registrationSequence: Date.now(), relay });
  session = socket;
  for (const { peer, under } of carried.values()) if (under !== socket) peer?.close(1001);
}

const server = new SmartServe({
  port,
  hostname: '127.0.0.1',
  tls: { cert, key },
  websocket: {
    typedRouter: fromNodes,
    onConnectionOpen: (peer) => peers.set(peer.id, peer),
    onConnectionClose: (peer) => {
      peers.delete(peer.id);
      const node = peer.data.get('node');
      if (carried.get(node)?.peer === peer) carried.delete(node);
    },
  },
});
server.setHandler(() => new Response('Not Found', { status: 404 }));

process.stdin.on('end', () => process.exit(0)).resume();
process.on('SIGUSR2', () => {
  globalThis.gc?.();
  process.stdout.write('collected\n');
});
await connect();
await server.start();
process.stdout.write('open\n');

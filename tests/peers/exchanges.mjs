// The exchanges between a node and Cloudly, the same whether the two are wired together or the relay stands between
// them. Each is `[name, run]`; `run` gets `{cloudly, connect, relayed}`, `connect(nodeId)` dials and does not register.
// Held through the relay: FWD-01, FWD-03, FWD-18, FWD-20, FWD-22, FWD-27, LIS-03.

import assert from 'node:assert/strict';
import { gate, until } from './bounds.mjs';
import { NODE_METHODS } from './cloudly-sessions.mjs';
import { refusalOf, TypedResponseError, UNKNOWN_METHOD } from './typedrequest.mjs';

const PROJECTION = { id: 'projection-1', generation: 3, digest: `sha256:${'5a'.repeat(32)}` };

/** One body for each controller push. */
export function pushes(cloudly, nodeId) {
  const now = Date.now();
  const window = { sequence: 1, notBefore: now, expiresAt: now + 600_000, signature: 'c2lnbmF0dXJl' };
  return {
    applyRuntimeAssignment: { assignment: { id: 'assignment-1', workload: { image: 'registry.test/app@sha256:00' } } },
    applyRuntimeNetworkSigningAuthority: { authority: { id: 'authority-1', keys: ['k1', 'k2'] } },
    applyRuntimeNetworkProjection: { projection: PROJECTION, records: [{ name: 'a.internal', ttl: 30 }] },
    applyRuntimeNetworkDnsLeaseRenewal: { renewal: { projection: PROJECTION, nodeId, clusterId: cloudly.clusterId, ...window } },
  };
}

/** A body whose member order, numbers and characters a carrier may not touch. */
export const AWKWARD = {
  z: 1,
  a: [1.5, -0.25, 1e21, 9007199254740991, null, true],
  m: { 'a key / with \\ "marks"': 'Ünïcode \u2028 \u0000 🙂', '': {} },
  'b-2': [],
};

async function registered(context, nodeId = 'node-a') {
  const node = await context.connect(nodeId);
  await node.register();
  return node;
}

async function registers(context) {
  const node = await context.connect('node-a');
  const answer = await node.register();
  assert.deepEqual(answer.session, context.cloudly.sessions.of('node-a').binding);
  assert.deepEqual(answer.heartbeat, { intervalMs: 30000 }, 'members that only Cloudly and the node know arrive');
  const [request] = context.cloudly.router.requests('registerPalletRuntimeSession').slice(-1);
  assert.equal(request.request.nodeInstanceNonce, node.nonce);
}

async function nodeRequestsAreAnswered(context) {
  const node = await registered(context);
  const body = { report: AWKWARD, observation: AWKWARD, receipt: AWKWARD, recipientKeyId: 'recipient:1' };
  for (const [method, respond] of Object.entries(NODE_METHODS)) {
    const answer = await node.sessionRequest(method, body);
    assert.equal(JSON.stringify(answer), JSON.stringify(respond(body)), `answer to ${method}`);
    const [arrived] = context.cloudly.router.requests(method).slice(-1);
    assert.equal(JSON.stringify(arrived.request), JSON.stringify({ session: node.session, ...body }), `body of ${method}`);
  }
}

async function pushesAreAnswered(context) {
  const node = await registered(context);
  for (const [method, body] of Object.entries(pushes(context.cloudly, 'node-a'))) {
    const answer = await context.cloudly.pushToNode('node-a', method, body);
    const [sent] = node.sent.filter((m) => m.method === method && m.correlation.phase === 'response').slice(-1);
    assert.equal(JSON.stringify(answer), JSON.stringify(sent.response), `answer to ${method}`);
    const [arrived] = node.router.requests(method).slice(-1);
    assert.equal(JSON.stringify(arrived.request), JSON.stringify({ session: node.session, ...body }), `body of ${method}`);
  }
}

async function pushesReachTheNodeTheyName(context) {
  const nodes = [await registered(context, 'node-a'), await registered(context, 'node-b')];
  const push = (node, id) => context.cloudly.pushToNode(node.nodeId, 'applyRuntimeAssignment', { assignment: { id } });
  const answers = await Promise.all(nodes.map((node) => push(node, `for-${node.nodeId}`)));
  for (const [at, node] of nodes.entries()) {
    assert.deepEqual(answers[at].session, node.session);
    const ids = node.router.requests('applyRuntimeAssignment').map((m) => m.request.assignment.id);
    assert.deepEqual(ids, [`for-${node.nodeId}`]);
  }
}

async function refusalsOfCloudly(context) {
  const node = await context.connect('node-a');
  assert.deepEqual(await refusalOf(node.register({ authorization: 'foreign' })), {
    text: 'runtime-authorization-refused: unknown to this cluster',
    data: { nodeId: 'node-a', reasons: ['authorization', { attempt: 1, final: true }] },
  });
  await node.register();
  const method = 'reportRuntimeNetworkProtection';
  const refuse = (...words) => () => {
    throw new TypedResponseError(...words);
  };
  const refused = (handler) =>
    context.cloudly.router.during(method, handler, () => refusalOf(node.sessionRequest(method, { report: {} })));
  const known = await refused(refuse('protection-refused: stale: 3 < 4', AWKWARD));
  assert.equal(known.text, 'protection-refused: stale: 3 < 4');
  assert.equal(JSON.stringify(known.data), JSON.stringify(AWKWARD));
  const bare = await refused(refuse('protection-refused'));
  assert.equal(bare.text, 'protection-refused');
  assert.deepEqual(bare.data ?? {}, {}, 'this library leaves `data` out where none was given');
}

async function refusalsOfTheNode(context) {
  const node = await registered(context);
  const method = 'applyRuntimeAssignment';
  const refuse = () => {
    throw new TypedResponseError('assignment-refused: no room: 1 of 2', AWKWARD);
  };
  const push = () => context.cloudly.pushToNode('node-a', method, { assignment: { id: 'assignment-2' } });
  const { text, data } = await node.router.during(method, refuse, () => refusalOf(push()));
  assert.equal(text, 'assignment-refused: no room: 1 of 2');
  assert.equal(JSON.stringify(data), JSON.stringify(AWKWARD));
}

async function unknownMethods(context) {
  const node = await registered(context);
  const unknown = { text: UNKNOWN_METHOD, data: {} };
  const upward = await context.cloudly.router.during('getRuntimeSecretMaterial', null, () =>
    refusalOf(node.sessionRequest('getRuntimeSecretMaterial')),
  );
  assert.deepEqual(upward, unknown, 'a method Cloudly does not have');
  const method = 'applyRuntimeNetworkSigningAuthority';
  const downward = await node.router.during(method, null, () =>
    refusalOf(context.cloudly.pushToNode('node-a', method, { authority: { id: 'authority-1' } })),
  );
  assert.deepEqual(downward, unknown, 'a method the node does not have');
}

async function aHandlerThatFails(context) {
  const node = await registered(context);
  const method = 'reportRuntimeAssignmentObservation';
  const fail = () => {
    throw new Error('not a refusal');
  };
  const answer = await context.cloudly.router.during(method, fail, () => node.sessionRequest(method, { observation: {} }));
  assert.equal(answer, null, 'this library states a crash as a null response without an error');
}

/** Holds the first of two requests until the second one is answered. */
async function settlesOutOfOrder(router, method, fire) {
  const { open, opened } = gate();
  const arrived = [];
  const answer = async ({ order }) => {
    arrived.push(order);
    if (order === 'first') await opened;
    return { order };
  };
  await router.during(method, answer, async () => {
    const settled = [];
    const note = async (order) => settled.push((await fire({ order })).order);
    const first = note('first');
    try {
      await until(5_000, `${method} to arrive`, () => arrived.length === 1);
      await note('second');
    } finally {
      open();
      await first;
    }
    assert.deepEqual(arrived, ['first', 'second']);
    assert.deepEqual(settled, ['second', 'first']);
  });
}

async function answersOutOfOrder(context) {
  const node = await registered(context);
  await settlesOutOfOrder(context.cloudly.router, 'reportRuntimeAssignmentObservation', (body) =>
    node.sessionRequest('reportRuntimeAssignmentObservation', body),
  );
  await settlesOutOfOrder(node.router, 'applyRuntimeAssignment', (body) =>
    context.cloudly.pushToNode('node-a', 'applyRuntimeAssignment', body),
  );
}

async function largeBodies(context) {
  const node = await registered(context);
  const report = 'x'.repeat(2 * 1024 * 1024);
  const answer = await node.sessionRequest('reportRuntimeNetworkProtection', { report });
  assert.ok(answer.report === report, 'a 2 MiB body arrives both ways');
  const id = 'y'.repeat(2 * 1024 * 1024);
  const acknowledged = await context.cloudly.pushToNode('node-a', 'applyRuntimeAssignment', { assignment: { id } });
  assert.ok(acknowledged.assignment.id === id, 'a 2 MiB push arrives both ways');
}

export const exchanges = [
  ['a node registers and Cloudly issues its binding', registers],
  ['each node request reaches Cloudly untouched and is answered', nodeRequestsAreAnswered],
  ['each controller push reaches the node untouched and is answered', pushesAreAnswered],
  ['a push reaches the node it names', pushesReachTheNodeTheyName],
  ['a refusal of Cloudly travels back unchanged', refusalsOfCloudly],
  ['a refusal of the node travels back unchanged', refusalsOfTheNode],
  ['a method the far side does not have is answered with the exact text', unknownMethods],
  ['a handler that fails at Cloudly answers null', aHandlerThatFails],
  ['two requests answered out of order settle the right calls', answersOutOfOrder],
  ['bodies of 2 MiB pass in both directions', largeBodies],
];

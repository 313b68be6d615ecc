// The exchanges that are about frames rather than bodies: echoed requests, binary frames, messages that are no
// envelope, an offered compression. Same shape as exchanges.mjs. Held through the relay: LIS-03, FWD-02.

import assert from 'node:assert/strict';
import { refusalOf, UNKNOWN_METHOD } from './typedrequest.mjs';

async function registered(context) {
  const node = await context.connect('node-a');
  await node.register();
  return node;
}

const last = (messages, method, phase) =>
  messages.filter((m) => m.method === method && m.correlation?.phase === phase).at(-1);

async function echoedRequests(context) {
  const node = await registered(context);
  const upward = 'getRuntimeRegistryCredential';
  await node.sessionRequest(upward);
  const echoed = last(context.cloudly.sent, upward, 'response');
  assert.deepEqual(echoed.request, { session: node.session }, 'the library at Cloudly echoes the request');
  assert.equal(echoed.localData, null, 'and adds localData');
  const downward = 'applyRuntimeAssignment';
  const assignment = { id: 'assignment-echo' };
  const answer = await context.cloudly.pushToNode('node-a', downward, { assignment });
  assert.deepEqual(answer.assignment, assignment);
  const answered = last(node.sent, downward, 'response');
  assert.deepEqual(answered.request, { session: node.session, assignment }, 'the library at the node echoes the request');
  assert.equal(answered.localData, null);
  if (!context.relayed) return;
  const atNode = last(node.frames.map(({ text }) => JSON.parse(text)), upward, 'response');
  assert.ok(!('request' in atNode) && !('localData' in atNode), 'no echo passes the relay upward');
  const atCloudly = last(context.cloudly.router.received, downward, 'response');
  assert.ok(!('request' in atCloudly), 'no echo passes the relay downward');
}

async function binaryFrames(context) {
  const { cloudly } = context;
  const node = await context.connect('node-a');
  const exchange = async () => {
    await node.register();
    const answer = await node.sessionRequest('reportRuntimeNetworkProtection', { report: { open: false } });
    assert.deepEqual(answer, { accepted: true, report: { open: false } });
    const acknowledged = await cloudly.pushToNode('node-a', 'applyRuntimeAssignment', { assignment: { id: 'binary' } });
    assert.equal(acknowledged.assignment.id, 'binary');
  };
  node.binary = true;
  await exchange();
  if (context.relayed) {
    const unknown = { text: UNKNOWN_METHOD, data: {} };
    assert.deepEqual(await refusalOf(node.request('noSuchMethod', {})), unknown, 'the listener reads a binary frame');
  }
  cloudly.binary = true;
  try {
    await exchange();
    if (context.relayed) {
      const unknown = { text: UNKNOWN_METHOD, data: {} };
      assert.deepEqual(await refusalOf(cloudly.pushToRelay('noSuchMethod', {})), unknown, 'so does the Cloudly session');
    }
    node.binary = false;
    await exchange();
  } finally {
    cloudly.binary = false;
  }
  const binary = node.frames.filter((frame) => frame.binary).length;
  if (context.relayed) assert.equal(binary, 0, 'the relay itself sends text frames only');
  else assert.notEqual(binary, 0, 'Cloudly did send binary frames');
}

async function messagesThatAreNoEnvelope(context) {
  const node = await registered(context);
  const before = node.frames.length;
  const id = 'uni_0123456789abcdef01234567';
  const oddities = [
    '}{',
    '',
    'null',
    '[]',
    '"text"',
    '{"method":"reportRuntimeNetworkProtection","request":{},"response":null}',
    `{"method":"reportRuntimeNetworkProtection","request":{},"response":null,"correlation":{"id":"${id}","phase":"other"}}`,
    `{"method":"reportRuntimeNetworkProtection","response":{},"correlation":{"id":"${id}","phase":"response"}}`,
  ];
  for (const text of oddities) node.send(text);
  const answer = await node.sessionRequest('reportRuntimeNetworkProtection', { report: 1 });
  assert.deepEqual(answer, { accepted: true, report: 1 });
  assert.equal(node.closed, null, 'the connection stays open');
  assert.equal(node.frames.length, before + 1, 'none of them got an answer');
}

async function compressionIsDeclined(context) {
  const node = await registered(context);
  assert.match(node.offered, /permessage-deflate/, 'the node offers compression');
  assert.equal(node.extensions, '', 'the server declines it');
  assert.deepEqual(await node.sessionRequest('getRuntimeSecretRecipientState'), { recipient: null });
}

export const carriage = [
  ['an answer that echoes its request settles the call', echoedRequests],
  ['a binary frame that holds the same JSON is answered', binaryFrames],
  ['a message that is no envelope gets no answer and closes nothing', messagesThatAreNoEnvelope],
  ['an offered permessage-deflate is declined and the connection works', compressionIsDeclined],
];

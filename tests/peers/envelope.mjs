// The form of every message the relay sends (contract.md section 1), judged over all that a whole run heard of it.

import assert from 'node:assert/strict';

const REQUEST_KEYS = ['correlation', 'method', 'request', 'requestInstanceId', 'response'];
const ANSWER_KEYS = ['correlation', 'error', 'method', 'requestInstanceId', 'response'];
const ID = /^uni_[0-9a-f]{24}$/;

/** What is wrong with one message of the relay's by contract.md section 1, or null. */
function objection(message) {
  const keys = Object.keys(message).sort();
  const { phase } = message.correlation ?? {};
  const foreign = keys.find((key) => !(phase === 'request' ? REQUEST_KEYS : ANSWER_KEYS).includes(key));
  if (foreign) return `the key ${foreign}`;
  if (!('response' in message)) return 'no response key';
  if (phase === 'request') {
    if (message.response !== null || !('request' in message)) return 'no request, or a response in a request';
    return ID.test(message.requestInstanceId) && ID.test(message.correlation.id) ? null : 'the form of its ids';
  }
  if (phase !== 'response') return 'its phase';
  if ('requestInstanceId' in message) return 'a requestInstanceId this generation never sent';
  if (!('error' in message)) return null;
  const { text, data = {} } = message.error ?? {};
  const named = typeof text === 'string' && typeof data === 'object' && data !== null;
  return named && message.response === null ? null : 'the form of its error';
}

/** Every message the relay sent: to Cloudly's router over a WebSocket, and to each of `nodes`. */
export function envelopesOfTheRelay({ cloudly, nodes }) {
  const toCloudly = cloudly.router.received.filter((m) => m.method !== 'getIdentityByToken');
  const toNodes = nodes.flatMap((node) => node.frames.map(({ text }) => JSON.parse(text)));
  assert.ok(toCloudly.length > 50 && toNodes.length > 50, 'enough was said to judge');
  for (const message of [...toCloudly, ...toNodes]) {
    const wrong = objection(message);
    assert.equal(wrong, null, `a ${message.correlation?.phase} of ${message.method} has ${wrong}`);
  }
}

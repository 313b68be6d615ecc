// Cloudly and the node wired together without a relay: what the exchanges mean before anything stands between the two.
// Runs alone (`node --test selftest.mjs`) and as the first test of run.mjs.

import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { chmod, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { carriage } from './carriage.mjs';
import { makeAuthority } from './certificates.mjs';
import { Cloudly } from './cloudly.mjs';
import { exchanges } from './exchanges.mjs';
import { PalletNode } from './node.mjs';
import { call, collectLibraryLines, ObservedRouter, refusalOf } from './typedrequest.mjs';

/** The bearers of the two nodes. */
export const AUTHORIZATIONS = new Map([
  ['bearer-of-node-a', 'node-a'],
  ['bearer-of-node-b', 'node-b'],
]);

/** A directory that every user of the host may enter; `remove` takes it away. */
export async function makeDirectory() {
  const path = await mkdtemp(join(tmpdir(), 'coreflow-peers-'));
  await chmod(path, 0o755);
  const remove = () => rmSync(path, { recursive: true, force: true });
  process.once('exit', remove);
  return { path, remove };
}

/** Dials nodes at `url` and closes them all when the test `t` ends. */
export function dialer(url, authority) {
  return (t) => async (nodeId) => {
    const [authorization] = [...AUTHORIZATIONS].find(([, id]) => id === nodeId);
    const node = await PalletNode.connect({ url, authority, nodeId, authorization });
    t.after(() => node.close());
    return node;
  };
}

/** Runs every exchange against `cloudly` as a subtest of `t`; `dial` is a `dialer`. */
export async function runExchanges(t, { cloudly, dial, relayed, scenario }) {
  for (const [name, run] of [...exchanges, ...carriage]) {
    await scenario(t, name, (inner) => run({ cloudly, connect: dial(inner), relayed }));
  }
}

/** The identity exchange over HTTP, by the library's router and Node's own client. */
async function identityOverHttp(cloudly, authority) {
  const { request } = await import('node:https');
  const post = (token) => {
    const router = new ObservedRouter();
    const send = (text) => {
      const options = { method: 'POST', ca: authority, family: 4, headers: { 'content-type': 'application/json' }, timeout: 5_000 };
      const posting = request(`${cloudly.origin}/typedrequest`, options, async (response) => {
        let body = '';
        for await (const chunk of response.setEncoding('utf8')) body += chunk;
        await router.routeAndAddResponse(JSON.parse(body));
      });
      posting.end(text);
    };
    return call(router, send, 'getIdentityByToken', { token });
  };
  const { identity } = await post(cloudly.bearer);
  assert.equal(identity.role, 'cluster');
  assert.deepEqual(cloudly.tokens, [identity.jwt]);
  assert.deepEqual(await refusalOf(post('foreign')), { text: 'identity-token-refused', data: {} });
}

/** The suite of this file as subtests of `t`. */
export async function selftest(t) {
  const directory = await makeDirectory();
  t.after(() => directory.remove());
  const authority = await makeAuthority(directory.path);
  const certificate = await authority.issue('localhost');
  const cloudly = await new Cloudly({ certificate, bearer: 'bearer-of-the-relay', authorizations: AUTHORIZATIONS }).start();
  t.after(() => cloudly.stop());
  await t.test('Cloudly exchanges a bearer for an identity over HTTP', () => identityOverHttp(cloudly, authority.ca));
  const dial = dialer(`wss://localhost:${cloudly.port}/`, authority.ca);
  const scenario = (outer, name, run) => outer.test(name, { timeout: 30_000 }, run);
  await runExchanges(t, { cloudly, dial, relayed: false, scenario });
  assert.deepEqual(cloudly.violations, []);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const lines = collectLibraryLines();
  test('the peers wired together', async (t) => {
    try {
      await selftest(t);
    } catch (failure) {
      t.diagnostic(lines.slice(-30).join('\n'));
      throw failure;
    }
  });
}

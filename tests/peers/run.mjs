// The suite: `node run.mjs <directory of the relay's binaries>`, or the directory in COREFLOW_BIN_DIR. First the two
// peers without a relay, then the real relay between them, last its end.

import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { makeAuthority } from './certificates.mjs';
import { within } from './bounds.mjs';
import { NODE_SECRETS } from './cloudly-sessions.mjs';
import { Cloudly } from './cloudly.mjs';
import { envelopesOfTheRelay } from './envelope.mjs';
import { freePort } from './ports.mjs';
import { relayScenarios } from './relay-scenarios.mjs';
import { missingBinaries, OPEN_LINE, Relay } from './relay.mjs';
import { AUTHORIZATIONS, dialer, makeDirectory, runExchanges, selftest } from './selftest.mjs';
import { collectLibraryLines } from './typedrequest.mjs';

const BEARER = 'bearer-of-the-relay-credential-6d1f';
const HOST = 'relay.cluster.test';
const START_MS = 30_000;
const SCENARIO_MS = 60_000;

const binaries = process.argv[2] ?? process.env.COREFLOW_BIN_DIR;
if (!binaries) {
  process.stderr.write('usage: node run.mjs <directory of the relay binaries>, or COREFLOW_BIN_DIR\n');
  process.exit(2);
}
const missing = await missingBinaries(binaries);
if (missing.length > 0) {
  process.stderr.write(`not in ${binaries}, or not executable: ${missing.join(', ')}\n`);
  process.exit(2);
}
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
// A reader that goes away ends the run like a signal: by `exit`, which takes the relay and the directories along.
process.stdout.on('error', () => process.exit(1));

const libraryLines = collectLibraryLines();
const context = { nodes: [] };

/** Starts a relay with `bearer` in a directory of its own. */
async function startRelay(name, bearer, port) {
  const directory = join(context.directory.path, name);
  await mkdir(directory, { mode: 0o755 });
  const { caFile } = context.authority;
  return Relay.start({ binaries, directory, cloudlyUrl: context.cloudly.origin, bearer, nodeId: 'node-relay', port, caFile });
}

/** One named test; on a failure the lines that the relay and the library printed meanwhile follow it. */
function scenario(t, name, run) {
  return t.test(name, { timeout: SCENARIO_MS }, async (inner) => {
    const from = { relay: context.relay?.lines.length ?? 0, library: libraryLines.length };
    try {
      await run(inner);
    } catch (failure) {
      const relay = context.relay?.lines ?? [];
      // A start that failed has said so before this test began.
      const shown = relay.length > from.relay ? relay.slice(from.relay) : relay.slice(-20);
      for (const line of shown.slice(-60)) inner.diagnostic(`relay   | ${line}`);
      for (const line of libraryLines.slice(from.library).slice(-20)) inner.diagnostic(`library | ${line}`);
      throw failure;
    }
  });
}

before(async () => {
  context.directory = await makeDirectory();
  context.authority = await makeAuthority(context.directory.path);
});

after(async () => {
  await context.relay?.end();
  await context.cloudly?.stop();
  await context.directory?.remove();
});

test('the peers wired together', { timeout: 2 * SCENARIO_MS }, selftest);

test('the relay between Cloudly and its nodes', { timeout: 20 * SCENARIO_MS }, async (t) => {
  const port = await freePort();
  const origin = `https://${HOST}:${port}`;
  const [certificate, relayCertificate] = [await context.authority.issue('localhost'), await context.authority.issue(HOST)];
  const relay = { origin, certificate: relayCertificate };
  context.cloudly = await new Cloudly({ certificate, relay, bearer: BEARER, authorizations: AUTHORIZATIONS }).start();
  const { cloudly } = context;
  const authority = context.authority.ca;
  const url = `wss://${HOST}:${port}/`;

  // START-18, ARC-20
  await scenario(t, 'a bearer Cloudly does not know ends the start with 1 and the refusal', async () => {
    context.relay = await startRelay('refused', 'another-bearer', port);
    const how = await within(START_MS, 'exit of the relay', context.relay.exited);
    assert.equal(how.code, 1, JSON.stringify(how));
    assert.ok(context.relay.lines.some((line) => line.startsWith('err') && line.includes('identity-token-refused')));
    assert.equal(await context.relay.left(), 0, 'processes that outlive it');
  });
  await context.relay?.end();

  // START-05, CFG-04, LIS-12
  let open = false;
  await scenario(t, 'the relay opens for Cloudly dispatch', async () => {
    context.relay = await startRelay('relay', BEARER, port);
    await context.relay.line(OPEN_LINE, START_MS);
    open = true;
  });
  assert.ok(open, 'without an open relay nothing below can be tried');

  const dialing = dialer(url, authority);
  const dial = (inner) => async (nodeId) => {
    const node = await dialing(inner)(nodeId);
    context.nodes.push(node);
    return node;
  };
  const given = { cloudly, relay: context.relay, url, authority, port };
  const [first, ...others] = relayScenarios;
  const own = ([name, run]) => scenario(t, name, (inner) => run({ ...given, connect: dial(inner) }));
  await own(first);
  await runExchanges(t, { cloudly, dial, relayed: true, scenario });
  for (const other of others) await own(other);

  // REG-23, SES-04: nothing Cloudly had to object to in silence
  await scenario(t, 'the relay broke no rule of the contract at Cloudly', async () => {
    assert.deepEqual(cloudly.violations, []);
  });
  await scenario(t, 'every message of the relay has the form of the contract', async () => envelopesOfTheRelay(context));

  // START-10, START-11, ARC-20
  await scenario(t, 'SIGTERM ends the relay with 0 and leaves no process', async () => {
    const { code, signal, workers, left } = await context.relay.terminate(20_000);
    assert.deepEqual({ code, signal, left }, { code: 0, signal: null, left: 0 });
    assert.ok(workers >= 1, 'it ran workers');
  });

  // LOG-01, LOG-05, LOG-09, FWD-28
  await scenario(t, 'no line of the relay holds a secret', async () => {
    const keys = relayCertificate.key.split('\n').filter((line) => line.length > 20 && !line.startsWith('-----'));
    const secrets = [BEARER, ...AUTHORIZATIONS.keys(), ...cloudly.tokens, ...NODE_SECRETS, ...keys];
    const shown = secrets.filter((secret) => context.relay.lines.some((line) => line.includes(secret)));
    assert.deepEqual(shown.map((secret) => secret.slice(0, 8)), []);
    assert.ok(context.relay.lines.length > 0);
  });
});

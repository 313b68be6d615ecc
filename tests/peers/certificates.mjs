// A throw-away authority and the two server certificates it signs, made with the `openssl` command and P-256 keys.

import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
const CONFIG = `[req]
distinguished_name = name
prompt = no
[name]
CN = coreflow peers
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
`;

async function openssl(...args) {
  try {
    await run('openssl', args, { timeout: 20_000 });
  } catch (failure) {
    throw new Error(`openssl ${args[0]} failed: ${failure.stderr || failure.message}`);
  }
}

/** Makes the authority in `directory`; `caFile` is its certificate, readable by every user of the host. */
export async function makeAuthority(directory) {
  const config = join(directory, 'openssl.cnf');
  const caFile = join(directory, 'ca.pem');
  const caKey = join(directory, 'ca.key');
  await writeFile(config, CONFIG);
  const made = ['-config', config, '-extensions', 'authority', '-subj', '/CN=coreflow peers authority', '-days', '2'];
  await openssl('req', '-x509', ...KEY, ...made, '-keyout', caKey, '-out', caFile);
  const ca = await readFile(caFile, 'utf8');
  return { caFile, ca, issue: (host) => issue({ directory, config, caFile, caKey, host }) };
}

/** A certificate for exactly `host`: PEM of `key` (PKCS#8), `cert` and `csr`, and the end of its validity. */
async function issue({ directory, config, caFile, caKey, host }) {
  const file = (ending) => join(directory, `${host}.${ending}`);
  await openssl('req', '-new', ...KEY, '-config', config, '-subj', `/CN=${host}`, '-keyout', file('key'), '-out', file('csr'));
  await writeFile(
    file('ext'),
    `basicConstraints = critical, CA:FALSE\nkeyUsage = critical, digitalSignature\nextendedKeyUsage = serverAuth\nsubjectAltName = DNS:${host}\nauthorityKeyIdentifier = keyid\n`,
  );
  const signed = ['-CA', caFile, '-CAkey', caKey, '-CAcreateserial', '-days', '1', '-extfile', file('ext')];
  await openssl('x509', '-req', '-in', file('csr'), ...signed, '-out', file('cert'));
  const [key, cert, csr] = await Promise.all(['key', 'cert', 'csr'].map((ending) => readFile(file(ending), 'utf8')));
  return { host, key, cert, csr, created: Date.now(), validUntil: Date.now() + 23 * 3_600_000 };
}

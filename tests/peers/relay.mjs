// The real relay, started as its unit would start it: a working directory with `qenv.yml`, the bearer as a systemd
// credential, the rest in an environment that holds nothing else. Its lines are kept, and nothing of it outlives `end`.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { access, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { until, within } from './bounds.mjs';

export const BINARIES = ['coreflow', 'coreflow-relayd', 'coreflow-pulld', 'coreflow-vpnd'];
export const OPEN_LINE = 'the relay is open for Cloudly dispatch';
const BEARER = 'SERVEZONE_CLUSTER_RELAY_AUTHORIZATION';

/** The relays that `end` has not seen off; the process that started them takes them along however it ends. */
const running = new Set();
process.on('exit', () => {
  for (const relay of running) relay.kill();
});

/** The names of the binaries that `directory` does not hold as executables. */
export async function missingBinaries(directory) {
  const checks = await Promise.allSettled(BINARIES.map((name) => access(join(directory, name), constants.X_OK)));
  return BINARIES.filter((_, at) => checks[at].status === 'rejected');
}

/** Every living process (zombies left out): its id, its parent and its process group. */
async function processes() {
  const found = [];
  for (const entry of await readdir('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const stat = await readFile(`/proc/${entry}/stat`, 'utf8').catch(() => '');
    const [state, parent, group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (group && state !== 'Z') found.push({ pid: Number(entry), parent: Number(parent), group: Number(group) });
  }
  return found;
}

export class Relay {
  /** Everything it printed, one entry a line, prefixed `out` or `err`. */
  lines = [];
  #known = new Set();

  /** Starts the supervisor of `binaries` in a fresh directory below `directory`. */
  static async start({ binaries, directory, cloudlyUrl, bearer, nodeId, port, caFile }) {
    const credentials = join(directory, 'credentials');
    await mkdir(credentials, { mode: 0o700, recursive: true });
    await writeFile(join(credentials, BEARER), bearer, { mode: 0o400 });
    await writeFile(join(directory, 'qenv.yml'), `required:\n  - CLOUDLY_URL\n  - ${BEARER}\n`);
    const environment = {
      CLOUDLY_URL: cloudlyUrl,
      CREDENTIALS_DIRECTORY: credentials,
      COREFLOW_NODE_ID: nodeId,
      COREFLOW_RELAY_BIND_HOSTNAME: '127.0.0.1',
      COREFLOW_RELAY_BIND_PORT: String(port),
      SSL_CERT_FILE: caFile,
    };
    const relay = new Relay();
    relay.#spawn(resolve(binaries, 'coreflow'), directory, environment);
    return relay;
  }

  #spawn(program, cwd, env) {
    this.child = spawn(program, [], { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    running.add(this);
    for (const [name, stream] of Object.entries({ out: this.child.stdout, err: this.child.stderr })) {
      createInterface({ input: stream }).on('line', (line) => this.lines.push(`${name} ${line}`));
    }
    this.exited = new Promise((done) => {
      this.child.once('error', (failure) => done({ failure: failure.message }));
      // `close` comes after the last line of both streams.
      this.child.once('close', (code, signal) => done({ code, signal }));
    });
    this.exited.then((how) => {
      this.how = how;
    });
  }

  /** Waits for a line that holds `text`; an exit before it is an error that says how. */
  line(text, ms) {
    return until(ms, `line "${text}" of the relay`, () => {
      const found = this.lines.find((line) => line.includes(text));
      if (!found && this.how) throw new Error(`the relay ended with ${JSON.stringify(this.how)} before the line "${text}"`);
      return found;
    });
  }

  /** The process ids of its workers now; they are also what `left` looks for later. */
  async workers() {
    const all = await processes();
    const workers = all.filter(({ parent }) => parent === this.child.pid).map(({ pid }) => pid);
    for (const pid of workers) this.#known.add(pid);
    return workers;
  }

  /** How many of its processes (known workers, or members of its process group) still live after at most 2 s. */
  async left() {
    const mine = async () =>
      (await processes()).filter(({ pid, group }) => group === this.child.pid || this.#known.has(pid)).length;
    let count;
    await until(2_000, 'end of its processes', async () => (count = await mine()) === 0).catch(() => {});
    return count;
  }

  /** Sends SIGTERM; answers how the supervisor ended, how many workers it had and how many processes are left. */
  async terminate(ms) {
    const { length } = await this.workers();
    this.child.kill('SIGTERM');
    const how = await within(ms, 'exit of the relay after SIGTERM', this.exited);
    return { ...how, workers: length, left: await this.left() };
  }

  /** Ends whatever is left of it, at once. */
  async end() {
    if (!this.how) await this.workers();
    this.kill();
    await within(5_000, 'exit of the relay after SIGKILL', this.exited);
    assert.equal(await this.left(), 0, 'processes left after SIGKILL');
    running.delete(this);
  }

  /** Kills its process group, so that not even a supervisor killed before it leaves a worker. */
  kill() {
    try {
      process.kill(-this.child.pid, 'SIGKILL');
    } catch {
      // Nothing of its process group is left, or it never started.
    }
  }
}

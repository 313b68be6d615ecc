// A Pallet node: one TLS WebSocket (the `ws` package, compression offered) whose messages all pass through the
// published library, as requests by its client side and as pushes by its router.

import { randomUUID } from 'node:crypto';
import WebSocket from 'ws';
import { CALL_MS, within } from './bounds.mjs';
import { call, ObservedRouter } from './typedrequest.mjs';

export const NODE_OFFER = { release: '33.1.0', oldestAcceptedPeerRelease: '32.10.1' };

/** The pushes a node answers; each answer is bound to its request, as contract.md sections 4.2 and 4.3 ask. */
const PUSHES = {
  applyRuntimeAssignment: ({ session, assignment }) => ({ session, assignment: { id: assignment.id }, state: 'accepted' }),
  applyRuntimeNetworkSigningAuthority: ({ session, authority }) => ({ session, authority: { id: authority.id } }),
  applyRuntimeNetworkProjection: ({ session, projection }) => ({ session, projection }),
  applyRuntimeNetworkDnsLeaseRenewal: ({ session, renewal }) => ({
    session,
    renewal: { projection: renewal.projection, sequence: renewal.sequence },
  }),
};

export class PalletNode {
  router = new ObservedRouter();
  /** Every message that came off the wire: `{binary, text}`. */
  frames = [];
  /** Every message the library gave to the connection. */
  sent = [];
  /** True while requests and answers leave as binary frames. */
  binary = false;
  session = null;
  closed = null;

  /**
   * Dials `url` at 127.0.0.1 whatever its host name says, which stays the TLS server name and the Host header.
   * `authority` is the PEM of the authority that is trusted.
   */
  static async connect({ url, authority, nodeId, authorization }) {
    const node = new PalletNode(nodeId, authorization);
    const socket = new WebSocket(url, {
      ca: authority,
      perMessageDeflate: true,
      handshakeTimeout: 5_000,
      lookup: (_, { all }, done) => (all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4)),
      finishRequest: (request) => {
        node.offered = request.getHeader('Sec-WebSocket-Extensions') ?? '';
        request.end();
      },
    });
    await node.#open(socket, url);
    return node;
  }

  constructor(nodeId, authorization) {
    Object.assign(this, { nodeId, authorization, nonce: randomUUID() });
    for (const [method, respond] of Object.entries(PUSHES)) this.router.answer(method, respond);
  }

  /** The extensions that were agreed on; empty when the offer was declined. */
  get extensions() {
    return this.socket.extensions;
  }

  /** Registers and keeps the binding; `changes` replace members of the body. */
  async register(changes = {}) {
    const body = {
      protocol: NODE_OFFER,
      authorization: this.authorization,
      nodeId: this.nodeId,
      nodeInstanceNonce: this.nonce,
      credentialGeneration: 1,
      ...changes,
    };
    const answer = await this.request('registerPalletRuntimeSession', body);
    this.session = answer.session;
    return answer;
  }

  request(method, request, ms = CALL_MS) {
    return call(this.router, (text) => this.send(text), method, request, ms);
  }

  /** A request that carries this node's binding. */
  sessionRequest(method, body = {}, ms = CALL_MS) {
    return this.request(method, { session: this.session, ...body }, ms);
  }

  /** One message as it is, without the library. */
  send(text) {
    if (this.socket.readyState !== WebSocket.OPEN) throw new Error(`the connection of ${this.nodeId} is not open`);
    try {
      this.sent.push(JSON.parse(text));
    } catch {
      // A scenario that sends what is no JSON has nothing to remember here.
    }
    this.socket.send(this.binary ? Buffer.from(text) : text);
  }

  async close() {
    if (this.socket.readyState === WebSocket.CLOSED) return;
    const closed = new Promise((resolve) => this.socket.once('close', resolve));
    this.socket.close(1000);
    try {
      await within(2_000, `close of ${this.nodeId}`, closed);
    } catch {
      this.socket.terminate();
    }
  }

  async #open(socket, url) {
    this.socket = socket;
    socket.on('message', (data, isBinary) => this.#route(data.toString('utf8'), isBinary));
    socket.on('close', (code) => {
      this.closed = code;
    });
    const opened = new Promise((resolve, reject) => {
      socket.once('open', resolve);
      socket.once('error', reject);
    });
    await within(6_000, `WebSocket to ${url}`, opened);
    socket.on('error', (failure) => {
      this.failure = failure;
    });
  }

  async #route(text, binary) {
    this.frames.push({ binary, text });
    const answer = await this.router.routeAndAddResponse(JSON.parse(text));
    if (answer && this.socket.readyState === WebSocket.OPEN) this.send(JSON.stringify(answer));
  }
}

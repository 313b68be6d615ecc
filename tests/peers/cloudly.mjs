// A Cloudly on loopback out of @push.rocks/smartserve and @api.global/typedrequest: TLS, WebSocket at any path (the
// package narrows nothing), `POST /typedrequest` for the identity. It holds sessions, registrations and bindings as
// contract.md sections 3 and 4 state them and pushes requests over the connection a registration came on.

import { randomBytes, randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { SmartServe } from '@push.rocks/smartserve';
import * as smartjson from '@push.rocks/smartjson';
import { answerNodeRequests } from './cloudly-sessions.mjs';
import { freePort } from './ports.mjs';
import { call, ObservedRouter, TypedResponseError } from './typedrequest.mjs';

export const OFFER = { release: '33.1.0', oldestAcceptedPeerRelease: '32.0.0' };

export class Cloudly {
  router = new ObservedRouter();
  /** Every message sent over a WebSocket, as the library gave it to the connection. */
  sent = [];
  /** What the relay did against the contract, refused or not; a scenario expects it empty. */
  violations = [];
  /** True while answers and pushes leave as binary frames. */
  binary = false;
  /** Where set, what the text of every message becomes on its way out. */
  rewrite = null;
  /** The connection whose `registerClusterRelay` was accepted last, and those registrations. */
  relayPeer = null;
  registrations = [];
  #identities = [];
  #server;

  /**
   * `certificate` serves this Cloudly; `relay` is `{origin, certificate}` of the cluster's relay, or null for a
   * cluster without one; `bearer` is the relay credential; `authorizations` maps a node's bearer to its node id.
   */
  constructor({ certificate, relay = null, bearer, authorizations, clusterId = 'cluster-a' }) {
    Object.assign(this, { certificate, relay, bearer, authorizations, clusterId });
    this.#answerRelayRequests();
    this.sessions = answerNodeRequests(this);
  }

  async start() {
    this.port = await freePort();
    this.#server = new SmartServe({
      port: this.port,
      hostname: '127.0.0.1',
      tls: { cert: this.certificate.cert, key: this.certificate.key },
      websocket: { typedRouter: this.router, onConnectionOpen: (peer) => this.#observe(peer) },
    });
    this.#server.setHandler((request) => this.#overHttp(request));
    await this.#server.start();
    return this;
  }

  get origin() {
    return `https://localhost:${this.port}`;
  }

  /** Open WebSocket connections. */
  get peers() {
    return this.#server.getWebSocketConnections();
  }

  /** The jwt of every identity that was issued. */
  get tokens() {
    return this.#identities.map((identity) => identity.jwt);
  }

  async stop() {
    for (const peer of this.peers) peer.terminate();
    await this.#server.stop();
  }

  /**
   * Answers `method` with `handler(request, peer)`. The router hands its handlers a copy of the connection, so the
   * connection itself is looked up by its id; over HTTP there is none.
   */
  answer(method, handler) {
    this.router.answer(method, (request, { peer }) => handler(request, peer && this.peers.find(({ id }) => id === peer.id)));
  }

  /** One request of Cloudly's to the accepted relay. */
  pushToRelay(method, request, ms) {
    if (!this.relayPeer) throw new Error('no relay is registered');
    return this.pushTo(this.relayPeer, method, request, ms);
  }

  pushTo(peer, method, request, ms) {
    return call(this.router, (text) => peer.send(text), method, request, ms);
  }

  /** One controller push for a node, over the connection its registration came on, carrying its binding. */
  pushToNode(nodeId, method, body, ms) {
    const { binding, peer } = this.sessions.of(nodeId);
    return this.pushTo(peer, method, { session: binding, ...body }, ms);
  }

  #observe(peer) {
    const sendText = peer.send;
    peer.send = (message) => {
      const text = this.rewrite ? this.rewrite(message) : message;
      this.sent.push(JSON.parse(text));
      return this.binary ? peer.sendBinary(Buffer.from(text)) : sendText(text);
    };
  }

  /** What the published HTTP controller does: route the body, answer 200 with smartjson's text, 400 otherwise. */
  async #overHttp(request) {
    const { pathname } = new URL(request.url);
    if (pathname !== '/typedrequest') return new Response('Not Found', { status: 404 });
    if (request.method === 'HEAD') return new Response(null, { status: 200 });
    if (request.method !== 'POST') return new Response('Method Not Allowed', { status: 405 });
    const headers = { 'Content-Type': 'application/json' };
    try {
      const answer = await this.router.routeAndAddResponse(await request.json());
      return new Response(smartjson.stringify(answer), { status: 200, headers });
    } catch {
      return new Response(JSON.stringify({ error: 'Invalid request' }), { status: 400, headers });
    }
  }

  #answerRelayRequests() {
    const answer = (method, handler) => this.answer(method, handler);
    answer('getIdentityByToken', (request, peer) => {
      if (peer) this.violations.push('getIdentityByToken came over a WebSocket');
      this.#exactKeys(request, 'request', ['token']);
      if (request.token !== this.bearer) throw new TypedResponseError('identity-token-refused', {});
      return { identity: this.#issueIdentity() };
    });
    answer('registerCloudlyClientSession', (request, peer) => {
      this.#exactKeys(request, 'request', ['identity', 'clientType', 'protocol']);
      this.#verify(request);
      this.#exactKeys(request.protocol, 'protocol', ['release', 'oldestAcceptedPeerRelease']);
      if (request.clientType !== 'coreflow') throw new TypedResponseError('body-invalid: clientType', {});
      peer.data.set('identity', request.identity);
      return { protocol: OFFER };
    });
    answer('registerClusterRelay', (request, peer) => this.#registerRelay(request, peer));
    answer('getClusterConfig', (request) => {
      this.#verify(request);
      return this.#configState();
    });
    answer('getCertificateForDomain', (request) => {
      this.#verify(request);
      const { certificate } = this.relay ?? {};
      if (request.type !== 'ssl' || request.domainName !== certificate?.host) {
        throw new TypedResponseError('certificate-unknown', {});
      }
      const { host, key, cert, csr, created, validUntil } = certificate;
      return { certificate: { id: 'certificate-relay', domainName: host, created, validUntil, privateKey: key, publicKey: cert, csr } };
    });
    const afterAcceptance = (method, body) =>
      answer(method, (_, peer) => {
        if (peer !== this.relayPeer) throw new TypedResponseError('relay-not-connected', {});
        return body;
      });
    afterAcceptance('getClusterRouteTable', { routeTable: null });
    afterAcceptance('getClusterVpnNetwork', { network: null });
    afterAcceptance('getClusterPlatformDesiredState', { bindings: [] });
  }

  #registerRelay(request, peer) {
    if (!peer.data.has('identity')) throw new TypedResponseError('relay-identity-unverified', {});
    this.#exactKeys(request, 'request', ['protocol', 'registrationSequence', 'relay']);
    this.#exactKeys(request.relay, 'relay', ['version', 'nodeId', 'listenAddress', 'listenPort'], ['vpnHub']);
    if (!this.relay) throw new TypedResponseError('relay-cluster-not-enabled', {});
    if (request.registrationSequence <= (peer.data.get('sequence') ?? -1)) {
      throw new TypedResponseError('relay-sequence-not-advancing', {});
    }
    peer.data.set('sequence', request.registrationSequence);
    this.relayPeer = peer;
    this.registrations.push(structuredClone(request));
    return {
      protocol: OFFER,
      origin: this.relay.origin,
      credential: { id: 'credential-relay', generation: 1 },
      registration: { id: 'registration-relay', generation: this.registrations.length },
    };
  }

  /** Refuses a body that is not exact-key, and keeps that as a violation: the relay may send no other. */
  #exactKeys(value, path, required, optional = []) {
    const keys = Object.keys(value ?? {});
    const missing = required.find((key) => !keys.includes(key));
    const unknown = keys.find((key) => !required.includes(key) && !optional.includes(key));
    if (!missing && !unknown) return;
    const reason = missing ? `${path}.${missing} is missing` : `${path}.${unknown} is unknown`;
    this.violations.push(reason);
    throw new TypedResponseError(`body-invalid: ${reason}`, {});
  }

  /** An identity whose jwt is long enough that its HTTP answer crosses the package's compression threshold. */
  #issueIdentity() {
    const jwt = ['header', randomBytes(900).toString('base64url'), 'signature'].join('.');
    const expiresAt = Date.now() + 3_600_000;
    const identity = { name: 'relay', userId: randomUUID(), type: 'machine', role: 'cluster', expiresAt, jwt };
    this.#identities.push(identity);
    return identity;
  }

  #verify({ identity }) {
    if (!this.#identities.some((issued) => isDeepStrictEqual(issued, identity))) {
      throw new TypedResponseError('identity-refused', {});
    }
  }

  #configState() {
    const nodeIds = ['node-relay', ...this.authorizations.values()];
    const nodes = nodeIds.map((id) => ({ id, data: { clusterId: this.clusterId } }));
    const relay = this.relay ? { relay: { origin: this.relay.origin } } : {};
    const configData = { id: this.clusterId, data: { name: 'peers', nodes, ...relay } };
    return { configData, services: [], corestorePublicationGrants: [] };
  }
}

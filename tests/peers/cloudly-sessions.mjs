// Cloudly's side of the runtime sessions of contract.md section 4.1: a registration issues a binding for the node its
// authorization names, every other node request must carry that node's current binding.

import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { TypedResponseError } from './typedrequest.mjs';

/** The offer Cloudly states to a node. */
const RUNTIME_OFFER = { release: '33.1.0', oldestAcceptedPeerRelease: '32.10.1' };

/** The node requests beside the registration, each with the answer this Cloudly gives. */
export const NODE_METHODS = {
  getRuntimeManagedVpnCredential: () => ({ credential: { privateKey: 'vpn-credential-of-a-node' } }),
  getRuntimeRegistryCredential: () => ({ credential: { username: 'node', password: 'registry-credential-of-a-node' } }),
  reportRuntimeNetworkProtection: ({ report }) => ({ accepted: true, report }),
  reportRuntimeAssignmentObservation: ({ observation }) => ({ accepted: true, observation }),
  reportRuntimeAssignmentTerminalReceipt: ({ receipt }) => ({ accepted: true, receipt }),
  getRuntimeSecretRecipientState: () => ({ recipient: null }),
  beginRuntimeSecretRecipientEnrollment: ({ recipientKeyId }) => ({ recipientKeyId, challenge: 'possession-challenge' }),
  completeRuntimeSecretRecipientEnrollment: ({ recipientKeyId }) => ({ recipientKeyId, state: 'active' }),
  getRuntimeSecretMaterial: () => ({ material: { sealed: 'assignment-secret-material' } }),
};

/** What Cloudly's answers above hold that no log line may show. */
export const NODE_SECRETS = [
  'vpn-credential-of-a-node',
  'registry-credential-of-a-node',
  'possession-challenge',
  'assignment-secret-material',
];

/** Registers the handlers of all node requests on `cloudly`; answers the sessions that are current. */
export function answerNodeRequests(cloudly) {
  const current = new Map();

  cloudly.answer('registerPalletRuntimeSession', (request, peer) => {
    const nodeId = cloudly.authorizations.get(request.authorization);
    if (!nodeId || nodeId !== request.nodeId) {
      throw new TypedResponseError('runtime-authorization-refused: unknown to this cluster', {
        nodeId: request.nodeId,
        reasons: ['authorization', { attempt: 1, final: true }],
      });
    }
    const generation = (current.get(nodeId)?.binding.generation ?? 0) + 1;
    const binding = { sessionId: `session-${randomUUID()}`, nodeId, clusterId: cloudly.clusterId, generation };
    current.set(nodeId, { binding, peer });
    return { session: binding, protocol: RUNTIME_OFFER, heartbeat: { intervalMs: 30000 } };
  });

  for (const [method, respond] of Object.entries(NODE_METHODS)) {
    cloudly.answer(method, (request, peer) => {
      const held = current.get(request.session?.nodeId);
      if (!held || held.peer !== peer || !isDeepStrictEqual(held.binding, request.session)) {
        throw new TypedResponseError('runtime-session-unknown', {});
      }
      return respond(request);
    });
  }

  return {
    /** `{binding, peer}` of a node's current session. */
    of(nodeId) {
      const held = current.get(nodeId);
      if (!held) throw new Error(`${nodeId} holds no session`);
      return held;
    },
  };
}

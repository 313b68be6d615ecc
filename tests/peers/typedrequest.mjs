// The published library's two sides as both peers use them: a router that remembers what it was given, and a call
// that is sent by the library's own TypedRequest and ends, which the library alone does not promise.

import { TypedHandler, TypedRequest, TypedResponseError, TypedRouter, TypedTarget } from '@api.global/typedrequest';
import { CALL_MS, within } from './bounds.mjs';

export { TypedResponseError };

/** The library's answer to a method that nothing handles; the relay states the same. */
export const UNKNOWN_METHOD = 'There is no available method for this call on the server side';

/** The library's router, with the messages it routed in `received` (as they came off the wire, without `localData`). */
export class ObservedRouter extends TypedRouter {
  received = [];
  #handlers = new Map();

  async routeAndAddResponse(message, options) {
    const { localData, ...wire } = message;
    this.received.push(structuredClone(wire));
    return super.routeAndAddResponse(message, options);
  }

  /** Answers `method` with what `handler(request, localData)` resolves to, in place of an earlier handler. */
  answer(method, handler) {
    this.withdraw(method);
    const typed = new TypedHandler(method, async (request, tools) => handler(request, tools.localData ?? {}));
    this.#handlers.set(method, typed);
    this.addTypedHandler(typed);
  }

  /** Makes `method` one that nothing here handles. */
  withdraw(method) {
    const known = this.#handlers.get(method);
    if (!known) return;
    this.handlerMap.remove(known);
    this.#handlers.delete(method);
  }

  /** Runs `scenario` while `handler` answers `method` (`null`: while nothing does), then restores the earlier handler. */
  async during(method, handler, scenario) {
    const before = this.#handlers.get(method);
    this.withdraw(method);
    if (handler) this.answer(method, handler);
    try {
      return await scenario();
    } finally {
      this.withdraw(method);
      if (before) {
        this.#handlers.set(method, before);
        this.addTypedHandler(before);
      }
    }
  }

  /** The requests for `method` that were routed here. */
  requests(method) {
    return this.received.filter((m) => m.method === method && m.correlation?.phase === 'request');
  }
}

/**
 * Fires one request by the library's client: `send` puts the JSON text on the wire, the answer is awaited through
 * `router`. Rejects with the library's TypedResponseError where the peer refused.
 */
export function call(router, send, method, request, ms = CALL_MS) {
  const target = new TypedTarget({
    postMethod: async (payload) => {
      send(JSON.stringify(payload));
    },
    typedRouterRef: router,
  });
  return within(ms, `answer to ${method}`, new TypedRequest(target, method).fire(request));
}

/** The refusal `{text, data}` that a call ends with; an answer, or any other failure, is an error. */
export async function refusalOf(calling) {
  let answer;
  try {
    answer = await calling;
  } catch (failure) {
    if (failure instanceof TypedResponseError) return { text: failure.errorText, data: failure.errorData };
    throw failure;
  }
  throw new Error(`a refusal was expected, the answer was ${JSON.stringify(answer)}`);
}

/** Takes the library's console lines off the terminal; the array they go to is returned. */
export function collectLibraryLines() {
  const lines = [];
  const collect = (...parts) => {
    lines.push(parts.map((part) => (typeof part === 'string' ? part : (part?.message ?? '[object]'))).join(' '));
    if (lines.length > 500) lines.shift();
  };
  for (const name of ['log', 'info', 'warn', 'error']) console[name] = collect;
  return lines;
}

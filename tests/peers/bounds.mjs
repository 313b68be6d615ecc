// Every wait of these peers ends: `within` bounds one promise, `until` one condition, and both name what was waited for.

/** Milliseconds one call may take: above every budget of the relay's own (9 s), so that a named refusal arrives first. */
export const CALL_MS = 10_000;

/** The promise's outcome, or an error that names `what` once `ms` milliseconds are over. */
export async function within(ms, what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The first truthy value of `probe`, asked every 20 ms for at most `ms` milliseconds. */
export async function until(ms, what, probe) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() >= end) throw new Error(`${what}: not within ${ms} ms`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A promise together with the function that resolves it. */
export function gate() {
  let open;
  const opened = new Promise((resolve) => {
    open = resolve;
  });
  return { open, opened };
}

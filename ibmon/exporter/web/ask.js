// One question to the server that gave the page. An answer that does not come is an error with a line for people.

const PATIENCE = 4000; // ms that an answer may take

export class Refused extends Error { // the server answered, and not with what was asked for
  constructor(status, line) {
    super(`it answers ${status}: ${line}`);
    this.status = status;
  }
}

export async function ask(path, headers = {}) { // the document, and the server's clock in s, NaN where it tells none
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), PATIENCE);
  try {
    const answer = await fetch(path, { signal: stop.signal, cache: "no-store", credentials: "same-origin", headers });
    if (!answer.ok) throw new Refused(answer.status, (await answer.text()).trim().slice(0, 200));
    return { body: await answer.json(), at: Date.parse(answer.headers.get("Date")) / 1000 };
  } catch (error) {
    if (error.name === "AbortError") throw new Error(`no answer within ${PATIENCE / 1000} s`);
    throw error instanceof TypeError ? new Error("no connection") : error;
  } finally {
    clearTimeout(timer);
  }
}

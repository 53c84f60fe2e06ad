// Asks the server for a chat answer and reads its event stream (docs/playground.md).
// It draws nothing; errors come out as Error with a message for people.

const DETAIL_LIMIT = 600;

// The requests of this page, each with the same options.
export class Server {
  constructor(readKey) {
    this.readKey = readKey;
    this.model = null;
  }

  headers() {
    const key = this.readKey();
    return key ? { Authorization: `Bearer ${key}` } : {};
  }

  // Finds out, once, what the model is called.
  async findModel(signal) {
    if (this.model !== null) return this.model;
    const response = await reach("v1/models", { headers: this.headers(), signal });
    const id = (await readJson(response))?.data?.[0]?.id;
    if (typeof id !== "string") throw new Error("The server lists no model.");
    this.model = id;
    return id;
  }

  // Yields {tokens: [{text, drafted}], content, elapsed} for each chunk (`elapsed` in milliseconds
  // by the server's clock, or null), and at last {end: {reason, usage, speculation}}.
  // Throws where the answer did not come whole.
  async *chat(request, signal) {
    const body = {
      model: await this.findModel(signal),
      stream: true,
      stream_options: { include_usage: true },
      return_token_ids: true,
      ...request,
    };
    const response = await reach("v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json", ...this.headers() },
      body: JSON.stringify(body),
      signal,
    });
    if (!response.body) throw new Error("The server sent an answer without a body.");
    yield* readAnswer(response.body);
  }
}

async function* readAnswer(body) {
  const end = { reason: null, usage: null, speculation: null };
  let done = false;
  for await (const data of readEvents(body)) {
    // Read on to the end of the body: a stream that is dropped looks like a client that left.
    done ||= data === "[DONE]";
    if (done) continue;
    const chunk = parse(data);
    if (chunk.error) throw new Error(cut(chunk.error.message ?? "The server reported an error."));
    end.usage = chunk.usage ?? end.usage;
    end.speculation = chunk.metrics?.speculative_decoding ?? end.speculation;
    const choice = chunk.choices?.[0];
    if (!choice) continue;
    end.reason = choice.finish_reason ?? end.reason;
    const tokens = readTokens(choice);
    const elapsed = choice.blockdraft?.elapsed_ms;
    yield {
      tokens,
      content: choice.delta?.content ?? "",
      elapsed: Number.isFinite(elapsed) ? elapsed : null,
    };
  }
  if (!done && end.reason === null) {
    throw new Error("The connection ended before the answer was complete.");
  }
  yield { end };
}

function readTokens(choice) {
  const tokens = choice.blockdraft?.tokens;
  if (Array.isArray(tokens)) {
    return tokens.map((token) => ({ text: String(token.text), drafted: token.drafted === true }));
  }
  // A server without step details: the text is shown, in no color.
  const text = (choice.delta?.reasoning ?? "") + (choice.delta?.content ?? "");
  return text === "" ? [] : [{ text, drafted: null }];
}

// The data of each server-sent event, with its lines joined as the standard says.
async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines.map((text) => text.replace(/\r$/, ""))) {
        if (line.startsWith("data:")) data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
        if (line !== "" || data.length === 0) continue;
        yield data.join("\n");
        data = [];
      }
    }
  } catch (error) {
    throw isAbort(error) ? error : new Error("The connection broke off during the answer.");
  } finally {
    reader.cancel().catch(() => {});
  }
}

// fetch, with every failure said in words.
async function reach(url, options) {
  let response;
  try {
    response = await fetch(url, { cache: "no-store", credentials: "same-origin", ...options });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new Error("The server can't be reached. Is it still running?");
  }
  if (response.ok) return response;
  throw new Error(await explain(response));
}

async function explain(response) {
  const said = (await response.json().catch(() => null))?.error?.message;
  const detail = typeof said === "string" && said !== "" ? ` ${cut(said)}` : "";
  const { status } = response;
  if (status === 401 || status === 403) {
    return `The server wants a valid API key: set it in Settings.${detail}`;
  }
  if (status === 503 || status === 429) {
    const seconds = response.headers.get("Retry-After");
    const when = /^\d+$/.test(seconds ?? "") ? `in ${seconds} s` : "in a moment";
    return `The server is busy; try again ${when}.${detail}`;
  }
  return detail ? `The server refused (${status}):${detail}` : `The server answered ${status}.`;
}

async function readJson(response) {
  return parse(await response.text());
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("The server sent something that is not JSON.");
  }
}

function cut(text) {
  const whole = String(text);
  return whole.length > DETAIL_LIMIT ? `${whole.slice(0, DETAIL_LIMIT)} ...` : whole;
}

export function isAbort(error) {
  return error instanceof DOMException && ["AbortError", "TimeoutError"].includes(error.name);
}

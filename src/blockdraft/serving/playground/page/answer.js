// Shows the text of one answer, a span for each token, and follows a stream into it.
// Text only ever becomes text nodes: nothing that a model says is read as markup.

export class Answer {
  constructor(element) {
    this.element = element;
    // What is shown, and the part of it that counts as the answer: without reasoning, say.
    this.text = "";
    this.content = "";
    this.waiting = [];
    this.frame = null;
  }

  // Adds tokens; they appear together with the next frame, however many chunks come before it.
  append(tokens) {
    for (const token of tokens) this.text += token.text;
    this.waiting.push(...tokens);
    this.frame ??= requestAnimationFrame(() => this.flush());
  }

  flush() {
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.frame = null;
    const spans = document.createDocumentFragment();
    for (const token of this.waiting) {
      if (token.text === "") continue;
      const span = document.createElement("span");
      span.className = "token";
      if (token.drafted !== null) span.classList.add(token.drafted ? "drafted" : "bonus");
      span.textContent = token.text;
      spans.append(span);
    }
    this.waiting = [];
    this.element.append(spans);
  }

  clear() {
    this.flush();
    this.element.replaceChildren();
    this.text = "";
  }
}

// Reads a stream to its end into an answer and its tally; `onTokens(tokens, time)` hears each
// chunk. Returns {reason, usage, speculation}; what came before a failure stays.
export async function follow(stream, answer, tally, onTokens) {
  let end = null;
  try {
    for await (const event of stream) {
      if (event.end) {
        end = event.end;
        continue;
      }
      // The server's clock is better: this page may be busy drawing when a chunk arrives.
      const { tokens, elapsed } = event;
      const time = elapsed === null ? performance.now() : tally.startTime + elapsed;
      tally.add(tokens, time);
      answer.append(tokens);
      answer.content += event.content;
      onTokens(tokens, time);
    }
  } finally {
    tally.end(end?.speculation);
    answer.flush();
    onTokens([], tally.lastTime);
  }
  return end;
}

// A number for people, or a dash where there is none yet.
export function shown(value, digits) {
  return value === null ? "-" : value.toFixed(value < 1000 ? digits : 0);
}

// "1 token", "2 tokens".
export function counted(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

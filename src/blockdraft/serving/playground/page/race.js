// A race: the same prompt plain and with DFlash, shown side by side.
// The two run one after the other; a replay then shows both at once at their true speeds.

import { Answer, counted, follow, shown } from "./answer.js";
import { Tally } from "./tally.js";

const LANES = [
  { name: "Plain", speculation: "off" },
  { name: "DFlash", speculation: "auto" },
];

export class Race {
  // `askFor(speculation)` starts a request and gives its stream; `panel` shows the lane that runs.
  constructor(panel, askFor) {
    this.element = clone("race-template");
    this.panel = panel;
    this.askFor = askFor;
    this.verdict = this.element.querySelector(".verdict");
    this.replayButton = this.element.querySelector("button");
    this.lanes = LANES.map((lane) => new Lane(lane));
    for (const lane of this.lanes) {
      this.element.querySelector(".bars").append(lane.row);
      this.element.querySelector(".lanes").append(lane.section);
    }
  }

  // Runs both lanes; throws what a request throws, with the lanes left as they are.
  async run() {
    try {
      for (const lane of this.lanes) {
        this.panel.show(lane.tally, `race: ${lane.name}`);
        await lane.run(this.askFor(lane.speculation), () => this.refresh());
      }
    } catch (error) {
      for (const lane of this.lanes) lane.giveUp();
      throw error;
    }
    this.judge();
    this.replayButton.hidden = false;
  }

  // Shows both answers again, from one common start, as fast as they came.
  async replay(signal) {
    const start = performance.now();
    for (const lane of this.lanes) lane.rewind(start);
    await Promise.all(this.lanes.map((lane) => lane.replay(start, signal, () => this.refresh())));
  }

  refresh() {
    this.panel.refresh();
    const best = Math.max(...this.lanes.map((lane) => lane.tally.speed ?? 0));
    for (const lane of this.lanes) lane.draw(best);
  }

  judge() {
    const [plain, dflash] = this.lanes.map((lane) => lane.tally.speed);
    const [strong, span] = this.verdict.children;
    const ratio = plain && dflash ? dflash / plain : null;
    strong.textContent = ratio === null ? "Too short to tell" : `${ratio.toFixed(2)}x`;
    const speed = ratio === null ? "" : "the speed of plain decoding; ";
    span.textContent = `${speed}${this.compare()}`;
    this.verdict.hidden = false;
  }

  compare() {
    const [plain, dflash] = this.lanes.map((lane) => lane.answer.text);
    if (plain === dflash) return `same text, ${counted(plain.length, "character")}`;
    let same = 0;
    while (same < plain.length && plain[same] === dflash[same]) same += 1;
    return `the texts differ from character ${same + 1} on`;
  }

  get summary() {
    return `Race finished: ${this.verdict.textContent.replace(/\s+/g, " ").trim()}`;
  }
}

class Lane {
  constructor({ name, speculation }) {
    this.name = name;
    this.speculation = speculation;
    this.row = clone("bar-template");
    this.section = clone("lane-template");
    this.row.dataset.lane = this.section.dataset.lane = speculation;
    this.row.querySelector(".bar-name").textContent = name;
    this.section.querySelector("h4").textContent = name;
    this.fill = this.row.querySelector(".bar-fill");
    this.speed = this.row.querySelector(".bar-speed");
    this.note = this.section.querySelector(".note");
    this.text = this.section.querySelector(".text");
    this.text.setAttribute("aria-label", `${name} answer`);
    this.answer = new Answer(this.text);
    this.tally = new Tally(0);
    this.record = [];
  }

  async run(stream, changed) {
    this.tally.startTime = performance.now();
    this.note.textContent = "running";
    this.section.setAttribute("aria-busy", "true");
    try {
      this.end = await follow(stream, this.answer, this.tally, (tokens, time) => {
        if (tokens.length > 0) this.record.push({ tokens, at: time - this.tally.firstTime });
        changed();
      });
      this.note.textContent = this.summary();
    } finally {
      this.section.removeAttribute("aria-busy");
    }
  }

  giveUp() {
    if (!this.end) this.note.textContent = "not finished";
  }

  rewind(start) {
    this.whole ??= this.tally;
    this.answer.clear();
    this.tally = new Tally(start);
    this.note.textContent = "replay";
  }

  async replay(start, signal, changed) {
    for (const { tokens, at } of this.record) {
      await pause(start + at - performance.now(), signal);
      this.tally.add(tokens, start + at);
      this.answer.append(tokens);
      changed();
    }
    // What was shown before the replay is the measurement; a replay is no new one.
    this.tally = this.whole;
    this.answer.flush();
    this.note.textContent = this.summary();
    changed();
  }

  summary() {
    const seconds = (this.tally.lastTime - this.tally.firstTime) / 1000;
    const cut = this.end?.reason === "length" ? ", cut at max tokens" : "";
    return `${counted(this.tally.numTokens, "token")} in ${seconds.toFixed(2)} s, tau ${shown(this.tally.tau, 2)}${cut}`;
  }

  draw(best) {
    // In the next frame, when the new tokens stand there.
    requestAnimationFrame(() => (this.text.scrollTop = this.text.scrollHeight));
    const speed = this.tally.speed;
    this.fill.style.width = speed === null ? "0" : `${((100 * speed) / best).toFixed(1)}%`;
    this.speed.textContent = speed === null ? "-" : `${shown(speed, 1)} tok/s`;
  }
}

// Waits, unless stopped; in a replay that is stopped, the rest comes at once.
function pause(milliseconds, signal) {
  if (milliseconds <= 0 || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

export function clone(id) {
  return document.getElementById(id).content.firstElementChild.cloneNode(true);
}

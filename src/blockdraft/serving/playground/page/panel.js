// The panel of live numbers: shows one tally at a time, at most once a frame.

import { shown } from "./answer.js";
import { drawWidths } from "./chart.js";

export class Panel {
  constructor() {
    const byId = (id) => document.getElementById(id);
    this.what = byId("live-what");
    this.tau = byId("live-tau");
    this.speed = byId("live-speed");
    this.tokens = byId("live-tokens");
    this.steps = byId("live-steps");
    this.chart = byId("chart");
    this.frame = null;
    this.clear();
  }

  clear() {
    this.tally = null;
    this.what.textContent = "";
    for (const number of [this.tau, this.speed, this.tokens, this.steps]) number.textContent = "-";
    drawWidths(this.chart, new Map());
  }

  // Shows a tally from now on; call again, or `refresh`, after it has changed.
  show(tally, what) {
    this.tally = tally;
    this.what.textContent = what === "" ? "" : `(${what})`;
    this.refresh();
  }

  refresh() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    if (this.tally === null) return;
    this.tau.textContent = shown(this.tally.tau, 2);
    this.speed.textContent = shown(this.tally.speed, 1);
    this.tokens.textContent = String(this.tally.numTokens);
    this.steps.textContent = String(this.tally.numSteps);
    drawWidths(this.chart, this.tally.widths);
  }
}

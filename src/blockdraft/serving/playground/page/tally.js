// Counts what a stream of tokens says about drafting: steps, their widths, tau and the speed.
// It knows no page and no clock; times are milliseconds that its caller passes in.

// Milliseconds below which a speed would say more about the timer than about the model.
const MIN_SPAN = 50;

// A step commits some accepted drafts and then one token of the target's own, so every token that
// was not drafted ends a step. The very first token comes from reading the prompt: it belongs to
// no step, and tau leaves it out.
export class Tally {
  constructor(startTime) {
    this.startTime = startTime;
    this.firstTime = null;
    this.lastTime = null;
    this.numTokens = 0;
    this.numFirst = 0;
    this.numSteps = 0;
    this.numInSteps = 0;
    this.widths = new Map();
    this.open = 0;
    this.measured = null;
  }

  // Takes the tokens of one chunk; `drafted` is null where the server does not say.
  add(tokens, time) {
    if (tokens.length === 0) return;
    for (const token of tokens) {
      this.numTokens += 1;
      if (this.numTokens === 1 || token.drafted === null) continue;
      this.open += 1;
      if (!token.drafted) this.closeStep();
    }
    if (this.firstTime === null) {
      this.firstTime = time;
      this.numFirst = this.numTokens;
    }
    this.lastTime = time;
  }

  // Ends the count: a step that a limit or a stop has cut is a step too. What the server has
  // measured itself (`mean_acceptance_length`) wins over what was seen here.
  end(measured) {
    this.closeStep();
    const tau = measured?.mean_acceptance_length;
    if (Number.isFinite(tau) && measured.num_spec_steps > 0) this.measured = tau;
  }

  closeStep() {
    if (this.open === 0) return;
    this.widths.set(this.open, (this.widths.get(this.open) ?? 0) + 1);
    this.numSteps += 1;
    this.numInSteps += this.open;
    this.open = 0;
  }

  // Tokens for each step, or null before the first step has ended.
  get tau() {
    if (this.measured !== null) return this.measured;
    return this.numSteps === 0 ? null : this.numInSteps / this.numSteps;
  }

  // Tokens a second from the first chunk on, so that reading the prompt does not count.
  // Null where there is too little time to divide by.
  get speed() {
    if (this.firstTime === null) return null;
    const decoded = this.numTokens - this.numFirst;
    const milliseconds = this.lastTime - this.firstTime;
    return decoded > 0 && milliseconds >= MIN_SPAN ? (1000 * decoded) / milliseconds : null;
  }

  // Milliseconds until the first chunk, or null.
  get wait() {
    return this.firstTime === null ? null : this.firstTime - this.startTime;
  }
}

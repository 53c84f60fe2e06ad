// The page: takes prompts, keeps the conversation, runs one thing at a time and can stop it.

import { Answer, counted, follow, shown } from "./answer.js";
import { Panel } from "./panel.js";
import { Race, clone } from "./race.js";
import { Settings } from "./settings.js";
import { Server, isAbort } from "./stream.js";
import { Tally } from "./tally.js";

const NEAR_END = 80;

const byId = (id) => document.getElementById(id);
const page = {
  prompt: byId("prompt"),
  send: byId("send"),
  race: byId("race"),
  stop: byId("stop"),
  log: byId("log"),
  scroller: byId("scroller"),
  welcome: byId("welcome"),
  status: byId("status"),
  server: byId("server"),
};
const settings = new Settings();
const server = new Server(() => settings.apiKey);
const panel = new Panel();

let messages = [];
let running = null;

// Runs one task with a signal to stop it; whatever goes wrong is shown and lets the user go on.
async function run(task) {
  if (running) return;
  const mine = new AbortController();
  running = mine;
  setBusy(true);
  try {
    await task(mine.signal);
  } catch (error) {
    if (running !== mine) return;
    if (isAbort(error)) say("Stopped");
    else showError(error.message);
  } finally {
    if (running === mine) {
      running = null;
      setBusy(false);
    }
  }
}

function setBusy(busy) {
  const held = document.activeElement;
  page.stop.hidden = !busy;
  page.send.hidden = busy;
  page.race.disabled = busy;
  // A button that goes away must not take the keyboard's place with it.
  if (busy && (held === page.send || held === page.race)) page.stop.focus();
  if (!busy && (held === page.stop || held === document.body)) focusPrompt();
}

// On a touch screen the focus would bring up the keyboard over the answer.
function focusPrompt() {
  if (matchMedia("(pointer: fine)").matches) page.prompt.focus();
}

function say(text) {
  page.status.textContent = text;
}

function showError(text) {
  const element = clone("error-template");
  page.log.append(element);
  element.textContent = text;
  scrollToEnd();
}

// Follows the text as it grows, unless the reader has scrolled up.
function keepEnd(change) {
  const { scrollHeight, scrollTop, clientHeight } = page.scroller;
  const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_END;
  change();
  if (atEnd) requestAnimationFrame(scrollToEnd);
}

function scrollToEnd() {
  page.scroller.scrollTop = page.scroller.scrollHeight;
}

// For a race: its bars stay in sight, each lane scrolls by itself.
function scrollToStart(element) {
  const above = element.getBoundingClientRect().top - page.scroller.getBoundingClientRect().top;
  page.scroller.scrollTop += above - 12;
}

function addMessage(role, title) {
  page.welcome.hidden = true;
  const element = clone("message-template");
  element.classList.add(role);
  element.querySelector("h3").textContent = title;
  page.log.append(element);
  scrollToEnd();
  return element;
}

function addPrompt(text) {
  addMessage("user", "You").querySelector(".text").textContent = text;
}

function takePrompt() {
  const text = page.prompt.value.trim();
  if (text !== "") page.prompt.value = "";
  return text;
}

// The request for these messages; a setting that makes no sense gives the prompt back.
function checkSettings(asked, text) {
  try {
    return settings.request(asked);
  } catch (error) {
    page.prompt.value = text;
    throw error;
  }
}

async function chat(text, signal) {
  const asked = [...messages, { role: "user", content: text }];
  const request = checkSettings(asked, text);
  addPrompt(text);
  const element = addMessage("assistant", "Answer");
  element.setAttribute("aria-busy", "true");
  const answer = new Answer(element.querySelector(".text"));
  const tally = new Tally(performance.now());
  panel.show(tally, "");
  let end = null;
  try {
    end = await follow(server.chat(request, signal), answer, tally, () => keepEnd(() => panel.refresh()));
  } finally {
    element.removeAttribute("aria-busy");
    // Clearing the conversation stops its answer, which then belongs to none.
    if (element.isConnected) settle(element, answer, tally, end, text, asked);
  }
}

function settle(element, answer, tally, end, text, asked) {
  if (answer.text === "" && end === null) {
    element.remove();
    if (page.prompt.value === "") page.prompt.value = text;
    return;
  }
  messages = [...asked, { role: "assistant", content: answer.content }];
  const note = summarize(tally, end);
  element.querySelector(".note").textContent = note;
  if (end !== null) say(`Answer finished: ${note}`);
  scrollToEnd();
}

function summarize(tally, end) {
  const parts = [counted(end?.usage?.completion_tokens ?? tally.numTokens, "token")];
  if (tally.tau !== null) parts.push(`tau ${shown(tally.tau, 2)}`);
  if (tally.speed !== null) parts.push(`${shown(tally.speed, 1)} tok/s`);
  if (tally.wait !== null) parts.push(`first after ${shown(tally.wait / 1000, 2)} s`);
  if (end === null) parts.push("not finished");
  else if (end.reason === "length") parts.push("cut at max tokens");
  return parts.join(" \u00b7 ");
}

async function race(text, signal) {
  const asked = [{ role: "user", content: text }];
  const askFor = (speculation) => server.chat(settings.request(asked, speculation), signal);
  checkSettings(asked, text);
  addPrompt(text);
  const shownRace = new Race(panel, askFor);
  page.log.append(shownRace.element);
  scrollToStart(shownRace.element);
  shownRace.replayButton.addEventListener("click", () => run((stop) => shownRace.replay(stop)));
  await shownRace.run();
  say(shownRace.summary);
  scrollToStart(shownRace.element);
}

function startChat() {
  if (running) return;
  const text = takePrompt();
  if (text === "") page.prompt.focus();
  else run((signal) => chat(text, signal));
}

// An empty box races the last prompt again.
function startRace() {
  if (running) return;
  const text = takePrompt() || lastPrompt();
  if (text === "") {
    say("Write a prompt to race with");
    page.prompt.focus();
  } else {
    run((signal) => race(text, signal));
  }
}

function lastPrompt() {
  const texts = page.log.querySelectorAll(".message.user .text");
  return texts.length === 0 ? "" : texts[texts.length - 1].textContent;
}

function stop() {
  running?.abort();
}

function startOver() {
  stop();
  running = null;
  setBusy(false);
  messages = [];
  page.log.replaceChildren();
  page.welcome.hidden = false;
  panel.clear();
  page.prompt.focus();
}

async function greet() {
  try {
    page.server.textContent = await server.findModel(AbortSignal.timeout(10_000));
    page.server.dataset.state = "ready";
  } catch (error) {
    page.server.textContent = isAbort(error) ? "the server does not answer" : error.message;
    page.server.dataset.state = "failed";
  }
}

function listen() {
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    startChat();
  });
  page.prompt.addEventListener("keydown", (event) => {
    // Enter also ends the input of a composed character; that one must not send.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    startChat();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !settings.dialog.open) stop();
  });
  page.race.addEventListener("click", startRace);
  page.stop.addEventListener("click", stop);
  byId("new-chat").addEventListener("click", startOver);
  settings.dialog.addEventListener("close", greet);
  byId("ideas").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) run((signal) => chat(button.textContent, signal));
  });
  byId("colors").addEventListener("change", (event) => {
    document.body.classList.toggle("colorless", !event.target.checked);
  });
  // On a wide page the chart is always open; on a phone it is one tap away.
  const wide = matchMedia("(min-width: 900px)");
  const unfold = () => (byId("more").open = wide.matches);
  wide.addEventListener("change", unfold);
  unfold();
}

listen();
greet();

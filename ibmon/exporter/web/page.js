// The living page of one node: asks for the status document and for new events, and shows them.
// It sets text, never markup: names of devices, reasons and events are whatever the kernel and people wrote.

import { ask } from "./ask.js";
import { $, ago, css, el, text } from "./elements.js";
import { happened } from "./events.js";
import { keep, recall, remember } from "./history.js";
import { ports } from "./ports.js";
import { findings, notices, plan, where } from "./sections.js";

const EVERY = 5000; // ms between two questions, as often as the daemon reads the state of its ports
const HIDDEN = 30000; // ms, while nobody looks
const LATE = 15; // s: a picture that was older when it came is called old; the daemon makes one at least every five
const EVENTS = 200; // shown at most

const state = {
  doc: null, // the newest status document
  made: 0, // its age when it came, in s
  arrived: 0, // when that was, by performance.now()
  error: "", // why there is no newer one
  lost: false, paused: false, busy: false,
  timer: 0,
  next: null, // number of the event to go on from
  told: null, // what screen readers know
};

async function turn() {
  if (state.busy) return;
  clearTimeout(state.timer);
  state.busy = true;
  try {
    const { body, at } = await ask("api/v1/status");
    if (body.v !== 1) throw new Error(`it speaks version ${body.v} of the status document; reload this page`);
    state.doc = body;
    state.arrived = performance.now();
    state.made = Number.isFinite(at) ? Math.max(0, at - body.wall) : 0; // age of the picture when it came
    state.error = "";
    remember(body);
    show(body);
    await news();
  } catch (error) {
    state.error = error.message;
    $("still")?.classList.add("needed");
  }
  state.busy = false;
  fresh();
  if (!state.paused) state.timer = setTimeout(turn, document.hidden ? HIDDEN : EVERY);
}

async function news() {
  const { body } = await ask(state.next === null ? "api/v1/events?limit=50" : `api/v1/events?since=${state.next}`);
  if (state.next !== null && body.next < state.next) { // a daemon whose numbers began anew
    state.next = null;
    $("events").replaceChildren();
    await news();
    return;
  }
  state.next = body.next;
  const list = $("events");
  for (const row of body.events) list.prepend(happened(row));
  while (list.children.length > EVENTS) list.lastChild.remove();
  $("no-events").hidden = list.children.length > 0;
}

function show(doc) {
  if (!$("live-root")) begin();
  document.title = `${doc.fitness} · ${doc.node} · ibmon`;
  if (!$("icon").href.endsWith(`?${doc.fitness}`)) $("icon").href = `icon.svg?${doc.fitness}`;
  text($("name"), doc.node || "this node");
  text($("fitness"), doc.fitness);
  css($("fitness"), `badge ${doc.fitness}`);
  text($("why"), doc.why || (doc.fitness === "fit" ? "every port is as it should be" : ""));
  text($("mode"), `mode ${doc.mode}`);
  notices(doc);
  plan(doc);
  findings(doc);
  ports(doc);
  tell(doc);
  if (!performance.getEntriesByName("shown").length) performance.mark("shown"); // how long that took, tests ask
}

function begin() {
  const live = el("div", { id: "live-root" });
  live.append($("live").content.cloneNode(true));
  $("still").replaceWith(live);
  $("pause").addEventListener("click", pause);
}

function pause() {
  state.paused = !state.paused;
  $("pause").setAttribute("aria-pressed", String(state.paused));
  text($("pause"), state.paused ? "Go on" : "Pause");
  if (state.paused) clearTimeout(state.timer);
  else turn();
  fresh();
}

function fresh() { // how old the picture is, every second
  if (!$("live-root")) return;
  const waited = (performance.now() - state.arrived) / 1000;
  const age = state.made + waited;
  const old = state.error !== "" || state.made > LATE;
  css($("beat"), `dot ${old ? "old" : state.paused ? "still" : waited < 1 ? "beat" : ""}`);
  text($("age"), state.paused ? `paused, as of ${ago(age)} ago` : `as of ${ago(age)} ago`);
  document.body.classList.toggle("old", old);
  $("lost").hidden = !old;
  if (old) {
    const silent = `The daemon does not answer (${state.error}).`;
    const why = state.error ? silent : "The daemon answers, but judges nothing.";
    const trust = age > state.doc.ttl ? ": take the node for unknown" : "";
    text($("lost").firstElementChild, `${why} What you see is ${ago(age)} old${trust}.`);
  }
  if (old !== state.lost) say(old ? "The daemon does not answer any more." : "The daemon answers again.");
  state.lost = old;
}

function say(line) { // for screen readers, when something really changed
  text($("said"), line);
}

function tell(doc) {
  const now = new Map(doc.findings.map((f) => [`${f.rule} ${where(f)}`, f.severity]));
  if (state.told !== null) {
    const lines = [];
    if (state.told.fitness !== doc.fitness) lines.push(`${doc.node} is ${doc.fitness}: ${doc.why}`);
    for (const [key, severity] of now) if (state.told.findings.get(key) !== severity) lines.push(`${severity}: ${key}`);
    for (const key of state.told.findings.keys()) if (!now.has(key)) lines.push(`gone: ${key}`);
    if (lines.length) say(lines.join(". "));
  }
  state.told = { fitness: doc.fitness, findings: now };
}

recall();
turn();
setInterval(() => { if (!document.hidden) fresh(); }, 1000);
document.addEventListener("visibilitychange", () => { if (!document.hidden && !state.paused) turn(); });
addEventListener("pagehide", keep);

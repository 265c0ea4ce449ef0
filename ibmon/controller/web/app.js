// The fleet at a glance: asks the controller, keeps what is searched and chosen, and hands it to the map and the lists.

import { Refused, ask } from "./ask.js";
import { $, ago, clock, css, el, one, text, word } from "./elements.js";
import { AGE, CODE, FITNESS, GROUP, Matrix, NAME, RAILS, WORDS, arrange } from "./matrix.js";
import { drains, fabric, limits, maintenance, nodes, railWords } from "./tables.js";

const EVERY = 5000; // ms between two questions
const A_SECOND = 500; // nodes: a fleet of 10,000 sends its rows every 20 s
const HIDDEN = 30000; // ms, while nobody looks
const LATE = 20; // s: a picture that was older when it came is called old
const FITNESSES = ["fit", "watch", "unfit", "unknown", "missing"];
const TOKEN = "ibmon token";

const state = {
  fleet: null, rails: [], rows: [], hay: [], // what the controller said
  made: 0, arrived: 0, asked: -Infinity, // its age when it came (s), when that was, when nodes were asked for last
  only: "", query: "", node: "", // what is looked for
  error: "", lost: false, paused: false, busy: false, timer: 0, told: null,
};
const stored = { get: () => "", set: () => {} };
try {
  stored.get = () => sessionStorage.getItem(TOKEN) ?? "";
  stored.set = (value) => sessionStorage.setItem(TOKEN, value);
  stored.get();
} catch { // not allowed here: the token lives as long as the page
  let kept = "";
  Object.assign(stored, { get: () => kept, set: (value) => { kept = value; } });
}

const matrix = new Matrix($("matrix"), { moved, chosen: (i) => choose(state.rows[i][NAME], true) });
const said = (line) => text($("said"), line);
const get = (path) => ask(path, stored.get() ? { Authorization: `Bearer ${stored.get()}` } : {});

// ---------------------------------------------------------------------------------------------------- asking

async function turn() {
  if (state.busy) return;
  clearTimeout(state.timer);
  state.busy = true;
  try {
    const { body, at } = await get("api/v1/fleet");
    if (body.v !== 1) throw new Error(`it speaks version ${body.v}; reload this page`);
    const due = state.asked + Math.max(EVERY, (1000 * state.rows.length) / A_SECOND) - 100;
    if (performance.now() >= due) await rows();
    state.fleet = body;
    state.arrived = performance.now();
    state.made = Number.isFinite(at) ? Math.max(0, at - body.at) : 0;
    state.error = "";
    show();
  } catch (error) {
    state.error = error.message;
    if (error instanceof Refused && [401, 403].includes(error.status)) door(error.status);
    else if (state.fleet === null) text($("summary"), `The controller does not answer (${error.message}).`);
  }
  state.busy = false;
  fresh();
  if (!state.paused && $("door").hidden) state.timer = setTimeout(turn, document.hidden ? HIDDEN : EVERY);
}

async function rows() {
  const { body } = await get("api/v1/nodes?compact=1");
  state.asked = performance.now();
  state.rails = body.rails;
  state.rows = arrange(body.nodes);
  state.hay = state.rows.map((row) => {
    const words = [...new Set(row[RAILS])].map((letter) => WORDS[letter]).join(" ");
    return `${row[NAME]} ${row[GROUP] ?? ""} ${row[FITNESS]} ${row[CODE]} ${word(row[CODE])} ${words}`.toLowerCase();
  });
}

function door(status) {
  $("door").hidden = false;
  $("fleet").hidden = true;
  const wrong = stored.get() !== "";
  text($("summary"), wrong ? `That token is not taken (${status}).` : "Only people with a token may look here.");
  stored.set("");
  $("token").focus();
}

// ---------------------------------------------------------------------------------------------------- the whole

function show() {
  const { fleet } = state;
  $("fleet").hidden = false;
  const total = FITNESSES.reduce((sum, name) => sum + fleet.nodes[name], 0);
  text($("summary"), `${one(total, "node")}, ${fleet.nodes.fit} fit; ${one(fleet.drains.length, "drain")}`);
  document.title = `${fleet.nodes.unfit} unfit of ${total} · ibmon fleet`;
  text($("leader"), fleet.leader ? "leader" : "standby, decides nothing");
  notices(fleet);
  counts(fleet.nodes);
  limits(fleet);
  drains(fleet.drains, fleet.at);
  fabric(fleet.fabric_events);
  maintenance(fleet.maintenance);
  find();
  tell(fleet);
  if (state.node) details(false);
}

function notices(fleet) {
  const lines = [];
  if (fleet.stop) {
    const why = fleet.stop.reason ? `: ${fleet.stop.reason}` : "";
    const by = `Stopped by ${fleet.stop.by} at ${clock(fleet.stop.at)}`;
    lines.push(["bad", `${by}${why}. Nothing is written to the scheduler.`]);
  }
  for (const event of fleet.fabric_events) {
    const where = [event.group, event.rail === null ? "" : `rail ${event.rail}`].filter(Boolean).join(", ");
    lines.push(["warn", `Fabric event at ${where}: ${event.rule} on ${one(event.nodes.length, "node")}.`]);
  }
  $("notices").replaceChildren(...lines.map(([kind, line]) => el("li", { class: `notice ${kind}` }, line)));
  $("notices").hidden = lines.length === 0;
}

function counts(numbers) {
  const place = $("counts");
  if (!place.children.length) {
    for (const name of FITNESSES) {
      const button = el("button", { type: "button" }, el("strong"), el("span", { class: name }, name));
      button.addEventListener("click", () => { state.only = state.only === name ? "" : name; find(); });
      place.append(button);
    }
  }
  FITNESSES.forEach((name, i) => text(place.children[i].firstChild, numbers[name].toLocaleString("en")));
}

function find() {
  const terms = state.query.toLowerCase().split(/\s+/).filter(Boolean);
  const searched = terms.length > 0 || state.only !== "";
  const kind = (i) => !state.only || state.rows[i][FITNESS] === state.only;
  const hit = (i) => kind(i) && terms.every((term) => state.hay[i].includes(term));
  const found = searched ? new Set([...state.rows.keys()].filter(hit)) : null;
  FITNESSES.forEach((name, i) => $("counts").children[i].setAttribute("aria-pressed", String(state.only === name)));
  text($("n-shown"), searched ? `${found.size} of ${state.rows.length}` : state.rows.length.toLocaleString("en"));
  const standing = new Map(state.fleet.drains.map((drain) => [drain.node, drain.state]));
  matrix.show(state.rails, state.rows, standing, found);
  nodes(found ? state.rows.filter((_, i) => found.has(i)) : state.rows, state.rails, searched);
  const marks = new URLSearchParams();
  if (state.query) marks.set("q", state.query);
  if (state.only) marks.set("only", state.only);
  if (state.node) marks.set("node", state.node);
  history.replaceState(null, "", marks.size ? `#${marks}` : location.pathname + location.search);
}

function tell(fleet) {
  const now = FITNESSES.slice(1).map((name) => `${fleet.nodes[name]} ${name}`).join(", ");
  if (state.told !== null && state.told !== now) said(`Now ${now}.`);
  state.told = now;
}

function fresh() {
  if (state.fleet === null) return;
  const waited = (performance.now() - state.arrived) / 1000;
  const age = state.made + waited;
  const old = state.error !== "" || state.made > LATE;
  css($("beat"), `dot ${old ? "old" : state.paused ? "still" : waited < 1 ? "beat" : ""}`);
  text($("age"), `${state.paused ? "paused, " : ""}as of ${ago(age)} ago`);
  document.body.classList.toggle("old", old);
  $("lost").hidden = !old;
  const silent = `The controller does not answer (${state.error}).`;
  const why = state.error ? silent : "The controller answers with old news.";
  if (old) text($("lost").firstElementChild, `${why} What you see is ${ago(age)} old.`);
  if (old !== state.lost) said(old ? "The controller does not answer any more." : "The controller answers again.");
  state.lost = old;
}

// ---------------------------------------------------------------------------------------------------- one node

function moved(i, rail, spoken) {
  const row = state.rows[i];
  const parts = [
    row[NAME], row[GROUP], `rail ${state.rails[rail]} ${WORDS[row[RAILS][rail]] ?? "unknown"}`, `node ${row[FITNESS]}`,
    row[CODE] && word(row[CODE]), row[AGE] === null ? "never reported" : `reported ${ago(row[AGE])} ago`,
  ];
  $("readout").setAttribute("aria-live", spoken ? "polite" : "off"); // a mouse passes over hundreds
  text($("readout"), parts.filter(Boolean).join(" · "));
}

function choose(name, focus) {
  state.node = name;
  find();
  details(focus);
}

async function details(focus) {
  const name = state.node;
  const row = state.rows.find((other) => other[NAME] === name);
  const place = $("chosen");
  place.hidden = false;
  text($("h-chosen"), name);
  if (focus) $("h-chosen").focus();
  let report = null;
  let refused = "";
  try {
    report = (await get(`api/v1/nodes/${encodeURIComponent(name)}`)).body;
  } catch (error) {
    refused = error.message;
  }
  if (name !== state.node) return; // another one was chosen meanwhile
  const facts = [
    ["fitness", row ? row[FITNESS] : "no such node"], ["rails", row ? railWords(row, state.rails) || "all well" : ""],
    ["group", row?.[GROUP]], ["decision", row && word(row[CODE])],
    ["last report", row && (row[AGE] === null ? "never" : `${ago(row[AGE])} ago`)], ["", refused],
  ];
  for (const drain of state.fleet.drains.filter((other) => other.node === name)) {
    facts.push(["drain", `${drain.state}, ${drain.owner}, since ${clock(drain.since)}: ${drain.reason}`]);
  }
  for (const finding of report?.findings ?? []) {
    const where = finding.port ? `${finding.device}/${finding.port}` : finding.device;
    const limit = finding.limit === null ? "" : `, limit ${finding.limit}`;
    facts.push([finding.severity, `${finding.rule} ${where}: ${finding.observed ?? "?"}${limit}`]);
  }
  const shown = facts.filter(([, value]) => value).flatMap(([k, v]) => [el("dt", {}, k || "report"), el("dd", {}, v)]);
  place.querySelector("dl").replaceChildren(...shown);
  text(place.querySelector("pre"), report ? JSON.stringify(report, null, 2) : "");
  place.querySelector("details").hidden = report === null;
}

// ---------------------------------------------------------------------------------------------------- life

function begin() {
  const marks = new URLSearchParams(location.hash.slice(1));
  state.query = $("query").value = marks.get("q") ?? "";
  state.only = FITNESSES.includes(marks.get("only")) ? marks.get("only") : "";
  state.node = marks.get("node") ?? "";
  $("legend").replaceChildren(...Object.values(WORDS).map((name) => (
    el("li", {}, el("i", { class: `m-${name}`, "aria-hidden": "true" }), name === "none" ? "no such rail" : name))));
  $("query").addEventListener("input", () => { state.query = $("query").value; if (state.fleet) find(); });
  $("search").addEventListener("submit", (event) => { event.preventDefault(); $("h-nodes").scrollIntoView(); });
  $("door").addEventListener("submit", (event) => {
    event.preventDefault();
    stored.set($("token").value.trim());
    $("token").value = "";
    $("door").hidden = true;
    turn();
  });
  $("pause").addEventListener("click", () => {
    state.paused = !state.paused;
    $("pause").setAttribute("aria-pressed", String(state.paused));
    text($("pause"), state.paused ? "Go on" : "Pause");
    if (state.paused) clearTimeout(state.timer);
    else turn();
  });
  document.addEventListener("click", (event) => {
    const { node } = event.target.dataset ?? {};
    if (node) choose(node, true);
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !state.paused) turn(); });
  setInterval(() => { if (!document.hidden) fresh(); }, 1000);
  turn();
}

begin();

// What stands above the ports: notices, what ibmon does about it, findings; and the events below them.

import { $, ago, badge, clock, el, one, text, word } from "./elements.js";
import { name } from "./history.js";

export function notices(doc) {
  const lines = [];
  if (!doc.up) lines.push(["bad", `class/infiniband cannot be read: ${doc.listing_errno ?? "nothing was read yet"}.`]);
  if (!doc.config.valid) lines.push(["bad", "The configuration file is invalid; an older one stays in force."]);
  if (!doc.actions_enabled) lines.push(["warn", "Another daemon on this node acts; this one only exports."]);
  const stalled = doc.devices.filter((d) => d.stalled).map((d) => d.device);
  if (stalled.length) lines.push(["warn", `Reads do not come back from ${stalled.join(", ")}.`]);
  if (doc.quarantined.length) lines.push(["warn", `Not looked at, a read hangs there: ${doc.quarantined.join(", ")}.`]);
  for (const w of doc.maintenance?.windows ?? []) {
    const what = w.ports.join(", ") || "the node";
    lines.push(["warn", `Maintenance of ${what} until ${clock(w.until)}, by ${w.user}: ${w.reason}`]);
  }
  $("notices").replaceChildren(...lines.map(([kind, line]) => el("li", { class: `notice ${kind}` }, line)));
  $("notices").hidden = lines.length === 0;
}

function meaning(code) {
  const terms = [...document.querySelectorAll("#codes dt")];
  return terms.find((term) => term.textContent === code)?.nextElementSibling.textContent ?? word(code);
}

export function plan(doc) {
  const { drain } = doc;
  const lines = [];
  const add = (line, kind = "") => lines.push(el("p", { class: kind }, ...[line].flat()));
  const would = ["It ", el("strong", {}, "would drain"), " this node, and does not now."];
  if (drain.active) add(["It ", el("strong", {}, "drained"), ` this node at ${clock(drain.owned.asked)}.`], "say");
  else if (drain.owned) add("It has asked for a drain, and has not seen it at the scheduler yet.", "say");
  else if (drain.wanted && drain.blocked) add(would, "say");
  else if (drain.wanted) add(["It ", el("strong", {}, "drains"), " this node."], "say");
  else if (drain.blocked) add(would, "say");
  else if (doc.ports.some((port) => Object.keys(port.hold).length)) add("Nothing yet: a hold runs.", "say");
  else if (doc.findings.length) add("Nothing: none of these findings may drain the node.", "say");
  else add("Nothing: no drain is wanted.", "say");
  const reason = drain.owned ? drain.owned.reason : drain.wanted ? drain.reason : "";
  if (reason) add(el("code", {}, reason));
  if (drain.blocked) add([el("strong", {}, `Why not now: ${word(drain.blocked)}. `), meaning(drain.blocked)], "why");
  if (drain.active) add("It gives the node back when every fault has been gone for its time to recover.", "dim");
  if (drain.overridden) add("An operator resumed this node while it was still bad; that is respected for a while.");
  if (drain.orphaned) add("The scheduler shows a drain in our words of which there is no record: see ibmon release.");
  if (drain.would) add(`In this mode it would have drained ${one(drain.would, "time")} so far.`, "dim");
  for (const port of doc.ports) {
    for (const [rule, left] of Object.entries(port.hold)) {
      add(`${rule} at ${name(port)} becomes critical in ${ago(left)}, unless it ends.`, "hold");
    }
  }
  $("plan").replaceChildren(...lines);
}

export const where = (f) => (f.port ? `${f.device}/${f.port}` : f.device || "the node");

export function findings(doc) {
  text($("n-findings"), doc.findings.length ? String(doc.findings.length) : "");
  $("findings").replaceChildren(...doc.findings.map((f) => {
    const head = el("p", {}, badge(f.severity), " ", el("strong", {}, `${f.rule} ${where(f)}`));
    if (f.recovering) head.append(" ", badge("recovering"));
    const notes = [`since ${clock(f.onset)} (${ago(doc.wall - f.onset)})`];
    if (f.counter) notes.push(`counter ${f.counter}`);
    if (f.drains) notes.push("may drain");
    if (f.maintenance) notes.push("in a maintenance window");
    const evidence = el("p", {}, f.text || `${f.observed ?? "?"}${f.limit === null ? "" : `, limit ${f.limit}`}`);
    const help = el("p", { class: "sub" }, notes.join(" · "), " · ", el("code", {}, `ibmon explain ${f.rule}`));
    return el("li", { class: `card finding s-${f.severity}` }, head, evidence, help);
  }));
  if (!doc.findings.length) $("findings").append(el("li", { class: "dim" }, "None."));
}

// The lists beside the map: nodes, limits, drains, fabric events, maintenance. Text is set, never markup.

import { $, ago, badge, el, moment, one, text, word } from "./elements.js";
import { AGE, CODE, FITNESS, GROUP, NAME, RAILS, WORDS } from "./matrix.js";

const MOST = 100; // rows of nodes that are listed
const WORST = ["unfit", "missing", "unknown", "watch", "fit"];

function table(place, head, rows, nothing) {
  if (!rows.length) {
    place.replaceChildren(el("p", { class: "dim" }, nothing));
    return;
  }
  const top = el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)));
  const body = rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, ...[cell].flat()))));
  const whole = el("table", {}, el("thead", {}, top), el("tbody", {}, ...body));
  const label = place.parentElement.getAttribute("aria-labelledby");
  const frame = { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": label };
  const focused = document.activeElement?.dataset.node;
  const inside = place.contains(document.activeElement);
  place.replaceChildren(el("div", frame, whole));
  if (inside) (place.querySelector(`[data-node="${CSS.escape(focused ?? "")}"]`) ?? place.firstChild).focus();
}

const link = (name) => el("button", { type: "button", class: "link", "data-node": name }, name);

export function railWords(row, rails) { // "rail 3 failed, rail 5 warning"
  const odd = [...row[RAILS]].map((letter, r) => [letter, rails[r] ?? r]).filter(([letter]) => !"o-".includes(letter));
  return odd.map(([letter, rail]) => `rail ${rail} ${WORDS[letter] ?? "unknown"}`).join(", ");
}

export function nodes(rows, rails, searched) {
  const chosen = searched ? rows : rows.filter((row) => row[FITNESS] !== "fit");
  const rank = (row) => WORST.indexOf(row[FITNESS]);
  const worst = [...chosen].sort((a, b) => rank(a) - rank(b)).slice(0, MOST);
  text($("h-nodes"), searched ? `Found: ${one(chosen.length, "node")}` : "Nodes that are not fit");
  table($("nodes"), ["node", "group", "fitness", "rails", "decision", "last report"], worst.map((row) => [
    link(row[NAME]), row[GROUP] ?? "", badge(row[FITNESS]), railWords(row, rails), word(row[CODE]),
    row[AGE] === null ? "never" : `${ago(row[AGE])} ago`,
  ]), searched ? "No node is like that." : "Every node is fit.");
  if (chosen.length > MOST) {
    $("nodes").append(el("p", { class: "dim" }, `and ${chosen.length - MOST} more; narrow the search to see them`));
  }
}

export function limits({ pools, quorum }) {
  table($("limits"), ["pool", "nodes", "drained of allowed", "share", "away for any reason"], pools.map((pool) => {
    const meter = el("meter", {
      min: "0", max: String(Math.max(1, pool.allowed)), value: String(Math.min(pool.used, Math.max(1, pool.allowed))),
      "aria-label": `drained of allowed in ${pool.name}`,
    });
    const kind = pool.used >= pool.allowed ? "over num" : "num";
    const used = el("span", { class: kind }, `${pool.used} of ${pool.allowed}`);
    return [pool.name, String(pool.nodes), used, meter, String(pool.unavailable)];
  }), "No pool is known yet.");
  const share = `${quorum.reported} of ${quorum.seen} nodes have reported (${(100 * quorum.ratio).toFixed(0)} %)`;
  text($("quorum"), quorum.open ? `${share}: drains may be made.` : `${share}: too few yet, nothing is drained.`);
}

export function drains(list, at) {
  text($("n-drains"), list.length ? String(list.length) : "");
  const oldest = [...list].sort((a, b) => a.since - b.since);
  table($("drains"), ["node", "age", "owner", "state", "reason", "why not"], oldest.map((drain) => [
    link(drain.node), el("time", { datetime: new Date(drain.since * 1000).toISOString() }, ago(at - drain.since)),
    drain.owner, badge(drain.state), drain.reason, word(drain.code),
  ]), "No node is drained.");
}

export function fabric(list) {
  text($("n-fabric"), list.length ? String(list.length) : "");
  table($("fabric"), ["group", "rail", "rule", "nodes", "began", "withheld until"], list.map((event) => [
    event.group ?? "", event.rail === null ? "" : String(event.rail), event.rule,
    el("details", {}, el("summary", {}, one(event.nodes.length, "node")), event.nodes.join(", ")),
    moment(event.began), moment(event.until),
  ]), "None: no group of nodes was hit at once.");
}

export function maintenance(list) {
  text($("n-maintenance"), list.length ? String(list.length) : "");
  table($("maintenance"), ["nodes", "reason", "by", "until"], list.map((window) => [
    window.nodes.join(", "), window.reason, window.user, moment(window.until),
  ]), "None.");
}

// The ports: a table whose rows look like cards, each with its rate, its curves, and its facts on demand.

import { $, ago, clock, css, el, gigabits, one, rate, svg, text } from "./elements.js";
import { WINDOW, kept, name, peak } from "./history.js";

const HEAD = ["port", "health", "rate of expected", "state", "throughput", "errors", "details"];
const FACTS = [
  "slot", "interface", "link layer", "card", "firmware", "PCIe link", "sample", "expected", "flaps",
  "rose within an hour", "read errors",
];
const AXIS = 22; // where the curves begin, half of their height
const rows = new Map(); // by name of the port

export function ports(doc) {
  const judged = doc.ports.filter((p) => p.role !== "ignored" || p.expected);
  const ignored = doc.ports.filter((p) => p.role === "ignored" && !p.expected);
  const good = judged.filter((p) => p.health === "ok").length;
  const devices = new Map(doc.devices.map((d) => [d.device, d]));
  const most = peak();
  const fill = (place, caption, list) => {
    const body = place.querySelector("tbody") ?? table(place, caption);
    arrange(body, list.map((port) => update(port, devices.get(port.device), most, doc)));
  };
  text($("n-ports"), judged.length ? `${good} of ${judged.length} ok` : "");
  $("key").hidden = judged.length === 0;
  $("no-ports").hidden = judged.length > 0;
  text($("no-ports"), doc.up ? "No RDMA port on this node." : "Nothing can be seen.");
  fill($("ports"), "ports", judged);
  $("ignored").hidden = ignored.length === 0;
  text($("ignored").firstElementChild, `${one(ignored.length, "port")} exported and not judged`);
  if (ignored.length) fill($("ignored").lastElementChild, "ports that are not judged", ignored);
}

function table(place, caption) {
  const head = el("tr", { role: "row" }, ...HEAD.map((x) => el("th", { role: "columnheader", scope: "col" }, x)));
  const body = el("tbody", { role: "rowgroup" });
  place.append(el("table", { class: "ports", role: "table", "aria-label": caption },
    el("thead", { role: "rowgroup" }, head), body));
  return body;
}

function arrange(body, wanted) { // only where something came or went: moving a row would take the focus from it
  const same = wanted.length === body.children.length && wanted.every((tr, i) => body.children[i] === tr);
  if (!same) body.replaceChildren(...wanted);
  body.parentElement.hidden = wanted.length === 0;
}

function card(key) {
  const cell = (kind, ...children) => el("td", { role: "cell", class: kind }, ...children);
  const picture = (kind, height) => svg("svg", {
    class: kind, viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", "aria-hidden": "true",
  });
  const row = {
    sub: el("span", { class: "sub" }), health: el("span"), state: el("span"), rate: el("span"),
    in: el("span", { class: "in num" }), out: el("span", { class: "out num" }), hold: el("span", { class: "hold" }),
    errors: el("span"), bar: picture("bar", 5), part: svg("rect", { height: 5 }), curves: {}, facts: new Map(),
  };
  row.bar.append(svg("rect", { class: "full", width: 100, height: 5 }), row.part);
  const spark = picture("spark", 2 * AXIS);
  for (const kind of ["out", "in", "err"]) spark.append(row.curves[kind] = svg("path", { class: kind }));
  const list = el("dl");
  for (const fact of FACTS) {
    const value = el("dd");
    list.append(el("dt", {}, fact), value);
    row.facts.set(fact, value);
  }
  row.tr = el("tr", { role: "row" },
    el("th", { role: "rowheader", scope: "row" }, key, " ", row.sub),
    cell("health", row.health),
    cell("rate", row.rate),
    cell("state", row.state),
    cell("wide", row.bar, spark, el("div", { class: "line" }, row.in, row.out)),
    cell("wide", el("div", { class: "line" }, row.errors, row.hold)),
    cell("wide", el("details", {}, el("summary", {}, "Details", el("span", { class: "hidden" }, ` of ${key}`)), list)));
  rows.set(key, row);
  return row;
}

function update(port, device, most, doc) {
  const row = rows.get(name(port)) ?? card(name(port));
  css(row.tr, `port card h-${port.health}`);
  text(row.sub, [port.rail === null ? "" : `rail ${port.rail}`, port.role].filter(Boolean).join(" · "));
  text(row.health, port.health);
  css(row.health, `badge ${port.health}`);
  const state = !port.present ? "missing" : device?.stalled ? "stalled" : port.state ?? "?";
  const physical = port.present && port.physical_state && port.state !== "ACTIVE" ? ` / ${port.physical_state}` : "";
  text(row.state, `${state}${physical}`);
  css(row.state, port.expected && state !== "ACTIVE" ? "low" : "sub");
  speed(row, port);
  curves(row, kept(port), most);
  const rose = port.moved.reduce((sum, moved) => sum + moved.rise, 0);
  text(row.errors, rose ? `${one(rose, "error")} within an hour` : "no errors within an hour");
  css(row.errors, rose ? "err num" : "sub");
  text(row.hold, Object.entries(port.hold).map(([rule, left]) => `${rule} in ${ago(left)}`).join(", "));
  facts(row, port, device, doc);
  return row.tr;
}

function speed(row, port) { // a rate counts only while the port is up: before, the kernel shows anything
  const up = port.state === "ACTIVE";
  const { rate: found, expected_rate: expected } = port;
  const low = up && found !== null && expected !== null && found < expected;
  const words = !up && expected !== null ? `${rate(expected)} Gb/s expected`
    : expected === null ? `${rate(found)} Gb/s` : `${rate(found)} of ${rate(expected)} Gb/s`;
  text(row.rate, words);
  css(row.rate, low ? "low" : "");
  const share = up && expected && found !== null ? Math.min(100, (100 * found) / expected) : 0;
  row.part.setAttribute("width", share.toFixed(1));
  row.part.setAttribute("class", `part ${low ? "short" : ""}`);
  row.bar.classList.toggle("none", expected === null);
}

function curves(row, points, most) { // received above the line and sent below; one scale, so that ports compare
  const end = points.at(-1)?.at ?? 0;
  const span = Math.max(30, Math.min(WINDOW, end - (points[0]?.at ?? end)));
  const x = (point) => (100 * (1 - (end - point.at) / span)).toFixed(2);
  for (const [kind, sign] of [["in", -1], ["out", 1]]) {
    text(row[kind], `${kind} ${gigabits(points.at(-1)?.[kind])} Gb/s`);
    const y = (point) => (AXIS + (sign * (AXIS - 2) * point[kind]) / most).toFixed(1);
    row.curves[kind].setAttribute("d", runs(points, kind).map((run) =>
      `M${x(run[0])} ${AXIS}${run.map((p) => `L${x(p)} ${y(p)}`).join("")}L${x(run.at(-1))} ${AXIS}Z`).join(""));
  }
  const bars = points.filter((point) => point.err).map((point) => `M${x(point)} 0V${2 * AXIS}`);
  row.curves.err.setAttribute("d", bars.join(""));
}

function runs(points, kind) { // the stretches without a gap
  const found = [[]];
  for (const point of points) {
    if ((point[kind] ?? null) !== null) found.at(-1).push(point);
    else if (found.at(-1).length) found.push([]);
  }
  return found.filter((run) => run.length);
}

function pcie(pci) {
  if (!pci || (pci.speed === null && pci.width === null)) return "";
  const link = (speed, width) => `${speed === null ? "?" : speed / 1e9} GT/s x${width ?? "?"}`;
  const below = (now, best) => best !== null && now !== null && now < best;
  const short = below(pci.speed, pci.expected_speed) || below(pci.width, pci.expected_width);
  return link(pci.speed, pci.width) + (short ? ` of ${link(pci.expected_speed, pci.expected_width)}` : "");
}

function facts(row, port, device, doc) {
  const age = device?.sample_age_seconds ?? null;
  const values = {
    slot: port.slot, interface: port.netdev, "link layer": port.link_layer,
    card: device && [device.hca_type, device.board_id, device.node_guid].filter(Boolean).join(" · "),
    firmware: device?.firmware_version, "PCIe link": pcie(device?.pci),
    sample: age === null ? "" : `${ago(age)} old at ${clock(doc.wall)}`,
    expected: !port.expected ? "no" : port.declared ? "declared" : port.trusted ? "learned, accepted" : "learned",
    flaps: String(port.flaps),
    "rose within an hour": port.moved.map((m) => `${m.counter} +${m.rise}`).join(", "),
    "read errors": device && Object.entries(device.read_errors).map(([code, n]) => `${code} ${n}`).join(", "),
  };
  for (const [fact, node] of row.facts) {
    text(node, values[fact] || "");
    node.hidden = node.previousElementSibling.hidden = !values[fact];
  }
}

// Elements and words that the page is made of. Text is set, never markup.

const GBPS = 125e6; // bytes per second of one Gb/s
const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export function svg(name, attributes = {}) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

export const text = (node, value) => { if (node.textContent !== value) node.textContent = value; };
export const css = (node, value) => { if (node.className !== value) node.className = value; };
export const word = (value) => String(value).replaceAll("_", " ");
export const one = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;

export function badge(value) {
  return el("span", { class: `badge ${/^[a-z]+$/.test(value) ? value : ""}` }, value);
}

export function gigabits(bytes) {
  if (bytes === null || bytes === undefined) return "?";
  const value = bytes / GBPS;
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value >= 0.001 ? value.toPrecision(2) : "0";
}

export const rate = (bytes) => (bytes === null ? "?" : String(Number((bytes / GBPS).toFixed(3))));

export function ago(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 100) return `${s} s`;
  if (s < 6000) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

export function clock(wall) {
  const at = new Date(wall * 1000);
  const today = at.toDateString() === new Date().toDateString();
  const time = at.toLocaleTimeString([], { hour12: false });
  return today ? time : `${at.toLocaleDateString()} ${time}`;
}

export function moment(wall) {
  return el("time", { datetime: new Date(wall * 1000).toISOString() }, clock(wall));
}

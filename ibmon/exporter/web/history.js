// What each port carried while this page was open. The browser keeps it: the daemon has only the newest sums.

export const WINDOW = 900; // s that are kept and shown
const KEY = `ibmon ${location.pathname}`;

let boot = "";
let ports = new Map(); // by name of the port: its points, oldest first

export const name = (port) => `${port.device}/${port.port}`;
export const kept = (port) => ports.get(name(port)) ?? [];

export function remember(doc) {
  if (doc.boot_id !== boot) { // other clocks: what was kept means nothing any more
    ports = new Map();
    boot = doc.boot_id;
  }
  for (const port of doc.ports) if (port.totals) add(name(port), port.totals);
}

function add(key, now) {
  const points = ports.get(key) ?? [];
  const last = points.at(-1);
  if (last && now.at <= last.at) return;
  points.push({ ...now, ...(last ? risen(last, now) : {}) });
  while (points[0].at < now.at - WINDOW) points.shift();
  ports.set(key, points);
}

function risen(last, now) { // what happened between two reads; a sum that fell was reset, and says nothing
  const rise = (key) => (now[key] === null || last[key] === null || now[key] < last[key] ? null : now[key] - last[key]);
  const speed = (key) => { const risen = rise(key); return risen === null ? null : risen / (now.at - last.at); };
  return { in: speed("rcv_bytes"), out: speed("xmit_bytes"), err: rise("errors") };
}

export function peak() { // bytes per second of the busiest port in either direction
  let most = 1;
  for (const points of ports.values()) for (const p of points) most = Math.max(most, p.in ?? 0, p.out ?? 0);
  return most;
}

export function keep() {
  try {
    sessionStorage.setItem(KEY, JSON.stringify([boot, [...ports]]));
  } catch { /* no room, or not allowed: the curves begin anew */ }
}

export function recall() {
  try {
    const [whose, points] = JSON.parse(sessionStorage.getItem(KEY)) ?? ["", []];
    ports = new Map(points);
    boot = whose;
  } catch { /* nothing that we wrote */ }
}

// The map of nodes and rails on one canvas: a column a node, a row a rail, nodes of one group side by side.

export const WORDS = {
  o: "ok", w: "warning", d: "degraded", f: "failed", r: "recovering", u: "unknown", "-": "none",
};
export const [NAME, FITNESS, GROUP, RAILS, AGE, CODE] = [0, 1, 2, 3, 4, 5]; // what stands where in a node's row

const CELLS = [16, 14, 12, 10, 8, 7, 6, 5, 4, 3]; // px, the largest that fits is taken
const HEIGHT = 640; // px that the whole may take before its cells get smaller
const TALL = 1800; // the same on a phone, which is narrow and scrolled anyway
const NARROW = 600; // px
const LABEL = 14; // px of a line with names of groups
const FAINT = 0.16; // of what a search did not find
const MARKS = { unfit: "failed", watch: "warning", unknown: "unknown", missing: "mark" };

const key = (row) => `${row[GROUP] ?? "\uffff"}\0${row[NAME]}`.replace(/\d+/g, (digits) => digits.padStart(9, "0"));

export function arrange(rows) { // by group, then by name, as people count
  return rows.map((row) => [key(row), row]).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)).map((x) => x[1]);
}

export class Matrix {
  constructor(canvas, { moved, chosen }) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.rails = [];
    this.rows = [];
    this.found = null; // indexes that a search found; null for all
    this.drains = new Map();
    this.at = null; // [node, rail] under the cursor
    this.moved = moved;
    this.chosen = chosen;
    canvas.addEventListener("pointermove", (event) => this.go(this.hit(event), false));
    canvas.addEventListener("click", (event) => { if (this.go(this.hit(event), true)) this.chosen(this.at[0]); });
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(rails, rows, drains, found) {
    this.rails = rails;
    this.rows = rows;
    this.drains = drains;
    this.found = found;
    if (this.at && this.at[0] >= rows.length) this.at = null;
    this.draw();
  }

  resize() {
    if (this.canvas.clientWidth !== this.width) this.draw();
  }

  // -------------------------------------------------------------------------------------------------- places

  place() { // where each column stands, in the largest cells with which all is in sight
    this.width = this.canvas.clientWidth;
    for (const cell of CELLS) {
      const height = this.lay(cell);
      if (height <= (this.width < NARROW ? TALL : HEIGHT) || cell === CELLS.at(-1)) return height;
    }
    return 0;
  }

  lay(cell) {
    const mark = Math.max(2, Math.round(cell / 3));
    const label = cell >= 5 && this.rows.some((row) => row[GROUP]) ? LABEL : 0;
    const band = label + 2 * (mark + 1) + this.rails.length * cell + Math.max(4, cell >> 1);
    const xs = new Float32Array(this.rows.length);
    const ys = new Float32Array(this.rows.length);
    const labels = [];
    const bands = [0];
    let [x, y] = [0, 0];
    const wrap = () => { x = 0; y += band; bands.push(y); };
    for (let i = 0; i < this.rows.length;) {
      let end = i + 1;
      while (end < this.rows.length && this.rows[end][GROUP] === this.rows[i][GROUP]) end += 1;
      const width = (end - i) * cell;
      if (x > 0) x += cell;
      if (x > 0 && x + width > this.width && (width <= this.width || x + 4 * cell > this.width)) wrap();
      labels.push([this.rows[i][GROUP], x, y, Math.min(width, this.width - x)]);
      for (; i < end; i += 1) {
        if (x + cell > this.width) wrap();
        xs[i] = x;
        ys[i] = y;
        x += cell;
      }
    }
    Object.assign(this, { cell, mark, label, band, xs, ys, labels, bands, top: label + mark + 1 });
    return this.rows.length ? y + band : 0;
  }

  hit(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const at = this.xs ? this.near(x, y) : -1;
    if (at < 0 || x - this.xs[at] >= this.cell || y >= this.ys[at] + this.band) return null;
    return [at, Math.max(0, Math.min(this.rails.length - 1, Math.floor((y - this.ys[at] - this.top) / this.cell)))];
  }

  near(x, y) { // the last column of that band that begins left of x, else -1
    const band = Math.floor(y / this.band) * this.band;
    let [low, high] = [0, this.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ys[middle] < band - 0.5 || (this.ys[middle] < band + 0.5 && this.xs[middle] <= x)) low = middle + 1;
      else high = middle;
    }
    return low - 1 >= 0 && Math.abs(this.ys[low - 1] - band) < 0.5 ? low - 1 : -1;
  }

  // -------------------------------------------------------------------------------------------------- drawing

  draw() {
    performance.mark("matrix-begin");
    const ratio = devicePixelRatio || 1;
    const height = Math.max(1, this.place());
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.max(1, Math.round(this.width * ratio));
    this.canvas.height = Math.round(height * ratio);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.colours = Object.fromEntries([...Object.values(WORDS), "mark"].map((name) => [name, colour(`--m-${name}`)]));
    Object.assign(this.colours, { ground: colour("--card"), ink: colour("--ink"), dim: colour("--dim") });
    const c = this.context;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = this.colours.ground;
    c.fillRect(0, 0, this.width, height);
    const all = [...this.rows.keys()];
    if (this.found) {
      c.globalAlpha = FAINT;
      this.columns(all.filter((i) => !this.found.has(i)));
      c.globalAlpha = 1;
    }
    this.columns(this.found ? all.filter((i) => this.found.has(i)) : all);
    this.names();
    this.cursor();
    performance.measure("matrix", "matrix-begin");
  }

  columns(which) { // a whole column is good until something says otherwise: few cells are drawn one by one
    const { context: c, cell, xs, ys, top, rails } = this;
    const gap = cell >= 4 ? 1 : 0;
    const odd = { w: [], d: [], f: [], r: [], u: [], "-": [] };
    c.fillStyle = this.colours.ok;
    for (const i of which) {
      const letters = this.rows[i][RAILS];
      if (gap) for (let r = 0; r < rails.length; r += 1) c.fillRect(xs[i], ys[i] + top + r * cell, cell - 1, cell - 1);
      else c.fillRect(xs[i], ys[i] + top, cell, rails.length * cell);
      for (let r = 0; r < rails.length; r += 1) {
        const letter = letters[r] ?? "-";
        if (letter !== "o") (odd[letter] ?? odd.u).push(i, r);
      }
    }
    for (const [letter, cells] of Object.entries(odd)) {
      c.fillStyle = this.colours[WORDS[letter]];
      for (let k = 0; k < cells.length; k += 2) {
        c.fillRect(xs[cells[k]], ys[cells[k]] + top + cells[k + 1] * cell, cell - gap, cell - gap);
      }
    }
    if (cell >= 7) this.signs(odd);
    this.marks(which, gap);
  }

  signs({ f, u }) { // so that it is not colour alone that tells: a cross for failed, a hole for unknown
    const { context: c, cell, xs, ys, top } = this;
    c.strokeStyle = this.colours.ground;
    c.lineWidth = 1.5;
    c.beginPath();
    for (let k = 0; k < f.length; k += 2) {
      const [x, y, s] = [xs[f[k]] + 2, ys[f[k]] + top + f[k + 1] * cell + 2, cell - 5];
      c.moveTo(x, y);
      c.lineTo(x + s, y + s);
      c.moveTo(x + s, y);
      c.lineTo(x, y + s);
    }
    c.stroke();
    c.fillStyle = this.colours.ground;
    for (let k = 0; k < u.length; k += 2) {
      c.fillRect(xs[u[k]] + 2, ys[u[k]] + top + u[k + 1] * cell + 2, cell - 5, cell - 5);
    }
  }

  marks(which, gap) {
    const { context: c, cell, mark, xs, ys, label, top, rails } = this;
    for (const i of which) {
      const kind = MARKS[this.rows[i][FITNESS]];
      if (kind) {
        c.fillStyle = this.colours[kind];
        c.fillRect(xs[i], ys[i] + label, cell - gap, mark);
      }
      const drain = this.drains.get(this.rows[i][NAME]);
      if (drain) {
        c.fillStyle = drain === "held" ? this.colours.ink : this.colours.dim;
        c.fillRect(xs[i], ys[i] + top + rails.length * cell, cell - gap, drain === "held" ? mark : 1);
      }
    }
  }

  names() {
    if (!this.label) return;
    const c = this.context;
    c.fillStyle = this.colours.dim;
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "top";
    for (const [name, x, y, width] of this.labels) {
      if (name && c.measureText(name).width <= width) c.fillText(name, x, y);
    }
  }

  cursor() {
    if (!this.at) return;
    const { context: c, cell, xs, ys, top, rails } = this;
    const [i, rail] = this.at;
    c.strokeStyle = this.colours.ink;
    c.lineWidth = 1;
    c.strokeRect(xs[i] - 1.5, ys[i] + top - 1.5, cell + 2, rails.length * cell + 2);
    c.lineWidth = 2.5;
    c.strokeRect(xs[i] - 1.5, ys[i] + top + rail * cell - 1.5, cell + 2, cell + 2);
  }

  // -------------------------------------------------------------------------------------------------- moving

  go(at, spoken) { // whether there is a node; drawn anew only where the cursor really moved
    const same = at === this.at || (at && this.at && at[0] === this.at[0] && at[1] === this.at[1]);
    if (at && !same) {
      this.at = at;
      this.draw();
    }
    if (at && (spoken || !same)) this.moved(at[0], at[1], spoken);
    return at !== null;
  }

  key(event) {
    if (!this.rows.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const [i, rail] = this.at ?? [-1, 0];
    const last = this.rows.length - 1;
    const to = {
      ArrowRight: () => [Math.min(last, i + 1), rail], ArrowLeft: () => [Math.max(0, i - 1), rail],
      ArrowDown: () => this.vertical(i, rail, 1), ArrowUp: () => this.vertical(i, rail, -1),
      Home: () => [0, rail], End: () => [last, rail],
      n: () => this.bad(i, 1), p: () => this.bad(i, -1),
    }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (to) this.go(to(), true);
    else if ((event.key === "Enter" || event.key === " ") && this.at) this.chosen(this.at[0]);
    else return;
    event.preventDefault();
  }

  vertical(i, rail, step) { // from the last rail on to the band below
    if (i < 0) return [0, 0];
    if (rail + step >= 0 && rail + step < this.rails.length) return [i, rail + step];
    const other = this.near(this.xs[i], this.ys[i] + step * this.band + 1);
    return other < 0 ? [i, rail] : [other, step > 0 ? 0 : this.rails.length - 1];
  }

  bad(i, step) { // the next node that is not fit, around the end; the worst of its rails
    const count = this.rows.length;
    for (let k = 1; k <= count; k += 1) {
      const next = (i + step * k + 2 * count) % count;
      const row = this.rows[next];
      const shown = !this.found || this.found.has(next);
      if (shown && row[FITNESS] !== "fit") return [next, Math.max(0, row[RAILS].search(/[fdu]/))];
    }
    return this.at;
  }
}

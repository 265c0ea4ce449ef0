// One line of the node's history.

import { el, moment, word } from "./elements.js";

const LEVELS = ["info", "warning", "error"];

export function happened(row) {
  const fields = Object.entries(row.fields).map(([name, value]) => `${word(name)} ${plain(value)}`).join(" \u00b7 ");
  const level = LEVELS.includes(row.level) ? row.level : "info";
  const item = el("li", { class: `l-${level}` }, moment(row.at), el("strong", {}, row.event), ` ${fields}`);
  if (level !== "info") item.append(el("span", { class: "hidden" }, ` (${level})`));
  return item;
}

const plain = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : String(value));

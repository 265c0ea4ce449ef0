// Variables, their places in texts, and queries as data frames, as Grafana's Prometheus data source makes them.
import { createDataFrame, FieldType, rangeUtil } from "@grafana/data";
import { PROMETHEUS, report, SCRAPE, VARIABLES } from "./settings.js";

export const variables = {};

const escaped = (text) => String(text).replace(/[\\^$.*+?()[\]{}|]/g, "\\\\$&");
const seconds = (range) => Math.round(range.to.diff(range.from) / 1000);

function written(value) {
  if (!Array.isArray(value)) return String(value);
  return value.length === 1 ? escaped(value[0]) : `(${value.map(escaped).join("|")})`;
}

// Replaces $name and ${name:format}; `unknown` is called with names that nobody knows.
export function replaced(text, scope = {}, unknown = () => {}) {
  return String(text ?? "").replace(/\$(\w+)|\$\{(\w+)(?::[^}]+)?\}/g, (whole, plain, braced) => {
    const name = plain || braced;
    if (name in scope) return scope[name];
    if (name in variables) return written(variables[name].value);
    unknown(name);
    return whole;
  });
}

const scopeOf = (range, step) => ({
  __interval: `${step}s`,
  __rate_interval: `${Math.max(step + SCRAPE, 4 * SCRAPE)}s`,
  __range: `${seconds(range)}s`,
  __range_s: seconds(range),
});

async function ask(path, parameters) {
  const answer = await (await fetch(`${PROMETHEUS}${path}?${new URLSearchParams(parameters)}`)).json();
  if (answer.status !== "success") throw new Error(answer.error);
  return answer.data;
}

async function optionsOf(variable, range) {
  if (variable.type === "datasource") return ["prometheus"];
  if (variable.type === "custom") return variable.query.split(",").map((one) => one.split(" : ").pop().trim());
  const query = replaced(variable.query, scopeOf(range, 60));
  const asked = /^query_result\((.+)\)$/.exec(query);
  if (asked) {
    const { result } = await ask("/api/v1/query", { query: asked[1], time: range.to.unix() });
    const pattern = new RegExp(variable.regex.slice(1, -1));
    const texts = result.map(({ metric }) => `{${Object.entries(metric).map(([name, value]) => `${name}="${value}"`)}}`);
    return texts.map((text) => pattern.exec(text)[1]);
  }
  const [, selector, label] = /^label_values\((.+),\s*(\w+)\)$/.exec(query);
  const parameters = [["start", range.from.unix()], ["end", range.to.unix()], ["match[]", selector]]; // prettier-ignore
  return ask(`/api/v1/label/${label}/values`, parameters);
}

export async function resolveVariables(list, range) {
  for (const variable of list) {
    const options = await optionsOf(variable, range);
    if (!options.length) report.problems.push(`variable ${variable.name}: no values`);
    const chosen = VARIABLES[variable.name] ?? variable.current?.value;
    const all = chosen === "$__all";
    if (all && !variable.includeAll) report.problems.push(`variable ${variable.name}: All is no choice`);
    const value = all ? variable.allValue || options : chosen || options[0];
    const known = variable.type !== "custom" || options.includes(value);
    if (!known) report.problems.push(`variable ${variable.name}: ${value} is none of its options`);
    const text = all ? "All" : variable.type === "custom" ? variable.current.text : String(value);
    variables[variable.name] = { value, text, label: variable.label, hide: variable.hide };
  }
}

const number = (text) => ({ "+Inf": Infinity, "-Inf": -Infinity })[text] ?? parseFloat(text);

function nameOf(target, labels) {
  if (target.legendFormat)
    return target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? "");
  const { __name__: name = "", ...others } = labels;
  const pairs = Object.entries(others).map(([label, value]) => `${label}="${value}"`);
  return pairs.length ? `${name}{${pairs.join(", ")}}` : name || null;
}

function tableFrame(target, series, several) {
  const labels = [...new Set(series.flatMap((one) => Object.keys(one.metric)))].sort();
  const rows = series.map(({ metric, value: [at, value] }) => ({ metric, at: at * 1000, value: number(value) }));
  const texts = labels.map((label) => ({
    name: label,
    type: FieldType.string,
    config: { filterable: true },
    values: rows.map((row) => row.metric[label] ?? ""),
  }));
  return createDataFrame({
    refId: target.refId,
    fields: [
      { name: "Time", type: FieldType.time, values: rows.map((row) => row.at) },
      ...texts,
      {
        name: several ? `Value #${target.refId}` : "Value",
        type: FieldType.number,
        values: rows.map((row) => row.value),
      },
    ],
  });
}

function seriesFrame(target, { metric, value, values }, range, step) {
  let points = values || [value];
  if (values) {
    // Grafana fills the steps without a value, so that a gap is a gap.
    const found = new Map(values.map(([at, text]) => [Math.round(at / step), text]));
    const first = Math.floor(range.from.unix() / step);
    const last = Math.floor(range.to.unix() / step);
    points = Array.from({ length: last - first + 1 }, (_, i) => [(first + i) * step, found.get(first + i) ?? null]);
  }
  const name = nameOf(target, metric);
  return createDataFrame({
    refId: target.refId,
    name,
    meta: { type: "timeseries-multi" },
    fields: [
      {
        name: "Time",
        type: FieldType.time,
        config: { interval: step * 1000 },
        values: points.map(([at]) => at * 1000),
      },
      {
        name: "Value",
        type: FieldType.number,
        labels: metric,
        config: { displayNameFromDS: name },
        values: points.map(([, text]) => (text === null ? null : number(text))),
      },
    ],
  });
}

// The frames of one query; errors and unknown variables are complained of.
export async function run(target, range, width, several, complain) {
  const wanted = rangeUtil.roundInterval((seconds(range) * 1000) / Math.max(100, Math.round(width))) / 1000;
  const least = target.interval ? rangeUtil.intervalToSeconds(target.interval) : SCRAPE;
  const step = Math.max(wanted, least, 1);
  const unknown = (name) => complain(`unknown variable $${name}`);
  const expression = replaced(target.expr, scopeOf(range, step), unknown);
  const start = Math.floor(range.from.unix() / step) * step;
  try {
    const { result } = target.instant
      ? await ask("/api/v1/query", { query: expression, time: range.to.unix() })
      : await ask("/api/v1/query_range", { query: expression, start, end: range.to.unix(), step });
    if (target.format === "table") return [tableFrame(target, result, several)];
    return result.map((one) => seriesFrame(target, one, range, step));
  } catch (error) {
    complain(`${target.refId}: ${error.message}`);
    return [];
  }
}

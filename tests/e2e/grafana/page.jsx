// Draws one dashboard against a live Prometheus with Grafana's own libraries (Apache-2.0), without a Grafana server, and
// reports what is wrong with it in window.REPORT. window.DONE is set when all is drawn.
import React from "react";
import { createRoot } from "react-dom/client";
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  dateTime,
  FieldType,
  getFieldDisplayName,
  rangeUtil,
  ThemeContext,
  transformDataFrame,
} from "@grafana/data";
import { GlobalStyles, PanelChrome } from "@grafana/ui";
import { drawable, Guard, Visualization } from "./panels.jsx";
import { replaced, resolveVariables, run, variables } from "./queries.js";
import { check, fieldOptions, FROM, report, theme, TO, WIDTH } from "./settings.js";

const COLUMNS = 24;
const CELL = 38; // pixels of one row of Grafana's grid
const HEAD = 52;

function checkGrid(panels) {
  panels.forEach(({ title, gridPos: a }, i) => {
    if (a.x + a.w > COLUMNS) report.problems.push(`"${title}" is beyond the last column`);
    for (const { title: other, gridPos: b } of panels.slice(0, i))
      if (a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h)
        report.problems.push(`"${title}" and "${other}" overlap`);
  });
  if (new Set(panels.map((panel) => panel.id)).size !== panels.length) report.problems.push("two panels with one id");
}

const transformed = (panel, frames) =>
  new Promise((resolve, reject) =>
    transformDataFrame(panel.transformations, frames, { interpolate: (text) => replaced(text) }).subscribe({
      next: resolve,
      error: reject,
    }),
  );

async function framesOf(panel, range, width, complain) {
  const tables = panel.targets.filter((target) => target.format === "table").length;
  let frames = [];
  for (const target of panel.targets) frames.push(...(await run(target, range, width, tables > 1, complain)));
  if (panel.transformations?.length) frames = await transformed(panel, frames);
  return applyFieldOverrides({
    data: frames,
    fieldConfig: { defaults: panel.fieldConfig.defaults, overrides: panel.fieldConfig.overrides },
    theme,
    timeZone: "utc",
    replaceVariables: (text) => replaced(text),
    fieldConfigRegistry: fieldOptions,
  });
}

async function prepared(panel, range) {
  const width = (panel.gridPos.w * WIDTH) / COLUMNS - 8;
  const height = panel.gridPos.h * CELL - 8;
  if (panel.type === "row") return { panel, width, height };
  const said = { title: panel.title, type: panel.type, problems: [], rows: 0 };
  report.panels.push(said);
  const complain = (text) => said.problems.push(text);
  if (!drawable(panel)) complain(`there is no way to draw a ${panel.type}`);
  if (!panel.description) complain("no description");
  check(panel, complain);
  const frames = await framesOf(panel, range, width, complain);
  cacheFieldDisplayNames(frames); // as Grafana's table panel does
  said.rows = frames.reduce((sum, frame) => sum + frame.length, 0);
  if (!said.rows && !panel.fieldConfig.defaults.noValue) complain("nothing to show, and no word for that");
  const names = frames.flatMap((frame) =>
    frame.fields
      .filter((field) => field.type === FieldType.number)
      .map((field) => getFieldDisplayName(field, frame, frames)),
  );
  const twice = names.filter((name, i) => names.indexOf(name) !== i);
  if (panel.type !== "table" && twice.length) complain(`two series are called ${twice[0]}`);
  return { panel, width, height, frames, said, complain };
}

const Head = ({ title, range }) => (
  <div style={{ padding: "12px 8px", height: 28 }}>
    <b style={{ fontSize: 18 }}>{title}</b>
    {Object.values(variables)
      .filter((variable) => !variable.hide)
      .map(({ label, text }) => (
        <span
          key={label}
          style={{ marginLeft: 16, border: `1px solid ${theme.colors.border.medium}`, padding: "3px 8px" }}
        >
          <span style={{ color: theme.colors.text.secondary }}>{label}</span> {text}
        </span>
      ))}
    <span style={{ float: "right" }}>
      {range.from.utc().format("HH:mm:ss")} to {range.to.utc().format("HH:mm:ss")} UTC
    </span>
  </div>
);

function Panel({ panel, width, height, frames, complain, range }) {
  if (panel.type === "row") return <h4>▾ {panel.title}</h4>;
  return (
    <PanelChrome
      title={replaced(panel.title)}
      description={panel.description}
      width={width}
      height={height}
      padding="md"
    >
      {(inner, innerHeight) => (
        <Guard complain={complain}>
          <Visualization {...{ panel, frames, range }} width={inner} height={innerHeight} />
        </Guard>
      )}
    </PanelChrome>
  );
}

function inspect({ panel, said, complain }) {
  if (!said) return;
  const element = document.querySelector(`[data-panel="${panel.id}"]`);
  const heading = element.querySelector("h2");
  if (heading && heading.scrollWidth > heading.clientWidth + 1) complain("its title is cut off");
  if (said.rows && !element.querySelector("canvas,svg,[role=grid],[data-testid]")) complain("nothing was drawn");
}

async function main() {
  const dashboard = await (await fetch("dashboard.json")).json();
  const raw = { from: dateTime(Number(FROM)), to: dateTime(Number(TO)) };
  const range = rangeUtil.convertRawToRange(raw, "utc");
  await resolveVariables(dashboard.templating.list, range);
  checkGrid(dashboard.panels);
  const drawn = [];
  for (const panel of dashboard.panels) drawn.push(await prepared(panel, range));
  const height = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h)) * CELL + HEAD + 8;
  Object.assign(document.body.style, {
    margin: 0,
    background: theme.colors.background.canvas,
    color: theme.colors.text.primary,
    fontFamily: theme.typography.fontFamily,
    fontSize: "14px",
  });
  createRoot(document.getElementById("root")).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ position: "relative", width: WIDTH, height }}>
        <Head title={dashboard.title} range={range} />
        {drawn.map((one) => {
          const { x, y } = one.panel.gridPos;
          const place = { left: (x * WIDTH) / COLUMNS + 4, top: HEAD + y * CELL + 4 };
          return (
            <div
              key={one.panel.id}
              data-panel={one.panel.id}
              style={{ position: "absolute", width: one.width, height: one.height, ...place }}
            >
              <Panel {...one} range={range} />
            </div>
          );
        })}
      </div>
    </ThemeContext.Provider>,
  );
  setTimeout(() => {
    drawn.forEach(inspect);
    window.DONE = true;
  }, 1500);
}

main().catch((error) => {
  report.problems.push(error.stack);
  window.DONE = true;
});

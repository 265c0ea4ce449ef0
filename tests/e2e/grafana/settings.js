// What the page is asked for, the theme, the report, and Grafana's registries filled as its own pages fill them.
import {
  createTheme,
  FieldConfigOptionsRegistry,
  getValueFormats,
  standardFieldConfigEditorRegistry,
  standardTransformers,
  standardTransformersRegistry,
} from "@grafana/data";

const asked = new URLSearchParams(location.search);
export const PROMETHEUS = asked.get("prom");
export const SCRAPE = Number(asked.get("scrape")); // seconds
export const VARIABLES = JSON.parse(asked.get("vars") || "{}");
export const FROM = asked.get("from");
export const TO = asked.get("to");
export const WIDTH = Number(asked.get("w") || 1600);
export const theme = createTheme({ colors: { mode: asked.get("theme") } });

export const report = (window.REPORT = { panels: [], problems: [] });

const transformers = new Map(
  Object.values(standardTransformers).map((t) => [
    t.id,
    { id: t.id, name: t.name, transformation: t, editor: () => null },
  ]),
);
standardTransformersRegistry.setInit(() => [...transformers.values()]);

const option = (path, isCustom) => ({
  id: (isCustom ? "custom." : "") + path,
  path,
  isCustom,
  name: path,
  override: () => null,
  editor: () => null,
  process: (value) => value,
  shouldApply: () => true,
  settings: {},
});
const standard =
  "displayName unit min max decimals noValue color thresholds mappings links description filterable fieldMinMax actions"
    .split(" ")
    .map((path) => option(path, false));
const custom = (
  "drawStyle lineInterpolation barAlignment lineWidth fillOpacity gradientMode lineStyle spanNulls showPoints " +
  "pointSize stacking axisPlacement axisLabel axisWidth axisSoftMin axisSoftMax axisGridShow axisCenteredZero " +
  "axisColorMode axisBorderShow scaleDistribution hideFrom transform thresholdsStyle insertNulls fillBelowTo " +
  "showValues align cellOptions inspect width minWidth filterable hidden fillColor footer wrapText"
)
  .split(" ")
  .map((path) => option(path, true));
standardFieldConfigEditorRegistry.setInit(() => standard);
export const fieldOptions = new FieldConfigOptionsRegistry(() => [...standard, ...custom]);

const optionIds = new Set(fieldOptions.list().map((one) => one.id));
const units = new Set(getValueFormats().flatMap((category) => category.submenu.map((unit) => unit.value)));

// Complains of what Grafana would silently ignore: units, override properties and transformations that do not exist.
export function check(panel, complain) {
  const checkUnit = (unit) => unit && !units.has(unit) && complain(`unit "${unit}" is none of Grafana's`);
  checkUnit(panel.fieldConfig?.defaults?.unit);
  for (const override of panel.fieldConfig?.overrides || [])
    for (const property of override.properties) {
      if (!optionIds.has(property.id)) complain(`override of "${property.id}", which does not exist`);
      if (property.id === "unit") checkUnit(property.value);
    }
  for (const { id } of panel.transformations || [])
    if (!standardTransformersRegistry.getIfExists(id)) complain(`transformation "${id}" does not exist`);
}

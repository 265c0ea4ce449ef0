// One panel of each kind that the dashboards have. Grafana's own components draw all but the state timeline.
import React from "react";
import { dateTime, FieldType, getFieldDisplayName, getFieldDisplayValues } from "@grafana/data";
import { BarGauge, BigValue, TimeSeries } from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import { replaced } from "./queries.js";
import { theme } from "./settings.js";

const SMALLEST = 8; // pixels of text that somebody can still read

function segmentsOf(time, value) {
  const segments = [];
  let open = null;
  time.values.forEach((at, i) => {
    if (value.values[i] == null) {
      open = null;
      return;
    }
    const { text, color } = value.display(value.values[i]);
    const end = at + time.config.interval;
    if (open && open.text === text && open.color === color) open.end = end;
    else segments.push((open = { text, color, start: at, end }));
  });
  return segments;
}

// Grafana's state timeline is part of its server's pages, not of its libraries.
function StateTimeline({ frames, width, height, range }) {
  const rows = frames.map((frame) => {
    const [time, value] = frame.fields;
    return { name: getFieldDisplayName(value, frame, frames), segments: segmentsOf(time, value) };
  });
  const left = Math.min(width * 0.35, Math.max(60, ...rows.map((row) => row.name.length * 7.4)));
  const each = (height - 20) / rows.length;
  const x = (at) => left + 8 + ((at - range.from) / (range.to - range.from)) * (width - left - 8);
  const fontSize = Math.max(SMALLEST, Math.min(12, each * 0.7));
  return (
    <svg width={width} height={height} style={{ fontSize, fontFamily: theme.typography.fontFamily }}>
      {rows.map((row, i) => (
        <g key={i}>
          <text
            x={left}
            y={i * each + each / 2}
            textAnchor="end"
            dominantBaseline="middle"
            fill={theme.colors.text.primary}
          >
            {row.name}
          </text>
          {row.segments.map(({ text, color, start, end }, k) => {
            const long = x(Math.min(end, range.to)) - x(start);
            return (
              <g key={k}>
                <rect
                  x={x(start)}
                  y={i * each + each * 0.05}
                  width={Math.max(0.5, long)}
                  height={each * 0.9}
                  fill={color}
                  fillOpacity={0.85}
                />
                {long > text.length * 8 && each > 9 && (
                  <text
                    x={x(start) + long / 2}
                    y={i * each + each / 2}
                    textAnchor="middle"
                    dominantBaseline="middle"
                    fill={theme.colors.getContrastText(color)}
                  >
                    {text}
                  </text>
                )}
              </g>
            );
          })}
        </g>
      ))}
      {[0, 0.25, 0.5, 0.75, 1].map((share) => (
        <text
          key={share}
          x={left + 8 + share * (width - left - 8)}
          y={height - 6}
          textAnchor={share === 1 ? "end" : share ? "middle" : "start"}
          fill={theme.colors.text.secondary}
          fontSize={11}
        >
          {dateTime(range.from + share * (range.to - range.from)).format("HH:mm:ss")}
        </text>
      ))}
    </svg>
  );
}

function displayed(panel, frames, sparkline) {
  const { calcs, fields } = panel.options.reduceOptions;
  return getFieldDisplayValues({
    fieldConfig: { defaults: {}, overrides: [] },
    reduceOptions: { calcs, values: false, fields },
    replaceVariables: (text) => replaced(text),
    theme,
    data: frames,
    timeZone: "utc",
    sparkline,
  });
}

function Stat({ panel, frames, width, height }) {
  const { colorMode, graphMode, justifyMode, textMode } = panel.options;
  const values = displayed(panel, frames, graphMode !== "none");
  return (
    <div style={{ display: "flex", gap: 4, height }}>
      {values.map(({ display, sparkline }, i) => (
        <BigValue
          key={i}
          theme={theme}
          width={width / values.length - 4}
          height={height}
          value={{ ...display, title: values.length > 1 ? display.title : "" }}
          {...{ colorMode, graphMode, justifyMode, textMode, sparkline }}
        />
      ))}
    </div>
  );
}

function Bars({ panel, frames, width, height }) {
  const { orientation, displayMode, valueMode, namePlacement, minVizHeight } = panel.options;
  const values = displayed(panel, frames, false);
  const each = Math.max(minVizHeight, Math.min(32, height / values.length - 6));
  return (
    <div style={{ display: "flex", flexDirection: "column", gap: 6, height, overflow: "hidden" }}>
      {values.map((one, i) => (
        <BarGauge
          key={i}
          theme={theme}
          width={width}
          height={each}
          value={one.display}
          field={one.field}
          display={one.view?.getFieldDisplayProcessor(one.colIndex)}
          itemSpacing={6}
          {...{ orientation, displayMode, valueDisplayMode: valueMode, namePlacement }}
        />
      ))}
    </div>
  );
}

const Table = ({ panel, frames, width, height }) => (
  <TableNG data={frames[0]} width={width} height={height} initialSortBy={panel.options.sortBy} />
);

const Lines = ({ panel, frames, width, height, range }) => (
  <TimeSeries
    frames={frames}
    structureRev={1}
    timeRange={range}
    timeZone="utc"
    width={width}
    height={height}
    legend={panel.options.legend}
    options={panel.options}
  />
);

const Timeline = ({ frames, width, height, range }) => (
  <StateTimeline {...{ frames, width, height }} range={{ from: range.from.valueOf(), to: range.to.valueOf() }} />
);

const KINDS = { timeseries: Lines, stat: Stat, bargauge: Bars, table: Table, "state-timeline": Timeline };

export const drawable = (panel) => panel.type in KINDS;

export function Visualization(props) {
  const { panel, frames } = props;
  if (!frames.length || frames.every((frame) => !frame.length)) {
    const text = panel.fieldConfig?.defaults?.noValue || "No data";
    return <div style={{ padding: 8, color: theme.colors.text.secondary }}>{text}</div>;
  }
  const Kind = KINDS[panel.type];
  return <Kind {...props} />;
}

export class Guard extends React.Component {
  state = {};

  static getDerivedStateFromError(error) {
    return { error };
  }

  componentDidCatch(error) {
    this.props.complain(`does not draw: ${error.message}`);
  }

  render() {
    return this.state.error ? <pre>{String(this.state.error)}</pre> : this.props.children;
  }
}

// A small line chart over time in inline SVG. Colors come from the style sheet.

import { element } from "./box.js";
import { formatAge } from "./metrics.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 360;
const HEIGHT = 150;
const LEFT = 46;
const TOP = 8;
const BOTTOM = 18;
const RIGHT = 2;

// The chart of a server that was just started shows this span, and widens.
const FIRST_SPAN_SECONDS = 60;

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
}

function svg(tag, attributes, parent) {
  const made = document.createElementNS(SVG, tag);
  set(made, attributes);
  parent?.append(made);
  return made;
}

// The least of 1, 2, 5 times a power of ten that is not below `value`.
function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999999);
}

function withoutTrailingZeros(text) {
  return text.replace(/\.(\d*?)0+(?=\D|$)/, (_, kept) => (kept ? "." + kept : ""));
}

export class Chart {
  // options: title, names (one per line), format, least (of the scale's upper end), area (fill
  // under the first line).
  constructor(parent, options) {
    this.options = options;
    this.points = [];
    this.cursor = null;

    const figure = element("figure", "chart");
    figure.style.margin = "0";
    const legend = element("div", "legend");
    this.values = options.names.map((name, i) => {
      const entry = element("span");
      const value = element("b");
      entry.append(element("i", "b" + i), name + " ", value);
      legend.append(entry);
      return value;
    });
    this.svg = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
      "aria-label": options.title + ", the last ten minutes",
    });
    figure.append(element("h3", "", options.title), legend, this.svg);
    parent.append(figure);

    this.grid = [0, 0.5, 1].map((share) => ({
      share,
      line: svg("line", { class: "grid" }, this.svg),
      text: svg("text", { "text-anchor": "end" }, this.svg),
    }));
    this.start = svg("text", { "text-anchor": "start" }, this.svg);
    this.end = svg("text", { "text-anchor": "end" }, this.svg);
    this.area = options.area ? svg("path", { class: "area f0" }, this.svg) : null;
    this.lines = options.names.map((_, i) => svg("path", { class: "line s" + i }, this.svg));
    this.mark = svg("line", { class: "cursor", visibility: "hidden" }, this.svg);

    this.svg.addEventListener("pointermove", (event) => this.moveCursor(event));
    this.svg.addEventListener("pointerleave", () => { this.cursor = null; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  // `points`: {time, values}, with a value per line, null for a gap.
  show(points) {
    this.points = points;
    if (!points.some(({ time }) => time === this.cursor?.time)) this.cursor = null;
    this.draw();
  }

  // Seconds from the left end to the right one.
  span() {
    if (this.points.length === 0) return FIRST_SPAN_SECONDS;
    const seen = this.points[this.points.length - 1].time - this.points[0].time;
    return Math.max(FIRST_SPAN_SECONDS, seen);
  }

  moveCursor(event) {
    if (this.points.length === 0) return;
    const box = this.svg.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    const time = this.points[this.points.length - 1].time - (1 - share) * this.span();
    this.cursor = this.points.reduce((best, point) =>
      Math.abs(point.time - time) < Math.abs(best.time - time) ? point : best);
    this.draw();
  }

  // One unit of the drawing is one pixel, so that text keeps its shape at every width.
  draw() {
    const width = this.svg.clientWidth || WIDTH;
    const height = this.svg.clientHeight || HEIGHT;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const { least = 1, format } = this.options;
    const seen = this.points.flatMap((point) => point.values).filter((value) => value !== null);
    const top = niceCeiling(Math.max(least, ...seen));
    const span = this.span();
    const bottom = height - BOTTOM;
    const last = this.points.length > 0 ? this.points[this.points.length - 1].time : 0;
    const x = (time) => LEFT + (1 + (time - last) / span) * (width - LEFT - RIGHT);
    const y = (value) => bottom - Math.min(value / top, 1) * (bottom - TOP);

    for (const { share, line, text } of this.grid) {
      const at = y(share * top);
      set(line, { x1: LEFT, x2: width - RIGHT, y1: at, y2: at });
      set(text, { x: LEFT - 6, y: at + 4 });
      text.textContent = withoutTrailingZeros(format(share * top));
    }
    this.start.textContent = formatAge(span + 30).replace(/ min .*/, " min") + " ago";
    this.end.textContent = this.cursor
      ? new Date(this.cursor.time * 1000).toLocaleTimeString() : "now";
    set(this.start, { x: LEFT, y: height - 3 });
    set(this.end, { x: width - RIGHT, y: height - 3 });

    this.lines.forEach((line, i) => {
      let path = "";
      let area = "";
      let open = false;
      let end = 0;
      for (const point of this.points) {
        const value = point.values[i];
        if (value === null) {
          if (open) area += `L${end.toFixed(1)} ${bottom}Z`;
          open = false;
          continue;
        }
        const to = `${x(point.time).toFixed(1)} ${y(value).toFixed(1)}`;
        path += (open ? "L" : "M") + to;
        area += (open ? "L" : `M${x(point.time).toFixed(1)} ${bottom}L`) + to;
        open = true;
        end = x(point.time);
      }
      if (open) area += `L${end.toFixed(1)} ${bottom}Z`;
      line.setAttribute("d", path);
      if (i === 0 && this.area) this.area.setAttribute("d", area);
    });

    const shown = this.cursor || this.points[this.points.length - 1];
    this.values.forEach((value, i) => {
      value.textContent = format(shown ? shown.values[i] : null);
    });
    const at = this.cursor ? x(this.cursor.time) : 0;
    const visibility = this.cursor ? "visible" : "hidden";
    set(this.mark, { visibility, x1: at, x2: at, y1: TOP, y2: bottom });
  }
}

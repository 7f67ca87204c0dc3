// Elements, numbers, times and questions to the controller. Text from outside is only ever text.

let key = "";

export function useKey(said) { key = said; }

export async function ask(name, values = {}) {
  const query = new URLSearchParams(values).toString();
  const headers = key ? {Authorization: `Bearer ${key}`} : {};
  const answer = await fetch(`api/1/${name}${query && "?"}${query}`, {headers});
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.error);
  return document;
}

export const $ = (id) => document.getElementById(id);

// Make an element; what is no element is text.
export function el(tag, values = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (value === false || value == null) continue;
    if (name === "onclick") made.addEventListener("click", value);
    else if (name === "color") made.style.background = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((one) => one != null).map((one) => (one.nodeType ? one : String(one))));
  return made;
}

// A table of a caption, columns (a heading, or one in brackets: of numbers) and rows of cells.
export function table(caption, columns, rows, style = "") {
  const name = (column) => (Array.isArray(column) ? column[0] : column);
  const look = (column) => (Array.isArray(column) ? "number" : null);
  const cells = (row) => row.map((cell, n) => (n
    ? el("td", {class: look(columns[n]), "data-label": name(columns[n])}, cell)
    : el("th", {scope: "row"}, cell)));
  return el("div", {class: "wide", tabindex: 0, role: "region", "aria-label": caption}, el("table", {class: style},
    el("caption", {}, caption),
    el("thead", {}, el("tr", {},
      ...columns.map((one) => el("th", {scope: "col", class: look(one)}, name(one))))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells(row))))));
}

export const chip = (color) => el("span", {class: "chip", color, "aria-hidden": "true"});

export function number(value, digits = 0) {
  if (value == null) return "–";
  return value.toLocaleString("en", {maximumFractionDigits: digits, minimumFractionDigits: digits});
}

export const percent = (share) => `${number(100 * share)}\u00a0%`;

export const nodes = (count) => `${number(count)} node${count === 1 ? "" : "s"}`;

export const seconds = (value) => (value == null ? "–" : `${number(value, 1)} s`);

const clock = {hour: "2-digit", minute: "2-digit", hour12: false};
const day = {weekday: "short", month: "short", day: "numeric"};

export function time(at, withDay = true) {
  return new Date(1000 * at).toLocaleString("en-GB", withDay ? {...day, ...clock} : clock);
}

const date = (at) => new Date(1000 * at).toLocaleString("en-GB", day);

// The text at a mark of an axis of so many seconds: a day where it begins, else the time of day.
export function mark(at, span) {
  const when = new Date(1000 * at);
  if (span > 86400 && when.getHours() + when.getMinutes() === 0) return date(at);
  return span < 900 ? when.toLocaleTimeString("en-GB") : time(at, false);
}

export function duration(value) {
  const hours = value / 3600;
  if (hours >= 48) return `${number(hours / 24, 1)} days`;
  return hours >= 1 ? `${number(hours, 1)} h` : `${number(value / 60)} min`;
}

const rgbOf = (text) => text.match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));

// The color of a CSS variable, in numbers.
export const rgb = (name) => rgbOf(style(name));

export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A trainer keeps its color whatever is beside it. Yellow is for idle nodes.
export function trainerColor(array) {
  return `hsl(${Math.round(85 + (array * 137.508) % 300)} ${style("--saturation")} ${style("--lightness")})`;
}

const brush = document.createElement("canvas").getContext("2d", {willReadFrequently: true});

export function trainerRgb(array) {
  brush.fillStyle = trainerColor(array);
  return rgbOf(brush.fillStyle);
}

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
  const made = el("table", {class: style},
    el("caption", {}, caption, el("button", {type: "button", "aria-label": `CSV: ${caption}`, onclick: () => save(caption, csv(made))}, "CSV")),
    el("thead", {}, el("tr", {},
      ...columns.map((one) => el("th", {scope: "col", class: look(one)}, name(one))))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells(row)))));
  return el("div", {class: "wide", tabindex: 0, role: "region", "aria-label": caption}, made);
}

// A table as CSV (RFC 4180): numbers without commas, and no text that a spreadsheet would run.
function csv(made) {
  const said = (cell) => {
    const text = cell.querySelector("time")?.dateTime || cell.textContent.trim();
    return cell.className === "number" ? text.replace(/,/g, "").replace("–", "") : text.replace(/^[=+@\t\r-]/, "'$&");
  };
  return [...made.rows].map((row) => [...row.cells].map((cell) => `"${said(cell).replace(/"/g, '""')}"`).join(",")).join("\r\n");
}

function save(name, text) {
  const href = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  el("a", {href, download: `${name}.csv`}).click();
  URL.revokeObjectURL(href);
}

export const chip = (color) => el("span", {class: "chip", color, "aria-hidden": "true"});

export function number(value, digits = 0) {
  if (value == null) return "–";
  return value.toLocaleString("en", {maximumFractionDigits: digits, minimumFractionDigits: digits});
}

// An amount of any size: what is not 0 never reads 0.
export const few = (value) => (value > 0 && value < 0.005 ? "under 0.01" : number(value, value >= 10 || !value ? 0 : value >= 0.1 ? 1 : 2));

export const percent = (share) => `${number(100 * share)}\u00a0%`;

export const nodes = (count) => `${number(count)} node${count === 1 ? "" : "s"}`;

export const seconds = (value) => (value == null ? "–" : `${number(value, 1)} s`);

const clock = {hour: "2-digit", minute: "2-digit", hour12: false};
const day = {weekday: "short", month: "short", day: "numeric"};

export function time(at, withDay = true) {
  return new Date(1000 * at).toLocaleString("en-GB", withDay ? {...day, ...clock} : clock);
}

// The same as an element: a table that is saved has all of it, with the year.
export const moment = (at) => el("time", {datetime: new Date(1000 * at).toISOString()}, time(at));

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

// The color of a CSS variable, in numbers.
export const rgb = (name) => style(name).match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));

export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const COLORS = 8;  // of the palette, which color-blind people tell apart, too
const slots = new Map();

// The first of these trainers get a color of their own, and keep it while they are among the first.
export function giveColors(arrays) {
  const first = arrays.slice(0, COLORS);
  for (const array of slots.keys()) if (!first.includes(array)) slots.delete(array);
  const free = [...Array(COLORS).keys()].filter((slot) => ![...slots.values()].includes(slot));
  for (const array of first) if (!slots.has(array)) slots.set(array, free.shift());
}

export const colorName = (array) => (slots.has(array) ? `--t${slots.get(array)}` : "--trainers");

export const trainerColor = (array) => style(colorName(array));

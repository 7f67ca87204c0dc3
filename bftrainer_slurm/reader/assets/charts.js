// Charts by uPlot (vendored, see vendored.txt): areas, dots, bars and steps in the page's colors.

import {COLORS, mark, style, time} from "./tools.js";

const HEIGHT = 190;
const LEFT = 74;  // as the map has it, so that times lie below each other
const charts = new Map();

// Draw, or draw anew, what `make` returns: options without size, and data.
export function chart(place, make) {
  charts.set(place, make);
  draw(place);
}

export function redrawAll() { charts.forEach((_, place) => draw(place)); }

function draw(place) {
  const {options, data} = charts.get(place)();
  place.replaceChildren();
  if (!data[0].length) return;
  new uPlot({width: place.clientWidth, height: HEIGHT, padding: [8, 2, 0, 0], cursor: {drag: {x: false, y: false}}, ...options}, data, place);
}

const axis = (more = {}) => ({stroke: style("--quiet"), grid: {stroke: style("--line"), width: 1},
  ticks: {stroke: style("--line"), width: 1, size: 5}, font: "12px system-ui, sans-serif", ...more});

const times = () => axis({space: 90, size: 32, values: (u, splits) => {
  const {min, max} = u.scales.x, edge = (max - min) * 35 / u.bbox.width * devicePixelRatio;
  return splits.map((at) => (at > max - edge ? "" : mark(at, max - min)));
}});
const amounts = (values) => axis({size: LEFT, values});
const upTo = (least) => ({range: (_, __, most) => [0, Math.max(least, 1.05 * most)]});
// Where nobody points, legends show the last values.
const when = (label) => ({label, value: (u, at) => ((at ?? u.data?.[0].at(-1)) == null ? "–" : time(at ?? u.data[0].at(-1)))});

const amount = (value, digits) => (value == null ? "–" : value.toLocaleString("en", {maximumFractionDigits: digits}));
const shown = (digits) => (u, value, place) => amount(value ?? u.data?.[place].at(-1), digits);

// One above the other: the highest sum is drawn first, the others over it.
function stacked(series) {
  const sums = [];
  for (const {values} of series) {
    const below = sums.at(-1);
    sums.push(values.map((value, n) => (value == null ? null : value + (below ? below[n] : 0))));
  }
  return sums.reverse();
}

function areas(series, digits, more = {}) {
  return series.map(({label, color, values}) => ({label, stroke: color, fill: color, width: 0, points: {show: false},
    value: (_, __, ___, place) => amount(values.at(place ?? -1), digits), ...more})).reverse();
}

export function pool(at, [from, to], trainers, idle) {
  const series = [{label: "trainers", color: style("--trainers"), values: trainers},
    {label: "idle", color: style("--idle"), values: idle}];
  return {
    options: {axes: [times(), amounts()], scales: {x: {range: [from, to]}, y: upTo(1)},
      series: [when("time"), ...areas(series, 0)]},
    data: [at, ...stacked(series)],
  };
}

export function delays(jobs, late, from, to) {
  const color = style("--accent");
  const line = {draw: (u) => {
    const y = u.valToPos(late, "y", true);
    u.ctx.save();
    u.ctx.strokeStyle = style("--trouble");
    u.ctx.setLineDash([6, 4]);
    u.ctx.strokeRect(u.bbox.left, y, u.bbox.width, 0);
    u.ctx.restore();
  }};
  return {
    options: {axes: [times(), amounts((_, values) => values.map((value) => `${value} s`))],
      scales: {x: {range: [from, to]}, y: upTo(1.2 * late)},
      plugins: [{hooks: line}],
      series: [when("started"), {label: "seconds", stroke: null, paths: () => null,
        points: {show: true, size: 5, width: 0, fill: color, stroke: color}, value: shown(1)}]},
    data: [jobs.map((job) => job[0]), jobs.map((job) => job[2])],
  };
}

export function harvest(days, users) {
  const rest = days.map((one) => one.used_h - one.users_h.slice(0, COLORS).reduce((sum, hours) => sum + hours, 0));
  const series = users.slice(0, COLORS).map((label, place) => ({label, color: userColor(place), values: days.map((one) => one.users_h[place])}));
  if (rest.some((hours) => hours > 0.01)) series.push({label: "others", color: style("--trainers"), values: rest});
  const names = (values) => values.map((value) => (Number.isInteger(value) && days[value] ? days[value].date.slice(5) : ""));
  return {
    options: {legend: {show: false},
      axes: [axis({size: 32, values: (_, values) => names(values), incrs: [1, 2, 7, 14, 28]}), amounts()],
      scales: {x: {time: false, range: [-0.6, days.length - 0.4]}, y: upTo(1)},
      series: [{label: "day"}, ...areas(series, 1, {paths: uPlot.paths.bars({size: [0.7, 60]})})]},
    data: [days.map((_, n) => n), ...stacked(series)],
  };
}

export const userColor = (place) => style(place < COLORS ? `--t${place}` : "--trainers");

export function story(changes, now) {
  const at = changes.map((one) => one.time_s), counts = changes.map((one) => one.nodes);
  if (at.length) { at.push(now); counts.push(counts.at(-1)); }
  return {
    options: {axes: [times(), amounts()], scales: {y: upTo(1)},
      series: [when("time"), {label: "nodes", stroke: style("--trainers"), fill: `${style("--trainers")}44`, width: 2,
        points: {show: false}, paths: uPlot.paths.stepped({align: 1}), value: shown(0)}]},
    data: [at, counts],
  };
}

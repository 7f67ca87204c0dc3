// The page: asks the controller every few seconds, and fills its sections with what it answers.

import * as charts from "./charts.js";
import {NodeMap} from "./map.js";
import {$, ask, chip, COLORS, duration, el, few, giveColors, moment, nodes, number, percent, seconds, style, table, time, trainerColor,
  useKey} from "./tools.js";

const HOUR = 3600, SPANS = {"1 h": HOUR, "6 h": 6 * HOUR, "1 day": 24 * HOUR, "7 days": 168 * HOUR};
const SHORTEST = 300, LONGEST = 168 * HOUR;
const NOW_MS = 15_000, NODES_MS = 60_000, DAYS_MS = 300_000, AGAIN_MS = 5_000;
const SORTS = {"nodes": (one) => -one.nodes, "user": (one) => one.user, "name": (one) => one.name, "state": (one) => one.state,
  "node-hours": (one) => -one.node_s, "goodput": (one) => -(one.goodput ?? -1), "trouble": (one) => -(100 * one.notes.trouble + one.notes.advice)};

// What the address says, behind `?`. Without `to` the map ends now; `first` and `last` are nodes, counted from 0.
let view = {span: 6 * HOUR};
let chosen = null;  // trainer
let now = null, heard_ms = null;  // the last answer, and when it came
let shownMap = 0;  // so that a late answer does not replace a newer one

const map = new NodeMap($("map"), {read: readOut, zoom: zoomTo, back: () => history.back()});

const nowS = () => Math.floor(Date.now() / 1000);

function complain(error) {
  $("trouble").textContent = error ? `${error.message}. This page tries again.` : "";
  $("trouble").hidden = !error;
}

// Do something again and again while somebody looks; failures are told, and pass.
function regularly(what, every_ms) {
  const turn = async () => {
    let next_ms = every_ms;
    if (!document.hidden) {
      await what().catch((error) => { complain(error); next_ms = Math.min(every_ms, AGAIN_MS); });
    }
    setTimeout(turn, next_ms);
  };
  turn();
}

// ---- now

async function showNow() {
  now = await ask("now");
  heard_ms = Date.now();
  complain(now.down ? new Error(`No plans are made now: ${now.down}`) : now.trouble.length ? new Error(now.trouble.join("; ")) : null);
  const {mode, partition} = now.controller;
  $("about").textContent = `${mode === "site" || mode === "personal" ? `${mode} mode` : mode}, partition ${partition}`;
  $("version").textContent = `Version ${now.version}.`;
  showTiles();
  showTrainers();
}

function showAge() {
  const age = (Date.now() - heard_ms) / 1000;
  $("updated").textContent = heard_ms ? `; updated ${age < 100 ? `${number(age)} s` : duration(age)} ago` : "";
}

function showTiles() {
  const {nodes: all, pool, preempted: felt, count, trainers, left_alone: left, plan, jobs_left_alone: others} = now;
  const tile = (name, value, ...more) => el("div", {}, el("dt", {}, name), el("dd", {}, value, ...more.filter(Boolean).map((text) => el("small", {}, text))));
  const alone = Object.entries(left).filter(([, many]) => many).map(([why, many]) => `${many} (${why})`).join(", ");
  const missed = felt?.late_jobs ? `; ${felt.late_jobs} waited over ${felt.late_s} s, so missed a pass of Slurm's scheduler` : "";
  const run = trainers.filter((one) => one.nodes).length, start = trainers.filter((one) => !one.nodes && one.starting).length;
  const trouble = trainers.filter((one) => one.notes.trouble).length;
  const gpus = pool?.gpus; // where trainers have parts of nodes
  $("tiles").replaceChildren(
    tile(gpus ? "Nodes that ordinary jobs do not fill" : "Nodes without ordinary jobs", `${number(pool?.nodes)}${all ? ` of ${number(all)}` : ""}`,
      pool && `trainers run on ${number(pool.used)}, start on ${number(pool.starting)}, are to have ${number(pool.planned)}; ${number(pool.free)} free`,
      gpus && `of the ${number(gpus.left)} GPUs left there, trainers run on ${number(gpus.used)}, start on ${number(gpus.starting)}, are to have ${number(gpus.planned)}`,
      alone && `besides, trainers leave alone: ${alone}`),
    tile("Ordinary jobs, last 24 h", `${number(felt?.started)} started`, felt && (felt.jobs
      ? `${number(felt.jobs)} of them later, because of trainers: by ${seconds(felt.delay_median_s)} in the median, ${seconds(felt.delay_max_s)} at most${missed}`
      : "none waited for trainers")),
    tile("Trainers", number(count), trainers.length === count && count && `${run} run, ${start} start, ${count - run - start} have no node${trouble ? `, ${trouble} in trouble` : ""}`,
      others && `besides, ${others} jobs in their partition that are not trainers`));
  $("plan").textContent = `The current plan may not be the best one: ${plan?.status}.`;
  $("plan").hidden = !plan || plan.status === "optimal";
}

const badges = ({trouble, advice}) => el("span", {},
  trouble ? el("span", {class: "badge trouble"}, `▲ ${trouble} trouble${trouble > 1 ? "s" : ""} `) : null,
  advice ? el("span", {class: "badge advice"}, `● ${advice} note${advice > 1 ? "s" : ""}`) : null);

// What the plan gives a trainer, unless it has that or it starts there.
const plannedOf = ({nodes: has, starting, planned}) => (planned == null || planned === has + starting ? "" : `, to have ${planned}`);

function showTrainers() {
  const {viewer, trainers, count, left_out: left} = now;
  const who = viewer.everything ? "You see everything."
    : viewer.user ? `You see all about ${viewer.user}'s trainers, and what squeue shows about others.`
      : viewer.private.includes("jobs") ? "Slurm keeps jobs private (PrivateData), so only totals are shown. 'bftrainer show' has a link to your own trainers."
        : "You see what squeue shows to everybody. 'bftrainer show' has a link that shows all about your own trainers.";
  $("who").textContent = who + (left ? ` ${left} more trainers have fewer nodes.` : "");
  const wanted = $("filter").value.trim().toLowerCase(), by = SORTS[$("sort").value];
  const shown = trainers.filter((one) => one.user === wanted || `${one.array} ${one.name} ${one.user}`.toLowerCase().includes(wanted))
    .sort((one, other) => (by(one) < by(other) ? -1 : by(one) > by(other) ? 1 : other.nodes - one.nodes));
  const row = (one) => [
    el("span", {}, chip(trainerColor(one.array)),
      el("button", {type: "button", class: "link", onclick: () => choose(one.array)}, `${one.array} ${one.name}`)),
    one.user, one.state, `${one.nodes}${one.starting ? `+${one.starting}` : ""}${one.nodes && one.part ? ` (${one.part})` : ""} of ${one.min_nodes}–${one.max_nodes}${plannedOf(one)}`,
    one.node_s == null ? "–" : few(one.node_s / HOUR), number(one.reclaimed), number(one.samples_per_s),
    one.goodput == null ? "–" : percent(one.goodput), badges(one.notes),
  ];
  const heads = ["Trainer", "User", "State", ["Nodes"], ["Node-hours"], ["Reclaimed"], ["Samples/s"], ["Goodput"], "Notes"];
  // A list that somebody is in with the keyboard is left as it is.
  if ($("trainer-list").contains(document.activeElement)) return;
  const title = shown.length < count ? `${number(shown.length)} of ${number(count)} trainers` : `${number(count)} trainers`;
  $("trainer-list").replaceChildren(trainers.length ? table(title, heads, shown.map(row), "stacked")
    : el("p", {}, count ? `${number(count)} trainers.` : "No trainers. Submit one with: sbatch --bftrainer -N 2-16 train.sh"));
}

// ---- nodes over time

const bounds = () => ({to: view.to || nowS(), from: (view.to || nowS()) - view.span});

async function showNodes() {
  const mine = ++shownMap, {from, to} = bounds();
  const wide = Math.max(60, $("map").clientWidth - 80);
  const values = {from, to, columns: Math.min(400, Math.round(wide / 2)), rows: 250};
  if (view.last) Object.assign(values, {first: view.first || 0, last: view.last});
  const found = await ask("nodes", values);
  if (mine !== shownMap) return;
  giveColors([...(chosen ? [chosen] : []), ...found.trainers.map((one) => one.array).filter((array) => array !== chosen)]);
  map.show(found);
  if (now) { showTrainers(); showStory().catch(complain); }
  const width = (found.to_s - found.from_s) / found.columns;
  const times = found.sums.idle.map((_, n) => found.from_s + (n + 0.5) * width);
  charts.chart($("pool-chart"), () => charts.pool(times, [found.from_s, found.to_s], found.sums.trainers, found.sums.idle));
  const rows = found.rows, some = rows.reduce((sum, row) => sum + row[2], 0);
  const each = rows.length && rows[0][2] > 1 ? `, ${rows[0][2]} in a row` : "";
  $("shown").textContent = `${time(from)} to ${time(to)}; ${number(some)} of ${nodes(found.nodes)}${each}`;
  showControls();
  showLegend(found);
  showMapTables(found, times, width);
}

function showControls() {
  $("spans").replaceChildren(...Object.entries(SPANS).map(([name, span]) => el("button", {
    type: "button", "aria-pressed": String(!view.to && view.span === span),
    onclick: () => go({...view, span, to: undefined})}, name)));
  $("back").disabled = !history.state?.depth;
  $("all").disabled = !view.last;
  $("later").disabled = !view.to;
}

const entry = (color, ...text) => el("li", {}, chip(color), ...text);

const called = (one) => `${one.array} ${one.name} of ${one.user}`;

function showLegend({sums, trainers}) {
  const mean = (values) => few(values.reduce((sum, value) => sum + value, 0) / values.length);
  const total = (some, of) => some.reduce((sum, one) => sum + one[of], 0);
  const hours = (some) => `${few(total(some, "node_h"))} node-h${total(some, "gpu_h") ? `, ${few(total(some, "gpu_h"))} GPU-h` : ""}`;
  const rest = trainers.slice(COLORS);
  $("legend").replaceChildren(
    entry(style("--ordinary"), `ordinary jobs: ${mean(sums.ordinary)} nodes in the mean`), entry(style("--idle"), `idle: ${mean(sums.idle)}`),
    entry(style("--out"), `out of service: ${mean(sums.out)}`), entry(style("--unseen"), "not observed"),
    ...trainers.slice(0, COLORS).map((one) => entry(trainerColor(one.array), `${called(one)}: ${hours([one])}`)),
    rest.length ? entry(style("--trainers"), `${rest.length} more: ${hours(rest)}`) : "");
}

function showMapTables({sums, trainers}, times, width) {
  const bins = Math.min(24, times.length), size = times.length / bins;
  const mean = (values, bin) => {
    const part = values.slice(Math.floor(bin * size), Math.max(Math.floor(bin * size) + 1, Math.floor((bin + 1) * size)));
    return number(part.reduce((sum, value) => sum + value, 0) / part.length, 1);
  };
  const rows = [...Array(bins).keys()].map((bin) => [moment(times[Math.floor(bin * size)] - width / 2),
    ...["trainers", "idle", "ordinary", "out"].map((name) => mean(sums[name], bin))]);
  $("map-tables").replaceChildren(
    table("Mean number of nodes, from each time on", ["Time", ["Trainers"], ["Idle"], ["Ordinary jobs"], ["Out of service"]], rows),
    table("Trainers in this time", ["Trainer", "User", ["Node-hours"], ["GPU-hours"]],
      trainers.map((one) => [el("span", {}, chip(trainerColor(one.array)), `${one.array} ${one.name}`), one.user, few(one.node_h), one.gpu_h ? few(one.gpu_h) : "–"])));
}

function readOut({time_s: at, row: [first, last, size], seen, trainers, theirs, idle, out, who}) {
  const part = (share, what) => (share < 0.005 ? null : size === 1 && share > 0.995 ? what : `${percent(share)} ${what}`);
  const name = who ? `trainer ${called(who)}` : "trainers";
  const parts = [part(theirs, name), part(trainers - theirs, "other trainers"), part(idle, "idle"), part(out, "out of service"), part(1 - trainers - idle - out, "ordinary jobs")];
  const where = size > 1 ? `${first} to ${last}` : first;
  $("readout").textContent = `${where}, ${time(at)}: ${seen ? parts.filter(Boolean).join(", ") : "not observed"}`;
}

// Show what was asked for, and try again while nothing else is.
async function insist() {
  const wanted = view;
  await showNodes().catch((error) => {
    complain(error);
    setTimeout(() => { if (view === wanted) insist(); }, AGAIN_MS);
  });
}

// The address says what is shown, so that it can be passed on; the browser's own Back goes back.
function remember(as = "pushState") {
  const said = {...view, trainer: chosen, show: $("filter").value, sort: $("sort").value}, usual = {span: 6 * HOUR, sort: "nodes"};
  const some = Object.entries(said).filter(([name, value]) => value && value !== usual[name]);
  const depth = (history.state?.depth || 0) + (as === "pushState");
  history[as]({depth}, "", `${location.pathname}${some.length ? `?${new URLSearchParams(some)}` : ""}${as === "pushState" ? "" : location.hash}`);
}

function recall() {
  const said = new URLSearchParams(location.search);
  const whole = (name) => (/^\d{1,12}$/.test(said.get(name)) ? Number(said.get(name)) : undefined);
  view = {span: Math.min(LONGEST, Math.max(SHORTEST, whole("span") || 6 * HOUR)), to: whole("to"), first: whole("first"), last: whole("last")};
  chosen = whole("trainer") || null;
  $("filter").value = said.get("show") || "";
  $("sort").value = said.get("sort") in SORTS ? said.get("sort") : "nodes";
}

function go(next) {
  view = next;
  remember();
  showControls();
  insist();
}

// Zoom to shares of the time and of the nodes that are shown.
function zoomTo([left, right], [top, bottom]) {
  const {from} = bounds(), next = {...view};
  next.span = Math.round(Math.max(SHORTEST, (right - left) * view.span));
  next.to = Math.min(nowS(), Math.round(from + (left + right) / 2 * view.span + next.span / 2));
  if (top > 0 || bottom < 1) {
    const first = view.first || 0, count = (view.last || map.data.nodes) - first;
    next.first = first + Math.floor(top * count);
    next.last = Math.max(next.first + 1, first + Math.ceil(bottom * count));
  }
  go(next);
}

function move(share) {
  const to = Math.round(bounds().to + share * view.span);
  go({...view, to: to >= nowS() ? undefined : to});
}

function widen(factor) {
  const {from, to} = bounds(), span = Math.round(Math.min(LONGEST, Math.max(SHORTEST, factor * view.span)));
  const end = Math.round(view.to ? (from + to + span) / 2 : to);
  go({...view, span, to: view.to && end < nowS() ? end : undefined});
}

// ---- a trainer's story

async function choose(array) {
  chosen = array;
  remember();
  await showStory().catch(complain);
  $("story").focus();
  $("story").scrollIntoView();
}

async function showStory() {
  if (chosen == null) { $("story").hidden = true; return; }
  const told = await ask("trainer", {array: chosen}), one = told.status, changes = told.changes;
  const plot = el("div", {class: "chart", role: "img", "aria-label": "Its nodes over time; the table below has them"});
  const close = el("button", {type: "button", onclick: () => { chosen = null; remember(); showStory(); }}, "Close");
  $("story").hidden = false;
  $("story").replaceChildren(
    el("h2", {id: "story-title"}, chip(trainerColor(told.array)), `Trainer ${called(told)}`), close,
    el("p", {}, one ? facts(told) : "It has ended: Slurm does not know it any more."),
    ...noteList(told), ...reasonsOf(told),
    el("h3", {}, "Nodes over time"), plot,
    el("details", {}, el("summary", {}, "Its changes, as a table"), changeTable(changes)),
    ...(one?.error ? [el("h3", {}, "Its last output"), el("pre", {}, one.error)] : []),
    one && !one.hidden ? el("p", {class: "quiet"}, `Its last lines, node by node: bftrainer logs ${told.array}`) : "");
  charts.chart(plot, () => charts.story(changes, nowS()));
}

function facts({standing, status: one}) {
  const said = [standing, `submitted ${time(one.submit_s)}`, `${few(one.node_s / HOUR)} node-hours`];
  if (one.samples_per_s) said.push(`${number(one.samples_per_s)} samples/s`);
  const spent = one.goodput;
  if (spent?.trained_s != null && spent.with_nodes_s) {
    const share = (value) => percent(value / spent.with_nodes_s);
    said.push(`of its ${duration(spent.with_nodes_s)} with nodes it trained ${share(spent.trained_s)}, rescaled ` +
      `${share(spent.rescaling_s)}, and lost ${share(spent.lost_s)}${spent.again_s ? ` (trained again: ${share(spent.again_s)})` : ""}`);
  }
  return `${said.join("; ")}.`;
}

function noteList({status, notes}) {
  if (!notes?.length) return [];
  const line = (note) => el("li", {class: note.level}, el("b", {}, `${{trouble: "▲ Trouble", advice: "● Advice", fact: "Fact"}[note.level]}: `),
    note.text, note.do ? el("span", {}, ` ${note.do}`) : null);
  const hidden = status.hidden ? [el("p", {class: "quiet"}, `${status.user} may see more.`)] : [];
  return [el("h3", {}, "Notes"), el("ul", {class: "notes"}, ...notes.map(line)), ...hidden];
}

function reasonsOf({reasons, status}) {
  if (!reasons) return [];
  const plan = status.plan, parts = [el("h3", {}, "Why it has as many nodes as it has"), ...reasons.map((text) => el("p", {}, text))];
  if (plan) {
    const part = plan.gpus || 0;
    const rows = plan.sizes.map((size) => [`${size.nodes * (part || 1)}${size.nodes === plan.nodes ? " (the plan)" : ""}`,
      number(plan.forward_s * size.rate, 1), number(-size.rescale || 0, 1), number(size.worth, 1)]);
    parts.push(table(`What sizes are worth, in units of the objective times seconds, over ${plan.forward_s} s; ` +
      `${part ? `its ${part} GPUs of a node are` : "a node is"} worth ${number(plan.price, 1)} to others`, [part ? "GPUs" : "Nodes", ["Brings"], ["Rescaling"], ["Worth"]], rows));
  }
  return parts;
}

function changeTable(changes) {
  const ways = {reclaimed: "taken back", shrank: "given up by the plan", ended: "ended", unseen: "lost sight of"};
  const row = (one) => {
    const said = Object.entries(ways).filter(([way]) => one[way]).map(([way, text]) => `${one[way]} ${text}`);
    return [moment(one.time_s), number(one.nodes), one.gained || "", said.join(", ")];
  };
  return table("The last 100", ["Time", ["Nodes"], ["Gained"], "Lost"], changes.slice(-100).reverse().map(row));
}

// ---- ordinary jobs, harvest

async function showDelays() {
  const found = await ask("delays");
  charts.chart($("delay-chart"), () => charts.delays(found.jobs, found.late_s, found.from_s, found.to_s));
  $("delay-table").replaceChildren(table("Ordinary jobs by day",
    ["Day", ["Started"], ["Later, because of trainers"], ["Elements preempted"], ["Median"], ["Longest"], ["Missed a pass"]],
    found.days.map((one) => [one.date, number(one.started), number(one.jobs), number(one.elements), seconds(one.delay_median_s),
      seconds(one.delay_max_s), number(one.late_jobs)])));
}

async function showHarvest() {
  const {days, users} = await ask("harvest");
  charts.chart($("harvest-chart"), () => charts.harvest(days, users));
  const hours = (place) => days.reduce((sum, one) => sum + one.users_h[place], 0);
  $("harvest-legend").replaceChildren(...users.map((user, place) => entry(charts.userColor(place), `${user}: ${few(hours(place))}`)));
  $("harvest-table").replaceChildren(table("Node-hours", ["Day", ["In holes"], ["Used by trainers"], ["Share"], ["GPU-hours"], ...users.map((user) => [user])],
    days.map((one) => [one.date, number(one.holes_h, 1), number(one.used_h, 1),
      one.holes_h ? percent(one.used_h / one.holes_h) : "–", one.gpus_h ? number(one.gpus_h, 1) : "–", ...one.users_h.map((hours) => number(hours, 1))])));
}

// ---- start

// A key is in the address once, behind #, as is the trainer of a link; it is kept for this tab, and not left to be seen.
function takeKey() {
  const said = new URLSearchParams(location.hash.slice(1));
  if (said.has("trainer")) chosen = Number(said.get("trainer")) || null;
  if (said.has("key")) {
    sessionStorage.setItem("key", said.get("key"));
    history.replaceState(history.state, "", location.pathname + location.search);
    remember("replaceState");
  }
  useKey(sessionStorage.getItem("key") || "");
}

function redraw() {
  map.draw();
  charts.redrawAll();
}

function start() {
  $("sort").replaceChildren(...Object.keys(SORTS).map((name) => el("option", {}, name)));
  recall();
  takeKey();
  const press = {back: () => history.back(), all: () => go({...view, first: undefined, last: undefined}), earlier: () => move(-0.5),
    later: () => move(0.5), closer: () => widen(0.5), wider: () => widen(2)};
  for (const [id, what] of Object.entries(press)) $(id).addEventListener("click", what);
  for (const id of ["filter", "sort"]) $(id).addEventListener("input", () => { remember("replaceState"); if (now) showTrainers(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
  let wide = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; redraw(); } });
  addEventListener("popstate", () => {
    recall();
    takeKey();
    insist();
    showStory().catch(complain);
    if (now) showTrainers();
  });
  showControls();
  setInterval(showAge, 1000);
  regularly(async () => { await showNow(); await showStory(); }, NOW_MS);
  regularly(async () => { if (!view.to) await showNodes(); }, NODES_MS);
  regularly(showDelays, DAYS_MS);
  regularly(showHarvest, DAYS_MS);
  if (view.to) insist();
  if (chosen) showStory().then(() => $("story").scrollIntoView(), complain);
}

start();

// The map of nodes over time: a canvas of cells, to be read and zoomed by pointer and keyboard.

import {colorName, el, mark, rgb, style} from "./tools.js";

const LEFT = 74, BOTTOM = 22, DRAG = 6, DAY = 86400;
const STEPS = [60, 300, 900, 1800, 3600, 7200, 14400, 21600, 43200, DAY];  // seconds between labels

const bytes = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

export class NodeMap {
  // `read` is told what is under the cross, `zoom` where to go, `back` to go back.
  constructor(place, {read, zoom, back}) {
    this.read = read;
    this.zoom = zoom;
    this.back = back;
    this.canvas = el("canvas", {tabindex: 0, role: "application", "aria-roledescription": "map",
      "aria-label": "Nodes over time: what each was used for", "aria-describedby": "readout"});
    this.box = el("div", {class: "drag", hidden: ""});
    place.append(this.canvas, this.box);
    this.cross = null;
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerup", (event) => this.release(event));
    this.canvas.addEventListener("pointercancel", () => this.drop());
    this.canvas.addEventListener("keydown", (event) => this.type(event));
    this.canvas.addEventListener("focus", () => { if (this.data && !this.cross) this.point(0.5, 0.5); });
  }

  show(data) {
    this.data = data;
    this.cells = Object.fromEntries(Object.entries(data.cells).map(([name, text]) => [name, bytes(text)]));
    this.seen = bytes(data.seen);
    this.draw();
  }

  get width() { return this.canvas.clientWidth - LEFT; }
  get height() { return this.canvas.clientHeight - BOTTOM; }

  draw() {
    if (!this.data) return;
    const {columns, rows} = this.data, scale = devicePixelRatio || 1;
    const wanted = Math.min(Math.max(rows.length, innerWidth < 640 ? 240 : 360), 520);
    this.canvas.style.height = `${wanted + BOTTOM}px`;
    this.canvas.width = this.canvas.clientWidth * scale;
    this.canvas.height = (wanted + BOTTOM) * scale;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    context.imageSmoothingEnabled = false;
    if (rows.length) context.drawImage(this.painted(columns, rows.length), LEFT, 0, this.width, wanted);
    this.label(context);
    if (this.cross) this.drawCross(context);
  }

  // One pixel a cell: the colors of what is in it, mixed by their shares.
  painted(columns, rows) {
    const small = el("canvas", {width: columns, height: rows});
    const context = small.getContext("2d"), image = context.createImageData(columns, rows);
    const [ordinary, idle, out, unseen] = ["--ordinary", "--idle", "--out", "--unseen"].map(rgb);
    const colors = [null, ...this.data.trainers.map((one) => rgb(colorName(one.array)))];
    const others = rgb("--trainers"), {cells, seen} = this;
    for (let place = 0; place < columns * rows; place++) {
      const trained = cells.trainers[place] / 255, free = cells.idle[place] / 255;
      const broken = cells.out[place] / 255, rest = Math.max(0, 1 - trained - free - broken);
      const who = colors[cells.who[place]] || others, known = seen[place % columns] / 255;
      const theirs = cells.theirs[place] / 255;
      for (let part = 0; part < 3; part++) {
        const mixed = theirs * who[part] + (trained - theirs) * others[part] + free * idle[part] + broken * out[part] + rest * ordinary[part];
        image.data[4 * place + part] = known * mixed + (1 - known) * unseen[part];
      }
      image.data[4 * place + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    return small;
  }

  label(context) {
    const {from_s, to_s, rows} = this.data, span = to_s - from_s;
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = style("--quiet");
    context.textBaseline = "middle";
    const lines = Math.min(rows.length, Math.floor(this.height / 40));
    for (let n = 0; n < lines; n++) {
      const row = Math.floor((n + 0.5) * rows.length / lines);
      context.fillText(rows[row][0].slice(-10), 0, (row + 0.5) * this.height / rows.length, LEFT - 8);
    }
    context.textAlign = "center";
    const step = STEPS.find((one) => one / span * this.width > 70) || 2 * DAY;
    const zone = 60 * new Date(1000 * from_s).getTimezoneOffset();
    for (let at = Math.ceil((from_s - zone) / step) * step + zone; at < to_s; at += step) {
      const x = (at - from_s) / span * this.width;
      if (x > 30 && x < this.width - 30) context.fillText(mark(at, span), LEFT + x, this.height + 13);
    }
  }

  drawCross(context) {
    const x = LEFT + this.cross.x * this.width, y = this.cross.y * this.height;
    context.strokeStyle = style("--ink");
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(x, 0); context.lineTo(x, this.height);
    context.moveTo(LEFT, y); context.lineTo(LEFT + this.width, y);
    context.stroke();
  }

  // Put the cross at shares of width and height, and tell what is there.
  point(x, y) {
    const {columns, rows, from_s, to_s} = this.data, inside = (share) => Math.min(0.9999, Math.max(0, share));
    this.cross = {x: inside(x), y: inside(y)};
    const column = Math.floor(this.cross.x * columns), row = Math.floor(this.cross.y * rows.length);
    const place = row * columns + column, share = (name) => this.cells[name][place] / 255;
    this.draw();
    if (!rows.length) return;
    this.read({
      time_s: from_s + (column + 0.5) * (to_s - from_s) / columns,
      row: rows[row],
      seen: this.seen[column] > 127,
      trainers: share("trainers"), theirs: share("theirs"), idle: share("idle"), out: share("out"),
      who: this.data.trainers[this.cells.who[place] - 1],
    });
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return {x: (event.clientX - box.left - LEFT) / this.width, y: (event.clientY - box.top) / this.height};
  }

  press(event) {
    if (!this.data || event.button) return;
    this.from = this.at(event);
    this.point(this.from.x, this.from.y);
  }

  move(event) {
    if (!this.data) return;
    const now = this.at(event);
    if (!this.from) {
      if (event.pointerType === "mouse") this.point(now.x, now.y);
      return;
    }
    if (!this.canvas.hasPointerCapture(event.pointerId)) this.canvas.setPointerCapture(event.pointerId);
    const {x, y} = this.dragged(now);
    this.box.hidden = false;
    Object.assign(this.box.style, {left: `${LEFT + x[0] * this.width}px`, width: `${(x[1] - x[0]) * this.width}px`,
      top: `${y[0] * this.height}px`, height: `${(y[1] - y[0]) * this.height}px`});
  }

  // What was dragged over; a flat drag means all nodes.
  dragged(now) {
    const inside = (share) => Math.min(1, Math.max(0, share));
    const between = (one, other) => [inside(Math.min(one, other)), inside(Math.max(one, other))];
    const flat = Math.abs(now.y - this.from.y) * this.height < 3 * DRAG;
    return {x: between(this.from.x, now.x), y: flat ? [0, 1] : between(this.from.y, now.y)};
  }

  release(event) {
    if (!this.from) return;
    const {x, y} = this.dragged(this.at(event));
    this.drop();
    if ((x[1] - x[0]) * this.width > DRAG) this.zoom(x, y);
  }

  drop() {
    this.from = null;
    this.box.hidden = true;
  }

  type(event) {
    if (!this.data) return;
    const far = event.shiftKey ? 10 : 1, {x, y} = this.cross || {x: 0.5, y: 0.5};
    const stepX = far / this.data.columns, stepY = far / Math.max(1, this.data.rows.length);
    const moves = {ArrowLeft: [-stepX, 0], ArrowRight: [stepX, 0], ArrowUp: [0, -stepY], ArrowDown: [0, stepY]};
    const around = (at) => [Math.max(0, at - 0.125), Math.min(1, at + 0.125)];
    if (moves[event.key]) this.point(x + moves[event.key][0], y + moves[event.key][1]);
    else if (event.key === "Enter") this.zoom(around(x), around(y));
    else if (event.key === "Escape") this.back();
    else return;
    event.preventDefault();
  }
}

// Memory over time on a canvas, stacked by category; single blocks where there is room.

import { amount, colour, element } from './format.js';
import { categoryColour, phaseColour } from './palette.js';

const LEFT = 68;
const BOTTOM = 22;
/** Above the memory: nothing, or the band of phases. */
const ABOVE = 8;
const BAND = 22;
/** Single blocks are drawn only where so few events are shown. */
const MOST_EVENTS = 30000;
/** Marks are drawn only where so few are shown. */
const MOST_MARKS = 60;

/** A step of an axis that gives about `count` lines. */
function step(most, count, base) {
  const least = most / count;
  const power = base ** Math.floor(Math.log(least) / Math.log(base));
  const factors = base === 2 ? [1, 2] : [1, 2, 5, 10];
  return power * factors.find((factor) => power * factor >= least);
}

export class Timeline {
  /**
   * `onPoint(event, allocation)` is told what is under the pointer or the cursor; `onMoment(event)` what was chosen;
   * `onRange` that another range is shown.
   */
  constructor(view, { top, onPoint, onMoment }) {
    Object.assign(this, { view, top, onPoint, onMoment, chosen: null, cursor: view.info.peak_event });
    this.range = [0, view.events];
    this.above = view.info.phases.length ? BAND : ABOVE;
    this.canvas = element('canvas', { tabIndex: 0, className: 'timeline' });
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label', `Memory over time of ${view.info.name}; arrow keys move through it`);
    this.canvas.style.height = '320px';
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.#listen();
  }

  /** Shows some events. */
  show(from, to) {
    const length = Math.min(this.view.events, Math.max(8, to - from));
    const start = Math.min(Math.max(0, from), this.view.events - length);
    this.range = [start, start + length];
    this.draw();
  }

  zoom(factor, around) {
    const [from, to] = this.range;
    this.show(around - (around - from) * factor, around + (to - around) * factor);
  }

  #x(event) {
    const [from, to] = this.range;
    return LEFT + ((event - from) / (to - from)) * this.width;
  }

  #eventAt(x) {
    const [from, to] = this.range;
    const event = Math.floor(from + ((x - LEFT) / this.width) * (to - from));
    return Math.min(this.view.events - 1, Math.max(0, event));
  }

  #y(bytes) { return this.above + this.height * (1 - bytes / this.top); }

  /** The event with the most memory requested in a column of pixels. */
  #columnEvent(column) {
    const [from, to] = this.range;
    const first = Math.floor(from + (column / this.columns) * (to - from));
    const last = Math.max(first + 1, Math.floor(from + ((column + 1) / this.columns) * (to - from)));
    let most = Math.min(first, this.view.events - 1);
    for (let event = first; event < Math.min(last, this.view.events); event++) {
      if (this.view.requested[event] > this.view.requested[most]) most = event;
    }
    return most;
  }

  draw() {
    const scale = devicePixelRatio;
    const { clientWidth, clientHeight } = this.canvas;
    if (clientWidth === 0) return;
    this.canvas.width = clientWidth * scale;
    this.canvas.height = clientHeight * scale;
    this.width = clientWidth - LEFT - 4;
    this.height = clientHeight - this.above - BOTTOM;
    this.columns = Math.ceil(this.width);
    const context = this.canvas.getContext('2d');
    this.context = context;
    context.scale(scale, scale);
    context.fillStyle = colour('panel');
    context.fillRect(LEFT, this.above, this.width, this.height);
    this.shown = Array.from({ length: this.columns }, (_, column) => this.#columnEvent(column));
    this.#areas();
    this.#blocks();
    this.#axes();
    this.#marks();
    this.#phases();
    this.#line((event) => this.view.reserved[event], colour('reserved'));
    this.#limits();
    this.base = element('canvas', { width: this.canvas.width, height: this.canvas.height });
    this.base.getContext('2d').drawImage(this.canvas, 0, 0);
    this.#overlay();
  }

  #areas() {
    this.shown.forEach((event, column) => {
      let bottom = 0;
      for (const { name, levels } of this.view.stacked) {
        const bytes = levels[event];
        if (bytes <= 0) continue;
        this.context.fillStyle = categoryColour(name);
        const [low, high] = [this.#y(bottom), this.#y(bottom + bytes)];
        this.context.fillRect(LEFT + column, high, 1.5, low - high);
        bottom += bytes;
      }
    });
  }

  /** Draws the edges of blocks, and keeps where each is: per column, number and lower edge in bytes. */
  #blocks() {
    this.places = null;
    const [from, to] = this.range;
    if (to - from > MOST_EVENTS) return;
    const { view, context } = this;
    const slot = new Map(view.stacked.map(({ order }, index) => [order, index]));
    const perPixel = this.top / this.height;
    this.places = [];
    let event = this.shown[0];
    const live = view.liveAfter(event);
    context.fillStyle = 'rgba(0, 0, 0, 0.45)';
    this.shown.forEach((until, column) => {
      while (event < until) {
        const changed = view.at[++event];
        const one = Math.abs(changed) - 1;
        if (changed === 0) continue;
        const group = live[slot.get(view.order[one])];
        if (changed > 0) group.push(one);
        else group.splice(group.indexOf(one), 1);
      }
      const places = [];
      let bottom = 0;
      for (const one of live.flat()) {
        const bytes = view.bytes[one];
        if (bytes > 3 * perPixel) {
          places.push(one, bottom);
          context.fillRect(LEFT + column, this.#y(bottom + bytes), 1.5, 0.6);
        }
        bottom += bytes;
      }
      this.places.push(places);
    });
  }

  #axes() {
    const { context } = this;
    context.font = '12px system-ui, sans-serif';
    context.fillStyle = colour('faint');
    context.strokeStyle = colour('line');
    context.lineWidth = 1;
    const lines = step(this.top, 5, 2);
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (let bytes = 0; bytes <= this.top; bytes += lines) {
      const y = Math.round(this.#y(bytes)) + 0.5;
      context.globalAlpha = 0.5;
      context.beginPath();
      context.moveTo(LEFT, y);
      context.lineTo(LEFT + this.width, y);
      context.stroke();
      context.globalAlpha = 1;
      context.fillText(bytes === 0 ? '0' : amount(bytes).replace(/\.?0+ /, ' '), LEFT - 6, y);
    }
    const [from, to] = this.range;
    const ticks = Math.max(1, step(to - from, this.width / 110, 10));
    context.textAlign = 'center';
    context.textBaseline = 'top';
    for (let event = Math.ceil(from / ticks) * ticks; event < to; event += ticks) {
      const x = this.#x(event);
      const text = event === 0 ? 'event 0' : event.toLocaleString('en');
      const half = context.measureText(text).width / 2;
      if (x + half < LEFT + this.width + 4) context.fillText(text, Math.max(x, LEFT + half - 12), this.above + this.height + 5);
    }
  }

  /** The phases of the program as a band above the memory, with their names where there is room. */
  #phases() {
    const { context } = this;
    const [from, to] = this.range;
    context.textAlign = 'left';
    context.textBaseline = 'middle';
    this.view.info.phases.forEach(({ name, times }, number) => {
      for (const [begin, end] of times) {
        if (end <= from || begin >= to) continue;
        const [left, right] = [this.#x(Math.max(begin, from)), this.#x(Math.min(end, to))];
        context.fillStyle = phaseColour(number);
        context.fillRect(left, 2, Math.max(right - left - 1, 0.5), BAND - 4);
        if (context.measureText(name).width + 8 > right - left) continue;
        context.fillStyle = '#14171c';
        context.fillText(name, left + 4, BAND / 2);
      }
    });
  }

  /** The marks of the program as dotted lines, with their names where there is room. */
  #marks() {
    const { context } = this;
    const marks = this.view.info.marks.filter(([event]) => event > this.range[0] && event < this.range[1]);
    if (marks.length > MOST_MARKS) return;
    context.strokeStyle = colour('faint');
    context.fillStyle = colour('faint');
    context.textAlign = 'left';
    context.textBaseline = 'top';
    context.setLineDash([2, 4]);
    let end = LEFT;
    for (const [event, name] of marks) {
      const x = Math.round(this.#x(event)) + 0.5;
      context.beginPath();
      context.moveTo(x, this.above);
      context.lineTo(x, this.above + this.height);
      context.stroke();
      const { width } = context.measureText(name);
      if (x < end || x + width + 4 > LEFT + this.width) continue;
      context.fillText(name, x + 4, this.above + 3);
      end = x + width + 12;
    }
    context.setLineDash([]);
  }

  #line(of, style) {
    const { context } = this;
    context.strokeStyle = style;
    context.lineWidth = 1.2;
    context.beginPath();
    this.shown.forEach((event, column) => {
      const y = this.#y(of(event));
      context.lineTo(LEFT + column, y);
      context.lineTo(LEFT + column + 1, y);
    });
    context.stroke();
  }

  #limits() {
    const { context, view } = this;
    const { available_bytes: available, failed_event: failed } = view.info;
    context.strokeStyle = colour('limit');
    context.fillStyle = colour('limit');
    if (available <= this.top) {
      context.setLineDash([6, 4]);
      context.beginPath();
      context.moveTo(LEFT, this.#y(available));
      context.lineTo(LEFT + this.width, this.#y(available));
      context.stroke();
      context.setLineDash([]);
    }
    if (failed !== null && failed >= this.range[0] && failed < this.range[1]) {
      const x = this.#x(failed);
      context.beginPath();
      context.moveTo(x, this.above);
      context.lineTo(x, this.above + this.height);
      context.stroke();
      const right = x < LEFT + this.width / 2;
      context.textAlign = right ? 'left' : 'right';
      context.textBaseline = 'bottom';
      const text = `request for ${amount(view.info.failed_bytes)} failed`;
      const at = x + (right ? 5 : -5);
      const { width } = context.measureText(text);
      context.fillStyle = colour('ground');
      context.fillRect(right ? at - 3 : at - width - 3, this.above + this.height - 22, width + 6, 18);
      context.fillStyle = colour('limit');
      context.fillText(text, at, this.above + this.height - 6);
    }
  }

  /** The cursor, the chosen moment, the block under the pointer and the range that is being selected. */
  #overlay() {
    // The first drawing waits until the size is known.
    if (!this.base) return;
    const { context } = this;
    context.clearRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    context.drawImage(this.base, 0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    const vertical = (event, style, width) => {
      if (event < this.range[0] || event >= this.range[1]) return;
      context.fillStyle = style;
      context.fillRect(this.#x(event + 0.5) - width / 2, this.above, width, this.height);
    };
    if (this.chosen !== null) vertical(this.chosen, colour('accent'), 2);
    if (this.block !== null && this.places) {
      context.fillStyle = 'rgba(255, 255, 255, 0.65)';
      this.places.forEach((places, column) => {
        for (let at = 0; at < places.length; at += 2) {
          if (places[at] !== this.block) continue;
          const high = this.#y(places[at + 1] + this.view.bytes[this.block]);
          context.fillRect(LEFT + column, high, 1, this.#y(places[at + 1]) - high);
        }
      });
    }
    vertical(this.cursor, colour('faint'), 1);
    if (this.selected) {
      const [from, to] = this.selected;
      context.fillStyle = colour('accent');
      context.globalAlpha = 0.25;
      context.fillRect(Math.min(from, to), this.above, Math.abs(to - from), this.height);
      context.globalAlpha = 1;
    }
  }

  /** Moves the cursor, and tells what is there; `y` selects a block. */
  point(event, y = null) {
    this.cursor = event;
    this.block = null;
    if (y !== null) {
      const bytes = (1 - (y - this.above) / this.height) * this.top;
      let bottom = 0;
      for (const one of this.view.liveAfter(event).flat()) {
        if (bytes >= bottom && bytes < bottom + this.view.bytes[one]) this.block = one;
        bottom += this.view.bytes[one];
      }
    }
    this.#overlay();
    this.onPoint(event, this.block);
  }

  choose(event) {
    this.chosen = event;
    this.#overlay();
    this.onMoment(event);
  }

  #listen() {
    const { canvas } = this;
    this.block = null;
    let down = null;
    canvas.onpointerdown = (event) => {
      down = event.offsetX;
      canvas.setPointerCapture(event.pointerId);
    };
    canvas.onpointermove = ({ offsetX, offsetY }) => {
      this.selected = down !== null && Math.abs(offsetX - down) > 6 ? [down, offsetX] : null;
      this.point(this.#shownAt(offsetX), offsetY);
    };
    canvas.onpointerup = ({ offsetX, offsetY }) => {
      if (down === null) return;
      const { selected } = this;
      [down, this.selected] = [null, null];
      if (selected) {
        const [from, to] = selected.map((x) => this.#eventAt(x)).sort((a, b) => a - b);
        this.show(from, to + 1);
      } else {
        this.point(this.#shownAt(offsetX), offsetY);
        this.choose(this.cursor);
      }
    };
    canvas.onpointercancel = () => { [down, this.selected] = [null, null]; this.#overlay(); };
    canvas.addEventListener('wheel', (event) => {
      const [from, to] = this.range;
      // Where nothing is left to reduce, the page scrolls.
      if (event.deltaY > 0 && to - from >= this.view.events) return;
      event.preventDefault();
      const around = from + ((event.offsetX - LEFT) / this.width) * (to - from);
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const by = (event.deltaX / this.width) * (to - from);
        this.show(from + by, to + by);
      } else {
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, around);
      }
    }, { passive: false });
    canvas.onkeydown = (event) => {
      const [from, to] = this.range;
      const by = Math.max(1, Math.round((to - from) / (event.shiftKey ? 10 : this.columns)));
      const move = (to_) => {
        const moved = Math.min(this.view.events - 1, Math.max(0, to_));
        if (moved < this.range[0] || moved >= this.range[1]) {
          const half = (to - from) / 2;
          this.show(moved - half, moved + half);
        }
        this.point(moved);
      };
      const keys = {
        ArrowLeft: () => move(this.cursor - by),
        ArrowRight: () => move(this.cursor + by),
        Home: () => move(0),
        End: () => move(this.view.events - 1),
        '+': () => this.zoom(0.5, this.cursor),
        '=': () => this.zoom(0.5, this.cursor),
        '-': () => this.zoom(2, this.cursor),
        Enter: () => this.choose(this.cursor),
        Escape: () => this.show(0, this.view.events),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    };
  }

  /** The event that the column at `x` shows. */
  #shownAt(x) {
    const column = Math.min(this.columns - 1, Math.max(0, Math.floor(x - LEFT)));
    return this.shown[column];
  }
}

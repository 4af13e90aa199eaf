// A replay to look at: its columns, and the memory of each category after each event.

import { STACKED } from './palette.js';

export class View {
  /** Fetches a view of a file, under its own settings unless others are given. */
  static async fetch(engine, file, conf) {
    const info = await engine.ask({ ask: 'view', file, conf });
    const bytes = await engine.bytes({ ask: 'columns', view: info.view });
    return new View(info, bytes);
  }

  constructor(info, bytes) {
    Object.assign(this, { info, events: info.events, number: info.view });
    let offset = 0;
    const read = (names, length) => names.forEach((name) => {
      this[name] = new Float64Array(bytes.buffer, offset, length);
      offset += 8 * length;
    });
    read(info.allocation_columns, info.allocations);
    read(info.level_columns, info.events);
    /** The most bytes reserved. */
    this.mostReserved = this.reserved.reduce((most, bytes) => Math.max(most, bytes), 0);
    // By event: the number of the allocation that begins, plus 1; negative if it ends; 0 for neither.
    this.at = new Int32Array(this.events);
    for (let one = 0; one < info.allocations; one++) {
      if (this.freed[one] === this.born[one]) continue;
      this.at[this.born[one]] = one + 1;
      if (this.freed[one] < this.events) this.at[this.freed[one]] = -one - 1;
    }
    this.#addUp();
  }

  /** Memory of each category that occurs after each event, in the order in which they are stacked. */
  #addUp() {
    const orders = this.info.categories.map((name) => STACKED.indexOf(name));
    this.order = Uint8Array.from(this.category, (number) => orders[number]);
    const present = [...new Set(this.order)].sort((a, b) => a - b);
    this.stacked = present.map((order) => ({ order, name: STACKED[order], levels: new Float64Array(this.events) }));
    const slot = new Map(present.map((order, index) => [order, index]));
    const now = new Float64Array(present.length);
    for (let event = 0; event < this.events; event++) {
      const change = this.at[event];
      if (change !== 0) {
        const one = Math.abs(change) - 1;
        now[slot.get(this.order[one])] += Math.sign(change) * this.bytes[one];
      }
      this.stacked.forEach(({ levels }, index) => { levels[event] = now[index]; });
    }
  }

  /** The allocations that are live after an event, as they are stacked. */
  liveAfter(event) {
    const live = this.stacked.map(() => []);
    const slot = new Map(this.stacked.map(({ order }, index) => [order, index]));
    for (let one = 0; one < this.info.allocations && this.born[one] <= event; one++) {
      if (event < this.freed[one]) live[slot.get(this.order[one])].push(one);
    }
    return live;
  }

  categoryName(one) { return this.info.categories[this.category[one]]; }

  /** The frames of an allocation, innermost first; its tag if no stack is known. */
  frames(one) {
    const { names, stacks } = this.info.frames;
    const stack = (stacks[this.stack[one]] ?? []).map((frame) => names[frame]);
    if (stack.length) return stack;
    const tag = this.info.tags[this.tag[one]];
    return tag ? [tag] : [];
  }
}

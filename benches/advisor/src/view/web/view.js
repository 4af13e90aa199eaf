// A replay to look at: its allocations and segments, and the memory after each event.

import { decoded } from './columns.js';
import { STACKED } from './palette.js';

export class View {
  /** Fetches the view of a file, under its own settings unless others are given. */
  static async fetch(engine, file, conf) {
    const [bytes, frames] = await Promise.all([engine.bytes({ ask: 'view', file, conf }), engine.ask({ ask: 'frames', file })]);
    return new View(bytes, frames);
  }

  constructor(bytes, { names, stacks }) {
    const { info, allocations, segments } = decoded(bytes);
    Object.assign(this, { info, events: info.events, count: allocations.length, segments, names, stacks }, allocations);
    this.categories = info.holders.map(({ category }) => category.replace('_', ' '));
    this.order = Uint8Array.from(this.source, (source) => STACKED.indexOf(this.categories[info.sources[source].holder]));
    // By event: the number of the allocation that begins, plus 1; negative if it ends; 0 for neither.
    this.at = new Int32Array(this.events);
    for (let one = 0; one < this.count; one++) {
      if (this.freed[one] === this.born[one]) continue;
      this.at[this.born[one]] = one + 1;
      if (this.freed[one] < this.events) this.at[this.freed[one]] = -one - 1;
    }
    // As PyTorch counts: a block that waits for a stream after its free is still active and its request counts, but it
    // is not allocated.
    this.requested = this.#levels(this.bytes, this.released);
    this.allocated = this.#levels(this.block, this.freed);
    this.reserved = this.#reserved();
    /** The most bytes reserved. */
    this.mostReserved = this.reserved.reduce((most, now) => Math.max(most, now), 0);
    this.#addUp();
  }

  /** The sum of `bytes` of the allocations from their birth to `ends`, after each event. */
  #levels(bytes, ends) {
    const levels = new Float64Array(this.events + 1);
    for (let one = 0; one < this.count; one++) {
      levels[this.born[one]] += bytes[one];
      levels[ends[one]] -= bytes[one];
    }
    for (let event = 1; event < this.events; event++) levels[event] += levels[event - 1];
    return levels.subarray(0, this.events);
  }

  /** Reserved memory after each event. */
  #reserved() {
    const { segments } = this;
    const levels = new Float64Array(this.events);
    for (let one = 0; one < segments.length; one++) {
      levels[segments.event[one]] += segments.taken[one] ? segments.bytes[one] : -segments.bytes[one];
    }
    for (let event = 1; event < this.events; event++) levels[event] += levels[event - 1];
    return levels;
  }

  /** Memory of each category that occurs after each event, in the order in which they are stacked. */
  #addUp() {
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
    for (let one = 0; one < this.count && this.born[one] <= event; one++) {
      if (event < this.freed[one]) live[slot.get(this.order[one])].push(one);
    }
    return live;
  }

  /** The name of the phase at an event; undefined if the program has only one. */
  phaseAt(event) {
    return this.info.phases.find(({ times }) => times.some(([begin, end]) => begin <= event && event < end))?.name;
  }

  categoryName(one) { return STACKED[this.order[one]]; }

  /** The holder of an allocation, as `coalesce advise --json` describes it. */
  holder(one) { return this.info.holders[this.info.sources[this.source[one]].holder]; }

  /** The frames of a stack, innermost first. */
  stackFrames(stack) { return (this.stacks[stack] ?? []).map((frame) => this.names[frame]); }

  /** The frames of an allocation, innermost first; its tag if no stack is known. */
  frames(one) {
    const frames = this.stackFrames(this.stack[one] - 1);
    if (frames.length) return frames;
    const tag = this.info.tags[this.tag[one]];
    return tag ? [tag] : [];
  }
}

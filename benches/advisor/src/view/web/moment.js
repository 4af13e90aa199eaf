// Memory after one event: the segments with their blocks, and who holds them.

import { holderName } from './tables.js';

/** Takes a range of addresses out of runs of mapped pages. */
function unmapped(runs, from, to) {
  return runs.flatMap((run) => {
    const end = run.address + run.bytes;
    if (end <= from || to <= run.address) return [run];
    const parts = [[run.address, from], [to, end]].filter(([start, stop]) => start < stop);
    return parts.map(([address, stop]) => ({ ...run, address, bytes: stop - address }));
  });
}

/** Joins the pages of one expandable segment that lie side by side. */
function joined(runs) {
  const all = [];
  for (const run of runs.sort((a, b) => a.address - b.address)) {
    const last = all.at(-1);
    const isSame = last && last.address + last.bytes === run.address
      && ['stream', 'kind', 'pool'].every((name) => last[name] === run[name]);
    if (isSame) last.bytes += run.bytes;
    else all.push({ ...run });
  }
  return all;
}

/** The segments after an event without their blocks, by address. */
function reserved({ segments: all, info }, event) {
  const whole = new Map();
  let runs = [];
  for (let one = 0; one < all.length && all.event[one] <= event; one++) {
    const [address, bytes] = [all.address[one], all.bytes[one]];
    const segment = {
      address, bytes, stream: all.stream[one], kind: all.small[one] ? 'small' : 'large',
      pool: info.pools[all.pool[one] - 1] ?? null, isExpandable: all.expandable[one] === 1,
    };
    if (!segment.isExpandable) {
      if (all.taken[one]) whole.set(address, segment);
      else whole.delete(address);
    } else if (all.taken[one]) {
      runs.push(segment);
    } else {
      runs = unmapped(runs, address, address + bytes);
    }
  }
  return [...whole.values(), ...joined(runs)].sort((a, b) => a.address - b.address);
}

/** The segments after an event, by address, each with its blocks: `allocated`, `pending` (another stream may still use
 * them) or `free`. */
export function segmentsAfter(view, event) {
  const used = [];
  for (let one = 0; one < view.count && view.born[one] <= event; one++) {
    if (event < view.released[one] && view.block[one] > 0) used.push(one);
  }
  used.sort((a, b) => view.address[a] - view.address[b]);
  let next = 0;
  return reserved(view, event).map((segment) => {
    const blocks = [];
    const end = segment.address + segment.bytes;
    let at = segment.address;
    while (next < used.length && view.address[used[next]] < at) next++;
    for (; next < used.length && view.address[used[next]] < end; next++) {
      const one = used[next];
      if (view.address[one] > at) blocks.push({ bytes: view.address[one] - at, state: 'free', allocation: null });
      const state = event < view.freed[one] ? 'allocated' : 'pending';
      blocks.push({ bytes: view.block[one], state, allocation: one });
      at = view.address[one] + view.block[one];
    }
    if (at < end) blocks.push({ bytes: end - at, state: 'free', allocation: null });
    return { ...segment, blocks };
  });
}

/** Free memory after an event as `coalesce advise` divides it: what lies in partly used segments, and the rest. */
export function freeMemory(segments) {
  const free = { fragmented: 0, cached: 0, blocks: 0 };
  for (const { isExpandable, blocks } of segments) {
    const isUsed = blocks.some(({ state }) => state !== 'free');
    for (const { bytes } of blocks.filter(({ state }) => state === 'free')) {
      free[isUsed && !isExpandable ? 'fragmented' : 'cached'] += bytes;
      free.blocks += 1;
    }
  }
  return free;
}

/** The one of two sources that holds more; of equal ones that with the later name. */
function moreOf(one, other) {
  const order = one.share - other.share || (one.operator < other.operator ? -1 : Number(one.operator > other.operator))
    || (one.stack ?? -1) - (other.stack ?? -1);
  return order > 0 ? one : other;
}

/** Who holds memory after an event, the largest first, as `coalesce advise --json` describes them. */
export function holdersAfter(view, event) {
  const { holders, sources } = view.info;
  const found = new Map();
  for (const one of view.liveAfter(event).flat()) {
    const source = view.source[one];
    const { holder } = sources[source];
    if (!found.has(holder)) found.set(holder, { bytes: 0, blocks: 0, of: new Map() });
    const sum = found.get(holder);
    sum.bytes += view.bytes[one];
    sum.blocks += 1;
    sum.of.set(source, (sum.of.get(source) ?? 0) + view.bytes[one]);
  }
  const described = [...found].map(([holder, { bytes, blocks, of }]) => {
    const { operator, stack } = [...of].map(([source, share]) => ({ ...sources[source], share })).reduce(moreOf);
    return { ...holders[holder], bytes, blocks, operator, frames: stack === null ? [] : view.stackFrames(stack) };
  });
  return described.map((one) => [one, holderName(one)])
    .sort(([a, name], [b, other]) => b.bytes - a.bytes || (name < other ? -1 : 1))
    .map(([one]) => one);
}

// What stands behind the answer: the failed request, the peak, the findings, other allocators, conditions, reliability.

import { amount, element, percent, prose, settingsName, shortened } from './format.js';
import { table } from './tables.js';

/** Names with their values. */
const facts = (pairs) => element('dl', { className: 'facts' },
  pairs.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, prose(value))]));

function items(texts) {
  const list = element('ul');
  return [list, ...shortened(list, texts, (text) => element('li', {}, prose(text)))];
}

/** The failed request with its figures. */
function failure({ answer, events }, heading) {
  const failed = answer.failure;
  if (!failed) return [];
  const [least, most] = [answer.available_bytes, answer.available_at_most_bytes].map(amount);
  return [heading('The failed request'), facts([
    ...(failed.origin ? [['where', failed.origin]] : []),
    ['when', `event ${failed.event.toLocaleString('en')} of ${events.toLocaleString('en')}`],
    ['size of the request', amount(failed.request_bytes)],
    ['live tensors', amount(failed.requested_bytes)],
    ['both together', amount(failed.request_bytes + failed.requested_bytes)],
    ['available', least === most ? least : `${least} to ${most}`],
    ['reserved', amount(failed.reserved_bytes)],
    ['free within reserved', amount(failed.free_bytes)],
  ])];
}

const PARTS = {
  requested: ['requested_bytes', 'requested by live tensors'],
  rounding: ['rounding_bytes', 'allocated beyond the requests'],
  pending: ['pending_bytes', 'freed, but another stream may still use it'],
  fragmented: ['inactive_split_bytes', 'free, in partly used segments'],
  cached: ['cached_bytes', 'other free memory'],
};

/** What memory is used for at the peak of reserved memory. */
function peak({ peak: found, lower_bound_bytes: bound }, heading) {
  const parts = Object.entries(PARTS).filter(([, [field]]) => found[field] > 0);
  const share = (field) => found[field] / Math.max(1, found.reserved_bytes);
  const bar = element('div', { className: 'bar' }, parts.map(([name, [field]]) => element('i', {
    style: `width:${100 * share(field)}%;background:var(--${name})`,
  })));
  bar.setAttribute('aria-hidden', 'true');
  return [
    heading('At the peak of reserved memory'),
    element('p', {}, `Under the current settings, ${amount(found.reserved_bytes)} is reserved at its peak (event `
      + `${found.event.toLocaleString('en')}). The peak of requested memory is ${amount(bound)}; no allocator can use less.`),
    bar,
    table(['Part', '#Bytes', '#Share', 'Meaning'], parts, ([name, [field, meaning]]) => [
      [element('span', { className: 'swatch', style: `background:var(--${name})` }), name],
      amount(found[field]), percent(share(field)), meaning,
    ]),
  ];
}

/** A line that expands to frames, if there are any. */
const expandable = (line, frames) => (frames.length
  ? element('details', {}, element('summary', {}, line),
    element('ol', { className: 'frames' }, frames.map((frame) => element('li', {}, frame))))
  : element('p', {}, line));

/** A call site: `3 × mm at train.py:12 forward: 1.50 GiB`. */
function callSite({ allocations, tag, own_frame: frame, frames, bytes }) {
  const what = [tag, frame && `at ${frame}`].filter(Boolean).join(' ') || 'no call stack';
  return expandable(`${allocations} × ${what}: ${amount(bytes)}`, frames);
}

function findings({ findings: all, remarks }) {
  // The remarks tell why there are none, or not all.
  if (!all.length) return [element('p', {}, remarks.find((text) => text.includes('findings')) ?? 'No problems found.')];
  const list = element('div');
  const more = shortened(list, all, (finding) => {
    const sites = element('div');
    const moreSites = shortened(sites, finding.stacks, callSite);
    return element('div', { className: 'finding' },
      element('h3', {}, prose(finding.headline)), items(finding.evidence),
      element('p', { className: 'remedy' }, prose(finding.remedy)), sites, moreSites);
  });
  return [list, ...more];
}

/** What other allocators would need. */
function others({ others: all }, heading) {
  if (!all.length) return [];
  const known = (bytes) => (bytes === null ? '?' : amount(bytes));
  const cells = (other) => {
    const figures = other.on_device;
    const obstacle = other.unsupported ? `does not support ${other.unsupported}` : other.error;
    const name = element('b', {}, other.policy);
    if (obstacle || !figures) return [name, '', '', '', '', obstacle ?? ''];
    const reserved = figures.ooms > 0 ? other.peak_reserved_bytes : figures.peak_reserved_bytes;
    return [name, known(other.least_capacity_bytes), known(reserved), figures.ooms,
      `${(figures.driver_time_ns / 1e6).toFixed(1)} ms`, other.summary];
  };
  return [heading('Other allocators'),
    table(['Allocator', '#Minimum memory', '#Reserved at most', '#Failed requests', '#Driver time', '~Remarks'], all, cells)];
}

/** How reliable the advice is. */
function reliability({ remarks, stability, search }) {
  const excess = ({ min, median, max }) => `${percent(median - 1)} (${percent(min - 1)} to ${percent(max - 1)})`;
  const left = search.left ? ` Time ran out for ${search.left} more; \`--time-limit\` sets the limit.` : '';
  return [
    ...remarks,
    ...(stability ? [`In ${stability.copies} perturbed runs of the program (frees reordered, sizes changed by up to 2 %), `
      + `the memory that it needs exceeds what it requests by ${excess(stability.present.least_capacity)} under the current `
      + `settings and by ${excess(stability.other.least_capacity)} under \`${settingsName(stability.conf)}\`. It needs less `
      + `under the latter in ${stability.needs_less} of ${stability.copies} runs.`] : []),
    `${search.tried} settings were tried in ${search.seconds.toFixed(1)} s.${left}`,
    'The device is simulated, and its memory holds only tensors: a CUDA context, cuBLAS and NCCL take some hundred MiB '
      + 'more (see `--reserve-for-others`). Driver time is modelled.',
  ];
}

/** The evidence of each file. */
export function details(advice) {
  const heading = (text) => element(advice.ranks ? 'h3' : 'h2', {}, text);
  return (advice.ranks ?? [advice]).flatMap((rank) => [
    ...(advice.ranks ? [element('h2', {}, rank.workload)] : []),
    ...failure(rank, heading),
    ...peak(rank, heading),
    heading('Findings'),
    ...findings(rank),
    ...others(rank, heading),
    heading('Conditions of the replays'), ...items(rank.conditions),
    heading('Reliability'), ...items(reliability(rank)),
  ]);
}

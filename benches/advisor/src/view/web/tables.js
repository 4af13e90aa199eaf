// The answer and the tables of the advice.

import { amount, change, element, prose, settingsCode, shortened } from './format.js';

const ofAim = {
  least_capacity: 'least memory', driver_time: 'least driver time', reserved: 'least reserved',
};

/**
 * A table with a row for each of `all`, whose cells `cells` makes. Columns whose name begins with `#` have numbers,
 * those with `~` have sentences. Of many rows, the first are shown, with a button for the others. If it is wider than its
 * place, it scrolls there.
 */
export function table(columns, all, cells = (row) => row) {
  const names = columns.map((name) => name.replace(/^[#~]/, ''));
  const kind = (index) => ({ '#': 'number', '~': 'remark' }[columns[index][0]] ?? '');
  const cell = (content, index) => element('td', { className: kind(index) }, content);
  const head = names.map((name, index) => element('th', { className: kind(index), scope: 'col' }, name));
  const body = element('tbody');
  const more = shortened(body, all, (one) => element('tr', {}, cells(one).map(cell)));
  const box = element('div', { className: 'scroll' }, element('table', {}, element('thead', {}, element('tr', {}, head)), body));
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', `Table of ${names.join(', ')}`);
  // The keyboard scrolls what can be focused.
  new ResizeObserver(() => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute('tabindex');
  }).observe(box);
  return element('div', {}, box, more);
}

const paragraphs = (texts) => texts.map((text) => element('p', {}, prose(text)));

/** A shell command with a button that copies it. */
function copied(text) {
  const code = element('pre', { id: 'command' }, text);
  const button = element('button', { type: 'button' }, 'Copy');
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
    } catch {
      // Not every browser lets a file's page write there: the person can then copy the selection.
      getSelection().selectAllChildren(code);
      button.textContent = 'Selected';
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  };
  return element('div', { className: 'command' }, code, button);
}

/** The answer: one file's, or that of a job. */
export function answer(advice) {
  const { sentences, command, also = [], confidence } = advice.answer ?? advice;
  const [lead, ...others] = sentences;
  return [
    element('h2', {}, 'Answer'),
    ...paragraphs(confidence?.caveats ?? []),
    element('p', { className: 'lead' }, prose(lead)),
    ...paragraphs(others),
    ...(command ? [copied(command)] : []),
    ...paragraphs(also),
    ...paragraphs(confidence?.assurance ? [confidence.assurance] : []),
  ];
}

/** What the figures in a text prove. */
export function explanation({ failures, states, remarks, command, settings: about, unknown, next }) {
  const named = ({ rank, device, sentences: [lead, ...others] }) => {
    const who = failures.length < 2 ? '' : rank !== null ? `Rank ${rank}: ` : device !== null ? `Device ${device}: ` : '';
    return [element('p', { className: 'lead' }, prose(who + lead)), ...paragraphs(others)];
  };
  return [
    element('h2', {}, 'Answer'),
    ...failures.flatMap(named),
    ...paragraphs(states.map(({ title, sentences }) => `${title}: ${sentences.join(' ')}`)),
    ...paragraphs(remarks),
    ...(command ? [copied(command)] : []),
    ...paragraphs(about),
    ...paragraphs(unknown.length ? [`The text does not tell ${unknown.join('; ')}. A recording does.`] : []),
    ...paragraphs(next.map((way) => `To record it: ${way}`)),
  ];
}

/** The settings that were tried, the best first, and the policy of our own, which a program can run instead. */
function ranking(advice) {
  const needs = (row) => row.least_capacity_bytes === null
    ? `more than ${amount(row.least_capacity_at_least_bytes)}` : amount(row.least_capacity_bytes);
  const holds = (row) => amount(row.on_device.ooms > 0 ? row.peak_reserved_bytes : row.on_device.peak_reserved_bytes);
  const own = advice.others.filter((other) => other.policy === 'quilt' && other.on_device && other.least_capacity_bytes !== null);
  return table(['Settings', '#Needs', '#Holds', '#Retries', '#Driver time', '~Remarks'],
    [...advice.ranking, ...own], (row) => [
      row.policy ?? settingsCode(row.conf),
      needs(row),
      holds(row),
      row.on_device.retries,
      `${(row.on_device.driver_time_ns / 1e6).toFixed(1)} ms`,
      row.policy ? "in place of PyTorch's allocator"
        : [row.is_present && 'current', row.is_advised && 'advised', row.on_device.ooms > 0 && 'runs out of memory',
          row.fails_above_bytes !== null && `fails with ${amount(row.fails_above_bytes)}`,
          ...row.best_for.map((aim) => ofAim[aim] ?? aim), row.error].filter(Boolean).join(', '),
    ]);
}

/** More bytes than a device has: what is simulated where its memory is unknown. */
const UNLIMITED = 2 ** 40;

/** What each rank of a job needs. */
function needs(job) {
  const known = (bytes) => (bytes === null ? 'unknown' : amount(bytes));
  return table(['Rank', '#Available', '#Holds now', '#Holds then', '#Needs now', '#Needs then'], job.needs, (rank) => [
    rank.rank, rank.available_bytes < UNLIMITED ? amount(rank.available_bytes) : 'not recorded',
    known(rank.holds_bytes), known(rank.holds_then_bytes), known(rank.current_bytes), known(rank.then_bytes),
  ]);
}

/** The settings of each file. */
export function settings(advice) {
  const ranks = advice.ranks ?? [advice];
  return [
    element('h2', {}, 'Settings'),
    ...(advice.ranks ? [needs(advice)] : []),
    ...ranks.flatMap((rank) => [...(advice.ranks ? [element('h3', {}, rank.workload)] : []), ranking(rank)]),
    element('p', { className: 'faint' }, 'Needs: the least memory with which the program completes. Holds: the peak of reserved '
      + 'memory on this device (with unlimited memory where the program runs out of it), with the free memory that the allocator keeps. '
      + `Retries and driver time: on this device; driver time by the cost profile '${ranks[0].profile}'.`),
  ];
}

/** A holder as `coalesce advise` names it. */
export function holderName(holder) {
  const named = [holder.place, holder.function].filter(Boolean).join(' ') || 'no call stack';
  return named + (holder.library ? ` > ${holder.library}` : '')
    + (holder.operator && holder.operator !== holder.function ? ` (${holder.operator})` : '')
    + (holder.is_of_backward ? ', backward pass' : '') + (holder.label ? ` [${holder.label}]` : '');
}

/** Holders as a table, the largest first. */
export function holders(all) {
  return table(['#Bytes', '#Blocks', 'Category', 'Held by'], all, (holder) => [
    amount(holder.bytes), holder.blocks, holder.category.replace('_', ' '),
    holder.frames.length
      ? element('details', {}, element('summary', {}, holderName(holder)),
        element('ol', { className: 'frames' }, holder.frames.map((frame) => element('li', {}, frame))))
      : holderName(holder),
  ]);
}

/** What differs between two files at their peaks. */
export function difference(found) {
  const changes = (heading, all, name) => table([heading, '#Before', '#After', '#Change'], all, (one) => [
    name(one), amount(one.before_bytes), amount(one.after_bytes), change(one.after_bytes - one.before_bytes),
  ]);
  return [
    element('h3', {}, `From ${found.before.name} (A) to ${found.after.name} (B)`),
    element('p', { className: 'lead' }, prose(found.verdict)),
    changes('Part of reserved memory', found.parts, (one) => one.part),
    changes('Held by', found.holders, holderName),
    ...paragraphs(found.notes),
  ];
}

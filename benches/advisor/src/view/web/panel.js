// One replay on the page: its timeline and, for a chosen moment, the map of segments, the holders and the flame graph.

import { FlameGraph } from './flame.js';
import { amount, element, say, settingsCode } from './format.js';
import { freeMemory, holdersAfter, segmentsAfter } from './moment.js';
import { SegmentMap } from './segments.js';
import { holders } from './tables.js';
import { Timeline } from './timeline.js';

const MOST_FRAMES = 12;

/** The call stack of an allocation as a list, innermost frame first. */
function stack(view, one) {
  const frames = view.frames(one);
  if (!frames.length) return [element('br'), 'No call stack is recorded.'];
  const items = frames.slice(0, MOST_FRAMES).map((frame) => element('li', {}, frame));
  return [element('ol', {}, items), ...(frames.length > MOST_FRAMES ? ['…'] : [])];
}

/** An allocation in a sentence. */
function described(view, one) {
  const end = view.freed[one] < view.events ? `freed at event ${view.freed[one]}` : 'never freed';
  return `${amount(view.bytes[one])} (block of ${amount(view.block[one])}), ${view.categoryName(one)}, stream `
    + `${view.holder(one).stream}, allocated at event ${view.born[one]}, ${end}`;
}

export class Panel {
  /** `top` bytes reach the top of the timeline. */
  constructor(view, top) {
    this.view = view;
    this.point = element('output', { className: 'readout' });
    this.summary = element('div', { className: 'summary' });
    this.moment = element('div', {});
    this.timeline = new Timeline(view, {
      top, onPoint: (event, one) => this.#pointed(event, one), onMoment: (event) => this.#chosen(event),
    });
    const { info } = view;
    const jump = (text, event) => {
      const button = element('button', { type: 'button' }, text);
      button.onclick = () => { this.timeline.point(event); this.timeline.choose(event); };
      return button;
    };
    const all = element('button', { type: 'button' }, 'Show everything');
    all.onclick = () => this.timeline.show(0, view.events);
    this.node = element('section', { className: 'panel' },
      element('h3', {}, info.name, ': ', settingsCode(info.conf)),
      this.timeline.canvas,
      element('div', { className: 'beside timed' },
        element('div', { className: 'buttons' }, jump('Go to the peak', info.peak_event),
          info.failed_event === null ? null : jump('Go to the failed request', info.failed_event), all),
        this.point, this.summary),
      this.moment);
  }

  /** Chooses the moment to begin with: the failed request, or the peak. */
  begin() {
    const { failed_event: failed, peak_event: peak } = this.view.info;
    this.timeline.point(failed ?? peak);
    this.timeline.choose(failed ?? peak);
  }

  #pointed(event, one) {
    const { view } = this;
    const phase = view.phaseAt(event);
    const text = `Event ${event.toLocaleString('en')} of ${view.events.toLocaleString('en')}: requested `
      + `${amount(view.requested[event])}, allocated ${amount(view.allocated[event])}, reserved ${amount(view.reserved[event])}.`
      + (phase ? ` Phase: ${phase}.` : '');
    say(this.point, text, ...(one === null ? [] : [element('br'), described(view, one), ...stack(view, one)]));
  }

  #chosen(event) {
    const segments = segmentsAfter(this.view, event);
    const readout = element('output', { className: 'readout' }, 'Point at a block for its size, category and stack.');
    const map = new SegmentMap(this.view, ({ segment, block, address }) => {
      const where = `0x${address.toString(16)} in a segment of ${amount(segment.bytes)} (${segment.kind} pool`
        + `${segment.pool ? ` ${segment.pool}` : ''}, stream ${segment.stream}${segment.isExpandable ? ', expandable' : ''})`;
      const states = { free: 'free', pending: 'freed, but another stream may still use it', allocated: 'allocated' };
      say(readout, `${amount(block.bytes)} ${states[block.state]}, at ${where}.`,
        ...(block.allocation === null ? [] : [element('br'), described(this.view, block.allocation),
          ...stack(this.view, block.allocation)]));
    });
    const flame = new FlameGraph(this.view);
    const free = freeMemory(segments);
    this.summary.replaceChildren(
      element('h3', {}, `Segments after event ${event.toLocaleString('en')}`),
      element('p', { className: 'faint' }, `${segments.length} segments with ${amount(this.view.reserved[event])}; `
        + `${amount(free.fragmented + free.cached)} of it free, in ${free.blocks} blocks (outlined): `
        + `${amount(free.fragmented)} in partly used segments, ${amount(free.cached)} otherwise.`));
    this.moment.replaceChildren(
      map.canvas,
      element('div', { className: 'beside held' }, readout,
        element('div', {}, element('h3', {}, 'Held by'), holders(holdersAfter(this.view, event)))),
      element('h3', {}, 'By call stack'),
      element('p', { className: 'faint' }, 'The outermost frame is above. Click a frame to enlarge it.'),
      flame.graph, flame.readout);
    map.show(segments, this.view.mostReserved);
    flame.show(event);
  }
}

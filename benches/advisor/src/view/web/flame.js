// The memory of a moment by call stack, as a flame graph of buttons: the outermost frame above, wider means more bytes.

import { amount, element, percent, say } from './format.js';
import { categoryColour } from './palette.js';

const ROW = 21;
/** Narrower parts are left out, as a share of the width. */
const NARROWEST = 0.004;

/** Adds up the stacks of the allocations that are live after an event. */
function tree(view, event) {
  const root = { name: 'all memory', bytes: 0, children: new Map(), categories: new Map() };
  const add = (node, one) => {
    node.bytes += view.bytes[one];
    const name = view.categoryName(one);
    node.categories.set(name, (node.categories.get(name) ?? 0) + view.bytes[one]);
  };
  for (const one of view.liveAfter(event).flat()) {
    let node = root;
    add(node, one);
    const frames = view.frames(one);
    const outward = frames.length ? [...frames].reverse() : ['no call stack'];
    for (const name of outward) {
      if (!node.children.has(name)) {
        node.children.set(name, { name, bytes: 0, children: new Map(), categories: new Map() });
      }
      node = node.children.get(name);
      add(node, one);
    }
  }
  return root;
}

/** `train.py:41 main` for `/app/train.py:41 main`. */
const short = (name) => name.replace(/^\S*\//, '');

export class FlameGraph {
  constructor(view) {
    this.view = view;
    this.graph = element('div', { className: 'flame' });
    this.readout = element('output', { className: 'readout' });
  }

  show(event) {
    this.root = tree(this.view, event);
    this.#enlarge(this.root);
  }

  #enlarge(top) {
    this.top = top;
    const made = [];
    let depth = 0;
    const place = (node, from, width, row) => {
      depth = Math.max(depth, row);
      made.push(this.#button(node, from, width, row));
      let at = from;
      const children = [...node.children.values()].sort((a, b) => b.bytes - a.bytes);
      for (const child of children) {
        const share = (width * child.bytes) / node.bytes;
        if (share >= NARROWEST) place(child, at, share, row + 1);
        at += share;
      }
    };
    if (top.bytes > 0) place(top, 0, 1, 0);
    this.graph.replaceChildren(element('div', { style: `height:${(depth + 1) * ROW}px` }), ...made);
    this.#tell(top);
  }

  #button(node, from, width, row) {
    const [most] = [...node.categories].sort((a, b) => b[1] - a[1])[0] ?? ['unknown'];
    const made = element('button', {
      type: 'button',
      textContent: short(node.name),
      style: `left:${from * 100}%;width:calc(${width * 100}% - 1px);top:${row * ROW}px;background:${categoryColour(most)}`,
    });
    made.setAttribute('aria-label', `${node.name}: ${amount(node.bytes)}`);
    if (width < 0.02) made.style.padding = '0';
    made.onpointerenter = () => this.#tell(node);
    made.onfocus = made.onpointerenter;
    // A second click shows everything again.
    made.onclick = () => this.#enlarge(node === this.top ? this.root : node);
    return made;
  }

  #tell(node) {
    const share = this.root.bytes ? node.bytes / this.root.bytes : 0;
    const categories = [...node.categories].sort((a, b) => b[1] - a[1]);
    say(this.readout, `${node.name}: ${amount(node.bytes)}, ${percent(share)}: `
      + categories.map(([name, bytes]) => `${name} ${amount(bytes)}`).join(', '));
  }
}
